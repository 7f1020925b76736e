"""Group commit: while one batch is on its way to the disk, the next one gathers."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from gangline.apiserver.store.errors import StoreFailed
from gangline.apiserver.store.journal import Compaction, Journal, JournalContents
from gangline.apiserver.store.records import StoreEvent

log = logging.getLogger(__name__)


class Batch:
    """Commits that become durable and visible together, or not at all."""

    def __init__(self) -> None:
        self.events: list[StoreEvent] = []
        self.is_due = False
        """Somebody waits for it to be written."""
        self.error: BaseException | None = None
        self._is_settled = False
        self._waiters: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Wait until it is known how it ended: `error` says. Cancel-safe: nobody else notices."""
        if not self._is_settled:
            # One for each, because cancelling a wait cancels the future that is waited for.
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def settle(self, error: BaseException | None) -> None:
        self.error, self._is_settled = error, True
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()


class GroupCommit:
    """Takes batches to a journal, one at a time, in a thread of its own; the rest happens on the loop."""

    def __init__(self, journal: Journal, publish: Callable[[Sequence[StoreEvent]], None]) -> None:
        self._journal = journal
        self._publish = publish
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gangline-store")  # starts with its first work
        self._open_batch = Batch()
        self._in_flight: Batch | None = None
        self._is_scheduled = False
        # Paths with a write that is accepted and not yet settled.
        self._pending_by_path: dict[str, Batch] = {}
        # Grows until a write took it along: with a part of it lost, what was deleted could come back.
        self._obsolete_revisions: list[int] = []
        self._compacted_revision: int | None = None

    async def open(self) -> JournalContents:
        """Raises what the journal raises; then, or when cancelled, everything is given up again."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._journal.open)
        except BaseException:
            self._thread.submit(self._journal.close)
            self._thread.shutdown()
            raise

    async def close(self) -> None:
        """Finish what was accepted, then close the journal. The thread is gone afterwards, even if cancelled."""
        try:
            await self._drain()
        finally:
            closing = self._thread.submit(self._journal.close)
            try:
                await asyncio.shield(asyncio.wrap_future(closing))
            finally:
                self._thread.shutdown()

    async def _drain(self) -> None:
        if self._compacted_revision is not None:
            self.flush()
        while self._in_flight is not None or self._open_batch.is_due:
            await (self._in_flight or self._open_batch).wait()

    def pending_batch(self, path: str) -> Batch | None:
        """The batch that is about to change a path, if any. There is at most one."""
        return self._pending_by_path.get(path)

    def add(self, events: Sequence[StoreEvent]) -> Batch:
        """Accept a commit. What it changes must not be unsettled."""
        batch = self._open_batch
        batch.events += events
        for event in events:
            self._pending_by_path[event.record.path] = batch
        return self.flush()

    def schedule_compaction(self, forget: Compaction) -> None:
        """Let the next write delete what nothing needs any more."""
        self._obsolete_revisions += forget.obsolete_revisions
        self._compacted_revision = forget.compacted_revision

    def flush(self) -> Batch:
        """Write what was gathered and is to be forgotten, as soon as the journal is free."""
        self._open_batch.is_due = True
        if self._in_flight is None and not self._is_scheduled:
            # Not at once: other tasks that are ready to run may have commits too.
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._write)
        return self._open_batch

    def _write(self) -> None:
        self._is_scheduled = False
        batch, self._open_batch = self._open_batch, Batch()
        self._in_flight = batch
        forget, self._obsolete_revisions, self._compacted_revision = self._pending_compaction(), [], None
        writing = asyncio.get_running_loop().run_in_executor(self._thread, self._journal.write, batch.events, forget)
        writing.add_done_callback(partial(self._on_written, batch, forget))

    def _pending_compaction(self) -> Compaction | None:
        return (
            None
            if self._compacted_revision is None
            else Compaction(self._compacted_revision, tuple(self._obsolete_revisions))
        )

    def _on_written(self, batch: Batch, forget: Compaction | None, writing: asyncio.Future[None]) -> None:
        error = writing.exception()
        self._in_flight = None
        for event in batch.events:
            del self._pending_by_path[event.record.path]
        if error is None:
            self._publish(batch.events)
        else:
            self._on_failed(error, forget)
        batch.settle(error)
        if self._open_batch.is_due:
            self.flush()

    def _on_failed(self, error: BaseException, forget: Compaction | None) -> None:
        if isinstance(error, StoreFailed):
            log.error("the store could not write", extra={"error": str(error)})
        if forget is not None:
            self._obsolete_revisions[:0] = forget.obsolete_revisions
            self._compacted_revision = max(forget.compacted_revision, self._compacted_revision or 0)
