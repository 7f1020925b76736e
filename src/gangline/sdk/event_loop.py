"""An event loop for programs that have none: what is async becomes a call that waits."""

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
"""Of the threads."""
IDLE_SECONDS = 1.0
"""Seconds after which a loop that did not run may have missed something."""


class StreamItem(NamedTuple, Generic[T]):
    """What comes out of a generator: an item, its end, or the error that ended it."""

    item: T | None = None
    error: Exception | None = None
    is_last: bool = False


class LoopThread:
    """Runs coroutines for a blocking program, from any of its threads. Ctrl-C while one runs cancels it.

    The calling thread runs the loop itself, which saves two changes of threads for every call. From the first time
    that this does not do (two threads call at once, the caller has a loop of its own, a stream is read) a thread
    runs it to the end.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop_lock = threading.Lock()
        """Held by the thread that runs the loop."""
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._last_run = 0.0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What it gives, or raises."""
        if not self._acquire_loop():
            return self._wait_result(self._submit(work))
        try:
            return self._run_here(work)
        finally:
            self._loop_lock.release()

    def iterate(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        """One after the other, as they come. Close it to leave early."""
        # All in one task: what a generator opens it must close in the task that opened it.
        given: queue.SimpleQueue[StreamItem[T]] = queue.SimpleQueue()

        async def pump() -> None:
            try:
                async with aclosing(items) as found:
                    async for item in found:
                        given.put(StreamItem(item))
                given.put(StreamItem(is_last=True))
            except Exception as error:  # noqa: BLE001 - raised again where somebody waits for it
                given.put(StreamItem(error=error, is_last=True))

        future = self._submit(pump())
        try:
            while not (next_ := given.get()).is_last:
                yield next_.item  # type: ignore[misc]
            if next_.error is not None:
                raise next_.error
        finally:
            future.cancel()

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Run this, and end the loop. May be called once.

        A garbage collector may call it from such a thread, its own or another's, which must not be held up.
        """
        if self._acquire_loop():
            try:
                self._run_here(last)
            finally:
                self._loop.close()
                self._loop_lock.release()
            return
        future = self._submit(last)
        # By whoever finishes it: if it is done already that is this thread, and the loop sleeps.
        future.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        if threading.current_thread().name != THREAD_NAME and self._thread is not None:
            self._thread.join()
            future.result()

    # In the calling thread

    def _acquire_loop(self) -> bool:
        """Whether the calling thread may run the loop. If so it holds the lock, and must release it."""
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
        """A few rounds of the loop, so that a connection that the other side has closed is not used again."""
        for _ in range(8):
            self._loop.call_soon(self._loop.stop)
            self._loop.run_forever()

    # In a thread of its own

    def _submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        with self._start_lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run_thread, name=THREAD_NAME, daemon=True)
                self._thread.start()
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _run_thread(self) -> None:
        # Whoever runs it now goes on to the end of that call, and serves everybody meanwhile.
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
