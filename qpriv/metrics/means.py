"""`mean_result`: the mean of some values as a figure, with the interval that its units allow."""

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from qpriv.result import Result

from .intervals import Interval, hierarchical_interval, rate_interval, why_no_interval

IMAGE_GROUP = "image group"
"""An image, or the patient or other group that images belong to."""
PERSON = "person"

RATE: Interval = (0.0, 1.0)
"""Bounds of hits and shares."""
CHANGE: Interval = (-1.0, 1.0)
"""Bounds of what a share gains over another."""


def mean_result(
    name: str,
    values: ArrayLike,
    units: Mapping[str, Sequence[Hashable]],
    *,
    unit: str = "",
    bounds: Interval | None = None,
) -> Result:
    """Return the mean of values as a figure; NaN does not count.

    ``n`` counts the innermost units, and ``clustered_by`` names all that the interval draws.

    Args:
        name: Name of the figure.
        values: A value a row.
        units: The unit of every row at each level, from the outside in, by the level's name.
        unit: Unit of the values.
        bounds: The least and the most that a value can be, as of a `RATE` or its `CHANGE`: such
            values have an interval also where they are all alike (`rate_interval`). A note says
            of other equal values that they have none.

    >>> mean_result("seen", [1.0, 1.0], {IMAGE_GROUP: ["a", "b"]}, bounds=RATE).clustered_by
    'image group'
    """
    array = np.asarray(values, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(array)).tolist()
    if not known:
        return Result(name=name, value=None, n=0, unit=unit, status="not applicable")
    levels = [[own[row] for row in known] for own in units.values()]
    found = array[known]
    if bounds:
        interval = rate_interval(found, *levels, bounds=bounds)
    else:
        interval = hierarchical_interval(found, levels)
    return Result(
        name=name,
        value=float(found.mean()),
        n=len(set(levels[-1])),
        unit=unit,
        ci=interval,
        clustered_by=" and ".join(units) if interval else "",
        note=why_no_interval(interval, levels[0]),
    )
