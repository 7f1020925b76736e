"""The metrics of the scheduler, and that the documentation names them."""

from datetime import timedelta
from pathlib import Path

from gangline.api.meta import Key
from gangline.runtime.metrics import PrometheusMetrics
from gangline.scheduler.prometheus import PrometheusSchedulerMetrics
from gangline.scheduler.types.cycle import Bind, CycleResult, GangRequest, Pending, PendingReason
from support.builders.gang_pods import START_TIME

PAGE = Path(__file__).parents[3] / "docs" / "scheduling.md"
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
    )
    meters.observe_bind(timedelta(seconds=1))
    meters.observe_bind(None)
    meters.count_bind_error()
    meters.count_victims(3)
    meters.set_pending(2, 9)
    result = lines(metrics)
    assert result['kube_batch_schedule_attempts_total{result="scheduled"}'] == 1
    assert result['kube_batch_schedule_attempts_total{result="unschedulable"}'] == 2
    assert result['kube_batch_schedule_attempts_total{result="error"}'] == 1
    assert result["kube_batch_e2e_scheduling_latency_milliseconds_sum"] == 4
    assert result["kube_batch_task_scheduling_latency_microseconds_sum"] == 1e6
    assert result["gangline_scheduler_pods_bound_total"] == 2
    assert result["kube_batch_pod_preemption_victims_total"] == 3
    assert (result["kube_batch_unschedule_job_count"], result["kube_batch_unschedule_task_count"]) == (2, 9)


def test_every_metric_is_on_the_page() -> None:
    _, metrics = counted()
    text = metrics.render()[0].decode()
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    ours = [name for name in names if name.startswith(("kube_batch_", "gangline_scheduler_"))]
    page = PAGE.read_text().replace("`…_job_count`", "`kube_batch_unschedule_job_count`")
    assert ours
    assert not [name for name in ours if name not in page]
