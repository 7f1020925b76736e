"""The audit log's file: one line for each event, renamed when it is long."""

import glob
import logging
import os
import stat
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import msgspec

from gangline.apiserver.audit.policy import METADATA_OF_ALL, AuditPolicy
from gangline.base.clock import Clock
from gangline.base.errors import InputError

log = logging.getLogger(__name__)

MEGABYTE = 2**20
WARNING_INTERVAL_SECONDS = 60.0


class AuditSettings(msgspec.Struct, frozen=True):
    """Where the audit log goes, and what is in it."""

    path: Path
    policy: AuditPolicy = METADATA_OF_ALL
    max_megabytes: int = 100
    """The size at which the file is renamed and a new one begun."""
    max_backups: int = 5
    """How many renamed files are kept. 0: all."""


class AuditLog:
    """Appends to a file that only its owner can read. Errors of the disk cost events, never a request."""

    def __init__(self, settings: AuditSettings, clock: Clock) -> None:
        """Raises `InputError` when the file cannot be opened."""
        self.policy, self._settings, self._clock = settings.policy, settings, clock
        self._path = settings.path.absolute()
        self.lost_events = 0
        self._next_warning = float("-inf")
        self._descriptor, self._size = _open_checked(self._path)

    def close(self) -> None:
        os.close(self._descriptor)

    def write(self, line: bytes) -> None:
        """Append one event. Never raises `OSError`: a lost event is counted, and a warning logged."""
        try:
            if self._size and self._size + len(line) > self._settings.max_megabytes * MEGABYTE:
                self._rotate()
            written = os.write(self._descriptor, line)
            if written < len(line):
                self._undo_partial_line()
                self._lose_event(f"wrote {written} of {len(line)} bytes")
                return
            self._size += written
        except OSError as error:
            self._lose_event(error.strerror or str(error))

    def _undo_partial_line(self) -> None:
        os.ftruncate(self._descriptor, self._size)

    def _lose_event(self, why: str) -> None:
        self.lost_events += 1
        if self._clock.monotonic() >= self._next_warning:
            self._next_warning = self._clock.monotonic() + WARNING_INTERVAL_SECONDS
            log.warning(
                "audit events are lost", extra={"file": str(self._path), "error": why, "lost": self.lost_events}
            )

    def _rotate(self) -> None:
        with suppress(FileNotFoundError):  # renamed before, but then no new file could be opened; or removed
            self._path.rename(backup_path(self._path, self._clock.now()))
        old = self._descriptor
        self._descriptor, self._size = _open(self._path)
        os.close(old)
        if self._settings.max_backups:
            for path in backup_files(self._path)[: -self._settings.max_backups]:
                path.unlink(missing_ok=True)


def backup_path(path: Path, now: datetime) -> Path:
    """The name of a full file: the time is added, as kube-apiserver adds it."""
    moment = f"{now:%Y-%m-%dT%H-%M-%S}.{now.microsecond // 1000:03}"
    return path.with_name(f"{path.stem}-{moment}{path.suffix}")


def backup_files(path: Path) -> list[Path]:
    """The renamed files of a log, oldest first."""
    return sorted(path.parent.glob(f"{glob.escape(path.stem)}-????-??-??T??-??-??.???{glob.escape(path.suffix)}"))


def check_writable(path: Path) -> None:
    """Create the log if there is none. Raises `InputError` when it cannot be written."""
    os.close(_open_checked(path)[0])


def _open_checked(path: Path) -> tuple[int, int]:
    try:
        return _open(path)
    except OSError as error:
        problem = error.strerror
        raise InputError(f"{path}: cannot write the audit log: {problem}; choose another with --audit-log") from error


def _open(path: Path) -> tuple[int, int]:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode):
        os.fchmod(descriptor, 0o600)
    return descriptor, status.st_size
