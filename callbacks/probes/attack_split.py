"""`AttackSplit`: the attacker's training samples and the private samples that score it."""

from dataclasses import dataclass

from qpriv.attacks.observation import one_per_image
from qpriv.attacks.victim import AttackData
from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError


@dataclass(frozen=True)
class AttackSplit:
    """The samples on each side of an attack.

    Args:
        auxiliary: The attacker's own samples.
        targets: The victim's private samples; only the metric sees their ground truth.
    """

    auxiliary: list[VQASample]
    targets: list[VQASample]

    @classmethod
    def of(
        cls,
        data: AttackData,
        *,
        auxiliary: int | None,
        targets: int | None,
        one_each: bool = False,
    ) -> "AttackSplit":
        """Return the first auxiliary samples and targets of a data module.

        Args:
            data: The data module.
            auxiliary: Largest number of auxiliary samples; None for all.
            targets: Largest number of targets; None for all.
            one_each: Take one sample per image, for attacks on images.

        Raises:
            ConfigError: If either list is empty.
        """
        lists = [data.auxiliary(), data.targets()]
        if one_each:
            lists = [one_per_image(samples) for samples in lists]
        own, private = list(lists[0])[:auxiliary], list(lists[1])[:targets]
        if not own or not private:
            raise ConfigError(
                f"{len(own)} auxiliary samples, {len(private)} targets",
                where=type(data).__name__,
                remedy="give the data module scenes of the attacker's and private scenes",
            )
        return cls(own, private)

    @property
    def origin(self) -> str:
        """Return the origin of the targets as ``dataset/split``."""
        return f"{self.targets[0].dataset}/{self.targets[0].split}"
