"""Error rates of membership inference, on logarithmic axes: what few false alarms buy."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from matplotlib.ticker import FuncFormatter, NullFormatter
from numpy.typing import NDArray

from qpriv.curve import Curve

from ..condition import Condition, headline
from ..numbers import number
from .drawing import MARKERS, blank, legend
from .svg import INK, MUTED, SERIES, Picture, inline, style

ROC = "attack/membership/roc"
"""The shadow attack's; those of the others are ``lira_roc`` and the like beside it."""
ATTACKS = {
    "": "shadow models",
    "loss_": "loss",
    "calibrated_": "calibrated loss",
    "lira_": "LiRA",
    "rmia_": "RMIA",
}
_Line = tuple[NDArray[np.float64], NDArray[np.float64]]


def roc_pictures(curves: Iterable[Curve]) -> Iterator[Picture]:
    """Yield the curves of the headline policies, and those of every attack without pruning."""
    last = _last_epochs([curve for curve in curves if curve.attack.get("query_policy") == "same"])
    policies = headline(sorted({Condition(c.policy) for c in last}, key=lambda c: c.order))
    by_policy = {
        c.label: _mean([x for x in _named(last, ROC) if x.policy == c.policy]) for c in policies
    }
    yield from _picture("roc-policies", "Membership inference by policy", by_policy)
    off = [curve for curve in last if curve.policy == "off"]
    by_attack = {
        title: _mean(_named(off, ROC.replace("roc", f"{prefix}roc")))
        for prefix, title in ATTACKS.items()
    }
    yield from _picture("roc-attacks", "Membership inference without pruning, by attack", by_attack)


def _named(curves: Iterable[Curve], name: str) -> list[Curve]:
    return [curve for curve in curves if curve.name == name]


def _last_epochs(curves: Sequence[Curve]) -> list[Curve]:
    """Keep what was measured after the last epoch of each policy and seed."""
    last: dict[tuple[str, int | None], int] = {}
    for curve in curves:
        key = curve.policy, curve.seed
        last[key] = max(last.get(key, -1), curve.epoch or 0)
    return [curve for curve in curves if (curve.epoch or 0) == last[curve.policy, curve.seed]]


def _mean(curves: Sequence[Curve]) -> _Line | None:
    """Return the mean over seeds, from the rate on that a single false alarm makes."""
    if not curves:
        return None
    alarms = np.asarray(curves[0].x)  # the same in every run
    least = max(1 / int(curve.attack["nonmembers"] or 1) for curve in curves)
    told = alarms >= least
    return alarms[told], np.mean([curve.y for curve in curves], axis=0)[told]


def _picture(key: str, title: str, lines: Mapping[str, _Line | None]) -> Iterator[Picture]:
    drawn = {name: line for name, line in lines.items() if line}
    if not drawn:
        return
    with style():
        canvas, axes = blank("false positive rate", "true positive rate")
        least = min(float(x[0]) for x, _ in drawn.values())
        axes.loglog([least, 1], [least, 1], color=MUTED, linestyle=":", label="guessing")
        for index, (name, (x, y)) in enumerate(drawn.items()):
            colour = INK if name == "off" else SERIES[index % len(SERIES)]
            seen = y > 0  # a logarithm shows no zero
            axes.plot(
                x[seen], y[seen], color=colour, marker=MARKERS[index % len(MARKERS)],
                markersize=3.5, markevery=5, drawstyle="steps-post", label=name,
            )  # fmt: skip
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            axis.set_minor_formatter(NullFormatter())
        axes.set_xlim(least, 1)
        axes.set_ylim(least, 1.1)
        legend(axes)
        svg = inline(canvas, key, title, _describe(drawn))
    caption = (
        "Both axes are logarithmic: on the left are the members an attacker names with next to no "
        "false alarm; the axis begins where one non-member is. Mean over seeds, queries through "
        "the victim's own mask."
    )
    yield Picture(key, title, caption, svg)


def _describe(lines: Mapping[str, _Line]) -> str:
    """Return true positive rates at 1 % and 10 % false positives, in words."""
    return "; ".join(
        f"{name}: "
        + ", ".join(
            f"{number(float(y[x <= rate][-1]))} at a false positive rate of {rate:g}"
            for rate in (0.01, 0.1)
            if rate >= x[0]
        )
        for name, (x, y) in lines.items()
    )
