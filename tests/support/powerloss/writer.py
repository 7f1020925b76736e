"""A process that is recorded: it writes to a store, closes and opens it again, and meets a full disk.

`python writer.py FOLDER SAYS SEED COMMITS`. Lines of SAYS: `= REVISION` when the store is open, `? PATH NUMBER` before
and `! PATH NUMBER REVISION` after each write; a number of -1 is a deletion.
"""

import asyncio
import ctypes
import os
import random
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from gangline.apiserver.store import group_commit, sqlite
from gangline.apiserver.store.disk import reserve, space
from gangline.apiserver.store.errors import DiskFull
from gangline.apiserver.store.records import HistoryRetention, StoreWrite
from gangline.apiserver.store.sqlite import SqliteJournal
from gangline.apiserver.store.store import Store

WRITERS, OBJECTS_PER_WRITER = 4, 3
RETENTION = HistoryRetention(max_changes=60)


def make_all_small_and_frequent() -> None:
    """Checkpoints, compactions and checks of the disk happen all the time."""
    sqlite.MAX_WAL_BYTES = 64 * 1024
    reserve.RESERVE_BYTES = 128 * 1024
    space.MIN_FREE_BYTES = 64 * 1024
    group_commit.CHECK_SECONDS = group_commit.RETRY_SECONDS = 0.02


@contextmanager
def full_disk() -> Iterator[None]:
    recorder = ctypes.CDLL(os.environ["LD_PRELOAD"])
    recorder.recorder_set_full(1)
    try:
        yield
    finally:
        recorder.recorder_set_full(0)


class RecordedWriter:
    """Writes objects of its own, one after the other."""

    def __init__(self, store: Store, says: int, number: int, chance: random.Random) -> None:
        self._store, self._says, self._number, self._chance = store, says, number, chance

    def _say(self, text: str) -> None:
        os.write(self._says, f"{text}\n".encode())

    async def write(self, count: int, first: int) -> None:
        for number in range(first, first + count):
            path = f"//things/default/{self._number}-{self._chance.randrange(OBJECTS_PER_WRITER)}"
            current = self._store.get(path)
            body = {"metadata": {"name": path}, "number": number, "text": "x" * self._chance.randrange(3000)}
            deletes = current is not None and self._chance.random() < 0.3
            await self._commit(path, None if deletes else body, -1 if deletes else number)

    async def delete_all(self) -> None:
        for index in range(OBJECTS_PER_WRITER):
            path = f"//things/default/{self._number}-{index}"
            if self._store.get(path) is not None:
                await self._commit(path, None, -1)

    async def _commit(self, path: str, body: dict[str, object] | None, number: int) -> None:
        current = self._store.get(path)
        self._say(f"? {path} {number}")
        try:
            (record,) = await self._store.commit(StoreWrite(path, body, current.revision if current else 0))
        except DiskFull:
            self._say(f"x {path}")
            await asyncio.sleep(0.01)
        else:
            self._say(f"! {path} {number} {record.revision}")


async def main(folder: Path, says: Path, seed: int, commits: int) -> None:
    make_all_small_and_frequent()
    chance, output = random.Random(seed), os.open(says, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for session in range(4):
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(Store(SqliteJournal(folder), RETENTION))
            os.write(output, f"= {store.revision}\n".encode())
            writers = [RecordedWriter(store, output, index, random.Random(chance.random())) for index in range(WRITERS)]
            first = session * 1_000_000
            await asyncio.gather(*(writer.write(commits, first) for writer in writers))
            await asyncio.sleep(0.05)  # a check of the disk makes the reserve
            with full_disk():
                await asyncio.gather(*(writer.write(3, first + 500_000) for writer in writers[2:]))
                await asyncio.gather(*(writer.delete_all() for writer in writers[:2]))
            await asyncio.gather(*(writer.write(commits // 4, first + 700_000) for writer in writers[:2]))
            if session % 2:
                # It is closed on a full disk, and opened again with space.
                closing = stack.pop_all()
                with full_disk():
                    await asyncio.gather(*(writer.delete_all() for writer in writers[2:]))
                    await closing.aclose()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
