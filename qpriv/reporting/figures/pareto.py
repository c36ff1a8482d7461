"""Accuracy against each measure of what leaks."""

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes

from qpriv.metrics.answers import ACCURACY
from qpriv.quantity import Quantity

from ..claims.attacks import chance
from ..condition import Condition
from ..estimate import Estimate
from ..evidence import Evidence, Figure
from ..numbers import number
from ..quantities import leaks, quantity
from ..strongest import baseline, common_attacker, read_by
from .drawing import MARKERS, STAR, blank, group_name, legend, reach
from .svg import INK, MUTED, SERIES, Picture, inline, style

Point = tuple[Estimate, Estimate]


def pareto_pictures(evidence: Evidence) -> Iterator[Picture]:
    """Yield accuracy against each measure of what leaks."""
    for own in leaks():
        title = f"Accuracy against {own.short[0].lower()}{own.short[1:]}"
        name, setting = common_attacker(evidence, own)
        leaking = {c: evidence.figure(name, c, **setting) for c in evidence.conditions}
        points = {c: _point(evidence, figure, c) for c, figure in leaking.items()}
        found = {condition: point for condition, point in points.items() if point}
        shown = [figure for c, figure in leaking.items() if figure and c in found]
        if len(found) < 2:
            continue
        with style():
            canvas, axes = blank(own.axis, "accuracy")
            _draw_rankings(axes, found)
            floors = _mark_floors(axes, evidence, own, shown)
            legend(axes)
            best = ", ".join(condition.label for condition in _pareto(found))
            caption = (
                f"{read_by(evidence, own, shown)}Upper left is better. Lines join the fixed ratios "
                "of one ranking; bars are 95 % intervals. By the values alone no other policy here "
                f"has both a higher accuracy and a lower {own.short} than: {best}. What another "
                f"attacker takes may be more.{floors}"
            )
            key = f"pareto-{own.name.rpartition('/')[2].replace('_', '-')}"
            svg = inline(canvas, key, title, _describe(found, own.title))
        yield Picture(key, title, caption, svg)


def _point(evidence: Evidence, leak: Figure | None, condition: Condition) -> Point | None:
    across = leak.estimate if leak else None
    upward = evidence.estimate(ACCURACY.name, condition)
    return (across, upward) if across and upward else None


def _draw_rankings(axes: Axes, points: Mapping[Condition, Point]) -> None:
    """Draw each ranking's points in one colour, joined where they are fixed ratios."""
    groups: dict[str, list[Condition]] = {}
    for condition in points:
        groups.setdefault(group_name(condition), []).append(condition)
    off = [condition for condition in points if condition.family == "off"][:1]
    for index, (name, members) in enumerate(groups.items()):
        family = members[0].family
        colour = INK if family == "off" else SERIES[index % len(SERIES)]
        marker = STAR if family == "dtp" else MARKERS[index % len(MARKERS)]
        if family == "fixed":
            _join(axes, [points[condition] for condition in (*off, *members)], colour)
        for place, condition in enumerate(members):
            _cross(axes, points[condition], colour, marker, name if place == 0 else "_")


def _join(axes: Axes, line: Sequence[Point], colour: str) -> None:
    across, upward = [point[0].value for point in line], [point[1].value for point in line]
    axes.plot(across, upward, color=colour, linewidth=1, alpha=0.7)


def _cross(axes: Axes, point: Point, colour: str, marker: str, label: str) -> None:
    """Draw one policy with both intervals; Matplotlib keeps labels that begin with _ to itself."""
    across, upward = point
    axes.errorbar(
        [across.value],
        [upward.value],
        xerr=_column(reach(across)),
        yerr=_column(reach(upward)),
        color=colour,
        marker=marker,
        markersize=9 if marker == STAR else 5,
        linestyle="none",
        elinewidth=0.8,
        label=label,
    )


def _column(ends: tuple[float, float] | None) -> list[list[float]] | None:
    return [[end] for end in ends] if ends else None


def _pareto(points: Mapping[Condition, Point]) -> list[Condition]:
    """Return the conditions that no other beats in both accuracy and leak."""

    def beaten(one: Point) -> bool:
        return any(
            other[0].value <= one[0].value and other[1].value >= one[1].value
            and (other[0].value, other[1].value) != (one[0].value, one[1].value)
            for other in points.values()
        )  # fmt: skip

    return [condition for condition, point in points.items() if not beaten(point)]


def _mark_floors(axes: Axes, evidence: Evidence, own: Quantity, shown: Sequence[Figure]) -> str:
    """Draw what guessing gives and the first baseline of the figures shown, and say which it is."""
    level = chance(shown[0].example) or own.chance
    if level is not None:
        axes.axvline(level, color=MUTED, linestyle=":", linewidth=1.2, label="guessing")
    floors = [floor for each in shown if (floor := baseline(evidence, each)) and floor.estimate]
    if not own.baseline:
        return ""
    name = quantity(own.baseline).short
    if not floors or not floors[0].estimate:
        return f" Nothing to hold it against was measured: no {name}."
    value = floors[0].estimate.value
    axes.axvline(value, color=MUTED, linestyle="-.", linewidth=1.2, label=f"floor: {name}")
    return f" The floor, {name}, is that of {floors[0].condition.label}: {number(value)}."


def _describe(points: Mapping[Condition, Point], leak: str) -> str:
    return "; ".join(
        f"{condition.label}: accuracy {number(upward.value)}, {leak} {number(across.value)}"
        for condition, (across, upward) in points.items()
    )
