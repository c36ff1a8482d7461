"""The figures of a report: utility against privacy, the trend, alpha, and curves over epochs."""

from ..evidence import Evidence
from .epochs import epoch_pictures
from .pareto import pareto_pictures
from .svg import Picture
from .trend import alpha_picture, trend_picture


def all_pictures(evidence: Evidence) -> list[Picture]:
    """Return every figure these runs can fill, in the order of the report."""
    return [
        *pareto_pictures(evidence),
        *trend_picture(evidence),
        *alpha_picture(evidence),
        *epoch_pictures(evidence),
    ]


__all__ = ["Picture", "all_pictures"]
