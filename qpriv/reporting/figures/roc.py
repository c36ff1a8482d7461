"""ROC curves of membership inference on logarithmic axes."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from matplotlib.ticker import FuncFormatter, NullFormatter
from numpy.typing import NDArray

from qpriv.attacks.membership.scoring import BLIND_AUC, MEMBERSHIP, METHODS
from qpriv.curve import Curve
from qpriv.key import apart

from ..condition import Condition, conditions_of, headline
from ..evidence import Evidence
from ..numbers import number
from .drawing import MARKERS, blank, legend
from .svg import INK, MUTED, SERIES, Picture, inline, style

ROC = "attack/membership/roc"
"""The shadow attack's; those of the others are ``lira_roc`` and the like beside it."""
_Line = tuple[NDArray[np.float64], NDArray[np.float64]]


def roc_pictures(curves: Iterable[Curve], evidence: Evidence) -> Iterator[Picture]:
    """Yield the curves of the headline policies, and those of every attack without pruning.

    Args:
        curves: Curves of some runs.
        evidence: The figures of these runs, of which the blind baseline is told.
    """
    own_mask = [
        curve for curve in curves if curve.key.setting.by_name.get("query_policy") == "same"
    ]
    last = _last_epochs(own_mask)
    conditions = sorted({condition for condition, _ in last}, key=lambda c: c.order)
    names = apart(curve.key.setting for _, curve in last)
    policies = headline(conditions)
    several = sum(condition.family == "off" for condition in conditions) > 1
    by_policy: dict[str, list[Curve]] = defaultdict(list)
    by_attack: dict[str, list[Curve]] = defaultdict(list)
    for condition, curve in sorted(last, key=lambda pair: pair[0].order):
        attacker = curve.key.setting.phrase(names)
        if condition in policies and curve.name == ROC:
            by_policy[", ".join(filter(None, (condition.label, attacker)))].append(curve)
        for prefix, title in METHODS.items():
            if condition.family == "off" and curve.name == ROC.replace("roc", f"{prefix}roc"):
                place = condition.label if several else ""
                by_attack[", ".join(filter(None, (title, attacker, place)))].append(curve)
    blind = _blind(evidence)
    yield from _picture("roc-policies", "Membership inference by policy", by_policy, blind)
    title = "Membership inference without pruning, by attack"
    yield from _picture("roc-attacks", title, by_attack, blind)


def _last_epochs(curves: Sequence[Curve]) -> list[tuple[Condition, Curve]]:
    """Keep what was measured after the last epoch of each condition, attacker and seed."""
    pairs = list(zip(conditions_of(curves), curves, strict=True))
    last: dict[tuple[object, ...], int] = {}
    for condition, curve in pairs:
        key = condition, curve.key.setting, curve.seed
        last[key] = max(last.get(key, -1), curve.epoch or 0)
    return [
        (condition, curve)
        for condition, curve in pairs
        if (curve.epoch or 0) == last[condition, curve.key.setting, curve.seed]
    ]


def _mean(curves: Sequence[Curve]) -> _Line:
    """Return the mean over seeds, from the rate on that a single false alarm makes."""
    alarms = np.asarray(curves[0].x)  # the same in every run
    least = max(1 / int(curve.attack["nonmembers"] or 1) for curve in curves)
    told = alarms >= least
    return alarms[told], np.mean([curve.y for curve in curves], axis=0)[told]


def _blind(evidence: Evidence) -> str:
    """Say what is told of members without the model, to hold the curves against."""
    found = [f for f in evidence.named(MEMBERSHIP.figure(BLIND_AUC.name)) if f.estimate]
    told = {number(f.estimate.value) for f in found if f.estimate}
    if not told:
        return " The blind baseline was not measured."
    return (
        f" The data alone tell members with an AUC of {', '.join(sorted(told))} (blind baseline)."
    )


def _picture(
    key: str, title: str, curves: Mapping[str, Sequence[Curve]], blind: str
) -> Iterator[Picture]:
    drawn = {name: _mean(own) for name, own in curves.items()}
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
        f"the victim's own mask.{blind}"
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
