"""An authority and certificates of one's own: for trials, and for consortia that have none.

Needs ``qpriv[grpc]``. Keys are ECDSA over P-256; the common name says who a party is.
"""

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

import trustme

from .identity import SERVER_NAME, client_peer


def make_certificates(
    folder: Path, clients: int, hosts: Sequence[str] = ("localhost", "127.0.0.1"), days: int = 365
) -> None:
    """Write ``ca.pem``, and a ``.pem`` and a ``.key`` for the server and for every client.

    The authority's own key is not kept: another party later means new certificates for all.

    Args:
        folder: Where to; made if it is not there.
        clients: Number of clients.
        hosts: Names and addresses by which clients reach the server.
        days: How long the certificates hold.
    """
    folder.mkdir(parents=True, exist_ok=True)
    authority = trustme.CA(
        path_length=0, organization_name="qpriv authority", organization_unit_name="trial"
    )
    authority.cert_pem.write_to_path(folder / "ca.pem")
    now = dt.datetime.now(dt.UTC)
    for party in (SERVER_NAME, *(client_peer(client) for client in range(clients))):
        certificate = authority.issue_cert(
            # nobody calls a client, so it needs no address
            *(hosts if party == SERVER_NAME else ()),
            common_name=party,
            organization_name="qpriv",
            organization_unit_name="trial",
            # clocks of organisations differ
            not_before=now - dt.timedelta(hours=1),
            not_after=now + dt.timedelta(days=days),
        )
        (folder / f"{party}.key").touch(mode=0o600)
        certificate.private_key_pem.write_to_path(folder / f"{party}.key")
        certificate.cert_chain_pems[0].write_to_path(folder / f"{party}.pem")
