"""An authority and certificates of one's own: for trials, and for consortia that have none.

Needs ``qpriv[grpc]``. Keys are ECDSA over P-256; the common name says who a party is.
"""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .identity import SERVER_NAME, client_peer

_ROLES = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]


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
    authority_key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "qpriv authority")])
    authority = (
        _builder(name, name, authority_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    for party in (SERVER_NAME, *(client_peer(client) for client in range(clients))):
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, party)])
        builder = _builder(subject, name, key.public_key(), days)
        builder = builder.add_extension(x509.ExtendedKeyUsage(_ROLES), critical=False)
        if party == SERVER_NAME:
            places = x509.SubjectAlternativeName([_place(host) for host in hosts])
            builder = builder.add_extension(places, critical=False)
        certificate = builder.sign(authority_key, hashes.SHA256())
        (folder / f"{party}.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _write_key(folder / f"{party}.key", key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = dt.datetime.now(dt.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # clocks of organisations differ
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=days))
    )


def _place(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
