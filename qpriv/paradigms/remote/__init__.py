"""Training by parties that are processes of their own, on machines of their own."""

from .federated_guest import FederatedGuest
from .federated_host import FederatedHost
from .guest import Guest
from .host import Host
from .local_client import LocalClient, LocalWork
from .snapshots import Snapshots
from .split_guest import SplitGuest
from .split_host import SplitHost
from .terms import terms_of

__all__ = (
    "FederatedGuest",
    "FederatedHost",
    "Guest",
    "Host",
    "LocalClient",
    "LocalWork",
    "Snapshots",
    "SplitGuest",
    "SplitHost",
    "terms_of",
)
