"""`Sides`: the samples an attacker learns on, and the private ones it is scored on."""

from dataclasses import dataclass

from qpriv.attacks.observation import one_per_image
from qpriv.attacks.victim import AttackData
from qpriv.datasets.sample import VQASample
from qpriv.errors import ConfigError


@dataclass(frozen=True)
class Sides:
    """What both sides of an attack hold.

    Args:
        known: The attacker's own samples.
        private: The victim's, of which the truth goes to the metric alone.
    """

    known: list[VQASample]
    private: list[VQASample]

    @classmethod
    def of(
        cls,
        data: AttackData,
        *,
        known: int | None,
        private: int | None,
        one_each: bool = False,
    ) -> "Sides":
        """Return the first auxiliary samples and targets of a data module.

        Args:
            data: The data module.
            known: Largest number of auxiliary samples; None for all.
            private: Largest number of targets; None for all.
            one_each: Take one sample an image, where pictures are what is attacked.

        Raises:
            ConfigError: If there are none of either.
        """
        lists = [data.auxiliary(), data.targets()]
        if one_each:
            lists = [one_per_image(samples) for samples in lists]
        auxiliary, targets = list(lists[0])[:known], list(lists[1])[:private]
        if not auxiliary or not targets:
            raise ConfigError(
                f"{len(auxiliary)} auxiliary samples, {len(targets)} targets",
                where=type(data).__name__,
                remedy="give the data module scenes of the attacker's and private scenes",
            )
        return cls(auxiliary, targets)

    @property
    def origin(self) -> str:
        """Return where the private samples come from, ``data set/split``."""
        return f"{self.private[0].dataset}/{self.private[0].split}"
