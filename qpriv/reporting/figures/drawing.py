"""Helpers of all charts: the canvas, points with intervals, a legend outside the axes."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from ..condition import Condition
from ..estimate import Estimate

MARKERS = "osDv^P"
STAR = "*"
"""The marker of the dynamic threshold."""

_SIZE = (4.3, 2.75)  # inches: narrow, so that its text stays readable on a phone
_LEGEND_LINE = 0.19  # inches


def blank(x_label: str, y_label: str) -> tuple[Canvas, Axes]:
    """Return an empty figure with named axes; call it within `svg.style`."""
    canvas = Canvas(figsize=_SIZE, layout="constrained")
    axes = canvas.add_subplot()
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    return canvas, axes


def legend(axes: Axes) -> None:
    """Put the legend below the axes, where it hides no point, and make room for it."""
    handles, labels = axes.get_legend_handles_labels()
    canvas = axes.figure
    if handles and isinstance(canvas, Canvas):
        lines = (len(handles) + 1) // 2
        canvas.set_size_inches(_SIZE[0], _SIZE[1] + _LEGEND_LINE * lines)
        canvas.legend(handles, labels, loc="outside lower left", ncols=2, columnspacing=1.2)


def bars(
    axes: Axes,
    at: Sequence[float],
    estimates: Sequence[Estimate],
    colour: str,
    marker: str,
    label: str,
) -> None:
    """Draw a line through estimates, with their intervals as vertical bars."""
    ends = [reach(estimate) or (0.0, 0.0) for estimate in estimates]
    axes.errorbar(
        at,
        [estimate.value for estimate in estimates],
        yerr=([below for below, _ in ends], [above for _, above in ends]),
        color=colour,
        marker=marker,
        markersize=10 if marker == STAR else 5,
        linewidth=1.4,
        elinewidth=0.8,
        label=label,
    )


def reach(estimate: Estimate) -> tuple[float, float] | None:
    """Return how far the interval goes below and above the value, or None without one.

    >>> reach(Estimate(0.5, 0.25, 1.0, n=9, seeds=(0,), rule="within one seed"))
    (0.25, 0.5)
    """
    if estimate.interval is None:
        return None
    low, high = estimate.interval
    return estimate.value - low, high - estimate.value


def group_name(condition: Condition) -> str:
    """Return what the points of one line have in common: all but the ratio.

    >>> group_name(Condition("fixed(0.5,fused)")), group_name(Condition("off"))
    ('fixed fused', 'no pruning')
    """
    if condition.family == "off":
        return "no pruning"
    ranking = ", ".join(filter(None, [condition.rank_by, *(f"{n} {v}" for n, v in condition.tags)]))
    alpha = condition.options.get("alpha")
    return f"{condition.family} {ranking}".strip() + (f", alpha {alpha}" if alpha else "")
