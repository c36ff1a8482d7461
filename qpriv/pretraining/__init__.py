"""Training code of the embedded models, in plain torch: `prepare_tiny`."""

from .held_out import Figure, measure
from .prepare import prepare_tiny

__all__ = ("Figure", "measure", "prepare_tiny")
