"""The plane's own authority: a CA, a server certificate, a client certificate for the administrator.

Keys are written once, readable by their owner only, into the plane's folder. Nothing here is asked of the network or
of another program.
"""

from datetime import datetime, timedelta
from pathlib import Path

import msgspec

VALID = timedelta(days=3650)
RENEW = timedelta(days=30)
"""A certificate with less than this left is made anew at the next start."""


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority(msgspec.Struct, frozen=True):
    """All the plane's certificates."""

    ca: Path
    server: Pair
    admin: Pair


def authority(folder: Path, hosts: tuple[str, ...], now: datetime) -> Authority:
    """The certificates in a folder, made when missing, nearly expired, or not for these hosts. Idempotent."""
    # Imported here: a plane without certificates, as that of a run, starts faster without it.
    from gangline.base.certs_issue import good, issue, make_ca

    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ca = Pair(folder / "ca.crt", folder / "ca.key")
    server = Pair(folder / "server.crt", folder / "server.key")
    admin = Pair(folder / "admin.crt", folder / "admin.key")
    if not good(ca, now):
        make_ca(ca, now)
        for stale in (server, admin):
            stale.certificate.unlink(missing_ok=True)
    if not good(server, now, hosts):
        issue(ca, server, "gangline", now, hosts=hosts)
    if not good(admin, now):
        issue(ca, admin, "admin", now, organization="system:masters")
    return Authority(ca.certificate, server, admin)
