"""All state of the local control plane: revisions, compare-and-set, resumable watches.

State is in memory, reads and watches never touch a disk. With a journal every commit is durable before anybody, its
writer included, can see it; without one nothing is left behind and a commit returns at once.
"""

import uuid
from collections.abc import Sequence
from typing import Self

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.store.errors import StaleWrite, StoreFailed
from gangline.apiserver.store.group_commit import Batch, GroupCommit
from gangline.apiserver.store.journal import Compaction, Journal
from gangline.apiserver.store.records import (
    HistoryRetention,
    RangeResult,
    StoreEvent,
    StoreRecord,
    StoreWrite,
)
from gangline.apiserver.store.state import StoreState
from gangline.apiserver.store.watches import StoreWatch, WatchBroadcaster

MAX_WATCH_BACKLOG = 10_000
"""Changes that may wait for a watcher before it is given up."""

DEFAULT_RETENTION = HistoryRetention()

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(JSON).decode


class Store:
    """Use it as an async context manager, from one event loop.

    Every write gets a revision of its own, greater than all before it, for ever; a revision may be skipped when the
    disk failed. Writes of one commit have consecutive revisions and become durable and visible together.
    """

    def __init__(self, journal: Journal | None = None, keep: HistoryRetention = DEFAULT_RETENTION) -> None:
        self._retention = keep
        self._state = StoreState()
        self._broadcaster = WatchBroadcaster(self._state.revision)
        self._group_commit = GroupCommit(journal, self._publish) if journal is not None else None
        self._cluster_id = str(uuid.uuid4())
        # The newest revision that a write was given: ahead of the state while writes are on their way to the disk.
        self._allocated_revision = self._state.revision
        self._is_open = False

    async def __aenter__(self) -> Self:
        """Load what the journal kept. Raises `StoreFailed`, and `InputError` when the folder is in use."""
        if self._group_commit is not None:
            contents = await self._group_commit.open()
            self._cluster_id = contents.cluster_id
            self._state.load(contents.revision, contents.compacted_revision, contents.changes)
            self._allocated_revision = self._broadcaster.revision = self._state.revision
            self._trim_history()
        self._is_open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        """Finish the commits that were accepted, end all watches, and leave no thread behind."""
        self._is_open = False
        try:
            if self._group_commit is not None:
                await self._group_commit.close()
        finally:
            self._broadcaster.close_all()

    @property
    def cluster_id(self) -> str:
        """A UUID that was made up when this state began."""
        return self._cluster_id

    @property
    def revision(self) -> int:
        """The newest revision that can be seen."""
        return self._state.revision

    @property
    def compacted_revision(self) -> int:
        """The oldest revision that can be read or resumed from."""
        return self._state.compacted_revision

    def get(self, path: str) -> StoreRecord | None:
        return self._state.get(path)

    def count(self, prefix: str = "") -> int:
        """How many records there are under a prefix, without going through them."""
        return self._state.count(prefix)

    def range(self, prefix: str, *, start_after: str = "", limit: int = 0, at: int | None = None) -> RangeResult:
        """Records under a prefix, in order of path, after a path, at most `limit` (0: all).

        `at` reads an earlier revision, as the next page of a list must; it costs as much as there were changes
        since. Raises `RevisionCompacted` when that is no longer known and `RevisionTooNew` when it is yet to come.
        """
        if at is None or at == self._state.revision:
            return self._state.range(prefix, start_after, limit)
        return self._state.range_at(at, prefix, start_after, limit)

    def deleted_records(self, prefix: str) -> tuple[StoreRecord, ...]:
        """What was deleted under a prefix, as it was at the end, if nothing else has its path now.

        As far back as history goes.
        """
        events = self._state.events_after(self._state.compacted_revision, prefix)
        gone = {event.path: event.record for event in events if event.deleted}
        return tuple(record for path, record in gone.items() if self._state.get(path) is None)

    def watch(self, prefix: str, *, after: int, backlog: int = MAX_WATCH_BACKLOG) -> StoreWatch:
        """Changes under a prefix after a revision; close it when done.

        It starts here and now: after `range`, with no await in between, nothing can be missed. A revision that is
        yet to come is waited for. Raises `RevisionCompacted`.
        """
        self._check_open()
        return StoreWatch(self._broadcaster, prefix, after, self._state.events_after(after, prefix), backlog)

    def end_watches(self) -> None:
        """Let everybody who watches now get to the end of the iteration. The store goes on."""
        self._broadcaster.close_all()

    async def commit(self, *writes: StoreWrite) -> tuple[StoreRecord, ...]:
        """Make all changes, or none. Returns the new records; for a deletion, what watchers are told.

        They are durable (if there is a journal) and visible on return. Raises `StaleWrite` when a path is not at
        the expected revision, and `StoreFailed` when the disk fails: nothing is visible then. A cancelled commit
        may or may not take effect. Paths must differ.
        """
        self._check_open()
        if len(writes) > 1 and len({write.path for write in writes}) < len(writes):
            raise ValueError("a path occurs twice in one commit")
        while (ahead := self._pending_batch(writes)) is not None:
            # Whether we are stale is known when it is: it may yet fail. Nobody learns of what is not durable.
            await ahead.wait()
            self._check_open()
        events = self._make_events(writes)
        self._allocated_revision += len(events)
        if self._group_commit is None:
            self._publish(events)
        elif events:
            await self._wait_durable(self._group_commit.add(events))
        return tuple(event.record for event in events)

    async def compact(self, revision: int) -> None:
        """Forget history up to a revision; idempotent. Raises `RevisionTooNew`, `StoreFailed`.

        It happens by itself too, as the store's `HistoryRetention` says.
        """
        self._check_open()
        self._compact(revision)
        if self._group_commit is not None:
            await self._wait_durable(self._group_commit.flush())

    def _pending_batch(self, writes: Sequence[StoreWrite]) -> Batch | None:
        if self._group_commit is None:
            return None
        found = (self._group_commit.pending_batch(write.path) for write in writes)
        return next((batch for batch in found if batch is not None), None)

    def _make_events(self, writes: Sequence[StoreWrite]) -> list[StoreEvent]:
        current = [self._state.get(write.path) for write in writes]
        for write, record in zip(writes, current, strict=True):
            if (record.revision if record is not None else 0) != write.expected_revision:
                raise StaleWrite(write.path, write.expected_revision, record)
        given = enumerate(zip(writes, current, strict=True), start=self._allocated_revision + 1)
        return [_make_event(write, record, revision) for revision, (write, record) in given]

    async def _wait_durable(self, batch: Batch) -> None:
        await batch.wait()
        if batch.error is not None:
            raise StoreFailed(str(batch.error)) from batch.error

    def _publish(self, events: Sequence[StoreEvent]) -> None:
        self._state.apply(events)
        self._broadcaster.publish(events, self._state.revision)
        self._trim_history()

    def _trim_history(self) -> None:
        horizon = self._state.compaction_target(self._retention)
        if horizon > self._state.compacted_revision:
            self._compact(horizon)

    def _compact(self, revision: int) -> None:
        unneeded = self._state.compact(revision)
        if self._group_commit is not None:
            self._group_commit.schedule_compaction(Compaction(self._state.compacted_revision, tuple(unneeded)))

    def _check_open(self) -> None:
        if not self._is_open:
            raise StoreFailed("the store is closed")


def _make_event(write: StoreWrite, current: StoreRecord | None, revision: int) -> StoreEvent:
    if write.body is not None:
        return StoreEvent(StoreRecord(write.path, revision, _encode_at_revision(write.body, revision)), current)
    if current is None:
        raise ValueError(f"{write.path}: deleting what must not exist")
    final = write.final_body if write.final_body is not None else _decode(current.data)
    return StoreEvent(StoreRecord(write.path, revision, _encode_at_revision(final, revision)), current, deleted=True)


def _encode_at_revision(body: JSON, revision: int) -> bytes:
    body.setdefault("metadata", {})["resourceVersion"] = str(revision)
    return _encode(body)
