"""`Probe`: the base of every attack that runs at epoch ends and leaves the training as it was."""

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
    """A probe failed and its setting says that the run must stop then."""


@dataclass(eq=False, repr=False, kw_only=True)
class Probe(EpochEnds, ABC):
    """An attack as a measuring instrument: it runs at epoch ends and in ``qpriv attack``.

    The victim ends bit-equal to one trained without the probe (see `isolated`). The work items of
    a stage are shared over the ranks and each is cached, so that a killed run measures only
    what is missing. Every figure is logged as ``attack/<name>/<metric>`` where it is finite, and
    appended as a `Result` to ``results.jsonl`` in the run folder (the trainer's
    ``default_root_dir``). A failure is a `Result` too, with status ``failed``, and a figure that
    took longer than the budget says so in its note. Each result names its `setting`, and two probes
    of one name are told apart by those that differ, also after the metric's name. A subclass is a
    dataclass whose fields are the attack's own settings, or other defaults of these; a field that
    changes no figure has ``metadata=ASIDE``. What a figure has of its own, as one cut of several,
    stands in the ``setting`` of the results that `measure` returns.

    Args:
        every_n_epochs: Measure after every n-th epoch, and after the last one in any case, however
            the training ends: by epochs, steps, time, or because it was told to stop.
        max_samples: Use at most this many samples of each list; None for all.
        seed: Seed of the attack, beside the victim's.
        max_seconds: The attack stops training when this time is over and says so.
        on_error: ``warn`` reports a failure and lets the training go on, ``stop`` ends it.
        log_private: Allow pictures and texts of private data, in the run folder only.
        audit_isolation: Hash the whole victim before and after, and fail on any trace.
    """

    name: ClassVar[str]

    reads_channel: ClassVar[bool] = False
    """Whether its figures rest on what crosses between the parties."""

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
        """Refuse settings below their least value; null is no limit.

        Raises:
            ConfigError: If one is.
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
        """Carry out one item on the frozen victim; preparing items return nothing.

        Results of one name differ in their ``setting``.
        The other ranks are at work on other items: nothing in it may wait for them.
        """

    def require(self, module: L.LightningModule, datamodule: object) -> None:
        """Raise a `ConfigError` for a module or data that this attack is not made for."""
        self.check(require_victim(module), require_data(datamodule))

    def check(self, victim: Victim, data: AttackData) -> None:
        """Raise a `ConfigError` for settings that cannot work on this victim."""

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Find the settings that distinguish this probe from others of its class.

        Raises:
            ConfigError: If nothing does, or weights are divided among processes.
        """
        require_whole(trainer, pl_module)
        # the trainer sets `callbacks` through a connector, which its annotations do not show
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
        """Measure the module as it is and append the figures to the run's ``results.jsonl``.

        Every rank of a distributed run must call it, and every rank gets all results.

        Args:
            module: The victim.
            data: The attackers' data.
            run_folder: The run's folder.
            epoch: Epoch that the weights are of, from 0; -1 before training.
            trained: How often they have seen the training set; None is once an epoch.
            goes_on: Whether the training goes on afterwards.

        Raises:
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
        """Return what tells the figures of a cut from others: nothing where there is but one."""
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
        """Write a picture into the run folder, with what tells it from others.

        Args:
            visit: The run of this probe that drew it.
            name: Name of the file, before the epoch; unique among the pictures of this probe.
            image: The picture.
            kind: The gallery it belongs to, such as ``reconstruction``.
            caption: What a reader sees below it.
            alt: What a reader who cannot see it is told.
            setting: What it has of its own, as one cut of several.
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
        """Return what the names of its figures begin with, after ``attack/``."""
        return self.name

    @property
    def setting(self) -> dict[str, Scalar]:
        """Return what tells this attack from others of its name: all arguments that change figures."""
        return {**AttackSetting.of(self).by_name, **self._told}

    def metrics(self, results: Sequence[Result]) -> dict[str, float]:
        """Return the finite figures by the names under which they are logged.

        They are told apart as `metric_names` says.
        """
        return metric_names(results, self.setting, self._apart)

    @property
    def state_key(self) -> str:
        """Return a key that two probes of one class share only if their arguments are equal."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return self._generate_state_key(
            **{k: v if isinstance(v, Scalar) else repr(v) for k, v in given.items()}
        )
