"""`AttributeProbe`: predict attributes of samples from the activations at a cut."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from callbacks.probes.attack_split import AttackSplit
from callbacks.probes.probe import Probe, Visit
from qpriv.attacks.attributes import THREAT, Evidence, attribute_report, pooled
from qpriv.attacks.side_channel import Target
from qpriv.attacks.victim import AttackData, Victim
from qpriv.errors import ConfigError
from qpriv.result import Result


@dataclass(eq=False, repr=False, kw_only=True)
class AttributeProbe(Probe):
    """Predicts attributes from the activations that cross, and compares with baselines.

    The baselines see no activation. Metrics are ``attack/attributes/<name>`` with the names of
    `attribute_report`, one set per cut.

    Args:
        max_samples: Largest number of private samples to predict attributes of; None for all.
        auxiliary_samples: Largest number of samples to train the attacker on; None for all.
        targets: Attributes to predict: ``sensitive`` (the image shows a face),
            ``question_type``, ``answer``.
        max_seconds: Not used: classifiers of one or two layers need no time budget.
        log_private: Has no effect: the probe writes no private data.

    Raises:
        ConfigError: If a number is out of range, or there is no target.
    """

    name: ClassVar[str] = "attributes"
    reads_channel: ClassVar[bool] = True
    max_samples: int | None = 1000
    auxiliary_samples: int | None = 2000
    targets: tuple[Target, ...] = ("sensitive", "question_type")

    def __post_init__(self) -> None:
        """Check the settings before anything is attacked."""
        super().__post_init__()
        self.at_least(auxiliary_samples=1)
        if not self.targets:
            raise ConfigError("there is no target", remedy="name one, such as sensitive")

    def check(self, victim: Victim, data: AttackData) -> None:
        """Raise a `ConfigError` for a cut beyond the model's depth."""
        victim.channel.check(victim.model)

    def plan(self, visit: Visit) -> Sequence[Sequence[str]]:
        """Return one work item per cut."""
        return [[f"cut={cut}" for cut in visit.victim.channel.layers]]

    def measure(self, item: str, visit: Visit) -> list[Result]:
        """Train the classifiers of one cut and score them on the private samples."""
        cut = int(item.removeprefix("cut="))
        split = AttackSplit.of(
            visit.data, auxiliary=self.auxiliary_samples, targets=self.max_samples
        )
        known, private = (
            Evidence(samples, pooled(visit.observe(samples, cut, draw=draw).transcript, cut))
            for draw, samples in ((1, split.auxiliary), (0, split.targets))
        )
        report = [
            result
            for target in self.targets
            for result in attribute_report(target, known, private, seed=visit.seed)
        ]
        return [
            replace(
                result,
                name=f"attack/attributes/{result.name}",
                dataset=split.origin,
                setting=self.at_cut(visit, cut),
                attack={**THREAT.settings(), "cut": cut, **result.attack},
            )
            for result in report
        ]
