"""`SideChannelProbe`: at epoch ends, what message sizes and kept places tell by themselves."""

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
    """Tells question type, answer and face from sizes and kept places, without an activation.

    A classifier learns on the attacker's own samples, which go through the victim's own policy,
    and is scored on private ones. Figures are ``attack/side_channel/<target>_from_<view>_<name>``
    with targets ``question_type``, ``answer`` and ``sensitive``, the views of
    `qpriv.attacks.side_channel` and the names of `prediction_report`: accuracy, majority, their
    paired difference (gain), and balanced accuracy.

    Args:
        max_samples: Private samples to tell the targets of.
        auxiliary_samples: Samples the attacker learns on.
        knows_positions: Whether there is an attacker who knows which patches were kept; without
            it, an attacker sees them only where positions with gaps crossed.
        bucket: Messages are filled to a multiple of so many tokens; null as the paradigm fills
            them, another number asks what that would hide.
        max_seconds: Not used: classifiers of a few numbers have no budget.
        log_private: Has no effect: nothing private is shown.

    Raises:
        ConfigError: If a number is out of its range.
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
        """Return the one attack: sizes are the same at every cut."""
        return [["sizes"]]

    def check(self, victim: Victim, data: AttackData) -> None:
        """Refuse cuts beyond the model's depth, and a run of which nothing is said to cross."""
        victim.channel.check(victim.model)

    def measure(self, item: str, visit: Visit) -> list[Result]:
        """Learn on the attacker's samples and tell the targets of the private ones."""
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
    """Return the view in a figure's name.

    >>> _view("answer_from_kept_count_gain")
    'kept_count'
    """
    told = name.split("_from_")[1]
    return next(view for view in VIEWS if told.startswith(view))
