"""`Histogram`: counts over two measures, such as memorisation and simplicity of canaries."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from qpriv.key import Measured
from qpriv.lines import distinct, read_lines, record_lines

HISTOGRAMS_FILE = "histograms.jsonl"


@dataclass(frozen=True, kw_only=True)
class Histogram(Measured):
    """Counts in a grid of bins; it tells no single unit. See `Measured` for what else it says.

    Args:
        of: What was counted, such as ``all canaries``.
        counts: Counts ``[rows, columns]``, rows from the least value up.
        rows: Name of the measure of the rows, and the ends of its range.
        columns: Name of the measure of the columns, and the ends of its range.
    """

    of: str
    counts: tuple[tuple[int, ...], ...]
    rows: tuple[str, float, float]
    columns: tuple[str, float, float]

    @property
    def figure(self) -> object:
        """Return what two measurements of one histogram must agree in."""
        return self.counts

    @property
    def varies(self) -> bool:
        """Return False: counts are not of the machine."""
        return False


def append_histograms(path: Path, histograms: Iterable[Histogram]) -> None:
    """Add histograms to a ``.jsonl`` file, one a line, as `qpriv.result.append_results` does.

    Raises:
        DataError: If somebody else counted otherwise under the same key and seed.
    """
    record_lines(path, list(histograms), Histogram)


def read_histograms(path: Path) -> list[Histogram]:
    """Read a file of histograms; there need not be one.

    Raises:
        DataError: If a complete line is not a `Histogram`, or two lines differ that should not.
    """
    if not path.is_file():
        return []
    return distinct(read_lines(path, Histogram), lambda number: f"{path}, line {number + 1}")
