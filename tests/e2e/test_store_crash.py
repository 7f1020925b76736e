"""A process that writes is killed at any moment, again and again; what it was promised is there afterwards."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from gangline.apiserver.store.sqlite import SqliteJournal
from gangline.apiserver.store.store import Store
from support.property import store_writer

KILLS = int(os.environ.get("GANGLINE_KILLS", "10"))


class Seen:
    """What the killed processes said: per path the last acknowledged number, and the last begun."""

    def __init__(self) -> None:
        self.revision = 0
        self.promised: dict[str, tuple[int, int]] = {}  # path -> number, revision
        self.begun: dict[str, int] = {}

    def hear(self, line: str) -> None:
        match line.split():
            case ["=", revision]:
                assert int(revision) >= self.revision, "revisions went back"
            case ["?", path, number]:
                self.begun[path] = int(number)
            case ["!", path, number, revision]:
                assert int(revision) > self.promised.get(path, (0, 0))[1]
                self.promised[path] = int(number), int(revision)
                self.revision = max(self.revision, int(revision))
            case other:
                raise AssertionError(f"not a whole line: {other}")


def kill_while_writing(folder: Path, seed: int, lines: int, seen: Seen) -> None:
    command = [sys.executable, store_writer.__file__, str(folder), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for _ in range(lines):
            seen.hear(process.stdout.readline())
        process.kill()
        for line in process.stdout:
            seen.hear(line)


async def check(folder: Path, seen: Seen) -> None:
    async with Store(SqliteJournal(folder), store_writer.RETENTION) as store:
        assert store.revision >= seen.revision
        there = {
            record.path: (json.loads(record.data)["number"], record.revision) for record in store.range("").records
        }
        for path in seen.begun.keys() | there.keys():
            number, revision = there.get(path, (-1, 0))
            promised = seen.promised.get(path, (-1, 0))
            if number != promised[0] or revision not in (promised[1], 0):
                # The one write that was under way when the end came: it may have got through.
                assert number == seen.begun.get(path), f"{path}: found {number}, promised {promised}"
                assert not revision or revision > promised[1]
            seen.promised[path] = number, max(revision, promised[1])
        history_leads_to_the_present(store)
        seen.revision = store.revision
    seen.begun.clear()


def history_leads_to_the_present(store: Store) -> None:
    state = {record.path: record for record in store.range("", at=store.compacted_revision).records}
    last = store.compacted_revision
    with store.watch("", after=store.compacted_revision) as watch:
        for event in (event for batch in watch._batches for event in batch):
            assert event.record.revision > last
            assert event.previous == state.pop(event.record.path, None)
            last = event.record.revision
            if not event.deleted:
                state[event.record.path] = event.record
    assert tuple(state[path] for path in sorted(state)) == store.range("").records


@pytest.mark.slow
@pytest.mark.timeout(60 + 5 * KILLS)
async def test_acknowledged_writes_survive_any_kill(tmp_path: Path) -> None:
    seed = random.randrange(10**9)
    print(f"seed {seed}")  # shown when it fails
    chance, seen = random.Random(seed), Seen()
    for _ in range(KILLS):
        kill_while_writing(tmp_path, chance.randrange(10**9), 1 + int(chance.expovariate(1 / 400)), seen)
        await check(tmp_path, seen)
    assert seen.revision > KILLS
