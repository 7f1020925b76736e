"""The queue against a model: any order of adds, leases, failures, cancellations and passing time."""

import asyncio
import itertools
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gangline.runtime.rate_limits import ExponentialBackoff
from gangline.runtime.work_queue import QueueClosed, WorkQueue
from gangline.testing.clock import FakeClock, settle

keys = st.sampled_from("abcd")
seconds = st.integers(1, 12)
picks = st.integers(0, 1000)  # which one, modulo how many there are


class Model:
    """What the queue must do, in the plainest words. Times are whole seconds."""

    def __init__(self) -> None:
        self.now = 0
        self.waiting: list[str] = []
        self.dirty: list[str] = []
        self.leased: list[str] = []
        self.alarms: dict[str, tuple[int, int]] = {}  # key -> due, order of asking
        self.attempts: dict[str, int] = {}
        self.idle_workers = 0
        self.history: list[str] = []  # every key in the order of its leases
        self.closed = False
        self._order = itertools.count()

    def add(self, *keys: str) -> None:
        """All in one breath: no worker comes between."""
        for key in keys if not self.closed else ():
            owed = self.dirty if key in self.leased else self.waiting
            if key not in owed:
                owed.append(key)
        self.hand_out()

    def add_later(self, key: str, after: int) -> None:
        due = self.now + after
        if not self.closed and (key not in self.alarms or due < self.alarms[key][0]):
            self.alarms[key] = (due, next(self._order))

    def retry(self, key: str) -> None:
        if not self.closed:
            before = self.attempts.get(key, 0)
            self.attempts[key] = before + 1
            self.add_later(key, after=min(2**before, 8))

    def hand_out(self) -> None:
        while self.waiting and self.idle_workers:
            self.idle_workers -= 1
            key = self.waiting.pop(0)
            assert key not in self.leased
            self.leased.append(key)
            self.history.append(key)
        if self.closed and not self.waiting and not self.dirty:
            self.idle_workers = 0

    def release(self, key: str) -> None:
        self.leased.remove(key)
        if key in self.dirty:
            self.dirty.remove(key)
            self.waiting.append(key)
        self.hand_out()

    def advance(self, by: int) -> None:
        end = self.now + by
        while due := sorted((at, key) for key, at in self.alarms.items() if at[0] <= end):
            (self.now, _), key = due[0]
            del self.alarms[key]
            self.add(key)
        self.now = end

    def close(self, *, drain: bool) -> None:
        self.closed = True
        self.alarms.clear()
        if not drain:
            self.waiting.clear()
            self.dirty.clear()
        self.hand_out()


class Worker:
    """A task that leases one key and holds it until told how to end."""

    def __init__(self, queue: WorkQueue[str], history: list[str]) -> None:
        self.key: str | None = None
        self.outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.refused = False
        self.task = asyncio.create_task(self._run(queue, history))

    async def _run(self, queue: WorkQueue[str], history: list[str]) -> None:
        try:
            async with queue.lease() as key:
                self.key = key
                history.append(key)
                await self.outcome
        except QueueClosed:
            self.refused = True
        except ZeroDivisionError:
            pass

    @property
    def holds(self) -> bool:
        return self.key is not None and not self.task.done()

    @property
    def waits(self) -> bool:
        return self.key is None and not self.task.done()


class QueueMachine(RuleBasedStateMachine):
    """Every rule does one thing to the queue and to the model, lets all tasks run, and compares."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.clock = FakeClock()
        self.queue: WorkQueue[str] = WorkQueue(
            ExponentialBackoff(timedelta(seconds=1), timedelta(seconds=8)), self.clock
        )
        self.model = Model()
        self.workers: list[Worker] = []
        self.history: list[str] = []

    def settle(self) -> None:
        self.loop.run(settle())

    def waiting_workers(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.waits]

    def holding_workers(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.holds]

    @rule(key=keys)
    def add(self, key: str) -> None:
        self.queue.add(key)
        self.model.add(key)
        self.settle()

    @rule(key=keys, after=seconds)
    def add_later(self, key: str, after: int) -> None:
        self.queue.add(key, after=timedelta(seconds=after))
        self.model.add_later(key, after)
        self.settle()

    @rule(key=keys)
    def retry(self, key: str) -> None:
        self.queue.retry(key)
        self.model.retry(key)
        self.settle()

    @rule(key=keys)
    def forget(self, key: str) -> None:
        self.queue.forget(key)
        self.model.attempts.pop(key, None)

    @rule()
    def hire(self) -> None:
        async def start() -> None:
            self.workers.append(Worker(self.queue, self.history))
            await settle()

        self.loop.run(start())
        self.model.idle_workers += 1
        self.model.hand_out()

    @precondition(lambda self: self.holding_workers())
    @rule(pick=picks, how=st.sampled_from(["ok", "error", "cancel"]))
    def end_lease(self, pick: int, how: str) -> None:
        worker = self.holding_workers()[pick % len(self.holding_workers())]
        if how == "ok":
            worker.outcome.set_result(None)
        elif how == "error":
            worker.outcome.set_exception(ZeroDivisionError())
        else:
            worker.task.cancel()
        self.settle()
        assert worker.key is not None
        self.model.release(worker.key)

    @precondition(lambda self: self.waiting_workers())
    @rule(pick=picks)
    def cancel_waiting_worker(self, pick: int) -> None:
        self.waiting_workers()[pick % len(self.waiting_workers())].task.cancel()
        self.settle()
        self.model.idle_workers -= 1

    @precondition(lambda self: self.waiting_workers() and not self.model.closed)
    @rule(pick=picks, added=st.lists(keys, min_size=1, max_size=3), cancel_first=st.booleans())
    def cancel_worker_as_it_is_woken(self, pick: int, added: list[str], cancel_first: bool) -> None:
        worker = self.waiting_workers()[pick % len(self.waiting_workers())]
        if cancel_first:
            worker.task.cancel()
        for key in added:
            self.queue.add(key)
        worker.task.cancel()
        self.settle()
        self.model.idle_workers -= 1
        self.model.add(*added)

    @rule(by=seconds)
    def advance(self, by: int) -> None:
        self.loop.run(self.clock.advance(timedelta(seconds=by)))
        self.model.advance(by)

    @precondition(lambda self: len(self.history) > 3)
    @rule(drain=st.booleans())
    def close(self, drain: bool) -> None:
        self.queue.close(drain=drain)
        self.model.close(drain=drain)
        self.settle()

    @invariant()
    def agrees_with_the_model(self) -> None:
        assert self.history == self.model.history, "lost, doubled, early, late or out of order"
        held = [worker.key for worker in self.holding_workers()]
        assert sorted(held, key=str) == sorted(self.model.leased)
        assert len(self.queue) == len(self.model.waiting)
        assert len(self.waiting_workers()) == self.model.idle_workers
        assert all(self.queue.attempts(key) == self.model.attempts.get(key, 0) for key in "abcd")
        assert self.clock.waiting == len(self.model.alarms)

    @invariant()
    def idle_tells_the_truth(self) -> None:
        async def is_idle() -> bool:
            task = asyncio.create_task(self.queue.wait_until_idle())
            await settle(3)
            return task.done() or not task.cancel()

        assert self.loop.run(is_idle()) == (not self.model.waiting and not self.model.leased)

    def teardown(self) -> None:
        """Let everything that was ever asked for happen, then compare once more."""
        try:
            self.advance(by=100)
            for _ in range(20):
                for _ in self.holding_workers():
                    self.end_lease(pick=0, how="ok")
                self.hire()
            assert not self.model.waiting
            self.agrees_with_the_model()
        finally:
            self.loop.close()  # cancels and awaits what is left


QueueMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestQueue = QueueMachine.TestCase
