"""Prometheus metrics, under kube-batch's names where they measure the same, so that dashboards and alerts fit.

No label names a job: kube-batch's counters per job are sums here.
"""

from datetime import timedelta

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gangline.scheduler.types.cycle import Bind, CycleResult, Pending, Preempt

METRIC_PREFIX = "kube_batch"
_MILLISECOND_BUCKETS = tuple(5.0 * 2**power for power in range(10))
_MICROSECOND_BUCKETS = tuple(1000.0 * 4**power for power in range(12))


class PrometheusSchedulerMetrics:
    """All metrics of a scheduler, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._cycle_latency = Histogram(
            f"{METRIC_PREFIX}_e2e_scheduling_latency_milliseconds",
            "Duration of scheduling cycles.",
            buckets=_MILLISECOND_BUCKETS,
            registry=registry,
        )
        self._pod_latency = Histogram(
            f"{METRIC_PREFIX}_task_scheduling_latency_microseconds",
            "Time from the creation of pods until they were placed.",
            buckets=_MICROSECOND_BUCKETS,
            registry=registry,
        )
        attempts = Counter(
            f"{METRIC_PREFIX}_schedule_attempts",
            "Decisions about gangs (scheduled, unschedulable), and calls that failed (error).",
            ("result",),
            registry=registry,
        )
        self._scheduled, self._unschedulable = attempts.labels("scheduled"), attempts.labels("unschedulable")
        self._errors = attempts.labels("error")
        self._preemptions = Counter(
            f"{METRIC_PREFIX}_total_preemption_attempts", "Decisions to preempt other gangs.", registry=registry
        )
        self._victims = Counter(
            f"{METRIC_PREFIX}_pod_preemption_victims", "Pods evicted for others.", registry=registry
        )
        self._pending_pods = Gauge(
            f"{METRIC_PREFIX}_unschedule_task_count", "Pods that wait for nodes.", registry=registry
        )
        self._pending_gangs = Gauge(
            f"{METRIC_PREFIX}_unschedule_job_count", "Gangs that wait for nodes.", registry=registry
        )
        self._bound_pods = Counter(
            "gangline_scheduler_pods_bound", "Pods placed; its rate is the throughput.", registry=registry
        )

    def observe_cycle(self, seconds: float, result: CycleResult) -> None:
        """Count the decisions of a cycle, and observe how long it took."""
        self._cycle_latency.observe(seconds * 1000)
        for decision in result.decisions:
            match decision:
                case Bind():
                    self._scheduled.inc()
                case Preempt():
                    self._preemptions.inc()
                case Pending():
                    self._unschedulable.inc()

    def observe_bind(self, waited: timedelta | None) -> None:
        """Count a placed pod, and observe the time since its creation."""
        self._bound_pods.inc()
        if waited is not None:
            self._pod_latency.observe(waited.total_seconds() * 1e6)

    def count_bind_error(self) -> None:
        """Count a failed call."""
        self._errors.inc()

    def count_victims(self, count: int) -> None:
        """Count evicted pods."""
        self._victims.inc(count)

    def set_pending(self, gangs: int, pods: int) -> None:
        """Set how many gangs and pods are waiting."""
        self._pending_gangs.set(gangs)
        self._pending_pods.set(pods)
