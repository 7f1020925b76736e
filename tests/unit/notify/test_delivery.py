"""The queue of a route: order, back-off, what a dead receiver costs, what is given up."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from gangline.notify.delivery import AT_ONCE, DeliveryResult, RouteDelivery, RouteQueue
from gangline.notify.plan.journal import Due
from gangline.notify.plan.retries import Attempt, Delivered, Rejected, RetryLater
from gangline.notify.plan.transitions import Transition, transition_of
from gangline.testing import FakeClock, settle
from support.builders.notified_jobs import NOW, JobHistory, webhook_route


def due(name: str, state: str = "created", offset: int = 0) -> Due:
    history = JobHistory(name).create()
    return Due("a", transition_of(history.job, f"{state}-{int(NOW.timestamp()) + offset}"))


class Receiver:
    """A channel whose results the test says; the last one holds for ever."""

    def __init__(self, *results: Attempt) -> None:
        self._results = list(results) or [Delivered()]
        self.attempts: list[str] = []
        self.gate: asyncio.Event | None = None

    async def deliver(self, transition: Transition) -> Attempt:
        self.attempts.append(f"{transition.name} {transition.state}")
        if self.gate is not None:
            await self.gate.wait()
        return self._results.pop(0) if len(self._results) > 1 else self._results[0]


class Harness:
    def __init__(self, receiver: Receiver, *, capacity: int = 100, max_age: timedelta = timedelta(days=1)) -> None:
        self.clock, self.receiver = FakeClock(NOW), receiver
        self.settled: list[tuple[str, DeliveryResult]] = []
        self.may_deliver = True
        self.delivery = RouteDelivery(
            webhook_route("a"),
            self._channel,
            self.clock,
            capacity=capacity,
            max_age=max_age,
            settle=lambda one, result: self.settled.append((f"{one.transition.name} {one.transition.state}", result)),
            may_deliver=lambda: self.may_deliver,
        )

    @asynccontextmanager
    async def _channel(self) -> AsyncIterator[Receiver]:
        yield self.receiver

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.delivery.run())
        await settle()
        try:
            yield
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


async def test_notifications_are_delivered_in_order_and_settled() -> None:
    harness = Harness(Receiver())
    async with harness.running():
        for one in (due("x"), due("x", "running"), due("y")):
            harness.delivery.add(one)
        await settle()
    assert sorted(harness.receiver.attempts) == ["x created", "x running", "y created"]
    assert harness.receiver.attempts.index("x created") < harness.receiver.attempts.index("x running")
    assert {result for _, result in harness.settled} == {DeliveryResult.DELIVERED}
    assert len(harness.delivery) == 0


async def test_at_most_one_of_each_job_is_in_flight_and_a_few_of_all() -> None:
    receiver = Receiver()
    receiver.gate = asyncio.Event()
    harness = Harness(receiver)
    async with harness.running():
        harness.delivery.add(due("x"))
        harness.delivery.add(due("x", "running"))
        for number in range(10):
            harness.delivery.add(due(f"job-{number}"))
        await settle()
        assert len(receiver.attempts) == AT_ONCE
        assert "x running" not in receiver.attempts
        receiver.gate.set()
        await settle()
    assert len(receiver.attempts) == 12


async def test_a_dead_receiver_is_asked_rarely_and_by_one_request_at_a_time() -> None:
    harness = Harness(Receiver(RetryLater("no connection")))
    async with harness.running():
        for number in range(50):
            harness.delivery.add(due(f"job-{number}"))
        await settle()
        await harness.clock.advance(timedelta(hours=1))
        # The first few at once, then after 1 s, 2 s, 4 s ... up to 5 minutes, with jitter.
        assert len(harness.receiver.attempts) < 40
    assert harness.settled == []
    assert len(harness.delivery) == 50


async def test_a_receiver_that_comes_back_gets_everything_in_order() -> None:
    harness = Harness(Receiver(RetryLater("down"), RetryLater("down"), Delivered()))
    async with harness.running():
        harness.delivery.add(due("x"))
        harness.delivery.add(due("x", "running"))
        await settle()
        assert harness.delivery.problem == "down"
        await harness.clock.advance(timedelta(seconds=10))
    assert harness.receiver.attempts == ["x created"] * 3 + ["x running"]
    assert harness.delivery.problem == ""


async def test_a_receivers_own_delay_is_obeyed() -> None:
    harness = Harness(Receiver(RetryLater("HTTP status 429", timedelta(seconds=30)), Delivered()))
    async with harness.running():
        harness.delivery.add(due("x"))
        await settle()
        await harness.clock.advance(timedelta(seconds=29))
        assert len(harness.receiver.attempts) == 1
        await harness.clock.advance(timedelta(seconds=2))
        assert len(harness.receiver.attempts) == 2


async def test_a_refused_notification_does_not_hold_up_the_others() -> None:
    harness = Harness(Receiver(Rejected("HTTP status 400"), Delivered()))
    async with harness.running():
        harness.delivery.add(due("x"))
        await settle()
        harness.delivery.add(due("y"))
        await settle()
    assert harness.settled == [("x created", DeliveryResult.FAILED), ("y created", DeliveryResult.DELIVERED)]


async def test_when_the_queue_is_full_the_oldest_is_dropped() -> None:
    harness = Harness(Receiver(RetryLater("down")), capacity=2)
    for name in ("x", "y", "z"):
        harness.delivery.add(due(name))
    assert harness.settled == [("x created", DeliveryResult.DROPPED)]
    assert len(harness.delivery) == 2


async def test_what_becomes_too_old_is_given_up() -> None:
    harness = Harness(Receiver(RetryLater("down")), max_age=timedelta(minutes=10))
    async with harness.running():
        harness.delivery.add(due("x"))
        harness.delivery.add(due("y", offset=1200))
        await settle()
        await harness.clock.advance(timedelta(minutes=20))
    assert harness.settled == [("x created", DeliveryResult.FAILED)]
    assert len(harness.delivery) == 1


async def test_what_was_in_flight_when_it_ended_is_in_the_queue_again() -> None:
    receiver = Receiver()
    receiver.gate = asyncio.Event()
    harness = Harness(receiver)
    async with harness.running():
        harness.delivery.add(due("x"))
        await settle()
    assert len(harness.delivery) == 1
    receiver.gate.set()
    async with harness.running():
        await settle()
    assert harness.settled == [("x created", DeliveryResult.DELIVERED)]


async def test_nothing_is_sent_while_deliveries_must_wait() -> None:
    harness = Harness(Receiver())
    harness.may_deliver = False
    async with harness.running():
        harness.delivery.add(due("x"))
        await settle()
        assert harness.receiver.attempts == []
        harness.may_deliver = True
        harness.delivery.wake()
        await settle()
        assert harness.receiver.attempts == ["x created"]


async def test_a_bug_in_a_channel_is_logged_and_costs_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Receiver):
        async def deliver(self, transition: Transition) -> Attempt:
            await super().deliver(transition)
            if len(self.attempts) == 1:
                raise RuntimeError("a bug")
            return Delivered()

    harness = Harness(Broken())
    async with harness.running():
        harness.delivery.add(due("x"))
        await settle()
        await harness.clock.advance(timedelta(seconds=2))
    assert harness.settled == [("x created", DeliveryResult.DELIVERED)]
    assert "delivery failed unexpectedly" in caplog.text


async def test_a_receiver_that_stays_dead_is_not_logged_at_every_attempt(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    harness = Harness(Receiver(RetryLater("down")))
    async with harness.running():
        harness.delivery.add(due("x"))
        await settle()
        await harness.clock.advance(timedelta(hours=20))
    attempts = len(harness.receiver.attempts)
    assert attempts > 200
    assert len(caplog.records) <= attempts.bit_length()


def test_a_queue_never_holds_a_notification_twice() -> None:
    queue, one = RouteQueue(10), due("x")
    queue.add(one)
    queue.add(one)
    assert len(queue) == 1
    assert queue.take() == one
    queue.add(one)
    assert len(queue) == 1
    assert queue.take() is None
