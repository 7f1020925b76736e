"""The store against a model: any order of commits, races, reads of the past, watches, compactions and restarts."""

import asyncio
import json
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gangline.apiserver.store.errors import RevisionCompacted, RevisionTooNew, StaleWrite, StoreFailed
from gangline.apiserver.store.records import HistoryRetention, StoreRecord, StoreWrite
from gangline.apiserver.store.sqlite import Durability, SqliteJournal
from gangline.apiserver.store.store import Store
from gangline.apiserver.store.watches import StoreWatch
from support.property.stores import GatedJournal, stored_version, thing_body, thing_number

PREFIXES = ("", "/p/", "/p/x/", "/q/")
paths = st.sampled_from([f"{prefix}{name}" for prefix in ("/p/x/", "/p/y/", "/q/x/") for name in "ab"])
prefixes = st.sampled_from(PREFIXES)
values = st.integers(0, 99)
revisions = st.integers(0, 60)
limits = st.integers(0, 3)
intents = st.dictionaries(paths, st.one_of(st.none(), values), min_size=1, max_size=4)
lies = st.sampled_from([0, 0, 0, 0, 1, -1])  # what is added to the revision that is expected
KEEP = HistoryRetention(max_changes=24)


class Change(NamedTuple):
    revision: int
    path: str
    value: int | None  # None: deleted
    before: int | None


class Model:
    """All that ever happened, and nothing clever."""

    def __init__(self) -> None:
        self.revision = 1
        self.changes: list[Change] = []

    def at(self, revision: int) -> dict[str, tuple[int, int]]:
        """Path -> value, revision."""
        state: dict[str, tuple[int, int]] = {}
        for change in self.changes:
            if change.revision <= revision:
                state.pop(change.path, None)
                if change.value is not None:
                    state[change.path] = change.value, change.revision
        return state

    def write(self, path: str, value: int | None) -> None:
        before = self.at(self.revision).get(path)
        self.revision += 1
        self.changes.append(Change(self.revision, path, value, before[0] if before else None))

    def after(self, revision: int, prefix: str) -> list[Change]:
        return [change for change in self.changes if change.revision > revision and change.path.startswith(prefix)]


def told(record: StoreRecord) -> tuple[str, int, int]:
    assert stored_version(record.data) == record.revision
    return record.path, thing_number(record.data), record.revision


class Reader:
    """A watch, and the revision after which it must tell everything."""

    def __init__(self, watch: StoreWatch, after: int) -> None:
        self.watch, self.after = watch, after


class StoreMachine(RuleBasedStateMachine):
    """In memory. Every rule does one thing to the store and to the model, and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.model = Model()
        self.readers: list[Reader] = []
        self.compacted = 0
        self.store = self.made()
        self.runner.run(self.store.__aenter__())

    def made(self) -> Store:
        return Store(retention=KEEP)

    def writes(self, intent: dict[str, int | None], lie: int = 0) -> list[StoreWrite]:
        state = self.model.at(self.model.revision)
        found: list[StoreWrite] = []
        for path, value in intent.items():
            revision = state.get(path, (0, 0))[1]
            if value is None and not revision:
                continue
            found.append(StoreWrite(path, None if value is None else thing_body(value), max(0, revision + lie)))
        return found

    def accept(self, writes: list[StoreWrite]) -> None:
        for write in writes:
            self.model.write(write.path, write.body["number"] if write.body is not None else None)

    @rule(intent=intents, lie=lies)
    def commit(self, intent: dict[str, int | None], lie: int) -> None:
        writes = self.writes(intent, lie)
        truth = self.writes(intent)
        stale = [w.path for w, t in zip(writes, truth, strict=True) if w.expected_revision != t.expected_revision]
        if stale:
            with pytest.raises(StaleWrite) as caught:
                self.runner.run(self.store.commit(*writes))
            assert caught.value.path == stale[0]
            assert caught.value.current is self.store.get(stale[0])
        else:
            records = self.runner.run(self.store.commit(*writes))
            self.accept(writes)
            expected = range(self.model.revision - len(writes) + 1, self.model.revision + 1)
            assert [record.revision for record in records] == list(expected)

    @rule(several=st.lists(intents, min_size=2, max_size=5))
    def race(self, several: list[dict[str, int | None]]) -> None:
        """All at once, all with the same idea of the present: the first to touch a path wins it."""
        commits = [self.writes(intent) for intent in several]

        async def attempt(writes: list[StoreWrite]) -> bool:
            try:
                await self.store.commit(*writes)
            except StaleWrite:
                return False
            return True

        async def all_at_once() -> list[bool]:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(attempt(writes)) for writes in commits]
            return [task.result() for task in tasks]

        taken: set[str] = set()
        for writes, won in zip(commits, self.runner.run(all_at_once()), strict=True):
            mine = {write.path for write in writes}
            assert won == taken.isdisjoint(mine)
            if won:
                taken |= mine
                self.accept(writes)

    @rule(prefix=prefixes, at=revisions, after=st.one_of(st.just(""), paths), limit=limits)
    def read_the_past(self, prefix: str, at: int, after: str, limit: int) -> None:
        if at > self.model.revision or at < self.store.compacted_revision:
            with pytest.raises(RevisionTooNew if at > self.model.revision else RevisionCompacted):
                self.store.range(prefix, at=at)
            return
        state = self.model.at(at)
        everything = [(path, *state[path]) for path in sorted(state) if path.startswith(prefix) and path > after]
        snapshot = self.store.range(prefix, start_after=after, limit=limit, at=at)
        expected = everything[:limit] if limit else everything
        assert [told(record) for record in snapshot.records] == expected
        assert snapshot.remaining == len(everything) - len(expected)
        assert snapshot.revision == at

    @rule(prefix=prefixes, after=revisions)
    def start_watch(self, prefix: str, after: int) -> None:
        if after < self.store.compacted_revision:
            with pytest.raises(RevisionCompacted):
                self.store.watch(prefix, after=after)
        else:
            self.readers.append(Reader(self.store.watch(prefix, after=after), after))

    @precondition(lambda self: self.readers)
    @rule(pick=st.integers(0, 1000), close=st.booleans())
    def read_watch(self, pick: int, close: bool) -> None:
        reader = self.readers[pick % len(self.readers)]
        self.check_watch(reader)
        if close:
            reader.watch.close()
            self.readers.remove(reader)

    def check_watch(self, reader: Reader) -> None:
        expected = self.model.after(reader.after, reader.watch.prefix)
        if expected:
            assert reader.watch.revision < expected[0].revision
            events = self.runner.run(self.next(reader.watch))
            found = [
                Change(
                    event.record.revision,
                    event.record.path,
                    None if event.deleted else thing_number(event.record.data),
                    thing_number(event.previous.data) if event.previous else None,
                )
                for event in events
            ]
            assert found == expected
            reader.after = found[-1].revision
        assert reader.watch.revision >= max(reader.after, self.model.revision)

    async def next(self, watch: StoreWatch) -> list:  # type: ignore[type-arg]
        async with asyncio.timeout(60):
            return list(await anext(watch))

    @rule(revision=revisions)
    def compact(self, revision: int) -> None:
        if revision > self.model.revision:
            with pytest.raises(RevisionTooNew):
                self.runner.run(self.store.compact(revision))
        else:
            self.runner.run(self.store.compact(revision))
            assert self.store.compacted_revision >= revision

    @invariant()
    def agrees_with_the_model(self) -> None:
        state = self.model.at(self.model.revision)
        assert self.store.revision == self.model.revision
        for prefix in PREFIXES:
            expected = [(path, *state[path]) for path in sorted(state) if path.startswith(prefix)]
            assert [told(record) for record in self.store.range(prefix).records] == expected
            assert self.store.count(prefix) == len(expected)
        for path in state:
            record = self.store.get(path)
            assert record is not None
            assert json.loads(record.data)["kind"] == "Thing"

    @invariant()
    def history_shrinks_only_at_its_old_end(self) -> None:
        assert self.compacted <= self.store.compacted_revision <= self.model.revision
        self.compacted = self.store.compacted_revision
        assert len(self.model.after(self.compacted, "")) <= KEEP.max_changes + KEEP.max_changes // 8

    def teardown(self) -> None:
        try:
            for reader in self.readers:
                self.check_watch(reader)
        finally:
            self.runner.run(self.store.__aexit__())
            self.runner.close()


class DurableStoreMachine(StoreMachine):
    """With a journal: the same, with restarts and failing disks in the middle of it."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="gangline-")
        super().__init__()

    def made(self) -> Store:
        self.journal = GatedJournal(SqliteJournal(Path(self.folder.name), Durability.RELAXED))
        return Store(self.journal, KEEP)

    @rule()
    def restart(self) -> None:
        """Watches end, and their readers resume where they were, if that is still known."""
        cluster = self.store.cluster_id
        self.runner.run(self.store.__aexit__())
        self.store = self.made()
        self.runner.run(self.store.__aenter__())
        assert self.store.cluster_id == cluster
        resumable = [reader for reader in self.readers if reader.after >= self.store.compacted_revision]
        self.readers = [
            Reader(self.store.watch(reader.watch.prefix, after=reader.after), reader.after) for reader in resumable
        ]

    @rule(intent=intents)
    def fail(self, intent: dict[str, int | None]) -> None:
        writes = self.writes(intent)
        if writes:
            self.journal.write_failures = [StoreFailed("no space")]
            with pytest.raises(StoreFailed):
                self.runner.run(self.store.commit(*writes))
            # The revisions are skipped; a restart starts over, which nobody can tell.
            self.runner.run(self.skip())

    async def skip(self) -> None:
        """Bring store and model to the same revision again."""
        (record,) = await self.store.commit(
            StoreWrite("/skip", thing_body(0), there.revision if (there := self.store.get("/skip")) else 0)
        )
        self.model.revision = record.revision - 1
        self.model.write("/skip", 0)

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self.folder.cleanup()


StoreMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
DurableStoreMachine.TestCase.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)
TestStore = StoreMachine.TestCase
TestDurableStore = DurableStoreMachine.TestCase
