"""The figures of a report: utility against privacy, the trend, alpha, and curves over epochs."""

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import MaxNLocator

from qpriv.result import Scalar

from .claims import alpha_sweeps
from .claims.comparison import (
    FACE_FLOOR,
    FACE_PSNR,
    FACE_TOKENS,
    MEMBERSHIP,
    TREND_RATIOS,
    ladder,
    line_weights,
    strongest,
)
from .condition import Condition
from .estimate import Estimate
from .evidence import Evidence, Figure
from .numbers import number
from .quantities import quantity
from .svg import INK, MUTED, SERIES, Picture, inline, style
from .tables import headline

_MARKERS = "osDv^P"
_SIZE = (4.7, 2.9)  # inches: narrow, so that its text stays readable on a phone

Point = tuple[Estimate, Estimate]


def all_pictures(evidence: Evidence) -> list[Picture]:
    """Return every figure these runs can fill, in the order of the report."""
    return [
        *pareto_pictures(evidence),
        *trend_picture(evidence),
        *alpha_picture(evidence),
        *epoch_pictures(evidence),
    ]


def pareto_pictures(evidence: Evidence) -> Iterator[Picture]:
    """Yield accuracy against each measure of what leaks."""
    leaks = (
        (FACE_PSNR, "Accuracy against face reconstruction", "PSNR in the face box, dB"),
        (
            FACE_TOKENS,
            "Accuracy against surviving face tokens",
            "share of face tokens that survive",
        ),
        (MEMBERSHIP, "Accuracy against membership inference", "AUC of membership inference"),
    )
    for name, title, label in leaks:
        setting = strongest(evidence, name)
        points = {c: _point(evidence, name, c, setting) for c in evidence.conditions}
        found = {condition: point for condition, point in points.items() if point}
        if len(found) < 2:
            continue
        with style():
            canvas, axes = _blank(label, "accuracy")
            _draw_rankings(axes, found)
            _mark_floor(axes, evidence, name)
            _legend(axes)
            best = ", ".join(condition.label for condition in _pareto(found))
            caption = (
                "Upper left is better: answers right, gives little away. Lines join the fixed "
                "ratios of one ranking; bars are 95 % intervals. No other policy here is both "
                f"more accurate and less leaky than: {best}."
            )
            key = f"pareto-{name.rpartition('/')[2].replace('_', '-')}"
            svg = inline(canvas, key, title, _describe(found, quantity(name).title))
        yield Picture(key, title, caption, svg)


def trend_picture(evidence: Evidence) -> Iterator[Picture]:
    """Yield face PSNR over the ratio, with each ranking's least-squares line."""
    setting = strongest(evidence, FACE_PSNR)
    ladders = _ladders(evidence, FACE_PSNR, setting)
    if not ladders:
        return
    title = "Face reconstruction against the share of tokens dropped"
    with style():
        canvas, axes = _blank("share of tokens dropped", "PSNR in the face box, dB")
        for index, (ranking, rungs) in enumerate(ladders.items()):
            ratios = list(rungs)
            estimates = [evidence.estimate(FACE_PSNR, c, **setting) for c in rungs.values()]
            values = [estimate.value for estimate in estimates if estimate]
            colour, marker = SERIES[index % len(SERIES)], _MARKERS[index % len(_MARKERS)]
            _bars(axes, ratios, [e for e in estimates if e], colour, marker, ranking)
            if set(TREND_RATIOS) <= rungs.keys():
                line = [_weighted(line_weights(ratios, at), values) for at in ratios]
                axes.plot(ratios, line, color=colour, linestyle=(0, (4, 3)), linewidth=1)
        _draw_dynamic(axes, evidence, setting, list(ladders))
        _floor_line(axes, evidence)
        _legend(axes)
        alternative = "; ".join(
            f"{ranking}: " + ", ".join(
                f"{ratio:g}: {number(e.value, 'dB')} dB"
                for ratio, c in rungs.items()
                if (e := evidence.estimate(FACE_PSNR, c, **setting))
            )
            for ranking, rungs in ladders.items()
        )  # fmt: skip
        svg = inline(canvas, "trend", title, alternative)
    caption = (
        "Dashed: least-squares line through off, 0.3, 0.5, 0.7 and 0.9. A policy below its line "
        "leaks less than dropping tokens alone explains. Stars: the dynamic threshold at its mean "
        "ratio."
    )
    yield Picture("trend", title, caption, svg)


def alpha_picture(evidence: Evidence) -> Iterator[Picture]:
    """Yield accuracy over alpha, a line for each utility branch."""
    sweeps = alpha_sweeps(evidence)
    if not sweeps:
        return
    title = "Accuracy over alpha, the weight of utility (beta 1)"
    described = []
    with style():
        canvas, axes = _blank("alpha", "accuracy")
        for index, (name, sweep) in enumerate(sweeps.items()):
            points = {a: e for a, c in sweep.items() if (e := evidence.estimate("accuracy", c))}
            colour, marker = SERIES[index % len(SERIES)], _MARKERS[index % len(_MARKERS)]
            _bars(axes, list(points), list(points.values()), colour, marker, name)
            values = ", ".join(f"{alpha:g}: {number(e.value)}" for alpha, e in points.items())
            described.append(f"{name}: {values}")
        _legend(axes)
        svg = inline(canvas, "alpha", title, "; ".join(described))
    caption = (
        "Alpha 0 ranks by sensitivity alone. The order depends on how the utility branch was "
        "trained; each point is its own fine-tune. Bars are 95 % intervals."
    )
    yield Picture("alpha", title, caption, svg)


def epoch_pictures(evidence: Evidence) -> Iterator[Picture]:
    """Yield how utility and leaks move over the epochs, for the headline policies."""
    curves = (
        ("accuracy", "accuracy"),
        (FACE_PSNR, "PSNR in the face box, dB"),
        (MEMBERSHIP, "AUC of membership inference"),
        ("val/loss", "validation loss"),
    )
    for name, label in curves:
        setting = strongest(evidence, name)
        figures = [evidence.figure(name, c, **setting) for c in headline(evidence.conditions)]
        all_histories = {f: evidence.history(f) for f in figures if f}
        histories = {f: history for f, history in all_histories.items() if len(history) > 1}
        if not histories:
            continue
        key = f"epochs-{name.rpartition('/')[2].replace('_', '-')}"
        title = f"{quantity(name).title} over epochs"
        with style():
            canvas, axes = _blank("epoch", label)
            for index, (figure, history) in enumerate(histories.items()):
                _curve(axes, figure, history, index)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            _legend(axes)
            svg = inline(canvas, key, title, _describe_curves(histories))
        yield Picture(key, title, "Mean over seeds; the band is the 95 % interval.", svg)


def _blank(x_label: str, y_label: str) -> tuple[Canvas, Axes]:
    canvas = Canvas(figsize=_SIZE, layout="constrained")
    axes = canvas.add_subplot()
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    return canvas, axes


def _legend(axes: Axes) -> None:
    """Put the legend below the axes, where it hides no point, and make room for it."""
    handles, labels = axes.get_legend_handles_labels()
    canvas = axes.figure
    if handles and isinstance(canvas, Canvas):
        lines = (len(handles) + 1) // 2
        canvas.set_size_inches(_SIZE[0], _SIZE[1] + 0.19 * lines)
        canvas.legend(handles, labels, loc="outside lower left", ncols=2, columnspacing=1.2)


def _point(
    evidence: Evidence, leak: str, condition: Condition, setting: Mapping[str, Scalar]
) -> Point | None:
    across = evidence.estimate(leak, condition, **setting)
    upward = evidence.estimate("accuracy", condition)
    return (across, upward) if across and upward else None


def _draw_rankings(axes: Axes, points: Mapping[Condition, Point]) -> None:
    """Draw each ranking's points in one colour, joined where they are fixed ratios."""
    groups: dict[str, list[Condition]] = {}
    for condition in points:
        groups.setdefault(_group(condition), []).append(condition)
    off = next((c for c in points if c.family == "off"), None)
    for index, (name, members) in enumerate(groups.items()):
        alone = len(members) == 1 and members[0].family in ("off",)
        colour = INK if alone else SERIES[index % len(SERIES)]
        line = [off, *members] if off and members[0].family == "fixed" else members
        joined = "-" if members[0].family == "fixed" else "none"
        axes.plot(
            [points[c][0].value for c in line], [points[c][1].value for c in line],
            color=colour, linestyle=joined, linewidth=1, alpha=0.7,
        )  # fmt: skip
        for place, condition in enumerate(members):
            marker = "*" if condition.family == "dtp" else _MARKERS[index % len(_MARKERS)]
            _cross(axes, points[condition], colour, marker, name if place == 0 else None)


def _cross(axes: Axes, point: Point, colour: str, marker: str, label: str | None) -> None:
    across, upward = point
    axes.errorbar(
        across.value, upward.value, xerr=_reach(across), yerr=_reach(upward), color=colour,
        marker=marker, markersize=9 if marker == "*" else 5, linestyle="none", elinewidth=0.8,
        label=label,
    )  # fmt: skip


def _group(condition: Condition) -> str:
    if condition.family == "off":
        return "no pruning"
    ranking = ", ".join(filter(None, [condition.rank_by, *(f"{n} {v}" for n, v in condition.tags)]))
    alpha = condition.options.get("alpha")
    return f"{condition.family} {ranking}" + (f", alpha {alpha}" if alpha else "")


def _pareto(points: Mapping[Condition, Point]) -> list[Condition]:
    """Return the conditions that no other beats in both accuracy and leak."""

    def beaten(one: Point) -> bool:
        return any(
            other[0].value <= one[0].value and other[1].value >= one[1].value
            and (other[0].value, other[1].value) != (one[0].value, one[1].value)
            for other in points.values()
        )  # fmt: skip

    return [condition for condition, point in points.items() if not beaten(point)]


def _mark_floor(axes: Axes, evidence: Evidence, name: str) -> None:
    off = next((c for c in evidence.conditions if c.family == "off"), None)
    floors = {FACE_PSNR: (FACE_FLOOR, "floor: mean face"), MEMBERSHIP: ("", "guessing")}
    if name not in floors or off is None:
        return
    floor_name, label = floors[name]
    floor = evidence.estimate(floor_name, off) if floor_name else None
    at = floor.value if floor else 0.5
    if floor or not floor_name:
        axes.axvline(at, color=MUTED, linestyle=":", linewidth=1.2, label=label)


def _floor_line(axes: Axes, evidence: Evidence) -> None:
    off = next((c for c in evidence.conditions if c.family == "off"), None)
    floor = evidence.estimate(FACE_FLOOR, off) if off else None
    if floor:
        axes.axhline(
            floor.value, color=MUTED, linestyle=":", linewidth=1.2, label="floor: mean face"
        )


def _ladders(
    evidence: Evidence, name: str, setting: Mapping[str, Scalar]
) -> dict[str, dict[float, Condition]]:
    """Return each ranking's measured ratios, where there are at least three."""
    ladders: dict[str, dict[float, Condition]] = {}
    for condition in evidence.conditions:
        if condition.family != "fixed":
            continue
        rungs = {
            ratio: c for ratio, c in ladder(evidence, condition).items()
            if evidence.estimate(name, c, **setting)
        }  # fmt: skip
        if len(rungs) >= 3:
            ladders.setdefault(_group(condition), rungs)
    return ladders


def _draw_dynamic(
    axes: Axes, evidence: Evidence, setting: Mapping[str, Scalar], drawn: Sequence[str]
) -> None:
    for condition in [c for c in evidence.conditions if c.family == "dtp"]:
        estimate = evidence.estimate(FACE_PSNR, condition, **setting)
        ratios = list(evidence.mean_ratio(condition).values())
        twin = _group(condition).replace("dtp", "fixed", 1)
        if estimate and ratios and twin in drawn:
            colour = SERIES[drawn.index(twin) % len(SERIES)]
            _bars(axes, [sum(ratios) / len(ratios)], [estimate], colour, "*", _group(condition))


def _bars(
    axes: Axes,
    at: Sequence[float],
    estimates: Sequence[Estimate],
    colour: str,
    marker: str,
    label: str,
) -> None:
    reach = [_reach(estimate) or ([0.0], [0.0]) for estimate in estimates]
    axes.errorbar(
        at, [estimate.value for estimate in estimates],
        yerr=([low[0] for low, _ in reach], [high[0] for _, high in reach]),
        color=colour, marker=marker, markersize=10 if marker == "*" else 5, linewidth=1.4,
        elinewidth=0.8, label=label,
    )  # fmt: skip


def _reach(estimate: Estimate) -> tuple[list[float], list[float]] | None:
    if estimate.interval is None:
        return None
    low, high = estimate.interval
    return [estimate.value - low], [high - estimate.value]


def _curve(axes: Axes, figure: Figure, history: Mapping[int, Estimate], index: int) -> None:
    epochs = list(history)
    is_off = figure.condition.family == "off"
    colour = INK if is_off else SERIES[index % len(SERIES)]
    marker = _MARKERS[index % len(_MARKERS)]
    values = [estimate.value for estimate in history.values()]
    axes.plot(
        epochs, values, color=colour, marker=marker, markersize=4, label=figure.condition.label
    )
    ends = [estimate.interval for estimate in history.values()]
    if all(ends):
        low, high = zip(*(each for each in ends if each), strict=True)
        axes.fill_between(epochs, low, high, color=colour, alpha=0.12, linewidth=0)


def _weighted(weights: Sequence[float], values: Sequence[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))


def _describe(points: Mapping[Condition, Point], leak: str) -> str:
    return "; ".join(
        f"{condition.label}: accuracy {number(upward.value)}, {leak} {number(across.value)}"
        for condition, (across, upward) in points.items()
    )


def _describe_curves(histories: Mapping[Figure, Mapping[int, Estimate]]) -> str:
    return "; ".join(
        f"{figure.condition.label}: "
        + ", ".join(f"epoch {epoch} {number(e.value)}" for epoch, e in history.items())
        for figure, history in histories.items()
    )
