"""Power loss: unsynced writes are dropped, torn and reordered, and every acknowledged write is there afterwards.

A process that writes is recorded; at random moments the disk is built that a power loss would leave, and a store is
opened on it. `GANGLINE_CUTS=500` makes it long; the seed is fixed unless `GANGLINE_CUTS_SEED` is given.
"""

import asyncio
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gangline.apiserver.store.errors import StoreFailed
from gangline.apiserver.store.sqlite import SqliteJournal
from gangline.apiserver.store.store import Store
from gangline.local.home import PlaneHome
from support.powerloss import writer
from support.powerloss.disk import (
    ModelDisk,
    Operation,
    RecordedCall,
    build_recorder,
    read_record,
    recorder_environment,
)
from support.property.stores import put_thing

pytestmark = pytest.mark.faults

CUTS = int(os.environ.get("GANGLINE_CUTS", "60"))
CUTS_PER_RECORD = 20
SEED = int(os.environ.get("GANGLINE_CUTS_SEED", "16"))


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return build_recorder(tmp_path_factory.mktemp("recorder"))
    except RuntimeError as error:
        pytest.skip(f"no process can be recorded here: {error}")


def run_recorded(recorder: Path, folder: Path, work: Path, *command: object) -> list[RecordedCall]:
    record, says = work / "record", work / "says"
    environ = {**os.environ, **recorder_environment(recorder, folder, record, says)}
    environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    subprocess.run([sys.executable, *map(str, command)], env=environ, check=True, capture_output=True)
    return list(read_record(record))


class Promises:
    """What the recorded process was promised: for each path the last acknowledged number, and the one under way."""

    def __init__(self, base: dict[str, int]) -> None:
        self.acknowledged, self.under_way = dict(base), dict[str, int]()
        self.revision = 0

    def read(self, line: str) -> None:
        match line.split():
            case ["?", path, number]:
                self.under_way[path] = int(number)
            case ["!", path, number, revision]:
                self.acknowledged[path] = int(number)
                self.under_way.pop(path)
                self.revision = max(self.revision, int(revision))
            case ["x", path]:
                self.under_way.pop(path)
            case _:
                self.revision = max(self.revision, int(line.removeprefix("= ")))

    def broken(self, numbers: dict[str, int]) -> list[str]:
        """The paths whose number is neither the acknowledged one nor the one under way."""
        paths = self.acknowledged.keys() | self.under_way.keys() | numbers.keys()
        return [
            f"{path}: {numbers.get(path)}, acknowledged was {self.acknowledged.get(path)}"
            for path in sorted(paths)
            if numbers.get(path, -1) not in (self.acknowledged.get(path, -1), self.under_way.get(path))
        ]


def stored_numbers(store: Store) -> dict[str, int]:
    return {record.path: json.loads(record.data)["number"] for record in store.range("").records}


async def check_disk(folder: Path, promises: Promises) -> dict[str, int]:
    """Open what a power loss left, and check it against the promises. Returns the objects."""
    async with Store(SqliteJournal(folder), writer.RETENTION) as store:
        numbers = stored_numbers(store)
        assert not promises.broken(numbers)
        assert store.revision >= promises.revision, "revisions went back"
        check_history(store)
        next_revision = (await put_thing(store, "//things/default/next", 1)).revision
        assert next_revision > promises.revision
        records = store.range("").records
    async with Store(SqliteJournal(folder), writer.RETENTION) as store:
        assert store.range("").records == records
    return numbers


def check_history(store: Store) -> None:
    """Following the history from its beginning leads to the present."""
    snapshot = store.snapshot()
    state = {record.path: record for record in store.range("", at=snapshot.compacted_revision).records}
    last = snapshot.compacted_revision
    for event in snapshot.events:
        assert event.record.revision > last
        assert event.previous == state.pop(event.record.path, None)
        last = event.record.revision
        if not event.deleted:
            state[event.record.path] = event.record
    assert sorted(state) == [record.path for record in store.range("").records]


@pytest.mark.slow
@pytest.mark.timeout(120 + CUTS)
async def test_acknowledged_writes_survive_any_power_loss(recorder: Path, tmp_path: Path) -> None:
    chance, checked, unsynced_survived = random.Random(SEED), 0, 0
    start, base = tmp_path / "start", dict[str, int]()
    start.mkdir()
    while checked < CUTS:
        work = tmp_path / f"record-{checked}"
        shutil.copytree(start, work / "state")
        disk, promises = ModelDisk(start), Promises(base)
        command = (writer.__file__, work / "state", work / "says", chance.randrange(10**9), 12)
        calls = await asyncio.to_thread(run_recorded, recorder, work / "state", work, *command)
        cuts = sorted(chance.sample(range(1, len(calls) + 1), CUTS_PER_RECORD))
        begin = 0
        continued = chance.choice(cuts)
        for cut in cuts:
            for call in calls[begin:cut]:
                disk.apply(call)
            for line in disk.statements:
                promises.read(line)
            disk.statements.clear()
            begin = cut
            folder = work / f"cut-{cut}"
            folder.mkdir()
            disk.write_after_loss(folder, chance)
            copy = shutil.copytree(folder, work / "copy")
            numbers = await check_disk(copy, promises)
            unsynced_survived += any(
                path in promises.under_way and numbers.get(path, -1) == promises.under_way[path]
                for path in promises.under_way
            )
            checked += 1
            shutil.rmtree(copy)
            if cut == continued:
                # The next process begins with what this power loss left.
                start, base = folder, numbers
    print(f"{checked} power losses, seed {SEED}: no acknowledged write lost, every start clean")
    assert unsynced_survived, "none of the cuts was at an interesting moment"


@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_model_notices_a_store_that_does_not_sync(recorder: Path, tmp_path: Path) -> None:
    """The same without the recorded syncs of the write-ahead log: acknowledged writes are lost."""
    chance, lost = random.Random(SEED), 0
    (tmp_path / "state").mkdir()
    (tmp_path / "start").mkdir()
    command = (writer.__file__, tmp_path / "state", tmp_path / "says", SEED, 12)
    calls = await asyncio.to_thread(run_recorded, recorder, tmp_path / "state", tmp_path, *command)
    calls = [call for call in calls if call.operation is not Operation.SYNC]
    for number in range(10):
        disk, promises = ModelDisk(tmp_path / "start"), Promises({})
        for call in calls[: chance.randrange(len(calls) // 2, len(calls))]:
            disk.apply(call)
        for line in disk.statements:
            promises.read(line)
        folder = tmp_path / str(number)
        folder.mkdir()
        disk.write_after_loss(folder, chance)
        try:
            async with Store(SqliteJournal(folder)) as store:
                lost += bool(promises.broken(stored_numbers(store)))
        except StoreFailed:
            lost += 1
    assert lost >= 5


TOKEN_SCRIPT = """
import os, sys
from pathlib import Path
from gangline.apiserver.auth.signing_key import SigningKey
from gangline.local.home import PlaneHome
home, says = Path(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
os.write(says, f"token {PlaneHome(home).ensure_token()}\\n".encode())
os.write(says, f"key {SigningKey(home / 'key').key_id}\\n".encode())
"""


def test_token_and_key_survive_once_they_are_used(recorder: Path, tmp_path: Path) -> None:
    from gangline.apiserver.auth.signing_key import SigningKey

    (tmp_path / "home").mkdir()
    (tmp_path / "start").mkdir()
    calls = run_recorded(
        recorder, tmp_path / "home", tmp_path, "-c", TOKEN_SCRIPT, tmp_path / "home", tmp_path / "says"
    )
    chance = random.Random(SEED)
    for cut in range(len(calls) + 1):
        for attempt in range(4):
            disk = ModelDisk(tmp_path / "start")
            for call in calls[:cut]:
                disk.apply(call)
            folder = tmp_path / f"{cut}-{attempt}"
            folder.mkdir()
            disk.write_after_loss(folder, chance)
            spoken = dict(line.split() for line in disk.statements)
            token, key = PlaneHome(folder).ensure_token(), SigningKey(folder / "key").key_id
            assert token == spoken.get("token", token)
            assert key == spoken.get("key", key)
            assert re.fullmatch(r"[\w-]{43}", token)
    assert len(calls) > 8
