"""Notifications over random crashes: none is lost, none is out of order, and few are repeated.

The world has jobs whose statuses change, one process that observes, delivers and writes, and a receiver. A crash loses
everything but statuses and written records. What the receiver got is compared with what happened.
"""

from collections import Counter
from datetime import timedelta
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from gangline.api.kubeflow.training import ConditionType, JobStatus
from gangline.notify.delivery import RouteQueue
from gangline.notify.plan.journal import Due, NotificationJournal
from gangline.notify.plan.transitions import marks
from support.builders.notified_jobs import NOW, JobHistory, settings_of

JOBS = ("a", "b", "c")
SETTINGS = settings_of(waiting_after_seconds=10**6)


class NotificationWorld:
    """Jobs, a process, and a receiver."""

    def __init__(self) -> None:
        self.now = NOW
        self.histories = {name: JobHistory(name, now=NOW).create() for name in JOBS}
        self.stored: dict[str, str] = {}
        self.received: list[str] = []
        # What must arrive whatever happens: it was observed by a process that then wrote its journal.
        self.owed: set[str] = set()
        self.observed_ids: set[str] = set()
        # How many deliveries may be repeated.
        self.allowed_repeats = 0
        self.start()

    # The process

    def start(self) -> None:
        self.journal = NotificationJournal(SETTINGS, self.stored, self.now)
        self.queue = RouteQueue(10_000)
        self.unwritten_deliveries = 0
        self.write()  # as the real one does at once, to say since when
        self.add(self.journal.resume({history.job.metadata.uid: history.job for history in self.histories.values()}))
        for name in JOBS:
            self.observe(name)

    def observe(self, name: str) -> None:
        self.add(self.journal.observe(self.histories[name].job, self.now))

    def add(self, due: list[Due]) -> None:
        for one in due:
            assert self.queue.add(one) is None

    def deliver(self, *, lose_answer: bool = False) -> bool:
        due = self.queue.take()
        if due is None:
            return False
        self.received.append(due.transition.id)
        if lose_answer:
            self.allowed_repeats += 1
            self.queue.put_back(due)
        else:
            self.queue.finish(due)
            self.journal.settle(due)
            self.unwritten_deliveries += 1
        return True

    def refuse(self) -> None:
        """The receiver is down."""
        due = self.queue.take()
        if due is not None:
            self.queue.put_back(due)

    def write(self) -> None:
        for name, text in self.journal.take_changes().items():
            if text is None:
                self.stored.pop(name, None)
            else:
                self.stored[name] = text
        self.unwritten_deliveries = 0
        self.owed |= self.observed_ids

    def crash(self) -> None:
        self.allowed_repeats += self.unwritten_deliveries
        self.observed_ids = set()
        self.start()

    # Jobs

    def change(self, name: str, step: str, seconds: int) -> None:
        history = self.histories[name]
        if step not in possible_steps(history.status):
            return
        self.now = history.now = max(self.now, history.now) + timedelta(seconds=seconds)
        getattr(history, step)()
        self.now = max(self.now, history.now)

    def ids(self, name: str) -> list[str]:
        job: Any = self.histories[name].job
        return [f"{job.metadata.uid}_{mark.key}" for mark in marks(job, self.now, SETTINGS.waiting_after)]


def possible_steps(status: JobStatus) -> tuple[str, ...]:
    """What the operator may write next."""
    if status.finished:
        return ()
    if status.holds(ConditionType.SUSPENDED):
        return ("resume",)
    ends = ("suspend", "succeed", "fail")
    return ("restart", *ends) if status.holds(ConditionType.RUNNING) else ("run", "block", *ends)


# A job ends seldom, so that it has a history.
STEPS = (*("run", "restart", "suspend", "resume", "block") * 4, "succeed", "fail")
ACTIONS = st.one_of(
    st.tuples(st.just("change"), st.sampled_from(JOBS), st.sampled_from(STEPS), st.integers(0, 3)),
    st.tuples(st.sampled_from(["deliver", "deliver", "refuse", "lose answer", "write", "crash"])),
)


@settings(max_examples=400)
@given(st.lists(ACTIONS, min_size=15, max_size=60))
def test_no_notification_is_lost_or_out_of_order_and_few_are_repeated(actions: list[tuple[Any, ...]]) -> None:
    world = NotificationWorld()
    happened = {name: world.ids(name) for name in JOBS}
    for action in actions:
        match action:
            case ("change", name, step, seconds):
                world.change(name, step, seconds)
                world.observe(name)
                present = world.ids(name)
                world.observed_ids = world.observed_ids | set(present)
                happened[name] += [one for one in present if one not in happened[name]]
            case ("deliver",):
                world.deliver()
            case ("refuse",):
                world.refuse()
            case ("lose answer",):
                world.deliver(lose_answer=True)
            case ("write",):
                world.write()
            case ("crash",):
                event("crash")
                world.crash()
    while world.deliver():
        pass
    world.write()

    at_the_end = {one for name in JOBS for one in world.ids(name)}
    assert world.owed | at_the_end <= set(world.received)
    for name in JOBS:
        firsts = list(dict.fromkeys(one for one in world.received if one.startswith(f"uid-of-{name}_")))
        expected = [one for one in happened[name] if one in firsts]
        assert firsts == expected
    repeats = sum(count - 1 for count in Counter(world.received).values())
    event(f"repeats: {min(repeats, 3)}")
    assert repeats <= world.allowed_repeats
    if ("crash",) not in actions:
        assert {one for ids in happened.values() for one in ids} == set(world.received)
