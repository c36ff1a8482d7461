"""`Quantity`: what a figure means. It is declared beside what measures it, and nowhere else."""

from dataclasses import dataclass
from typing import Literal

Direction = Literal["leak", "use", "neutral"]


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """How readers are told of the results of one name.

    Tables, summary, charts, the text at the end of a command, dashboards and the pages of the
    documentation are made of these.

    Args:
        name: Name of the result; of an attack's figure what follows ``attack/<attack>/``.
        title: Head of its column.
        meaning: One plain sentence.
        label: Its name where no column stands around it, such as ``Face PSNR``; empty for the title.
        unit: Unit of its results.
        direction: Whether more of it is more ``leak``, more ``use`` to the owner, or neither.
        baseline: Name of the figure it is held against; empty where there is none.
        chance: What guessing gives; None where that has no fixed value.
        headline: Whether summary, charts, dashboards and the text of a command speak of it.
        leading: Whether it stands in the main table rather than in that of all other figures.
        logged: Under which name a run logs it, where that is not its own.
        question: What it answers, where figures of several attackers answer the same: a headline
            shows the attacker that takes most.
        by: Who answers it, such as ``LiRA``, for a headline.
        caution: What a reader must not take it for, in a few words.
    """

    name: str
    title: str
    meaning: str
    label: str = ""
    unit: str = ""
    direction: Direction = "neutral"
    baseline: str = ""
    chance: float | None = None
    headline: bool = False
    leading: bool = True
    logged: str = ""
    question: str = ""
    by: str = ""
    caution: str = ""

    @property
    def short(self) -> str:
        """Return its name for a tile, a chart or a panel."""
        return self.label or self.title

    @property
    def axis(self) -> str:
        """Return its name with its unit, for an axis."""
        unit = {"dB": ", dB", "nats": ", nats"}.get(self.unit, "")
        return f"{self.short.removesuffix(unit)}{unit}"
