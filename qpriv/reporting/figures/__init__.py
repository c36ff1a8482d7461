"""The figures of a report: utility against privacy, the trend, alpha, error rates, epochs."""

from collections.abc import Iterable

from qpriv.curve import Curve
from qpriv.histogram import Histogram

from ..evidence import Evidence
from .epochs import epoch_pictures
from .memorisation import histogram_pictures
from .pareto import pareto_pictures
from .roc import roc_pictures
from .svg import Picture
from .trend import alpha_picture, trend_picture


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


__all__ = ["Picture", "all_pictures"]
