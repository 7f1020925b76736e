"""A process that writes to a store until it is killed. Says what it begins (`?`) and what was acknowledged (`!`).

`python support/property/store_writer.py FOLDER SEED`; lines: `= REVISION` first, then `? PATH NUMBER` and `! PATH NUMBER REVISION`.
A number of -1 is a deletion.
"""

import asyncio
import os
import random
import sys
from pathlib import Path

from gangline.apiserver.store.records import HistoryRetention, StoreWrite
from gangline.apiserver.store.sqlite import SqliteJournal
from gangline.apiserver.store.store import Store

WRITER_COUNT, OBJECTS_PER_WRITER = 8, 3
RETENTION = HistoryRetention(max_changes=100)
"""Little, so that compaction is always under way."""


def print_line(line: str) -> None:
    os.write(1, f"{line}\n".encode())


async def write_forever(store: Store, writer: int, chance: random.Random) -> None:
    for number in range(sys.maxsize):
        path = f"//things/default/{writer}-{chance.randrange(OBJECTS_PER_WRITER)}"
        there = store.get(path)
        body = {"metadata": {"name": path}, "number": number, "text": "x" * chance.randrange(6000)}
        delete = there is not None and chance.random() < 0.3
        print_line(f"? {path} {-1 if delete else number}")
        expected = there.revision if there else 0
        (record,) = await store.commit(StoreWrite(path, None if delete else body, expected))
        print_line(f"! {path} {-1 if delete else number} {record.revision}")


async def main(folder: Path, seed: int) -> None:
    async with Store(SqliteJournal(folder), RETENTION) as store, asyncio.TaskGroup() as group:
        print_line(f"= {store.revision}")
        for writer in range(WRITER_COUNT):
            group.create_task(write_forever(store, writer, random.Random(f"{seed} {writer}")))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
