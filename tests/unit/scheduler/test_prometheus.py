"""The metrics of the scheduler."""

from datetime import timedelta

import msgspec

from gangline.api.meta import Key
from gangline.runtime.metrics import PrometheusMetrics
from gangline.scheduler.prometheus import PrometheusSchedulerMetrics
from gangline.scheduler.types.cycle import Bind, CycleResult, GangRequest, Pending, PendingReason
from gangline.testing.clock import FakeClock
from support.builders.gang_pods import START_TIME

ASK = GangRequest(
    Key("ns", "g"), "u", "default", 0, START_TIME, START_TIME, recovering=False, pod_sets=(), min_members=0
)


def counted() -> tuple[PrometheusSchedulerMetrics, PrometheusMetrics]:
    metrics = PrometheusMetrics()
    return PrometheusSchedulerMetrics(metrics.registry), metrics


def lines(metrics: PrometheusMetrics) -> dict[str, float]:
    text = metrics.render()[0].decode()
    rows = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in rows}


def test_rounds_places_and_failures_are_counted() -> None:
    meters, metrics = counted()
    meters.observe_cycle(
        0.004,
        CycleResult(
            [
                Bind(ASK, ()),
                Pending(ASK, PendingReason.QUEUE, "later"),
                Pending(ASK, PendingReason.HELD, "later"),
            ]
        ),
        START_TIME,
    )
    meters.observe_bind(timedelta(seconds=1))
    meters.observe_bind(None)
    meters.count_bind_error()
    meters.count_victims(3)
    meters.set_pending(2, 9, START_TIME)
    result = lines(metrics)
    assert result['kube_batch_schedule_attempts_total{result="scheduled"}'] == 1
    assert result['kube_batch_schedule_attempts_total{result="unschedulable"}'] == 2
    assert result['kube_batch_schedule_attempts_total{result="error"}'] == 1
    assert result["kube_batch_e2e_scheduling_latency_milliseconds_sum"] == 4
    assert result["kube_batch_task_scheduling_latency_microseconds_sum"] == 1e6
    assert result["gangline_scheduler_pods_bound_total"] == 2
    assert result["kube_batch_pod_preemption_victims_total"] == 3
    assert (result["kube_batch_unschedule_job_count"], result["kube_batch_unschedule_task_count"]) == (2, 9)


def test_the_wait_of_a_gang_is_observed_when_its_minimum_is_placed() -> None:
    meters, metrics = counted()
    whole = msgspec.structs.replace(ASK, min_members=2)
    meters.observe_cycle(0.25, CycleResult([Bind(whole, ()), Bind(ASK, ())]), START_TIME + timedelta(seconds=90))
    result = lines(metrics)
    assert result['gangline_scheduler_gang_wait_seconds_sum{queue="default"}'] == 90
    assert result['gangline_scheduler_gang_wait_seconds_count{queue="default"}'] == 1
    assert result["gangline_scheduler_cycle_seconds_sum"] == 0.25


def test_the_longest_wait_grows_with_the_clock_and_ends_with_the_last_gang() -> None:
    clock, metrics = FakeClock(START_TIME), PrometheusMetrics()
    meters = PrometheusSchedulerMetrics(metrics.registry, clock)
    meters.set_pending(1, 4, START_TIME - timedelta(seconds=5))
    assert lines(metrics)["gangline_scheduler_oldest_waiting_gang_seconds"] == 5
    clock.jump(timedelta(seconds=60))
    assert lines(metrics)["gangline_scheduler_oldest_waiting_gang_seconds"] == 65
    meters.set_pending(0, 0, None)
    assert lines(metrics)["gangline_scheduler_oldest_waiting_gang_seconds"] == 0
