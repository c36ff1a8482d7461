"""Where canaries lie by memorisation and simplicity: a grid of counts for each set of them."""

from collections.abc import Iterable, Iterator

import numpy as np
from matplotlib.patches import Rectangle

from qpriv.histogram import Histogram

from .drawing import blank
from .svg import INK, SERIES, Picture, inline, style


def histogram_pictures(histograms: Iterable[Histogram]) -> Iterator[Picture]:
    """Yield the picture of each histogram, with its counts as alternative text."""
    for number, each in enumerate(histograms):
        yield _picture(each, f"memorisation-{number}")


def _picture(histogram: Histogram, key: str) -> Picture:
    counts = np.asarray(histogram.counts)
    heights, widths = _edges(histogram)
    (row_name, *_), (column_name, *_) = histogram.rows, histogram.columns
    told = [f"{name} {value}" for name, value in histogram.setting.items() if name != "set"]
    title = ", ".join([histogram.of, *told])
    with style():
        canvas, axes = blank(column_name, row_name)
        axes.set_xlim(widths[0], widths[-1])
        axes.set_ylim(heights[0], heights[-1])
        most = max(1, int(counts.max()))
        size = widths[1] - widths[0], heights[1] - heights[0]
        for (row, column), count in np.ndenumerate(counts):
            if count:
                corner = widths[column], heights[row]
                shade = 0.15 + 0.6 * np.log1p(count) / np.log1p(most)  # counts differ by decades
                axes.add_patch(Rectangle(corner, *size, facecolor=SERIES[0], alpha=shade))
                middle = corner[0] + size[0] / 2, corner[1] + size[1] / 2
                axes.text(*middle, str(count), color=INK, ha="center", va="center", fontsize=9)
        svg = inline(canvas, key, title, describe(histogram))
    caption = (
        "Numbers of canaries. Memorisation is the share of trainings with a canary that say it, "
        "less the share of those without; simplicity is their sum. What nobody says without "
        "training on it has both alike."
    )
    return Picture(key, title, caption, svg)


def describe(histogram: Histogram) -> str:
    """Return a histogram in words, the fullest cells first.

    >>> grid = {"rows": ("M", -1, 1), "columns": ("S", 0, 2), "counts": ((0, 0), (3, 0))}
    >>> describe(Histogram(name="m", of="all", n=3, **grid))
    '3 canaries: 3 with M from 0.0 and S from 0.0'
    """
    counts = np.asarray(histogram.counts)
    heights, widths = _edges(histogram)
    cells = sorted(((int(n), *at) for at, n in np.ndenumerate(counts) if n), reverse=True)
    told = "; ".join(
        f"{n} with {histogram.rows[0]} from {heights[row]:.1f} "
        f"and {histogram.columns[0]} from {widths[column]:.1f}"
        for n, row, column in cells
    )
    return f"{int(counts.sum())} canaries: {told}" if told else "no canaries"


def _edges(histogram: Histogram) -> tuple[list[float], list[float]]:
    """Return the edges of the bins of the rows and of the columns."""
    (_, low, high), (_, left, right) = histogram.rows, histogram.columns
    height, width = len(histogram.counts), len(histogram.counts[0])
    return np.linspace(low, high, height + 1).tolist(), np.linspace(left, right, width + 1).tolist()
