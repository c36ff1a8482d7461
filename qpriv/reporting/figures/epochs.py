"""How utility and leaks move over the epochs."""

from collections.abc import Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from qpriv.metrics.answers import LOSSES
from qpriv.quantity import Quantity

from ..condition import headline
from ..estimate import Estimate
from ..evidence import Evidence, Figure
from ..numbers import number
from ..quantities import headlines, quantity
from ..strongest import baseline, common_attacker, read_by
from .drawing import MARKERS, blank, legend
from .svg import INK, MUTED, SERIES, Picture, inline, style


def epoch_pictures(evidence: Evidence) -> Iterator[Picture]:
    """Yield how utility and leaks move over the epochs, for the headline policies."""
    for own in (*(own for own in headlines() if own.direction != "neutral"), *LOSSES):
        name, setting = common_attacker(evidence, own)
        figures = [evidence.figure(name, c, **setting) for c in headline(evidence.conditions)]
        all_histories = {f: evidence.history(f) for f in figures if f}
        histories = {f: history for f, history in all_histories.items() if len(history) > 1}
        if not any(_moves(history) for history in histories.values()):
            continue
        key = f"epochs-{own.name.replace('/', '-').replace('_', '-')}"
        title = f"{own.title.removesuffix(', dB')} over epochs"
        with style():
            canvas, axes = blank("epoch", own.axis)
            for index, (figure, history) in enumerate(histories.items()):
                _curve(axes, figure, history, index)
            beside = _floor(axes, evidence, own, list(histories))
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            legend(axes)
            svg = inline(canvas, key, title, _describe_curves(histories))
        who = read_by(evidence, own, list(histories)) if own.direction == "leak" else ""
        sets = ", ".join(sorted({f.dataset for f in histories} - {""}))
        on = f" On {sets}." if own.direction == "use" and sets else ""
        caption = f"{who}Mean over seeds; the band is the 95 % interval.{on}{beside}"
        yield Picture(key, title, caption, svg)


def _floor(axes: Axes, evidence: Evidence, own: Quantity, figures: Sequence[Figure]) -> str:
    """Draw what the last figures are held against, of the first policy that has it; say which."""
    if not own.baseline:
        return ""
    name = quantity(own.baseline).short
    floors = [floor for each in figures if (floor := baseline(evidence, each)) and floor.estimate]
    if not floors or not floors[0].estimate:
        return f" Nothing to hold it against was measured: no {name}."
    value = floors[0].estimate.value
    axes.axhline(value, color=MUTED, linestyle="-.", linewidth=1.2, label=f"floor: {name}")
    return f" The floor, {name}, is that of {floors[0].condition.label}: {number(value, own.unit)}."


def _moves(history: Mapping[int, Estimate]) -> bool:
    """Return whether a figure is not the same at all epochs: what training does not touch."""
    return len({estimate.value for estimate in history.values()}) > 1


def _curve(axes: Axes, figure: Figure, history: Mapping[int, Estimate], index: int) -> None:
    epochs = list(history)
    is_off = figure.condition.family == "off"
    colour = INK if is_off else SERIES[index % len(SERIES)]
    marker = MARKERS[index % len(MARKERS)]
    values = [estimate.value for estimate in history.values()]
    axes.plot(
        epochs, values, color=colour, marker=marker, markersize=4, label=figure.condition.label
    )
    ends = [estimate.interval for estimate in history.values()]
    if all(ends):
        low, high = zip(*(each for each in ends if each), strict=True)
        axes.fill_between(epochs, low, high, color=colour, alpha=0.12, linewidth=0)


def _describe_curves(histories: Mapping[Figure, Mapping[int, Estimate]]) -> str:
    return "; ".join(
        f"{figure.condition.label}: "
        + ", ".join(f"epoch {epoch} {number(e.value)}" for epoch, e in history.items())
        for figure, history in histories.items()
    )
