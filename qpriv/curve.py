"""`Curve`: a measured line, such as an attack's error rates at every threshold."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from qpriv.key import Measured
from qpriv.lines import distinct, read_lines, record_lines

CURVES_FILE = "curves.jsonl"


@dataclass(frozen=True, kw_only=True)
class Curve(Measured):
    """One line of a figure; it tells rates and of no sample. See `Measured` for what else it says.

    Args:
        x: Where it was measured.
        y: What was measured there, as many values.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]

    @property
    def figure(self) -> object:
        """Return what two measurements of one curve must agree in."""
        return self.x, self.y

    @property
    def varies(self) -> bool:
        """Return False: rates are not of the machine."""
        return False


def append_curves(path: Path, curves: Iterable[Curve]) -> None:
    """Add curves to a ``.jsonl`` file, one a line, as `qpriv.result.append_results` does.

    Raises:
        DataError: If somebody else measured another curve of the same key, seed and epoch.
    """
    record_lines(path, list(curves), Curve)


def read_curves(path: Path) -> list[Curve]:
    """Read a file of curves; there need not be one.

    Raises:
        DataError: If a complete line is not a `Curve`, or two lines differ that should not.
    """
    if not path.is_file():
        return []
    return distinct(read_lines(path, Curve), lambda number: f"{path}, line {number + 1}")
