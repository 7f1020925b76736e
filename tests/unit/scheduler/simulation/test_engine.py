"""The simulation: what happens to jobs, and what is counted."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gangline.scheduler.simulation.engine import (
    NodePool,
    Simulation,
    SimulationEvent,
    SimulationResult,
    SimulationRules,
    total_capacity,
)
from gangline.scheduler.simulation.report import percentile, simulation_report
from gangline.scheduler.simulation.workload import WorkloadJob, WorkloadMix, generated_jobs
from gangline.scheduler.types.cycle import QueueQuota, SchedulerPolicy

ONE = (("cpu", 1000), ("pods", 1))
PARK = NodePool(2, {"cpu": "4"})


def work(name: str, arrival: float = 0, members: int = 1, duration: float = 100, **others: Any) -> WorkloadJob:
    return WorkloadJob(name, arrival, members, ONE, duration, **others)


def simulated(
    works: Iterable[WorkloadJob], parks: Iterable[NodePool] = (PARK,), **rules: Any
) -> tuple[SimulationResult, list[SimulationEvent]]:
    events: list[SimulationEvent] = []
    return Simulation(parks, works, SimulationRules(**rules), on_event=events.append).run(), events


def started(outcome: SimulationResult) -> dict[str, float | None]:
    return {life.job.name: life.started for life in outcome.jobs}


def ended(outcome: SimulationResult) -> dict[str, float | None]:
    return {life.job.name: life.ended for life in outcome.jobs}


def test_a_job_starts_when_it_comes_and_ends_after_its_duration() -> None:
    outcome, events = simulated([work("a", 5, members=3)])
    assert (started(outcome), ended(outcome)) == ({"a": 5}, {"a": 105})
    assert [(event.at, event.event, event.members) for event in events] == [
        (5, "arrive", 3),
        (5, "start", 3),
        (105, "end", 3),
    ]
    assert events[1].nodes == {"node-0": 3}


def test_a_gang_waits_until_all_of_it_has_room() -> None:
    outcome, events = simulated([work("a", members=6), work("b", 1, members=4)])
    assert started(outcome) == {"a": 0, "b": 100}
    assert [event.cause for event in events if event.event == "wait"] == ["Resources"]


def test_decisions_are_made_once_in_a_cycle() -> None:
    outcome, _ = simulated([work("a", 0.25), work("b", 0.5), work("c", 1.5)], cycle=1.0)
    assert started(outcome) == {"a": 1, "b": 1, "c": 2}


def test_a_job_that_never_fits_is_left_without_a_start_and_stops_nobody() -> None:
    outcome, _ = simulated([work("never", members=9), work("a", 10)])
    assert started(outcome) == {"never": None, "a": 10}
    result = simulation_report(outcome).waiting[0]
    assert (result.jobs, result.never) == (2, 1)


def test_a_more_important_job_makes_another_leave_which_then_begins_again() -> None:
    works = [work("low", members=8, duration=1000), work("high", 100, members=8, duration=50, priority=5)]
    outcome, events = simulated(works, grace=30.0)
    assert started(outcome) == {"low": 0, "high": 130}
    assert ended(outcome) == {"low": 1180, "high": 180}
    assert [life.lost_seconds for life in outcome.jobs] == [100, 0]
    assert (outcome.preempted, outcome.victims) == (1, 8)
    assert [event.event for event in events if event.job == "low"] == [
        "arrive",
        "start",
        "evict",
        "left",
        "wait",
        "start",
        "end",
    ]


def test_a_job_that_saves_its_work_loses_only_what_came_after() -> None:
    works = [work("low", members=8, duration=1000), work("high", 100, members=8, duration=50, priority=5)]
    outcome, _ = simulated(works, grace=30.0, checkpoint=40.0)
    assert outcome.jobs[0].lost_seconds == 20
    assert ended(outcome)["low"] == 180 + 1000 - 80


def test_an_elastic_job_starts_with_its_least_and_grows_when_there_is_room() -> None:
    outcome, events = simulated([work("a", members=6), work("elastic", members=8, min_members=2, duration=200)])
    assert started(outcome)["elastic"] == 0
    grown = [(event.at, event.event, event.members) for event in events if event.job == "elastic"]
    assert grown == [(0, "arrive", 8), (0, "start", 2), (100, "grow", 6), (200, "end", 8)]


def test_an_elastic_job_shrinks_for_a_more_important_one_and_goes_on() -> None:
    works = [work("elastic", members=8, min_members=2, duration=500), work("high", 10, members=4, priority=5)]
    outcome, events = simulated(works, grace=5.0)
    assert ended(outcome) == {"elastic": 500, "high": 115}
    assert (outcome.preempted, outcome.victims) == (0, 4)
    assert [event.event for event in events if event.job == "elastic"] == [
        "arrive",
        "start",
        "shrink",
        "left",
        "wait",
        "grow",
        "end",
    ]


def test_patience_lets_a_big_job_start_among_many_small_ones() -> None:
    small = [work(f"s{n}", n * 10.0, duration=81) for n in range(60)]
    big = work("big", 5, members=8, duration=10)
    passed, _ = simulated([*small, big], policy=SchedulerPolicy(starvation_timeout=None))
    held, _ = simulated([*small, big], policy=SchedulerPolicy(starvation_timeout=timedelta(seconds=60)))
    late, soon = started(passed)["big"], started(held)["big"]
    assert late is not None
    assert soon is not None
    assert soon < 200 < late


def test_a_queue_never_has_more_than_its_cap() -> None:
    rules = {"q": QueueQuota("q", cap={"cpu": 2000})}
    outcome, _ = simulated([work(f"j{n}", queue="q") for n in range(6)], queues=rules)
    assert sorted(ended(outcome).values(), key=str) == [100, 100, 200, 200, 300, 300]
    assert max(sample.used["cpu"] for sample in outcome.samples) == 0.25


def test_use_and_fragmentation_are_measured_over_time_until_the_last_job_has_started() -> None:
    works = [
        work("a", members=2, duration=50),
        work("b", 50, members=8, duration=50),
        work("late", 150, duration=9e9),
    ]
    outcome, _ = simulated(works)
    result = simulation_report(outcome, points=3)
    assert (result.scarcest, result.busy, result.seconds) == ("cpu", 150, 9e9 + 150)
    assert result.used == {"cpu": pytest.approx((0.25 * 50 + 1.0 * 50) / 150)}
    assert [moment.used for moment in result.moments] == [0.25, 1.0, 0.0]
    # While two of eight are used, two of the six free ones are on the same node.
    assert result.moments[0].fragmented == pytest.approx(2 / 6, abs=1e-6)


def test_waiting_is_told_by_size_and_by_queue() -> None:
    works = [work("a", members=8, queue="x"), *(work(f"s{n}", 10, queue="y") for n in range(4))]
    rules = {name: QueueQuota(name) for name in "xy"}
    result = simulation_report(simulated(works, queues=rules, policy=SchedulerPolicy(reclaim=False))[0])
    assert [(row.of, row.jobs, row.p50, row.longest) for row in result.by_size] == [
        ("1", 4, 90, 90),
        ("5-8", 1, 0, 0),
    ]
    assert [(row.of, row.p95) for row in result.by_queue] == [("x", 0), ("y", 90)]


def test_a_percentile_is_a_value_that_was_there() -> None:
    assert [percentile([1, 2, 3, 4], percent) for percent in (25, 50, 75, 95, 100)] == [1, 2, 3, 4, 4]
    assert percentile([], 50) == 0


def logged(seed: int) -> bytes:
    parks = [NodePool(10, {"cpu": "32", "memory": "256Gi", "nvidia.com/gpu": "4"})]
    mix = WorkloadMix(
        sizes={1: 3, 4: 2, 16: 1}, priorities={0: 3, 5: 1}, queues={"a": 1, "b": 1}, load=1.5, duration=300
    )
    lines: list[bytes] = []
    rules = SimulationRules(queues={"a": QueueQuota("a", 2), "b": QueueQuota("b")}, checkpoint=60.0)
    works = generated_jobs(50, seed, mix, total_capacity(parks))
    Simulation(parks, works, rules, on_event=lambda event: lines.append(msgspec.json.encode(event))).run()
    return b"\n".join(lines)


def test_the_same_seed_gives_the_same_log_byte_for_byte_and_another_another() -> None:
    first = logged(1)
    assert logged(1) == first
    assert logged(2) != first
    for event in (b'"start"', b'"wait"', b'"evict"', b'"end"'):
        assert event in first


def test_what_is_held_is_counted_as_the_engine_would_count_it_itself() -> None:
    """The simulation keeps count of what queues use; at the end all of it is zero."""
    works = [
        work("low", members=6, duration=500),
        work("elastic", members=4, min_members=1, queue="q"),
        work("high", 50, members=4, priority=3, queue="q"),
    ]
    simulation = Simulation([PARK], works, SimulationRules(queues={"q": QueueQuota("q")}))
    simulation.run()
    assert simulation.queue_usage == {"default": {"cpu": 0, "pods": 0}, "q": {"cpu": 0, "pods": 0}}
