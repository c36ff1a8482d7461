"""Studies: a grid of runs over seeds, resumable, with a forecast before and a report after."""

from .config import Stage, Study, Trial, Variant, cells, read_study
from .forecast import Forecast
from .runner import Outcome, run_study

__all__ = [
    "Forecast",
    "Outcome",
    "Stage",
    "Study",
    "Trial",
    "Variant",
    "cells",
    "read_study",
    "run_study",
]
