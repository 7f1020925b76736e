"""The certificate files of an embedded control plane: a CA, a server certificate, an administrator's client certificate.

They are created once in the plane's folder, and only their owner can read them.
"""

import ssl
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from gangline.base.files import write_private


class KeyPair(NamedTuple):
    """The files of a certificate and its private key."""

    certificate: Path
    key: Path


class PlaneCertificates(NamedTuple):
    """All certificates of a plane."""

    ca: Path
    server: KeyPair
    admin: KeyPair


def ensure_certificates(folder: Path, hosts: tuple[str, ...], now: datetime) -> PlaneCertificates:
    """The certificates in a folder; created when missing, nearly expired, or not for these hosts. Idempotent."""
    # Imported here: cryptography takes long to import, and a plane without TLS does not need it.
    from gangline.base.x509_pem import issue, issue_ca

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca = KeyPair(folder / "ca.crt", folder / "ca.key")
    server = KeyPair(folder / "server.crt", folder / "server.key")
    admin = KeyPair(folder / "admin.crt", folder / "admin.key")
    if not _is_valid(ca, now):
        _write_pair(ca, *issue_ca(now))
        for stale in (server, admin):
            stale.certificate.unlink(missing_ok=True)
    signer = (ca.certificate.read_bytes(), ca.key.read_bytes())
    if not _is_valid(server, now, hosts):
        _write_pair(server, *issue(*signer, "gangline", now, hosts=hosts))
    if not _is_valid(admin, now):
        _write_pair(admin, *issue(*signer, "admin", now, organization="system:masters"))
    return PlaneCertificates(ca.certificate, server, admin)


def _is_valid(pair: KeyPair, now: datetime, hosts: tuple[str, ...] = ()) -> bool:
    """Whether both files exist and the certificate can be used."""
    from gangline.base.x509_pem import is_valid

    return pair.certificate.exists() and pair.key.exists() and is_valid(pair.certificate.read_bytes(), now, hosts)


def _write_pair(pair: KeyPair, certificate: bytes, key: bytes) -> None:
    write_private(pair.key, key)
    write_private(pair.certificate, certificate)


def server_tls_context(certificates: PlaneCertificates, *, client_certificates: bool = False) -> ssl.SSLContext:
    """TLS for a server with these certificates; `client_certificates` lets clients authenticate by one of the CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(*certificates.server)
    if client_certificates:
        context.load_verify_locations(certificates.ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
