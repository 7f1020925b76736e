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
from gangline.apiserver.store.journal import Forget, Journal
from gangline.apiserver.store.records import Event, Record, Retention, Snapshot, Write
from gangline.apiserver.store.state import State
from gangline.apiserver.store.watches import Watch, Watches

BACKLOG = 10_000
"""Changes that may wait for a watcher before it is given up."""

KEEP = Retention()

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(JSON).decode


class Store:
    """Use it as an async context manager, from one event loop.

    Every write gets a revision of its own, greater than all before it, for ever; a revision may be skipped when the
    disk failed. Writes of one commit have consecutive revisions and become durable and visible together.
    """

    def __init__(self, journal: Journal | None = None, keep: Retention = KEEP) -> None:
        self._keep = keep
        self._state = State()
        self._watches = Watches(self._state.revision)
        self._group = GroupCommit(journal, self._publish) if journal is not None else None
        self._cluster = str(uuid.uuid4())
        # The newest revision that a write was given: ahead of the state while writes are on their way to the disk.
        self._given = self._state.revision
        self._open = False

    async def __aenter__(self) -> Self:
        """Load what the journal kept. Raises `StoreFailed`, and `InputError` when the folder is in use."""
        if self._group is not None:
            contents = await self._group.open()
            self._cluster = contents.cluster
            self._state.load(contents.revision, contents.compacted, contents.changes)
            self._given = self._watches.revision = self._state.revision
            self._trim()
        self._open = True
        return self

    async def __aexit__(self, *_: object) -> None:
        """Finish the commits that were accepted, end all watches, and leave no thread behind."""
        self._open = False
        try:
            if self._group is not None:
                await self._group.close()
        finally:
            self._watches.end()

    @property
    def cluster(self) -> str:
        """A UUID that was made up when this state began."""
        return self._cluster

    @property
    def revision(self) -> int:
        """The newest revision that can be seen."""
        return self._state.revision

    @property
    def compacted(self) -> int:
        """The oldest revision that can be read or resumed from."""
        return self._state.compacted

    def get(self, path: str) -> Record | None:
        return self._state.get(path)

    def count(self, prefix: str = "") -> int:
        """How many records there are under a prefix, without going through them."""
        return self._state.count(prefix)

    def range(self, prefix: str, *, start_after: str = "", limit: int = 0, at: int | None = None) -> Snapshot:
        """Records under a prefix, in order of path, after a path, at most `limit` (0: all).

        `at` reads an earlier revision, as the next page of a list must; it costs as much as there were changes
        since. Raises `Compacted` when that is no longer known and `TooNew` when it is yet to come.
        """
        if at is None or at == self._state.revision:
            return self._state.range(prefix, start_after, limit)
        return self._state.range_at(at, prefix, start_after, limit)

    def departed(self, prefix: str) -> tuple[Record, ...]:
        """What was deleted under a prefix, as it was at the end, if nothing else has its path now.

        As far back as history goes.
        """
        events = self._state.after(self._state.compacted, prefix)
        gone = {event.path: event.record for event in events if event.deleted}
        return tuple(record for path, record in gone.items() if self._state.get(path) is None)

    def watch(self, prefix: str, *, after: int, backlog: int = BACKLOG) -> Watch:
        """Changes under a prefix after a revision; close it when done.

        It starts here and now: after `range`, with no await in between, nothing can be missed. A revision that is
        yet to come is waited for. Raises `Compacted`.
        """
        self._check_open()
        return Watch(self._watches, prefix, after, self._state.after(after, prefix), backlog)

    def end_watches(self) -> None:
        """Let everybody who watches now get to the end of the iteration. The store goes on."""
        self._watches.end()

    async def commit(self, *writes: Write) -> tuple[Record, ...]:
        """Make all changes, or none. Returns the new records; for a deletion, what watchers are told.

        They are durable (if there is a journal) and visible on return. Raises `StaleWrite` when a path is not at
        the expected revision, and `StoreFailed` when the disk fails: nothing is visible then. A cancelled commit
        may or may not take effect. Paths must differ.
        """
        self._check_open()
        if len(writes) > 1 and len({write.path for write in writes}) < len(writes):
            raise ValueError("a path occurs twice in one commit")
        while (ahead := self._ahead(writes)) is not None:
            # Whether we are stale is known when it is: it may yet fail. Nobody learns of what is not durable.
            await ahead.settled()
            self._check_open()
        events = self._prepared(writes)
        self._given += len(events)
        if self._group is None:
            self._publish(events)
        elif events:
            await self._durable(self._group.add(events))
        return tuple(event.record for event in events)

    async def compact(self, revision: int) -> None:
        """Forget history up to a revision; idempotent. Raises `TooNew`, `StoreFailed`.

        It happens by itself too, as the store's `Retention` says.
        """
        self._check_open()
        self._compact(revision)
        if self._group is not None:
            await self._durable(self._group.flush())

    def _ahead(self, writes: Sequence[Write]) -> Batch | None:
        if self._group is None:
            return None
        found = (self._group.unsettled(write.path) for write in writes)
        return next((batch for batch in found if batch is not None), None)

    def _prepared(self, writes: Sequence[Write]) -> list[Event]:
        current = [self._state.get(write.path) for write in writes]
        for write, record in zip(writes, current, strict=True):
            if (record.revision if record is not None else 0) != write.expected:
                raise StaleWrite(write.path, write.expected, record)
        given = enumerate(zip(writes, current, strict=True), start=self._given + 1)
        return [_event(write, record, revision) for revision, (write, record) in given]

    async def _durable(self, batch: Batch) -> None:
        await batch.settled()
        if batch.error is not None:
            raise StoreFailed(str(batch.error)) from batch.error

    def _publish(self, events: Sequence[Event]) -> None:
        self._state.apply(events)
        self._watches.tell(events, self._state.revision)
        self._trim()

    def _trim(self) -> None:
        horizon = self._state.horizon(self._keep)
        if horizon > self._state.compacted:
            self._compact(horizon)

    def _compact(self, revision: int) -> None:
        unneeded = self._state.compact(revision)
        if self._group is not None:
            self._group.forget(Forget(self._state.compacted, tuple(unneeded)))

    def _check_open(self) -> None:
        if not self._open:
            raise StoreFailed("the store is closed")


def _event(write: Write, current: Record | None, revision: int) -> Event:
    if write.body is not None:
        return Event(Record(write.path, revision, _encoded(write.body, revision)), current)
    if current is None:
        raise ValueError(f"{write.path}: deleting what must not exist")
    final = write.final if write.final is not None else _decode(current.data)
    return Event(Record(write.path, revision, _encoded(final, revision)), current, deleted=True)


def _encoded(body: JSON, revision: int) -> bytes:
    body.setdefault("metadata", {})["resourceVersion"] = str(revision)
    return _encode(body)
