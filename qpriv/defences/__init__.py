"""One file a defence; what a defence of a cut is says `qpriv.boundary.defence.Defence`."""

from qpriv.boundary.defence import Defence

from .gaussian_noise import GaussianNoise
from .no_defence import NoDefence

__all__ = ("Defence", "GaussianNoise", "NoDefence")
