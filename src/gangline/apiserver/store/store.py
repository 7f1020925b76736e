"""The store of the embedded control plane: revisions, compare-and-set, resumable watches.

State is in memory; reads and watches never touch the disk. With a journal every commit is durable before any client,
its writer included, can see it. Without a journal nothing survives the process, and a commit returns at once.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Self

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.store.backup import StoreSnapshot
from gangline.apiserver.store.errors import DiskFull, StaleWrite, StoreFailed
from gangline.apiserver.store.group_commit import Batch, GroupCommit
from gangline.apiserver.store.health import StoreHealth
from gangline.apiserver.store.journal import Compaction, Journal
from gangline.apiserver.store.records import HistoryRetention, RangeResult, StoreEvent, StoreRecord, StoreWrite
from gangline.apiserver.store.state import StoreState
from gangline.apiserver.store.watches import StoreWatch, WatchBroadcaster

"""Changes that may wait for a watcher before the watch is ended."""

MAX_MIXED_BATCHES = 2
"""How many batches of a deletion can fail on a full disk because they have other writes too: the one that finds the disk
full, and the one that gathered meanwhile. Later ones have none, because such writes are refused by then."""

DEFAULT_RETENTION = HistoryRetention()

StoreObserver = Callable[[Sequence[StoreEvent]], object]

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(JSON).decode


class Store:
    """Use it as an async context manager, from one event loop.

    Every write gets its own revision, greater than all earlier ones, for ever; revisions may be skipped when the
    disk fails. Writes of one commit have consecutive revisions and become durable and visible together.
    """

    def __init__(self, journal: Journal | None = None, retention: HistoryRetention = DEFAULT_RETENTION) -> None:
        self._retention = retention
        self._state = StoreState()
        self._broadcaster = WatchBroadcaster(self._state.revision)
        self._observers: tuple[StoreObserver, ...] = ()
        self.health = StoreHealth()
        self._group_commit = GroupCommit(journal, self._publish, self.health) if journal is not None else None
        self._cluster_id = str(uuid.uuid4())
        # The newest revision allocated to a write: ahead of the state while writes are being made durable.
        self._allocated_revision = self._state.revision
        self._is_open = False

    async def __aenter__(self) -> Self:
        """Load the journal. Raises `StoreFailed`, and `InputError` when the folder is in use."""
        if self._group_commit is not None:
            contents = await self._group_commit.open()
            self._cluster_id = contents.cluster_id
            self._state.load(contents.revision, contents.compacted_revision, contents.changes)
            self._allocated_revision = self._broadcaster.revision = self._state.revision
            self._trim_history()
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        """Finish accepted commits, end all watches, and stop the journal's thread."""
        self._is_open = False
        try:
            if self._group_commit is not None:
                await self._group_commit.close()
        finally:
            self._broadcaster.close_all()

    @property
    def cluster_id(self) -> str:
        """A UUID generated when this state began."""
        return self._cluster_id

    @property
    def revision(self) -> int:
        """The newest visible revision."""
        return self._state.revision

    @property
    def compacted_revision(self) -> int:
        """The oldest revision that can be read or resumed from."""
        return self._state.compacted_revision

    def get(self, path: str) -> StoreRecord | None:
        return self._state.get(path)

    def count(self, prefix: str = "") -> int:
        """The number of records under a prefix, without iterating over them."""
        return self._state.count(prefix)

    def has(self, prefix: str) -> bool:
        """Whether there is any record under a prefix; cheaper than to count them."""
        return self._state.has(prefix)

    def range(self, prefix: str, *, start_after: str = "", limit: int = 0, at: int | None = None) -> RangeResult:
        """Records under a prefix, in order of path, after a path, at most `limit` (0: all).

        `at` reads an earlier revision, as the next page of a list does; the cost grows with the number of
        changes since. Raises `RevisionCompacted` if history no longer has the revision, `RevisionTooNew` if
        it is in the future.
        """
        if at is None or at == self._state.revision:
            return self._state.range(prefix, start_after, limit)
        return self._state.range_at(at, prefix, start_after, limit)

    def deleted_records(self, prefix: str) -> tuple[StoreRecord, ...]:
        """The final records of deleted objects under a prefix, as far back as history goes.

        Objects that were created again are left out.
        """
        events = self._state.events_after(self._state.compacted_revision, prefix)
        deleted = {event.record.path: event.record for event in events if event.deleted}
        return tuple(record for path, record in deleted.items() if self._state.get(path) is None)

    def watch(self, prefix: str, *, after: int, backlog: int | None = None) -> StoreWatch:
        """A watch of the changes under a prefix after a revision; close it when done.

        It starts at once: after `range` without an await in between, no change is missed. `after` may be a
        future revision; earlier changes are then skipped. `backlog` is how many changes may wait before the watch is
        ended as too slow; without it any number. Raises `RevisionCompacted`.
        """
        self._check_open()
        return StoreWatch(self._broadcaster, prefix, after, self._state.events_after(after, prefix), backlog)

    @contextmanager
    def observe(self, observer: StoreObserver) -> Iterator[None]:
        """Call a function with all changes of each commit at the moment they become visible, until the block ends.

        Unlike a watch it has no backlog. It must be quick, and must not raise.
        """
        self._observers = (*self._observers, observer)
        try:
            yield
        finally:
            self._observers = tuple(other for other in self._observers if other is not observer)

    def snapshot(self) -> StoreSnapshot:
        """All of the store at the newest revision: what a backup contains. It takes no copy of the objects."""
        state = self._state
        events = state.events_after(state.compacted_revision, "")
        return StoreSnapshot(self._cluster_id, state.revision, state.compacted_revision, state.all_records(), events)

    def end_watches(self) -> None:
        """End all current watches: their iteration stops. New watches may be started."""
        self._broadcaster.close_all()

    async def commit(self, *writes: StoreWrite) -> tuple[StoreRecord, ...]:
        """Make all changes, or none. Returns the new records; for a deletion, the final record.

        On return the changes are durable (if there is a journal) and visible. Raises `StaleWrite` when a path
        is not at the expected revision, and `StoreFailed` when the disk fails; nothing is visible then. On a full
        disk, steps of a deletion still take effect. A cancelled commit may or may not take effect. The paths of the
        writes must differ.
        """
        self._check_open()
        if len(writes) > 1 and len({write.path for write in writes}) < len(writes):
            raise ValueError("a path occurs twice in one commit")
        if not all(map(is_deletion_step, writes)):
            return await self._commit(writes, may_use_reserve=False)
        for _ in range(MAX_MIXED_BATCHES):
            with suppress(DiskFull):
                return await self._commit(writes, may_use_reserve=True)
        return await self._commit(writes, may_use_reserve=True)

    async def _commit(self, writes: Sequence[StoreWrite], *, may_use_reserve: bool) -> tuple[StoreRecord, ...]:
        while (pending := self._pending_batch(writes)) is not None:
            # Whether this commit is stale is known only when that batch is settled: it may still fail. Clients never
            # learn of writes that are not durable.
            await pending.wait()
            self._check_open()
        if not may_use_reserve:
            self.health.check_writable()
        events = self._make_events(writes)
        self._allocated_revision += len(events)
        if self._group_commit is None:
            self._publish(events)
        elif events:
            await self._wait_durable(self._group_commit.add(events, may_use_reserve=may_use_reserve))
        return tuple(event.record for event in events)

    async def flush(self) -> None:
        """Wait until every commit that was accepted before is visible, or has failed."""
        if self._group_commit is not None:
            await self._group_commit.flush().wait()

    async def compact(self, revision: int) -> None:
        """Drop history up to a revision. Idempotent. Raises `RevisionTooNew`, `StoreFailed`.

        Commits compact history as well, by the store's `HistoryRetention`.
        """
        self._check_open()
        self._compact(revision)
        if self._group_commit is not None:
            await self._wait_durable(self._group_commit.flush())

    def _pending_batch(self, writes: Sequence[StoreWrite]) -> Batch | None:
        if self._group_commit is None:
            return None
        batches = (self._group_commit.pending_batch(write.path) for write in writes)
        return next((batch for batch in batches if batch is not None), None)

    def _make_events(self, writes: Sequence[StoreWrite]) -> list[StoreEvent]:
        current = [self._state.get(write.path) for write in writes]
        for write, record in zip(writes, current, strict=True):
            if (record.revision if record is not None else 0) != write.expected_revision:
                raise StaleWrite(write.path, write.expected_revision, record)
        numbered = enumerate(zip(writes, current, strict=True), start=self._allocated_revision + 1)
        return [_make_event(write, record, revision) for revision, (write, record) in numbered]

    async def _wait_durable(self, batch: Batch) -> None:
        await batch.wait()
        match batch.error:
            case None:
                return
            case DiskFull() as error:
                raise error.copy() from error
            case StoreFailed() as error:
                raise StoreFailed(str(error), error.cause) from error
            case error:
                raise StoreFailed(str(error)) from error

    def _publish(self, events: Sequence[StoreEvent]) -> None:
        self._state.apply(events)
        self._broadcaster.publish(events, self._state.revision)
        for observer in self._observers:
            observer(events)
        self._trim_history()

    def _trim_history(self) -> None:
        target = self._state.compaction_target(self._retention)
        if target > self._state.compacted_revision:
            self._compact(target)

    def _compact(self, revision: int) -> None:
        obsolete = self._state.compact(revision)
        if self._group_commit is not None:
            self._group_commit.schedule_compaction(Compaction(self._state.compacted_revision, tuple(obsolete)))

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreFailed("the store is closed")


def is_deletion_step(write: StoreWrite) -> bool:
    """Whether a write deletes an object, or changes one that is being deleted, as the removal of a finalizer does."""
    return write.body is None or "deletionTimestamp" in write.body.get("metadata", ())


def _make_event(write: StoreWrite, current: StoreRecord | None, revision: int) -> StoreEvent:
    if write.body is not None:
        return StoreEvent(StoreRecord(write.path, revision, _encode_at_revision(write.body, revision)), current)
    if current is None:
        raise ValueError(f"{write.path}: a deletion needs an existing object")
    final = write.final_body if write.final_body is not None else _decode(current.data)
    return StoreEvent(StoreRecord(write.path, revision, _encode_at_revision(final, revision)), current, deleted=True)


def _encode_at_revision(body: JSON, revision: int) -> bytes:
    body.setdefault("metadata", {})["resourceVersion"] = str(revision)
    return _encode(body)
