"""A reserve for deletions: a file of fixed size whose blocks the store already owns.

On a full disk the database cannot grow, and every deletion is a write. The reserve takes these writes in place, so no
other program can take the space first. When there is space again, they move to the database in one transaction.

Half of it is for deletions alone: what else happens to an object that is being deleted, such as the status of a pod that
ends, may use the other half. So nobody uses up the reserve by editing an object that a finalizer keeps.

A record is a batch: a header, then its changes. A record counts if its checksum fits and its generation is the current
one; moving the records to the database begins the next generation, so an old record never counts again.
"""

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.store.disk.space import allocate, write_at
from gangline.apiserver.store.errors import DiskFull
from gangline.apiserver.store.records import StoreEvent, StoreRecord
from gangline.base.files import sync_folder

RESERVE_FILE = "reserve"
RESERVE_BYTES = 4 * 2**20
EDIT_BYTES = RESERVE_BYTES // 2
"""As long as less is used, edits of objects that are being deleted are recorded too."""
MAX_GROWTH_BYTES = 4096
"""How much a step of a deletion may add to an object: timestamps, conditions, entries of managers."""

HEADER = struct.Struct(">III")
"""The generation, the size of the changes, and the checksum of both with the cluster id."""

Change: TypeAlias = tuple[StoreRecord, bool]
"""A record, and whether it is the final one of a deleted object."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[int, str, bytes, bool]]).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class DeletionReserve:
    """The reserve of a folder. It belongs to one store, and is empty until `start`."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / RESERVE_FILE
        self._cluster_id = b""
        self._generation = 0
        self._end = 0
        self.changes: list[Change] = []
        """Changes that are not in the database, in the order in which they were made."""

    @property
    def generation(self) -> int:
        return self._generation

    def start(self, cluster_id: str, generation: int) -> None:
        """Read the changes of this generation. Those of others are in the database."""
        self._cluster_id, self._generation, self._end = cluster_id.encode(), generation, 0
        self.changes = []
        content = self._file.read_bytes() if self._file.exists() else b""
        while (batch := self._read_batch(content)) is not None:
            self.changes += batch

    def ensure_allocated(self) -> None:
        """Create the file if it is missing. Raises `OSError`."""
        if self._file.exists():
            return
        fresh = self._file.with_name(f".{RESERVE_FILE}.new")
        handle = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            allocate(handle, RESERVE_BYTES)
        except OSError:
            fresh.unlink()
            raise
        finally:
            os.close(handle)
        fresh.replace(self._file)
        sync_folder(self._file.parent)

    def append(self, events: Sequence[StoreEvent]) -> None:
        """Record changes durably. Raises `DiskFull` when the reserve is missing or used up."""
        payload = _encode([(e.record.revision, e.record.path, e.record.data, e.deleted) for e in events])
        end = self._end + HEADER.size + len(payload)
        if end > EDIT_BYTES and not all(map(advances_deletion, events)):
            raise DiskFull(self._file.parent)
        if not self._file.exists() or end > RESERVE_BYTES:
            raise DiskFull(self._file.parent, has_reserve=False)
        header = HEADER.pack(self._generation, len(payload), self._checksum(self._generation, payload))
        handle = os.open(self._file, os.O_WRONLY)
        try:
            write_at(handle, header + payload, self._end)
            os.fsync(handle)
        finally:
            os.close(handle)
        self._end = end
        self.changes += [(event.record, event.deleted) for event in events]

    def restart(self) -> None:
        """Begin the next generation, because the database has all changes of this one."""
        self._generation, self._end, self.changes = self._generation + 1, 0, []

    def _read_batch(self, content: bytes) -> list[Change] | None:
        """The batch at the end of those read so far; None if there is none."""
        start = self._end + HEADER.size
        if start > len(content):
            return None
        generation, size, checksum = HEADER.unpack_from(content, self._end)
        payload = content[start : start + size]
        if generation != self._generation or checksum != self._checksum(generation, payload) or len(payload) < size:
            return None
        self._end = start + size
        return [(StoreRecord(path, revision, data), deleted) for revision, path, data, deleted in _decode(payload)]

    def _checksum(self, generation: int, payload: bytes) -> int:
        return zlib.crc32(payload, zlib.crc32(self._cluster_id, generation))


def advances_deletion(event: StoreEvent) -> bool:
    """Whether a change deletes an object, begins its deletion or removes a finalizer, and hardly makes it larger."""
    if event.deleted:
        return True
    if event.previous is None or len(event.record.data) > len(event.previous.data) + MAX_GROWTH_BYTES:
        return False
    old, new = (_decode_object(record.data) for record in (event.previous, event.record))
    return "deletionTimestamp" not in old["metadata"] or _finalizer_count(new) < _finalizer_count(old)


def _finalizer_count(body: JSON) -> int:
    """Finalizers of the object, and of its spec if it is a namespace."""
    spec = body.get("spec")
    in_spec = spec.get("finalizers") if isinstance(spec, dict) else None
    return len(body["metadata"].get("finalizers") or ()) + (len(in_spec) if isinstance(in_spec, list) else 0)
