"""Group commit: while one batch is written to disk, commits gather in the next one."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from gangline.apiserver.store.errors import StoreFailed
from gangline.apiserver.store.health import StoreHealth
from gangline.apiserver.store.journal import Compaction, Journal, JournalContents
from gangline.apiserver.store.records import StoreEvent

CHECK_SECONDS, RETRY_SECONDS = 2.0, 0.5
"""How often the disk is checked while it works, and while it does not."""


class Batch:
    """Commits that become durable and visible together, or not at all."""

    def __init__(self) -> None:
        self.events: list[StoreEvent] = []
        self.is_due = False
        """A commit waits for the batch to be written."""
        self.may_use_reserve = True
        """All commits are steps of deletions."""
        self.error: BaseException | None = None
        self._is_settled = False
        self._waiters: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        """Wait until the batch is written or has failed with `error`. Cancel-safe: other waiters are not affected."""
        if not self._is_settled:
            # One future per waiter, because cancelling a wait cancels the awaited future.
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
    """Writes batches to a journal, one at a time, in its own thread. All else happens on the event loop."""

    def __init__(self, journal: Journal, publish: Callable[[Sequence[StoreEvent]], None], health: StoreHealth) -> None:
        self._journal = journal
        self._publish = publish
        self._health = health
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="gangline-store")  # starts with the first job
        self._open_batch = Batch()
        self._in_flight: Batch | None = None
        self._is_scheduled = False
        # The batch of each path with an accepted write that is not yet settled.
        self._pending_by_path: dict[str, Batch] = {}
        # Kept until a write has deleted them all: if only some were deleted, a deleted object could reappear.
        self._obsolete_revisions: list[int] = []
        self._compacted_revision: int | None = None
        self._check_timer: asyncio.TimerHandle | None = None

    async def open(self) -> JournalContents:
        """Open the journal. Raises what the journal raises; then, or when cancelled, the journal is closed again."""
        loop = asyncio.get_running_loop()
        try:
            contents = await loop.run_in_executor(self._thread, self._journal.open)
            self._schedule_check()
            return contents
        except BaseException:
            self._thread.submit(self._journal.close)
            self._thread.shutdown()
            raise

    async def close(self) -> None:
        """Finish accepted commits, then close the journal. The thread has ended on return, even when cancelled."""
        if self._check_timer is not None:
            self._check_timer.cancel()
            self._check_timer = None
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

    def _schedule_check(self) -> None:
        """Check the disk again and again, to notice a failure also when nothing is written, and its end."""
        delay = RETRY_SECONDS if self._health.problem else CHECK_SECONDS
        self._check_timer = asyncio.get_running_loop().call_later(delay, self._check)

    def _check(self) -> None:
        checking = asyncio.get_running_loop().run_in_executor(self._thread, self._journal.check)
        checking.add_done_callback(self._on_checked)

    def _on_checked(self, checking: asyncio.Future[None]) -> None:
        if checking.cancelled() or self._check_timer is None:
            return
        error = checking.exception()
        if error is None or isinstance(error, StoreFailed):
            self._health.report(error)
        self._schedule_check()
        if error is not None and not isinstance(error, StoreFailed):
            raise error

    def pending_batch(self, path: str) -> Batch | None:
        """The unsettled batch that changes a path, if any. There is at most one."""
        return self._pending_by_path.get(path)

    def add(self, events: Sequence[StoreEvent], *, may_use_reserve: bool = False) -> Batch:
        """Accept a commit. None of its paths may have a pending batch."""
        batch = self._open_batch
        batch.events += events
        batch.may_use_reserve &= may_use_reserve
        for event in events:
            self._pending_by_path[event.record.path] = batch
        return self.flush()

    def schedule_compaction(self, compaction: Compaction) -> None:
        """Let the next write delete what this compaction makes obsolete."""
        self._obsolete_revisions += compaction.obsolete_revisions
        self._compacted_revision = compaction.compacted_revision

    def flush(self) -> Batch:
        """Write the open batch and the scheduled compaction as soon as the journal is free. Returns the batch."""
        self._open_batch.is_due = True
        if self._in_flight is None and not self._is_scheduled:
            # Not at once, because other tasks that are ready to run may have commits too.
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._write)
        return self._open_batch

    def _write(self) -> None:
        self._is_scheduled = False
        batch, self._open_batch = self._open_batch, Batch()
        self._in_flight = batch
        compaction, self._obsolete_revisions, self._compacted_revision = self._pending_compaction(), [], None
        write = partial(self._journal.write, batch.events, compaction, may_use_reserve=batch.may_use_reserve)
        writing = asyncio.get_running_loop().run_in_executor(self._thread, write)
        writing.add_done_callback(partial(self._on_written, batch, compaction))

    def _pending_compaction(self) -> Compaction | None:
        return (
            None
            if self._compacted_revision is None
            else Compaction(self._compacted_revision, tuple(self._obsolete_revisions))
        )

    def _on_written(self, batch: Batch, compaction: Compaction | None, writing: asyncio.Future[None]) -> None:
        error = writing.exception()
        self._in_flight = None
        for event in batch.events:
            del self._pending_by_path[event.record.path]
        if error is None:
            self._publish(batch.events)
        else:
            self._on_failed(error, compaction)
        batch.settle(error)
        if self._open_batch.is_due:
            self.flush()

    def _on_failed(self, error: BaseException, compaction: Compaction | None) -> None:
        if isinstance(error, StoreFailed):
            self._health.report(error)
        if compaction is not None:
            self._obsolete_revisions[:0] = compaction.obsolete_revisions
            self._compacted_revision = max(compaction.compacted_revision, self._compacted_revision or 0)
