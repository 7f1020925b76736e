"""Bodies, watch readers, and a journal that waits or fails on request, for tests of the store."""

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver.store.errors import StoreFailed
from gangline.apiserver.store.journal import Compaction, Journal, JournalContents
from gangline.apiserver.store.records import StoreEvent, StoreRecord, StoreWrite
from gangline.apiserver.store.store import Store
from gangline.apiserver.store.watches import StoreWatch


def file_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def thing_body(number: int, **more: Any) -> JSON:
    return {"kind": "Thing", "metadata": {"name": "thing"}, "number": number, **more}


def thing_number(data: bytes) -> int:
    found = json.loads(data)["number"]
    assert isinstance(found, int)
    return found


def stored_version(data: bytes) -> int:
    return int(json.loads(data)["metadata"]["resourceVersion"])


async def put_thing(store: Store, path: str, value: int = 0) -> StoreRecord:
    """Create or replace an object."""
    there = store.get(path)
    (record,) = await store.commit(StoreWrite(path, thing_body(value), there.revision if there else 0))
    return record


async def remove_thing(store: Store, path: str) -> StoreRecord:
    there = store.get(path)
    assert there is not None
    (record,) = await store.commit(StoreWrite(path, None, there.revision))
    return record


async def next_events(watch: StoreWatch, count: int) -> list[StoreEvent]:
    """The next `count` events."""
    found: list[StoreEvent] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await anext(watch)
    return found


class GatedJournal:
    """Passes everything on to a journal, but holds writes while `gate` is closed and fails those it is told to."""

    __test__ = False

    def __init__(self, inner: Journal) -> None:
        self._inner = inner
        self.write_gate = threading.Event()
        self.write_gate.set()
        self.write_failures: list[Exception] = []
        self.batches: list[list[str]] = []
        self.closed = False
        self._entered = threading.Semaphore(0)

    def open(self) -> JournalContents:
        return self._inner.open()

    def write(self, events: Sequence[StoreEvent], forget: Compaction | None, *, may_use_reserve: bool = False) -> None:
        self.batches.append([event.record.path for event in events])
        self._entered.release()
        if not self.write_gate.wait(timeout=60):
            raise StoreFailed("the test forgot to open the gate")
        if self.write_failures:
            raise self.write_failures.pop(0)
        self._inner.write(events, forget, may_use_reserve=may_use_reserve)

    def check(self) -> None:
        self._inner.check()

    def close(self) -> None:
        self.closed = True
        self._inner.close()

    async def wait_for_write(self) -> None:
        """Wait until one more write is on its way."""
        async with asyncio.timeout(60):
            await asyncio.to_thread(self._entered.acquire)
