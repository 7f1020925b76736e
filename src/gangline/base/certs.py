"""The plane's own authority: a CA, a server certificate, a client certificate for the administrator.

Keys are written once, readable by their owner only, into the plane's folder. Nothing here is asked of the network or
of another program.
"""

import ssl
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

CERTIFICATE_LIFETIME = timedelta(days=3650)
RENEW_BEFORE = timedelta(days=30)
"""A certificate with less than this left is made anew at the next start."""


class KeyPair(msgspec.Struct, frozen=True):
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class PlaneCertificates(msgspec.Struct, frozen=True):
    """All the plane's certificates."""

    ca: Path
    server: KeyPair
    admin: KeyPair


def ensure_certificates(folder: Path, hosts: tuple[str, ...], now: datetime) -> PlaneCertificates:
    """The certificates in a folder, made when missing, nearly expired, or not for these hosts. Idempotent."""
    # Imported here: a plane without certificates, as that of a run, starts faster without it.
    from gangline.base.certs_issue import is_valid, issue, issue_ca

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca = KeyPair(folder / "ca.crt", folder / "ca.key")
    server = KeyPair(folder / "server.crt", folder / "server.key")
    admin = KeyPair(folder / "admin.crt", folder / "admin.key")
    if not is_valid(ca, now):
        issue_ca(ca, now)
        for stale in (server, admin):
            stale.certificate.unlink(missing_ok=True)
    if not is_valid(server, now, hosts):
        issue(ca, server, "gangline", now, hosts=hosts)
    if not is_valid(admin, now):
        issue(ca, admin, "admin", now, organization="system:masters")
    return PlaneCertificates(ca.certificate, server, admin)


def server_tls_context(certificates: PlaneCertificates, *, client_certificates: bool = False) -> ssl.SSLContext:
    """TLS for a server with these certificates; `client_certificates` lets clients authenticate by one of the CA."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificates.server.certificate, certificates.server.key)
    if client_certificates:
        context.load_verify_locations(certificates.ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return context
