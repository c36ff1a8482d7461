"""`Identity`: a party's certificate, and the authority that all parties trust."""

from dataclasses import dataclass
from pathlib import Path

from qpriv.errors import ConfigError

SERVER_NAME = "server"
"""Common name of the server's certificate."""


def client_peer(client: int) -> str:
    """Return the common name that a client's certificate must bear.

    >>> client_peer(3)
    'client3'
    """
    return f"client{client}"


@dataclass(frozen=True)
class Identity:
    """A party's certificate and key, and the authority that it trusts.

    Args:
        authority: Certificate of the authority, PEM.
        certificate: The party's own certificate, PEM.
        key: Its private key, PEM.
    """

    authority: bytes
    certificate: bytes
    key: bytes

    @classmethod
    def read(cls, folder: Path, name: str) -> "Identity":
        """Return the identity of a party, from ``ca.pem``, ``<name>.pem`` and ``<name>.key``.

        Raises:
            ConfigError: If a file is missing.
        """
        files = [folder / file for file in ("ca.pem", f"{name}.pem", f"{name}.key")]
        missing = [str(file) for file in files if not file.is_file()]
        if missing:
            raise ConfigError(
                f"there is no {missing[0]}",
                where="--certificates",
                remedy="put ca.pem, and the party's own .pem and .key, into that folder",
            )
        return cls(*(file.read_bytes() for file in files))
