"""`Probe`: the base of every attack that runs at epoch ends and leaves the training as it was."""

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import lightning as L
from lightning.pytorch.utilities import rank_zero_info, rank_zero_warn
from PIL.Image import Image

from callbacks.endings import is_over, last_epoch, log_last, passes
from callbacks.probes.cache import ProbeCache, content_digest
from callbacks.probes.isolation import isolated, item_seed
from callbacks.probes.media import save_picture
from callbacks.probes.precision import precision_of
from callbacks.probes.progress import Progress, Watch, closing_figures, unwatched
from callbacks.probes.ranks import gather, meet
from callbacks.probes.requirements import require_data, require_victim, require_whole
from callbacks.probes.stopping import stoppable
from qpriv.attacks.observation import Observation, observe
from qpriv.attacks.victim import AttackData, Victim, describe
from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError, DataError, QprivError
from qpriv.key import ASIDE, AttackSetting, Scalar
from qpriv.lines import distinct
from qpriv.paradigms.ranks import rank, world
from qpriv.result import Result, stamp
from qpriv.split import RandomKey

OnError = Literal["warn", "stop"]


class ProbeError(QprivError):
    """A probe failed and its setting says that the run must stop then."""


@dataclass(frozen=True)
class Visit:
    """One run of one probe on one state of the victim.

    Args:
        module: The LightningModule; a `Victim`.
        data: The DataModule; an `AttackData`.
        epoch: Epoch that has just ended, from 0; -1 before training.
        run_folder: Where results and pictures of the run go.
        folder: Where this probe keeps what it needs again in later epochs.
        seed: Seed of the item at work; random numbers are already seeded with it.
        deadline: `time.monotonic` at which the probe's time is up.
        trained: How often the victim has gone through its training set; None is once an epoch.
        goes_on: Whether the training goes on afterwards, as far as is known.
        watch: Takes how many steps of the item at work are done, and how many there are.
    """

    module: L.LightningModule
    data: AttackData
    epoch: int
    run_folder: Path
    folder: Path
    seed: int = 0
    deadline: float = float("inf")
    trained: float | None = None
    goes_on: bool = False
    watch: Watch = unwatched

    @property
    def passes(self) -> float:
        """Return how often the victim has gone through its training set, whole or not."""
        return float(self.epoch + 1) if self.trained is None else self.trained

    @property
    def victim(self) -> Victim:
        """Return the module by what an attack may know of it."""
        return cast(Victim, self.module)  # `Probe.require` has seen to it

    def observe(self, samples: Sequence[VQASample], cut: int, *, draw: int = 0) -> Observation:
        """Return what the receiver at a cut of the victim reads of some samples.

        Args:
            samples: The samples; of the victim's model as it is, with the adapter that is active.
            cut: The cut.
            draw: Which random numbers a defence draws: other ones for what the attacker makes
                itself than for what it watches.
        """
        victim, key = self.victim, RandomKey(self.seed, draw)
        return observe(
            victim.model,
            victim.policy,
            samples,
            victim.channel,
            cut,
            encode=victim.encode,
            key=key,
        )

    def path(self, name: str) -> Path:
        """Return where a file of this epoch is kept."""
        return self.folder / f"epoch={self.epoch}" / name

    def earlier(self, name: str) -> Path | None:
        """Return the file of that name from the latest earlier epoch, or None."""
        epochs = range(self.epoch - 1, -2, -1)
        found = (self.folder / f"epoch={epoch}" / name for epoch in epochs)
        return next((path for path in found if path.exists()), None)


@dataclass(frozen=True)
class _Outcome:
    """What became of one work item; travels between ranks."""

    item: str
    results: tuple[Result, ...] = ()
    error: str = ""


@dataclass(eq=False, repr=False, kw_only=True)
class Probe(L.Callback, ABC):
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

    # -- when

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
        self._told = {name: value for other in others for name, value in _files(self, other)}
        apart = [_beside(self, other).unlike(_beside(other, self)) for other in others]
        if not all(apart):
            raise ConfigError(
                f"two probes measure the same figures, attack/{self.metric_prefix}",
                where="trainer.callbacks",
                remedy="leave one out, or let a setting differ that changes the figures",
            )
        self._apart = tuple(sorted({name for names in apart for name in names}))

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Refuse what cannot work before any long work."""
        self.require(pl_module, _datamodule(trainer))

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Catch up the epoch that a killed run had trained but not measured."""
        self._run_in_fit(trainer, pl_module, trainer.current_epoch - 1)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Record the start of the epoch, to report this probe's share of its time."""
        self._epoch_began = time.monotonic()

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Measure after the last validation of an epoch."""
        in_fit = trainer.state.fn == "fit" and not trainer.sanity_checking
        if in_fit and trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            self._run_in_fit(trainer, pl_module, trainer.current_epoch)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Measure an epoch that ended without a validation."""
        self._run_in_fit(trainer, pl_module, trainer.current_epoch)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Measure the last epoch where only what came after its end has made it the last."""
        self._run_last(trainer, pl_module)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Measure the last epoch of a run that was killed meanwhile, and has nothing to train."""
        if 0 <= last_epoch(trainer) not in self._epochs_done:
            pl_module.to(trainer.strategy.root_device)  # the trainer has let it go
            self._run_last(trainer, pl_module)
            pl_module.cpu()

    def _run_in_fit(self, trainer: L.Trainer, module: L.LightningModule, epoch: int) -> None:
        over = is_over(trainer)
        if over or (epoch + 1) % self.every_n_epochs == 0:
            metrics = self._run_epoch(trainer, module, epoch, goes_on=not over)
            module.log_dict(metrics, batch_size=1, add_dataloader_idx=False)

    def _run_last(self, trainer: L.Trainer, module: L.LightningModule) -> None:
        epoch = last_epoch(trainer)
        if metrics := self._run_epoch(trainer, module, epoch, goes_on=False):
            log_last(trainer, metrics, epoch)

    def _run_epoch(
        self, trainer: L.Trainer, module: L.LightningModule, epoch: int, *, goes_on: bool
    ) -> dict[str, float]:
        """Return the metrics of an epoch; none where it is measured already."""
        if epoch < 0 or epoch in self._epochs_done:
            return {}
        data = cast(AttackData, _datamodule(trainer))  # required when the fit started
        folder, trained = Path(trainer.default_root_dir), passes(trainer)
        with stoppable(trainer):
            results = self.run_once(module, data, folder, epoch, trained, goes_on)
        self._epochs_done.add(epoch)
        return self.metrics(results)

    # -- how

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
            module,
            data,
            epoch,
            run_folder,
            cache.folder,
            deadline=started + self.max_seconds,
            trained=trained,
            goes_on=goes_on,
        )
        with precision_of(module):
            outcomes = _told_apart(self._work(visit, cache))
        results = [result for outcome in outcomes for result in outcome.results]
        results += [self._failure(outcome) for outcome in outcomes if outcome.error]
        results = [
            replace(own, setting={**self.setting, **own.setting}, measured_by=type(self).__name__)
            for own in results
        ]
        if self.reads_channel:
            read = visit.victim.channel.label
            results = [replace(own, channel=own.channel or read) for own in results]
        results = stamp(results, epoch=epoch, **describe(module))
        if rank() == 0:
            cache.publish(results)
        self._report(results, epoch, time.monotonic() - started)
        return results

    def _work(self, visit: Visit, cache: ProbeCache) -> list[_Outcome]:
        outcomes: list[_Outcome] = []
        seed_parts = (describe(visit.module)["seed"], self.seed, self.name, visit.epoch)
        with isolated(
            visit.module, seed=item_seed(*seed_parts), audit=self.audit_isolation, name=self.name
        ):
            stages = self.plan(visit)
        meet()
        shares = [stage[rank() :: world()] for stage in stages]
        progress = Progress(self.metric_prefix, [len(mine) for mine in shares], visit.deadline)
        visit = replace(visit, watch=progress.step)
        for mine in shares:
            outcomes += gather([self._one(item, visit, cache, progress) for item in mine])
            if any(outcome.error for outcome in outcomes):
                break
        progress.close()
        return outcomes

    def _one(self, item: str, visit: Visit, cache: ProbeCache, progress: Progress) -> _Outcome:
        progress.begin(item)
        outcome = self._attempted(item, visit, cache)
        progress.end()
        return outcome

    def _attempted(self, item: str, visit: Visit, cache: ProbeCache) -> _Outcome:
        known = cache.read(item)
        if known is not None:
            return _Outcome(item, tuple(known))
        own = describe(visit.module)["seed"]
        seed = item_seed(own, self.seed, self.name, visit.epoch, item)
        try:
            with isolated(visit.module, seed=seed, audit=self.audit_isolation, name=self.name):
                results = self.measure(item, replace(visit, seed=seed))
                results = [self._in_time(result, visit) for result in results]
        except Exception as error:  # every failure of an attack must leave the training standing
            return _Outcome(item, error=f"{type(error).__name__}: {error}")
        cache.write(item, results)
        return _Outcome(item, tuple(results))

    def _in_time(self, result: Result, visit: Visit) -> Result:
        if time.monotonic() <= visit.deadline or result.value is None:
            return result
        over = f"over its budget of {self.max_seconds:g} s"
        return replace(result, note=f"{result.note}; {over}" if result.note else over)

    def _failure(self, outcome: _Outcome) -> Result:
        note = f"{outcome.item}: {outcome.error}"
        return Result(
            name=f"attack/{self.metric_prefix}",
            value=None,
            n=0,
            status="failed",
            note=note,
            setting={"item": outcome.item},
        )

    def _report(self, results: Sequence[Result], epoch: int, seconds: float) -> None:
        failures = [result.note for result in results if result.status == "failed"]
        figures = closing_figures(results) or "no figure"
        over = seconds > self.max_seconds
        budget = f", over its budget of {self.max_seconds:g} s" if over else ""
        share = self._share(seconds)
        rank_zero_info(
            f"{self.metric_prefix}: epoch {epoch}, {seconds:.1f} s{share}{budget}: {figures}"
        )
        for note in failures:
            rank_zero_warn(f"{self.metric_prefix} failed at epoch {epoch}, {note}")
        if failures and self.on_error == "stop":
            raise ProbeError(failures[0], where=self.name, remedy="see above, or on_error: warn")

    def _share(self, seconds: float) -> str:
        """Say which share of the epoch so far the probe took; nothing outside a fit."""
        if self._epoch_began is None:
            return ""
        return f" ({seconds / (time.monotonic() - self._epoch_began):.0%} of the epoch so far)"

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
            {
                "kind": kind,
                "caption": caption,
                "alt": alt,
                "epoch": visit.epoch,
                **describe(visit.module),
                "setting": {**self.setting, **(setting or {})},
            },
        )

    # -- state

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

        A figure's name is followed by what tells it from others of the same run: the settings in
        which probes of one name differ (``attack/fora/psnr/steps=60``), and what the probe itself
        varies (``attack/membership/auc/query_policy=off``). It depends on no other figure, so
        that a name stands for one figure at all epochs, whatever fails at one of them.
        """
        metrics: dict[str, float] = {}
        for result in results:
            if result.value is None or not math.isfinite(result.value):
                continue
            own = self.setting
            varied = [k for k, v in result.setting.items() if k not in own or own[k] != v]
            told = [key for key in sorted({*self._apart, *varied}) if key in result.setting]
            suffix = "".join(f"/{key}={_word(result.setting[key])}" for key in told)
            metrics[result.name + suffix] = float(result.value)
        return metrics

    @property
    def state_key(self) -> str:
        """Return a key that two probes of one class share only if their arguments are equal."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return self._generate_state_key(
            **{k: v if isinstance(v, Scalar) else repr(v) for k, v in given.items()}
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the ledger: the epochs already measured."""
        return {"epochs_done": sorted(self._epochs_done)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the ledger of the resumed run."""
        self._epochs_done = set(state_dict["epochs_done"])


def _told_apart(outcomes: Sequence[_Outcome]) -> list[_Outcome]:
    """Return the outcomes; one that gives a second value to a figure is a failure."""
    kept: list[_Outcome] = []
    for outcome in outcomes:
        held = [(each.item, result) for each in (*kept, outcome) for result in each.results]
        try:
            # names of metrics have no data set: a probe of several says so in the setting
            plain = [replace(result, dataset="") for _, result in held]
            distinct(plain, lambda number: held[number][0])
        except DataError as error:
            outcome = _Outcome(outcome.item, error=str(error))
        kept.append(outcome)
    return kept


def _beside(probe: Probe, other: Probe) -> AttackSetting:
    """Return a probe's setting, precise enough to be told from another one's."""
    return AttackSetting.given({**AttackSetting.of(probe).by_name, **dict(_files(probe, other))})


def _files(probe: Probe, other: Probe) -> Iterator[tuple[str, Scalar]]:
    """Yield a probe's files that have the name of another one's, told by their content."""
    for each in fields(probe):
        ours, theirs = getattr(probe, each.name), getattr(other, each.name, None)
        if isinstance(ours, Path) and isinstance(theirs, Path) and ours != theirs:
            if ours.name == theirs.name:
                yield each.name, f"{ours.name}@{content_digest(ours)}"


def _word(value: Scalar) -> str:
    """Return a setting within the name of a metric, whose parts slashes divide.

    >>> _word("what/which"), _word(0.5), _word(None)
    ('what|which', '0.5', 'None')
    """
    return str(value).replace("/", "|")


def _datamodule(trainer: L.Trainer) -> object:
    return getattr(trainer, "datamodule", None)
