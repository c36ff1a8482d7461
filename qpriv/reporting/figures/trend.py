"""Face reconstruction over the ratio, and accuracy over alpha."""

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes

from qpriv.result import Scalar

from ..claims import alpha_sweeps
from ..claims.comparison import FACE_PSNR, TREND_RATIOS, ladder, line_weights
from ..condition import Condition
from ..evidence import Evidence
from ..numbers import number
from ..quantities import quantity
from ..strongest import common_attacker, read_by
from .drawing import MARKERS, STAR, bars, blank, group_name, legend
from .svg import MUTED, SERIES, Picture, inline, style


def trend_picture(evidence: Evidence) -> Iterator[Picture]:
    """Yield face PSNR over the ratio, with each ranking's least-squares line."""
    name, setting = common_attacker(evidence, quantity(FACE_PSNR))
    ladders = _ladders(evidence, name, setting)
    if not ladders:
        return
    title = "Face reconstruction against the share of tokens dropped"
    drawn = [c for rungs in ladders.values() for c in rungs.values()]
    figures = [f for c in drawn if (f := evidence.figure(name, c, **setting))]
    with style():
        canvas, axes = blank("share of tokens dropped", "PSNR in the face box, dB")
        for index, (ranking, rungs) in enumerate(ladders.items()):
            ratios = list(rungs)
            estimates = [evidence.estimate(name, c, **setting) for c in rungs.values()]
            values = [estimate.value for estimate in estimates if estimate]
            colour, marker = SERIES[index % len(SERIES)], MARKERS[index % len(MARKERS)]
            bars(axes, ratios, [e for e in estimates if e], colour, marker, ranking)
            if set(TREND_RATIOS) <= rungs.keys():
                line = [_weighted(line_weights(ratios, at), values) for at in ratios]
                axes.plot(ratios, line, color=colour, linestyle=(0, (4, 3)), linewidth=1)
        _draw_dynamic(axes, evidence, name, setting, list(ladders))
        _floor_line(axes, evidence, quantity(name).baseline)
        legend(axes)
        alternative = "; ".join(
            f"{ranking}: " + ", ".join(
                f"{ratio:g}: {number(e.value, 'dB')} dB"
                for ratio, c in rungs.items()
                if (e := evidence.estimate(name, c, **setting))
            )
            for ranking, rungs in ladders.items()
        )  # fmt: skip
        svg = inline(canvas, "trend", title, alternative)
    caption = (
        f"{read_by(evidence, quantity(FACE_PSNR), figures)}Dashed: least-squares line "
        "through off, 0.3, 0.5, 0.7 and 0.9. Decibels do not fall in a straight line: a mask drawn "
        "at random lies below its own line too. Stars: the dynamic threshold at its mean ratio. "
        "Below the floor is no evidence of safety: the floor is told where the face is."
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
        canvas, axes = blank("alpha", "accuracy")
        for index, (name, sweep) in enumerate(sweeps.items()):
            points = {a: e for a, c in sweep.items() if (e := evidence.estimate("accuracy", c))}
            colour, marker = SERIES[index % len(SERIES)], MARKERS[index % len(MARKERS)]
            bars(axes, list(points), list(points.values()), colour, marker, name)
            values = ", ".join(f"{alpha:g}: {number(e.value)}" for alpha, e in points.items())
            described.append(f"{name}: {values}")
        legend(axes)
        svg = inline(canvas, "alpha", title, "; ".join(described))
    caption = (
        "Alpha 0 ranks by sensitivity alone. The order depends on how the utility branch was "
        "trained; each point is its own fine-tune. Bars are 95 % intervals."
    )
    yield Picture("alpha", title, caption, svg)


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
            ladders.setdefault(group_name(condition), rungs)
    return ladders


def _draw_dynamic(
    axes: Axes,
    evidence: Evidence,
    name: str,
    setting: Mapping[str, Scalar],
    drawn: Sequence[str],
) -> None:
    for condition in [c for c in evidence.conditions if c.family == "dtp"]:
        estimate = evidence.estimate(name, condition, **setting)
        ratios = list(evidence.mean_ratio(condition).values())
        twin = group_name(condition).replace("dtp", "fixed", 1)
        if estimate and ratios and twin in drawn:
            colour = SERIES[drawn.index(twin) % len(SERIES)]
            bars(axes, [sum(ratios) / len(ratios)], [estimate], colour, STAR, group_name(condition))


def _floor_line(axes: Axes, evidence: Evidence, name: str) -> None:
    floor = next((f.estimate for f in evidence.named(name) if f.estimate), None)
    if floor:
        axes.axhline(
            floor.value, color=MUTED, linestyle=":", linewidth=1.2, label="floor: mean face"
        )


def _weighted(weights: Sequence[float], values: Sequence[float]) -> float:
    return sum(weight * value for weight, value in zip(weights, values, strict=True))
