"""What tests of the store share: bodies, reading watches, and a journal that waits or fails when told."""

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any

from gangline.api.meta import JSON
from gangline.apiserver.store.errors import StoreFailed
from gangline.apiserver.store.journal import Contents, Forget, Journal
from gangline.apiserver.store.records import Event, Record, Write
from gangline.apiserver.store.store import Store
from gangline.apiserver.store.watches import Watch


def body(number: int, **more: Any) -> JSON:
    return {"kind": "Thing", "metadata": {"name": "thing"}, "number": number, **more}


def number(data: bytes) -> int:
    found = json.loads(data)["number"]
    assert isinstance(found, int)
    return found


def version(data: bytes) -> int:
    return int(json.loads(data)["metadata"]["resourceVersion"])


async def put(store: Store, path: str, value: int = 0) -> Record:
    """Create or replace, whatever is there."""
    there = store.get(path)
    (record,) = await store.commit(Write(path, body(value), there.revision if there else 0))
    return record


async def remove(store: Store, path: str) -> Record:
    there = store.get(path)
    assert there is not None
    (record,) = await store.commit(Write(path, None, there.revision))
    return record


async def take(watch: Watch, count: int) -> list[Event]:
    """The next so many events."""
    found: list[Event] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += await anext(watch)
    return found


class TestableJournal:
    """Passes everything on to a journal, but holds writes while `gate` is closed and fails those it is told to."""

    __test__ = False

    def __init__(self, inner: Journal) -> None:
        self._inner = inner
        self.gate = threading.Event()
        self.gate.set()
        self.failures: list[Exception] = []
        self.batches: list[list[str]] = []
        self.closed = False
        self._entered = threading.Semaphore(0)

    def open(self) -> Contents:
        return self._inner.open()

    def write(self, events: Sequence[Event], forget: Forget | None) -> None:
        self.batches.append([event.path for event in events])
        self._entered.release()
        if not self.gate.wait(timeout=60):
            raise StoreFailed("the test forgot to open the gate")
        if self.failures:
            raise self.failures.pop(0)
        self._inner.write(events, forget)

    def close(self) -> None:
        self.closed = True
        self._inner.close()

    async def write_begins(self) -> None:
        """Wait until one more write is on its way."""
        async with asyncio.timeout(60):
            await asyncio.to_thread(self._entered.acquire)
