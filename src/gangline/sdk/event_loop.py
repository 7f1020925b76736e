"""Runs coroutines for programs without an event loop."""

import asyncio
import queue
import threading
import time
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import aclosing, suppress
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")

THREAD_NAME = "gangline"
IDLE_SECONDS = 1.0
"""After so many seconds without running, the loop may have missed events of its sockets."""


class StreamItem(NamedTuple, Generic[T]):
    """An item of a generator, its end, or the error that ended it."""

    item: T | None = None
    error: Exception | None = None
    is_last: bool = False


class LoopThread:
    """Runs coroutines for a blocking program, from any of its threads. Ctrl-C cancels the running coroutine.

    The calling thread runs the loop itself, which saves two thread switches per call. The first time that this is not
    possible (two threads call at once, the caller has a running event loop, a stream is read) a thread is started, which
    runs the loop from then on.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop_lock = threading.Lock()
        """Held by the thread that runs the loop."""
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._last_run = 0.0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine; return its result, or raise its error."""
        if not self._acquire_loop():
            return self._wait_result(self._submit(work))
        try:
            return self._run_here(work)
        finally:
            self._loop_lock.release()

    def iterate(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        """The items of an async generator as they arrive. Close the iterator to leave early."""
        # All in one task: a generator must close its resources in the task that opened them.
        received: queue.SimpleQueue[StreamItem[T]] = queue.SimpleQueue()

        async def pump() -> None:
            try:
                async with aclosing(items) as source:
                    async for item in source:
                        received.put(StreamItem(item))
                received.put(StreamItem(is_last=True))
            except Exception as error:  # noqa: BLE001 - raised by the reader
                received.put(StreamItem(error=error, is_last=True))

        future = self._submit(pump())
        try:
            while not (next_ := received.get()).is_last:
                yield next_.item  # type: ignore[misc]
            if next_.error is not None:
                raise next_.error
        finally:
            future.cancel()

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Run a last coroutine and close the loop. May be called only once.

        The garbage collector may call this from a loop thread, of this object or another, which must not be blocked.
        """
        if self._acquire_loop():
            try:
                self._run_here(last)
            finally:
                self._loop.close()
                self._loop_lock.release()
            return
        future = self._submit(last)
        # Called by the thread that finishes the future, or by this one if it is done: then the loop must be woken.
        future.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        if threading.current_thread().name != THREAD_NAME and self._thread is not None:
            self._thread.join()
            future.result()

    # In the calling thread

    def _acquire_loop(self) -> bool:
        """Whether the calling thread may run the loop. If so, it holds the lock and must release it."""
        if self._thread is not None or _has_running_loop():
            return False
        return self._loop_lock.acquire(blocking=False)

    def _run_here(self, work: Coroutine[Any, Any, T]) -> T:
        if time.monotonic() - self._last_run > IDLE_SECONDS:
            self._drain_callbacks()
        task = self._loop.create_task(work)
        try:
            return self._loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                task.cancel()
                with suppress(asyncio.CancelledError):
                    self._loop.run_until_complete(task)
            raise
        finally:
            self._last_run = time.monotonic()

    def _drain_callbacks(self) -> None:
        """Run a few iterations of the loop, so that it notices connections that the server has closed."""
        for _ in range(8):
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()

    # In the loop thread

    def _submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        with self._start_lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_thread, name=THREAD_NAME, daemon=True)
                self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _run_thread(self) -> None:
        # A thread that runs the loop now finishes its call first; meanwhile it serves the other callers, too.
        with self._loop_lock:
            try:
                self._loop.run_forever()
            finally:
                self._loop.close()

    @staticmethod
    def _wait_result(future: "Future[T]") -> T:
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise


def _has_running_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
