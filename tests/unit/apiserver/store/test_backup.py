"""Backups: one moment of the store, complete and verified."""

import gzip
import os
import stat
from pathlib import Path

import pytest

from gangline.apiserver.store.backup import encode_backup, read_backup, save_backup, write_backup
from gangline.apiserver.store.records import HistoryRetention
from gangline.apiserver.store.sqlite import Durability, SqliteJournal, write_database
from gangline.apiserver.store.store import Store
from gangline.base.errors import InputError
from support.property.stores import file_names, put_thing, remove_thing


async def sample_store(store: Store) -> None:
    for number in range(30):
        await put_thing(store, f"/things/{number % 10}", number)
    await remove_thing(store, "/things/3")


async def test_backup_has_what_the_journal_has(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "state", Durability.RELAXED)
    async with Store(journal, HistoryRetention(max_changes=16)) as store:
        await sample_store(store)
        write_backup(tmp_path / "a.backup", store.snapshot().contents())
        save_backup(tmp_path / "b.backup", encode_backup(store.snapshot()))
        before, compacted = store.range(""), store.compacted_revision
        assert compacted > 1
    reopened = SqliteJournal(tmp_path / "state")
    contents = reopened.open()
    reopened.close()
    assert read_backup(tmp_path / "a.backup") == read_backup(tmp_path / "b.backup") == contents
    write_database(tmp_path / "copy", contents)
    async with Store(SqliteJournal(tmp_path / "copy")) as store:
        assert store.range("") == before
        assert store.compacted_revision == compacted
        with store.watch("", after=compacted) as watch:
            assert (await anext(watch))[-1].deleted


async def test_backup_is_private_and_replaces_its_file_at_once(tmp_path: Path) -> None:
    file = tmp_path / "a.backup"
    file.write_text("precious")
    async with Store() as store:
        await sample_store(store)
        contents = store.snapshot().contents()
        before = os.umask(0)
        try:
            header = write_backup(file, contents)
        finally:
            os.umask(before)
        assert (header.objects, header.revision) == (9, store.revision)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with pytest.raises(InputError, match="damaged"):
        save_backup(file, encode_backup(Store().snapshot())[:-20])
    assert read_backup(file) == contents
    assert file_names(tmp_path) == ["a.backup"]


async def test_damaged_backups_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.backup"
    async with Store() as store:
        await sample_store(store)
        write_backup(file, store.snapshot().contents())
    whole = file.read_bytes()
    lines = gzip.decompress(whole).splitlines(keepends=True)
    damages = {
        "cut off": whole[: len(whole) // 2],
        "not a backup": b"hello",
        "newer gangline": gzip.compress(lines[0].replace(b'backup":1', b'backup":2') + b"".join(lines[1:])),
        "not a backup of gangline, or damaged": gzip.compress(b"".join(lines[:9] + lines[10:])),
        "its checksum does not fit": gzip.compress(b"".join(lines).replace(b'"number":7', b'"number":8')),
        r"checksum does not fit": gzip.compress(b"".join(lines) + b"more"),
    }
    for message, content in damages.items():
        file.write_bytes(content)
        with pytest.raises(InputError, match=message) as caught:
            read_backup(file)
        assert str(caught.value).startswith(f"{file}: ")
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="there is no such file"):
        read_backup(tmp_path / "none")
