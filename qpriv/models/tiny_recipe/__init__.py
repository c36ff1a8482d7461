"""Training code of the embedded models, in plain torch: `prepare_tiny`."""

from .prepare import prepare_tiny

__all__ = ("prepare_tiny",)
