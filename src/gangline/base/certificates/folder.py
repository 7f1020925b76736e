"""The certificate files of a server, and a cache from which later servers take their certificates.

Only their owner can read them. A record file has everything in one piece: so it is known without parsing certificates
until when they are valid, and two processes that write it at once leave one of two complete records.
"""

import hashlib
import os
import stat
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from gangline.base.certificates.issued import CertificateSet
from gangline.base.certificates.renewal import renewed_certificates
from gangline.base.files import write_private

RECORD_NAME = "issued.json"


class KeyPair(NamedTuple):
    """The files of a certificate and its private key."""

    certificate: Path
    key: Path


class CertificateFiles(NamedTuple):
    """The certificate files of a server."""

    ca: Path
    """The certificates of all CAs that clients trust, first the one that signs."""
    ca_key: Path
    server: KeyPair
    admin: KeyPair


class CertificateFolder:
    """The folder of one server's certificates."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.files = CertificateFiles(folder / "ca.crt", folder / "ca.key", self.pair("server"), self.pair("admin"))

    def pair(self, name: str) -> KeyPair:
        """The files of a certificate with this name."""
        return KeyPair(self._folder / f"{name}.crt", self._folder / f"{name}.key")

    def ensure(self, hosts: tuple[str, ...], now: datetime, cache: Path | None = None) -> CertificateSet:
        """The certificates, issued where they are missing, nearly expired, or not for these hosts. Idempotent.

        The record file `cache` has those of earlier servers; it is created when missing. If it cannot be used, because of
        a read-only disk or because others could have written it, certificates are issued for this server alone.
        """
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(OSError):
            self._folder.chmod(0o700)
        own = read_record(self._folder / RECORD_NAME)
        cached = read_record(cache) if own is None and cache is not None else None
        issued = renewed_certificates(own or cached, hosts, now)
        if own is None and cache is not None and issued != cached:
            with suppress(OSError):
                write_record(cache, issued)
        self.publish(issued, now)
        return issued

    def publish(self, issued: CertificateSet, now: datetime) -> None:
        """Write all files of these certificates. Raises `OSError`."""
        contents = {self.files.ca_key: issued.signer(now).key, self.files.ca: issued.bundle(now)}
        for pair, key in ((self.files.server, issued.server), (self.files.admin, issued.admin)):
            contents |= {pair.key: key.key, pair.certificate: key.certificate}
        for file, text in contents.items():
            if _content(file) != text.encode():
                write_private(file, text.encode())
        record = self._folder / RECORD_NAME
        if read_record(record) != issued:
            # Where others can write the folder whatever its mode, as on some file systems, the next start issues anew.
            with suppress(PermissionError):
                write_record(record, issued)


class _Record(msgspec.Struct, frozen=True):
    """The content of a record file. The digest reveals a damaged file."""

    sha256: str
    issued: msgspec.Raw


def read_record(file: Path) -> CertificateSet | None:
    """The certificates in a record file; None if it is missing or damaged, or if others can read or replace it."""
    try:
        if not _is_private(file.parent.stat(), 0o022):
            return None
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as opened:
            if not _is_private(os.fstat(descriptor), 0o077):
                return None
            data = opened.read()
    except OSError:
        return None
    try:
        record = msgspec.json.decode(data, type=_Record)
        if hashlib.sha256(record.issued).hexdigest() != record.sha256:
            return None
        return msgspec.json.decode(record.issued, type=CertificateSet)
    except msgspec.MsgspecError:
        return None


def write_record(file: Path, issued: CertificateSet) -> None:
    """Write a record file, in a folder that only its owner can write. Raises `OSError`."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not _is_private(file.parent.stat(), 0o022):
        raise PermissionError(f"{file.parent}: others can write it")
    encoded = msgspec.json.encode(issued)
    record = _Record(hashlib.sha256(encoded).hexdigest(), msgspec.Raw(encoded))
    write_private(file, msgspec.json.encode(record))


def _is_private(found: os.stat_result, others: int) -> bool:
    """Whether a file is ours, and none of the permissions `others` is given."""
    return found.st_uid == os.geteuid() and not stat.S_IMODE(found.st_mode) & others


def _content(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None
