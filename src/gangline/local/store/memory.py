"""State in memory: for runs and tests that leave nothing behind."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from gangline.local.store.store import Compacted, Record, Snapshot, StaleWrite, Write

HISTORY = 10_000
"""Changes kept for watches that resume."""


class MemoryStore:
    """A dictionary with a log of changes."""

    def __init__(self) -> None:
        self._records: dict[str, Record] = {}
        self._revision = 0
        # Oldest first. Revisions are dense, so a watch finds its place by counting back.
        self._log: deque[Record] = deque(maxlen=HISTORY)
        self._compacted = 0
        self._changed = asyncio.Event()

    async def get(self, path: str) -> Record | None:
        return self._records.get(path)

    async def range(self, prefix: str) -> Snapshot:
        found = sorted((r for p, r in self._records.items() if p.startswith(prefix)), key=lambda r: r.path)
        return Snapshot(self._revision, tuple(found))

    async def commit(self, *writes: Write) -> int:
        for write in writes:
            there = self._records.get(write.path)
            if (there.revision if there else 0) != write.expected:
                raise StaleWrite(write.path)
        self._revision += 1
        for write in writes:
            self._take(write)
        self._changed.set()
        self._changed = asyncio.Event()
        return self._revision

    def _take(self, write: Write) -> None:
        before = self._records.pop(write.path, None)
        record = Record(write.path, self._revision, write.value, before.value if before else None)
        if write.value is not None:
            self._records[write.path] = record
        if len(self._log) == HISTORY:
            self._compacted = self._log[0].revision
        self._log.append(record)

    async def watch(self, prefix: str, *, after: int) -> AsyncIterator[Record]:
        seen = after
        while True:
            if seen < self._compacted:
                raise Compacted(f"revision {seen} is older than {self._compacted}")
            changed = self._changed
            for record in self._after(seen):
                if record.path.startswith(prefix):
                    yield record
            seen = max(seen, self._revision)
            if changed is self._changed:
                await changed.wait()

    def _after(self, revision: int) -> list[Record]:
        newer: list[Record] = []
        for record in reversed(self._log):
            if record.revision <= revision:
                break
            newer.append(record)
        newer.reverse()
        return newer
