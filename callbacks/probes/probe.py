"""`Probe`: the base class of attacks that run at epoch ends without changing the training."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import ClassVar, Literal

import lightning as L
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from PIL.Image import Image

from callbacks.probes.cache import ProbeCache
from callbacks.probes.epoch_ends import EpochEnds
from callbacks.probes.media import save_picture
from callbacks.probes.naming import differences, file_contents, metric_names
from callbacks.probes.precision import precision_of
from callbacks.probes.progress import closing_figures
from callbacks.probes.requirements import require_data, require_victim, require_whole
from callbacks.probes.visit import Visit as Visit
from callbacks.probes.work_items import carry_out, figures_of
from qpriv.attacks.victim import AttackData, Victim, describe
from qpriv.errors import ConfigError, QprivError
from qpriv.key import ASIDE, AttackSetting, Scalar
from qpriv.paradigms.ranks import rank
from qpriv.result import Result

OnError = Literal["warn", "stop"]


class ProbeError(QprivError):
    """A probe failed, and its ``on_error`` is ``stop``."""


@dataclass(eq=False, repr=False, kw_only=True)
class Probe(EpochEnds, ABC):
    """An attack as a measuring instrument: it runs at epoch ends and in ``qpriv attack``.

    The victim ends bit-equal to one trained without the probe (see `isolated`). The ranks share
    the work items of a stage, and each item is cached, so that a resumed run measures only what
    is missing.

    Every finite value is logged as ``attack/<name>/<metric>``. Every `Result` is appended to
    ``results.jsonl`` in the run folder (the trainer's ``default_root_dir``). A failure is a
    `Result` with status ``failed``. The note of a result says if it exceeded the time budget.
    Each result names its `setting`. If two probes have one name, the settings in which they
    differ are appended to the metric names.

    A subclass is a dataclass. Its fields are the attack's own settings, or new defaults for the
    fields below; a field that changes no result has ``metadata=ASIDE``. If a probe returns several
    results of one name, such as one per cut, `measure` distinguishes them in their ``setting``.

    Args:
        every_n_epochs: Measure after every n-th epoch, and always after the last one, however
            the training ends: by epochs, steps, time, or a request to stop.
        max_samples: Use at most this many samples of each list; None for all.
        seed: Seed of the attack, combined with the victim's.
        max_seconds: Time budget in seconds. When it is over, the attack stops training, and its
            results say so.
        on_error: ``warn`` reports a failure and lets the training continue, ``stop`` ends it.
        log_private: Allow pictures and texts of private data, in the run folder only.
        audit_isolation: Hash the whole victim before and after, and fail on any trace.

    Raises:
        ConfigError: If a number is out of range.
    """

    name: ClassVar[str]

    reads_channel: ClassVar[bool] = False
    """Whether the results depend on what crosses between the parties."""

    every_n_epochs: int = field(default=1, metadata=ASIDE)
    max_samples: int | None = 256
    seed: int = 0
    max_seconds: float = 600.0
    on_error: OnError = field(default="warn", metadata=ASIDE)
    log_private: bool = field(default=False, metadata=ASIDE)
    audit_isolation: bool = field(default=False, metadata=ASIDE)

    def __post_init__(self) -> None:
        """Check the settings before anything is attacked."""
        self.at_least(every_n_epochs=1, max_samples=1)
        if self.max_seconds <= 0:
            raise ConfigError(f"max_seconds is {self.max_seconds}", remedy="choose more than 0")
        self._epochs_done: set[int] = set()
        self._epoch_began: float | None = None
        self._apart: tuple[str, ...] = ()
        self._told: dict[str, Scalar] = {}

    def at_least(self, **least: int) -> None:
        """Check that settings are at least the given values; None is always accepted.

        Raises:
            ConfigError: If a setting is too small.
        """
        for name, value in least.items():
            given = getattr(self, name)
            if given is not None and given < value:
                raise ConfigError(f"{name} is {given}", remedy=f"choose {value} or more")

    @abstractmethod
    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        """Return stages of named work items; the items of one stage are independent."""

    @abstractmethod
    def measure(self, item: str, visit: Visit) -> list[Result]:
        """Run one work item on the frozen victim; an item that only prepares returns ``[]``.

        Results of one name must differ in their ``setting``. Other ranks work on other items at
        the same time, so this method must not wait for them.
        """

    def require(self, module: L.LightningModule, datamodule: object) -> None:
        """Raise a `ConfigError` if the attack cannot work with this module or data."""
        self.check(require_victim(module), require_data(datamodule))

    def check(self, victim: Victim, data: AttackData) -> None:
        """Raise a `ConfigError` for settings that cannot work on this victim."""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Find the settings that distinguish this probe from others of its class.

        Raises:
            ConfigError: If no setting distinguishes it, or processes share out the weights.
        """
        require_whole(trainer, pl_module)
        # the trainer sets `callbacks` through a connector, so its annotations lack the attribute
        listed: list[L.Callback] = getattr(trainer, "callbacks")
        probes = [each for each in listed if isinstance(each, Probe)]
        others = [o for o in probes if o is not self and o.metric_prefix == self.metric_prefix]
        self._told = {name: value for other in others for name, value in file_contents(self, other)}
        apart = [differences(self, other) for other in others]
        if not all(apart):
            raise ConfigError(
                f"two probes measure the same figures, attack/{self.metric_prefix}",
                where="trainer.callbacks",
                remedy="leave one out, or let a setting differ that changes the figures",
            )
        self._apart = tuple(sorted({name for names in apart for name in names}))

    def run_once(
        self,
        module: L.LightningModule,
        data: AttackData,
        run_folder: Path,
        epoch: int,
        trained: float | None = None,
        goes_on: bool = False,
    ) -> list[Result]:
        """Measure the module and write the results to the run's ``results.jsonl``.

        Every rank of a distributed run must call it, and every rank gets all results.

        Args:
            module: The victim.
            data: The attackers' data.
            run_folder: The run's folder.
            epoch: Epoch of the weights, from 0; -1 before training.
            trained: Passes of the weights through the training set; None is one per epoch.
            goes_on: Whether the training continues afterwards.

        Raises:
            ConfigError: If the attack cannot work with this module or data.
            ProbeError: If an item failed and ``on_error`` is ``stop``.
        """
        self.require(module, data)
        started = time.monotonic()
        rank_zero_info(
            f"{self.metric_prefix}: epoch {epoch}, policy {describe(module)['policy']}: starts"
        )
        cache = ProbeCache(run_folder, self.state_key, epoch, module)
        visit = Visit(
            module, data, epoch, run_folder, cache.folder, trained=trained, goes_on=goes_on
        )
        visit = replace(visit, deadline=started + self.max_seconds)
        with precision_of(module):
            outcomes = carry_out(self, visit, cache)
        results = figures_of(self, outcomes, visit)
        if rank() == 0:
            cache.publish(results)
        self._report(results, epoch, time.monotonic() - started)
        return results

    def _report(self, results: Sequence[Result], epoch: int, seconds: float) -> None:
        failures = [result.note for result in results if result.status == "failed"]
        figures = closing_figures(results) or "no figure"
        over = seconds > self.max_seconds
        budget = f", over its budget of {self.max_seconds:g} s" if over else ""
        share = self.share_of_epoch(seconds)
        rank_zero_info(
            f"{self.metric_prefix}: epoch {epoch}, {seconds:.1f} s{share}{budget}: {figures}"
        )
        for note in failures:
            rank_zero_warn(f"{self.metric_prefix} failed at epoch {epoch}, {note}")
        if failures and self.on_error == "stop":
            raise ProbeError(failures[0], where=self.name, remedy="see above, or on_error: warn")

    def at_cut(self, visit: Visit, cut: int) -> dict[str, Scalar]:
        """Return the setting that identifies a cut; empty if the victim has only one cut."""
        return {"cut": cut} if len(visit.victim.channel.layers) > 1 else {}

    def keep_picture(
        self,
        visit: Visit,
        name: str,
        image: Image,
        *,
        kind: str,
        caption: str,
        alt: str,
        setting: Mapping[str, Scalar] | None = None,
    ) -> None:
        """Write a picture into the run folder, with the settings that identify it.

        Args:
            visit: The probe's run that drew the picture.
            name: File name before the epoch; unique among the pictures of this probe.
            image: The picture.
            kind: Gallery of the report that shows it, such as ``reconstruction``.
            caption: Text below the picture.
            alt: Alternative text for readers who cannot see the picture.
            setting: Settings of this picture alone, such as its cut.
        """
        save_picture(
            visit.run_folder,
            f"{visit.folder.name}-{name}-epoch={visit.epoch}",
            image,
            {"kind": kind, "caption": caption, "alt": alt, "epoch": visit.epoch}
            | describe(visit.module)
            | {"setting": {**self.setting, **(setting or {})}},
        )

    @property
    def metric_prefix(self) -> str:
        """Return the prefix of the probe's metric names, after ``attack/``."""
        return self.name

    @property
    def setting(self) -> dict[str, Scalar]:
        """Return the arguments that change results: they distinguish attacks of one name."""
        return {**AttackSetting.of(self).by_name, **self._told}

    def metrics(self, results: Sequence[Result]) -> dict[str, float]:
        """Return the finite values by the names under which they are logged (`metric_names`)."""
        return metric_names(results, self.setting, self._apart)

    @property
    def state_key(self) -> str:
        """Return a key that two probes of one class share only if their arguments are equal."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return self._generate_state_key(
            **{k: v if isinstance(v, Scalar) else repr(v) for k, v in given.items()}
        )
