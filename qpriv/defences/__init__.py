"""One file a defence; what a defence of a cut is says `qpriv.split.defence.Defence`."""

from qpriv.split.defence import Defence

from .gaussian_noise import GaussianNoise
from .no_defence import NoDefence

__all__ = ("Defence", "GaussianNoise", "NoDefence")
