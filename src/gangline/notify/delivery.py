"""Delivers the notifications of one route: in order for each job, with back-off, without regard to other routes."""

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Never, Protocol

from gangline.base.clock import Clock
from gangline.notify.plan.journal import Due
from gangline.notify.plan.retries import Attempt, Delivered, Rejected, RetryLater, retry_delay
from gangline.notify.plan.routes import NotificationRoute
from gangline.notify.plan.transitions import Transition

log = logging.getLogger(__name__)

AT_ONCE = 4
"""Requests to one receiver at the same time, of different jobs; one as long as it fails."""


MIN_WAIT_SECONDS = 0.001
"""A shorter wait is none: clocks round."""


class DeliveryResult(StrEnum):
    """What became of a notification, for metrics."""

    DELIVERED = "delivered"
    FAILED = "failed"
    """The receiver refused it, or it became too old before the receiver took it."""
    DROPPED = "dropped"
    """The queue was full."""


class DeliveryChannel(Protocol):
    """One attempt to deliver a notification, whose result is a value."""

    async def deliver(self, transition: Transition) -> Attempt: ...


class RouteQueue:
    """The notifications that wait, oldest first. At most one of each job is being delivered."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._waiting: OrderedDict[str, Due] = OrderedDict()
        self._jobs_in_flight: set[str] = set()
        self._in_flight: dict[str, Due] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in_flight)

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    def add(self, due: Due) -> Due | None:
        """Append a notification. Returns the oldest one if there was no room, which is no longer in the queue."""
        if due.transition.id in self._in_flight:
            return None
        self._waiting[due.transition.id] = due
        return self._waiting.popitem(last=False)[1] if len(self) > self._capacity else None

    def take(self) -> Due | None:
        """The oldest notification of a job of which none is in flight."""
        for name, due in self._waiting.items():
            if due.transition.uid not in self._jobs_in_flight:
                del self._waiting[name]
                self._in_flight[name] = due
                self._jobs_in_flight.add(due.transition.uid)
                return due
        return None

    def put_back(self, due: Due) -> None:
        """It was not delivered: it is the next one again."""
        self.finish(due)
        self._waiting[due.transition.id] = due
        self._waiting.move_to_end(due.transition.id, last=False)

    def remove_older(self, time: datetime) -> list[Due]:
        """Remove what waits and happened before this time."""
        older = [due for due in self._waiting.values() if due.transition.time < time]
        for due in older:
            del self._waiting[due.transition.id]
        return older

    def finish(self, due: Due) -> None:
        """It is in flight no more."""
        self._in_flight.pop(due.transition.id, None)
        self._jobs_in_flight.discard(due.transition.uid)


class RouteDelivery:
    """The queue of a route, and the loop that empties it."""

    def __init__(
        self,
        route: NotificationRoute,
        open_channel: Callable[[], AbstractAsyncContextManager[DeliveryChannel]],
        clock: Clock,
        *,
        capacity: int,
        max_age: timedelta,
        settle: Callable[[Due, DeliveryResult], None],
        may_deliver: Callable[[], bool] = lambda: True,
    ) -> None:
        """`settle` is called for each notification that is delivered or given up.

        Nothing is sent while `may_deliver` returns False; `wake` must be called when that changes.
        """
        self.route = route
        self.problem = ""
        """Why the last attempt failed; empty if it did not."""
        self._open_channel, self._clock = open_channel, clock
        self._queue, self._max_age = RouteQueue(capacity), max_age
        self._settle, self._may_deliver = settle, may_deliver
        self._failures, self._retry_at = 0, 0.0
        self._wake_event = asyncio.Event()

    def __len__(self) -> int:
        """How many notifications wait or are in flight."""
        return len(self._queue)

    def add(self, due: Due) -> None:
        """Queue a notification. Never waits. The oldest one is dropped if there is no room."""
        dropped = self._queue.add(due)
        if dropped is not None:
            self._settle(dropped, DeliveryResult.DROPPED)
            log.warning("notification dropped, the queue is full", extra=self._fields(dropped))
        self.wake()

    def wake(self) -> None:
        """Look again whether something can be delivered."""
        self._wake_event.set()

    async def run(self) -> Never:
        """Deliver until cancelled. What was in flight then is in the queue again."""
        async with self._open_channel() as channel, asyncio.TaskGroup() as group:
            while True:
                self._wake_event.clear()
                delay = self._delay()
                if delay is not None and delay <= 0:
                    due = self._queue.take()
                    if due is not None:
                        group.create_task(self._deliver(channel, due))
                        continue
                    delay = None
                await self._sleep(delay)

    def _delay(self) -> float | None:
        """Seconds until the next attempt; None: until something happens."""
        if not len(self._queue) or not self._may_deliver():
            return None
        if self._queue.in_flight >= (1 if self._failures else AT_ONCE):
            return None
        remaining = self._retry_at - self._clock.monotonic() if self._failures else 0.0
        return remaining if remaining > MIN_WAIT_SECONDS else 0.0

    async def _sleep(self, delay: float | None) -> None:
        timer = self._clock.call_later(timedelta(seconds=delay), self.wake) if delay is not None else None
        try:
            await self._wake_event.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def _deliver(self, channel: DeliveryChannel, due: Due) -> None:
        try:
            result = await self._attempt(channel, due)
        except asyncio.CancelledError:
            self._queue.put_back(due)
            raise
        match result:
            case Delivered():
                self._queue.finish(due)
                if self._failures:
                    log.info("notifications are delivered again", extra={"route": self.route.name})
                self._failures, self.problem = 0, ""
                self._settle(due, DeliveryResult.DELIVERED)
            case Rejected(problem):
                self._queue.finish(due)
                self._failures = 0
                self._give_up(due, problem)
            case RetryLater(problem, after):
                self._queue.put_back(due)
                self._back_off(due, problem, after)
        self.wake()

    async def _attempt(self, channel: DeliveryChannel, due: Due) -> Attempt:
        try:
            return await channel.deliver(due.transition)
        except Exception:
            # A bug here must cost neither this notification nor the operator.
            log.exception("delivery failed unexpectedly", extra=self._fields(due))
            return RetryLater("an unexpected error")

    def _back_off(self, due: Due, problem: str, after: timedelta | None) -> None:
        self._failures, self.problem = self._failures + 1, problem
        delay = retry_delay(self._failures, random.uniform(0.5, 1.0), after)  # noqa: S311 - not a secret
        self._retry_at = self._clock.monotonic() + delay.total_seconds()
        # The first failure, and then each time that their number has doubled: not one line per attempt for a day.
        level = logging.WARNING if self._failures & (self._failures - 1) == 0 else logging.DEBUG
        fields = self._fields(due) | {"error": problem, "delay": delay.total_seconds(), "waiting": len(self._queue)}
        log.log(level, "notification not delivered, will retry", extra=fields)
        for expired in self._queue.remove_older(self._clock.now() - self._max_age):
            self._give_up(expired, problem)

    def _give_up(self, due: Due, problem: str) -> None:
        log.warning("notification given up", extra=self._fields(due) | {"error": problem})
        self._settle(due, DeliveryResult.FAILED)

    def _fields(self, due: Due) -> dict[str, object]:
        transition = due.transition
        job = f"{transition.namespace}/{transition.name}"
        return {"route": self.route.name, "kind": transition.kind, "job": job, "state": transition.state.value}
