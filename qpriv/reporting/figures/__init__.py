"""The figures of a report: utility against privacy, the trend, alpha, error rates, epochs."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from qpriv.curve import Curve
from qpriv.histogram import Histogram
from qpriv.key import Measured

from ..evidence import Evidence
from .epochs import epoch_pictures
from .memorisation import histogram_pictures
from .pareto import pareto_pictures
from .roc import roc_pictures
from .svg import Picture
from .trend import alpha_picture, trend_picture

M = TypeVar("M", bound=Measured)


def all_pictures(
    evidence: Evidence, curves: Iterable[Curve] = (), histograms: Iterable[Histogram] = ()
) -> list[Picture]:
    """Return every figure these runs can fill, in the order of the report."""
    return [
        *pareto_pictures(evidence),
        *trend_picture(evidence),
        *alpha_picture(evidence),
        *roc_pictures(curves, evidence),
        *histogram_pictures(histograms),
        *epoch_pictures(evidence),
    ]


def pictures_by_dataset(
    by_dataset: Mapping[str, Evidence],
    curves: Sequence[Curve] = (),
    histograms: Sequence[Histogram] = (),
) -> list[Picture]:
    """Return the figures of each data set; of several, titles name theirs.

    What was measured on no named data set is drawn with the first.

    Args:
        by_dataset: The figures of each data set, by its name.
        curves: Curves of the runs.
        histograms: Histograms of the runs.
    """
    names, found, nameless = list(by_dataset), list[Picture](), set[Picture]()
    for number, (name, evidence) in enumerate(by_dataset.items()):
        drawn = all_pictures(
            evidence, _measured_on(name, names, curves), _measured_on(name, names, histograms)
        )
        mark = f"-{number}" if number else ""
        place = f" · {name or 'unnamed data'}" if len(names) > 1 else ""
        found += [each.told_apart(mark, place) for each in drawn if each not in nameless]
        if number == 0 and len(names) > 1:
            nameless = set(all_pictures(evidence.within("")))
    return found


def _measured_on(name: str, names: Sequence[str], measured: Sequence[M]) -> list[M]:
    """Return what was measured on a data set; on the first of them also what is on none."""
    known = set(names) - {name} if name == names[0] else None
    sources = [each.dataset.partition("/")[0] for each in measured]
    return [
        each
        for each, source in zip(measured, sources, strict=True)
        if (source == name if known is None else source not in known)
    ]


__all__ = ["Picture", "all_pictures", "pictures_by_dataset"]
