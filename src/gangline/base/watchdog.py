"""Notices from a thread of its own that an event loop is stuck, or that a piece of work makes no progress.

Time is counted in seconds in which the watching thread itself ran. A process that is stopped (SIGSTOP, a frozen cgroup, a
suspended machine) or gets no CPU does not count any, so it is not taken for a stuck one when it continues.
"""

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Self, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOP_LIMIT = 30
"""Seconds after which an event loop that does not turn is stuck. Listing tens of thousands of objects takes a few."""
IDLE_LIMIT = 600
"""Seconds after which work without any progress is stuck. A request to a server that does not answer takes 60."""
_TICK_SECONDS = 1.0


class WorkInProgress:
    """A piece of work under way, and for how many seconds it has made no progress."""

    __slots__ = ("idle_seconds",)

    def __init__(self) -> None:
        self.idle_seconds = 0


_current_activity: ContextVar[WorkInProgress | None] = ContextVar("gangline_activity", default=None)

Activities = Callable[[], Iterable[tuple[str, WorkInProgress]]]
"""The work under way, by name. Called from another thread: must only read."""


@contextmanager
def track_activity(activity: WorkInProgress) -> Iterator[None]:
    """Progress that is reported inside the block, also by tasks started in it, is that of this work."""
    token = _current_activity.set(activity)
    try:
        yield
    finally:
        _current_activity.reset(token)


def report_progress() -> None:
    """The work under way has begun or ended a step, such as a request."""
    activity = _current_activity.get()
    if activity is not None:
        activity.idle_seconds = 0


class Watchdog:
    """Counts for how long an event loop has not turned, and work has made no progress."""

    def __init__(
        self, ping: Callable[[Callable[[], None]], object], stack: Callable[[], str], *, loop_limit: int = LOOP_LIMIT
    ) -> None:
        """`ping` asks the loop to call a function, as `call_soon_threadsafe` does; `stack` says where the loop hangs."""
        self._ping, self._stack, self._loop_limit = ping, stack, loop_limit
        self._activities: list[Activities] = []
        self._is_pinged = False
        self._silent_seconds = 0

    def watch(self, activities: Activities) -> None:
        """Watch this work, too."""
        self._activities.append(activities)

    def tick(self) -> None:
        """Count one second. Called by the watching thread."""
        if self._is_pinged:
            self._silent_seconds += 1
            if self._silent_seconds == self._loop_limit:
                log.error("event loop is stuck", extra={"seconds": self._silent_seconds, "stack": self._stack()})
        else:
            self._is_pinged = True
            self._ping(self._answer)
        for _, activity in self._all_activities():
            activity.idle_seconds += 1

    def loop_problem(self) -> str:
        """A liveness check: says for how long the event loop has not turned if that is too long."""
        seconds = self._silent_seconds
        return f"the event loop has not turned for {seconds} s" if seconds >= self._loop_limit else ""

    def work_problem(self) -> str:
        """A liveness check: names the work that makes no progress."""
        idle = [(name, activity.idle_seconds) for name, activity in self._all_activities()]
        stuck = [f"{name}: no progress for {seconds} s" for name, seconds in idle if seconds >= IDLE_LIMIT]
        return "; ".join(stuck)

    def _answer(self) -> None:
        if self._silent_seconds >= self._loop_limit:
            log.warning("event loop turns again", extra={"seconds": self._silent_seconds})
        self._silent_seconds = 0
        self._is_pinged = False

    def _all_activities(self) -> list[tuple[str, WorkInProgress]]:
        return [item for activities in self._activities for item in activities()]


class SecondLoop:
    """A second event loop, in a thread of its own. An async context manager."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)

    async def __aenter__(self) -> Self:
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in that loop and wait for it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def call_every_second(self, action: Callable[[], object]) -> None:
        """Call a function of that loop every second until the loop ends."""

        def call() -> None:
            action()
            self._loop.call_later(_TICK_SECONDS, call)

        self._loop.call_soon_threadsafe(self._loop.call_later, _TICK_SECONDS, call)


def stack_of_this_thread() -> Callable[[], str]:
    """A function that says, from any other thread, what the present one is doing."""
    identity = threading.get_ident()

    def stack() -> str:
        frame = sys._current_frames().get(identity)  # noqa: SLF001 - documented, and the only way
        return "".join(traceback.format_stack(frame)[-8:]) if frame is not None else ""

    return stack
