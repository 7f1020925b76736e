"""The file of the audit log: its mode, its rotation, and a disk that is full."""

import errno
import os
from datetime import timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest

from gangline.apiserver.audit import log as audit_log
from gangline.apiserver.audit.log import AuditLog, AuditSettings, backup_files
from gangline.base.errors import InputError
from gangline.testing.clock import FakeClock


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A megabyte is ten bytes."""
    monkeypatch.setattr(audit_log, "MEGABYTE", 10)


def test_only_the_owner_can_read_the_file_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_text("old\n")
    path.chmod(0o666)
    before = os.umask(0)
    try:
        AuditLog(AuditSettings(path), FakeClock()).close()
        AuditLog(AuditSettings(tmp_path / "new.log"), FakeClock()).close()
    finally:
        os.umask(before)
    assert [file.stat().st_mode & 0o777 for file in (path, tmp_path / "new.log")] == [0o600, 0o600]
    assert path.read_text() == "old\n"


@pytest.mark.usefixtures("small_files")
def test_a_full_file_is_renamed_and_the_oldest_are_removed(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "audit.log"
    log = AuditLog(AuditSettings(path, max_megabytes=1, max_backups=2), clock)
    for number in range(5):
        log.write(f"line {number}\n".encode())
        clock.jump(timedelta(seconds=1))
    log.close()
    assert path.read_text() == "line 4\n"
    assert [file.read_text() for file in backup_files(path)] == ["line 2\n", "line 3\n"]
    assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o600}


@pytest.mark.usefixtures("small_files")
def test_events_are_lost_only_as_long_as_no_new_file_can_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(AuditSettings(path, max_megabytes=1), FakeClock())
    log.write(b"line 0\n")
    with monkeypatch.context() as patch:
        patch.setattr(audit_log, "_open", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
        log.write(b"line 1\n")
    log.write(b"line 2\n")
    log.close()
    assert log.lost_events == 1
    assert path.read_text() == "line 2\n"


@pytest.mark.usefixtures("small_files")
def test_old_files_are_removed_whatever_characters_their_name_has(tmp_path: Path) -> None:
    clock, path = FakeClock(), tmp_path / "audit[1].log"
    log = AuditLog(AuditSettings(path, max_megabytes=1, max_backups=1), clock)
    for number in range(4):
        log.write(f"line {number}\n".encode())
        clock.jump(timedelta(seconds=1))
    log.close()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_full_disk_costs_events_and_no_partial_line_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.log"
    log = AuditLog(AuditSettings(path), FakeClock())
    log.write(b"first\n")
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:3]))
    log.write(b"second\n")

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    log.write(b"third\n")
    monkeypatch.setattr(os, "write", write)
    log.write(b"fourth\n")
    log.close()
    assert path.read_text() == "first\nfourth\n"
    assert log.lost_events == 2
    assert [record.message for record in caplog.records] == ["audit events are lost"]


def test_a_folder_that_does_not_exist_gets_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write the audit log: No such file or directory"):
        AuditLog(AuditSettings(tmp_path / "none" / "audit.log"), FakeClock())
