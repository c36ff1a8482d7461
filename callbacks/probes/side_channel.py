"""`SideChannelProbe`: predict attributes from message sizes and kept positions alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from callbacks.probes.attack_split import AttackSplit
from callbacks.probes.probe import Probe, Visit
from qpriv.attacks.side_channel import (
    VIEWS,
    SideChannel,
    View,
    side_channel_report,
    threat_model,
    watch,
)
from qpriv.attacks.victim import AttackData, Victim
from qpriv.datasets.sample import VQASample
from qpriv.result import Result
from qpriv.split import Channel


@dataclass(eq=False, repr=False, kw_only=True)
class SideChannelProbe(Probe):
    """Predicts question type, answer and face from sizes and kept positions, not activations.

    The attacker sends its own samples through the victim's policy, trains a classifier on them,
    and is scored on private samples. Metrics are
    ``attack/side_channel/<target>_from_<view>_<name>`` with the targets ``question_type``,
    ``answer`` and ``sensitive``, the views of `qpriv.attacks.side_channel` and the names of
    `prediction_report`: accuracy, majority, their paired difference (gain), and balanced
    accuracy.

    Args:
        max_samples: Largest number of private samples to predict the targets of; None for all.
        auxiliary_samples: Largest number of samples to train the attacker on; None for all.
        knows_positions: Whether the attacker knows which patches were kept. If not, it sees them
            only when positions with gaps cross.
        bucket: Pad messages to a multiple of this many tokens; null pads as the paradigm does.
            Another number measures what such padding would hide.
        max_seconds: Not used: classifiers on a few numbers need no time budget.
        log_private: Has no effect: the probe writes no private data.

    Raises:
        ConfigError: If a number is out of range.
    """

    name: ClassVar[str] = "side_channel"
    max_samples: int | None = 1000
    auxiliary_samples: int | None = 2000
    knows_positions: bool = True
    bucket: int | None = None

    reads_channel: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Check the settings before anything is attacked."""
        super().__post_init__()
        self.at_least(auxiliary_samples=1, bucket=1)

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        """Return one work item, because sizes are the same at every cut."""
        return [["sizes"]]

    def check(self, victim: Victim, data: AttackData) -> None:
        """Raise a `ConfigError` for a cut beyond the model's depth, or if nothing crosses."""
        victim.channel.check(victim.model)

    def measure(self, item: str, visit: Visit) -> list[Result]:
        """Train on the attacker's samples and predict the targets of the private ones."""
        split = AttackSplit.of(
            visit.data, auxiliary=self.auxiliary_samples, targets=self.max_samples
        )
        channel = self._channel(visit.victim)
        report = side_channel_report(
            split.auxiliary,
            self._watched(visit, channel, split.auxiliary),
            split.targets,
            self._watched(visit, channel, split.targets),
            seed=visit.seed,
        )
        return [self._named(result, channel, split.origin) for result in report]

    def _channel(self, victim: Victim) -> Channel:
        own = victim.channel
        return own if self.bucket is None else own.with_bucket(self.bucket)

    def _watched(self, visit: Visit, channel: Channel, samples: Sequence[VQASample]) -> SideChannel:
        victim = visit.victim
        return watch(
            victim.model,
            victim.policy,
            samples,
            channel,
            encode=victim.encode,
            knows_positions=self.knows_positions,
        )

    def _named(self, result: Result, channel: Channel, origin: str) -> Result:
        return replace(
            result,
            name=f"attack/side_channel/{result.name}",
            dataset=origin,
            channel=channel.label,
            attack={
                **threat_model(_view(result.name), channel.bucket).settings(),
                "bucket": channel.bucket,
                **result.attack,
            },
        )


def _view(name: str) -> View:
    """Return the view in a metric's name.

    >>> _view("answer_from_kept_count_gain")
    'kept_count'
    """
    told = name.split("_from_")[1]
    return next(view for view in VIEWS if told.startswith(view))
