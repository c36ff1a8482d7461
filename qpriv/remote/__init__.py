"""Training by parties in separate processes, on separate machines."""

from .client import RemoteClient
from .federated_client import RemoteFederatedClient
from .federated_server import RemoteFederatedServer
from .handshake import terms_of
from .local_client import LocalClient, LocalWork
from .server import RemoteServer
from .snapshots import Snapshots
from .split_client import RemoteSplitClient
from .split_server import RemoteSplitServer

__all__ = (
    "LocalClient",
    "LocalWork",
    "RemoteClient",
    "RemoteFederatedClient",
    "RemoteFederatedServer",
    "RemoteServer",
    "RemoteSplitClient",
    "RemoteSplitServer",
    "Snapshots",
    "terms_of",
)
