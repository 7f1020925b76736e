"""Events that are recorded when decisions are carried out."""

from datetime import timedelta
from typing import Any

from gangline.api.core import PriorityClass
from gangline.api.meta import ObjectMeta
from gangline.api.scheduler_views import Pod
from gangline.api.scheduling import PodGroup, Queue, QueueSpec
from gangline.runtime.informer import Delta
from gangline.scheduler.binding.binder import PodBinder
from gangline.scheduler.binding.dispatcher import Dispatcher
from gangline.scheduler.binding.evictor import Evictor
from gangline.scheduler.binding.gang_events import GangEvents
from gangline.scheduler.binding.outcomes import BindingOutcomes
from gangline.scheduler.cache.cache import SchedulerCache
from gangline.scheduler.cycle.cycle import schedule
from gangline.scheduler.metrics import NullSchedulerMetrics
from gangline.scheduler.settings import SchedulerSettings
from gangline.scheduler.types.cycle import SchedulerPolicy
from gangline.testing.clock import FakeClock
from support.builders.gang_pods import START_TIME, make_gang_pod, make_pod_group
from support.builders.scheduler_inputs import make_scheduler_node


class RecordedEvents:
    """An event recorder that keeps object, reason and message."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, str, str]] = []

    def record(self, regarding: Any, kind: str, reason: str, note: str, action: str) -> None:
        self.notes.append((regarding.metadata.name, reason, note))

    def of(self, reason: str) -> dict[str, str]:
        return {name: note for name, result, note in self.notes if result == reason}


class DispatcherEnv:
    """A cache with one node of four cpus, and a dispatcher on it."""

    def __init__(self) -> None:
        self.events = RecordedEvents()
        self.cache = SchedulerCache(SchedulerSettings())
        self.cache.on_node(Delta(None, make_scheduler_node("a", cpu="4")))
        self.cache.on_priority_class(Delta(None, PriorityClass(metadata=ObjectMeta(name="high"), value=9)))
        nobody: Any = None
        recorder: Any = self.events
        clock, gang_events, metrics = FakeClock(START_TIME), GangEvents(recorder), NullSchedulerMetrics()
        outcomes = BindingOutcomes(self.cache, clock, gang_events, metrics)
        self.binder = PodBinder(nobody, clock, outcomes)
        self.dispatcher = Dispatcher(
            self.cache,
            self.binder,
            Evictor(nobody, clock, outcomes),
            outcomes,
            gang_events,
            SchedulerSettings(),
            metrics,
            request_cycle=lambda: None,
        )

    def queue(self, name: str, weight: int) -> None:
        result = Queue(metadata=ObjectMeta(name=name), spec=QueueSpec(weight=weight))
        self.cache.on_queue(Delta(None, result))

    def gang(self, found: PodGroup, count: int, **given: Any) -> None:
        name = found.metadata.name
        pods: list[Pod] = [
            make_gang_pod(f"{name}-{number}", name, role="worker", index=number, **given) for number in range(count)
        ]
        self.cache.on_group(Delta(None, found))
        for each in pods:
            self.cache.on_pod(Delta(None, each))

    def round(self) -> None:
        gangs = self.cache.gangs
        result = schedule(
            self.cache.nodes.what_if(),
            gangs.requests(),
            gangs.allocations(),
            self.cache.queues,
            SchedulerPolicy(),
            START_TIME,
        )
        self.dispatcher.dispatch(result, START_TIME)


def test_a_gang_that_has_to_leave_as_a_whole_is_told_for_whom_and_why() -> None:
    env = DispatcherEnv()
    env.gang(make_pod_group("low", 4), 4, node="a", phase="Running")
    env.gang(make_pod_group("top", 2, priorityClassName="high"), 2)
    env.round()
    assert env.events.of("Preempted") == {"low": "has to give way to ns/top, which is more important"}
    assert env.events.of("MakingRoom") == {"top": "evicting 4 pods of ns/low"}


def test_a_gang_that_only_shrinks_is_not_told_that_it_ends() -> None:
    env = DispatcherEnv()
    env.gang(make_pod_group("low", 2), 4, node="a", phase="Running")
    env.gang(make_pod_group("top", 1, priorityClassName="high"), 1)
    env.round()
    assert env.events.of("Preempted") == {
        "low": "1 of its 4 members has to give way to ns/top, which is more important; it goes on with the others"
    }
    assert env.events.of("MakingRoom") == {"top": "evicting 1 pod of ns/low"}


def test_a_gang_that_holds_more_than_its_queue_deserves_is_told_so() -> None:
    env = DispatcherEnv()
    env.queue("red", 1)
    env.queue("blue", 1)
    env.gang(make_pod_group("low", 4, queue="red"), 4, node="a", phase="Running")
    env.gang(make_pod_group("owed", 2, queue="blue"), 2)
    env.round()
    assert env.events.of("Preempted") == {"low": "has to give way to ns/owed, whose queue is owed its share"}


def test_a_priority_class_that_is_not_there_is_told_once() -> None:
    env = DispatcherEnv()
    env.gang(make_pod_group("g", 9, priorityClassName="hihg"), 9)
    env.gang(make_pod_group("h", 1, priorityClassName="high"), 1)
    env.round()
    env.round()
    said = [(name, note) for name, reason, note in env.events.notes if reason == "PriorityClassMissing"]
    assert said == [
        (
            "g",
            "there is no PriorityClass 'hihg': make it, or name another; until then the priority of its pods counts",
        )
    ]


def test_a_start_that_is_undone_gives_up_places_that_nobody_went_to_and_no_others() -> None:
    env = DispatcherEnv()
    env.gang(make_pod_group("g", 3), 3)
    env.round()
    # One was bound a moment ago, and the watch has not shown it yet.
    env.binder.cancel("uid-g-0")
    gang = env.cache.gangs.gang_of_pod("uid-g-0")
    assert gang is not None
    env.dispatcher.rollback(gang, timedelta(minutes=1))
    assert env.cache.nodes.what_if().free()["cpu"] == 3000
    pod = env.cache.nodes.bound_pod("uid-g-0")
    assert pod is not None
    assert pod.terminating
    assert env.events.of("Undone")["g"].startswith("only 1 of 3 members could be placed in 60 s")
