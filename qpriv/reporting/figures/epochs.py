"""How utility and leaks move over the epochs."""

from collections.abc import Iterator, Mapping

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ..claims.comparison import FACE_PSNR, MEMBERSHIP, strongest
from ..condition import headline
from ..estimate import Estimate
from ..evidence import Evidence, Figure
from ..numbers import number
from ..quantities import quantity
from .drawing import MARKERS, blank, legend
from .svg import INK, SERIES, Picture, inline, style


def epoch_pictures(evidence: Evidence) -> Iterator[Picture]:
    """Yield how utility and leaks move over the epochs, for the headline policies."""
    curves = (
        ("accuracy", "accuracy"),
        (FACE_PSNR, "PSNR in the face box, dB"),
        (MEMBERSHIP, "AUC of membership inference"),
        ("val/loss", "validation loss, nats"),
        ("train/loss", "training loss, nats"),
    )
    for name, label in curves:
        setting = strongest(evidence, name)
        figures = [evidence.figure(name, c, **setting) for c in headline(evidence.conditions)]
        all_histories = {f: evidence.history(f) for f in figures if f}
        histories = {f: history for f, history in all_histories.items() if len(history) > 1}
        if not histories:
            continue
        key = f"epochs-{name.rpartition('/')[2].replace('_', '-')}"
        title = f"{quantity(name).title.removesuffix(', dB')} over epochs"
        with style():
            canvas, axes = blank("epoch", label)
            for index, (figure, history) in enumerate(histories.items()):
                _curve(axes, figure, history, index)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            legend(axes)
            svg = inline(canvas, key, title, _describe_curves(histories))
        yield Picture(key, title, "Mean over seeds; the band is the 95 % interval.", svg)


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
