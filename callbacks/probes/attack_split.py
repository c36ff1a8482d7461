"""`AttackSplit`: the samples an attacker learns on, and the private ones it is scored on."""

from dataclasses import dataclass

from qpriv.attacks.observation import one_per_image
from qpriv.attacks.victim import AttackData
from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError


@dataclass(frozen=True)
class AttackSplit:
    """What each side of an attack holds.

    Args:
        auxiliary: The attacker's own samples.
        targets: The victim's, of which the truth goes to the metric alone.
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
            one_each: Take one sample an image, where pictures are what is attacked.

        Raises:
            ConfigError: If there are none of either.
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
        """Return where the targets come from, ``data set/split``."""
        return f"{self.targets[0].dataset}/{self.targets[0].split}"
