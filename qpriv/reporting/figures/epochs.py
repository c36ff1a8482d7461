"""How utility and leaks move over the epochs."""

from collections.abc import Iterator, Mapping

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from qpriv.metrics.answers import LOSSES

from ..claims.comparison import strongest
from ..condition import headline
from ..estimate import Estimate
from ..evidence import Evidence, Figure
from ..numbers import number
from ..quantities import headlines
from .drawing import MARKERS, blank, legend
from .svg import INK, SERIES, Picture, inline, style


def epoch_pictures(evidence: Evidence) -> Iterator[Picture]:
    """Yield how utility and leaks move over the epochs, for the headline policies."""
    for own in (*(own for own in headlines() if own.direction != "neutral"), *LOSSES):
        setting = strongest(evidence, own.name)
        figures = [evidence.figure(own.name, c, **setting) for c in headline(evidence.conditions)]
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
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            legend(axes)
            svg = inline(canvas, key, title, _describe_curves(histories))
        yield Picture(key, title, "Mean over seeds; the band is the 95 % interval.", svg)


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
