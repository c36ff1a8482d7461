"""`NoDefence`: what crosses crosses as it is; the row that every defence stands beside."""

from qpriv.split.defence import Defence


class NoDefence(Defence):
    """Changes nothing; the same as naming no defence, bit for bit."""

    @property
    def label(self) -> str:
        """Return ``none``."""
        return "none"
