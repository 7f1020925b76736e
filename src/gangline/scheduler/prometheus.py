"""Prometheus metrics, under kube-batch's names where they measure the same, so that dashboards and alerts fit.

No label names a job: kube-batch's counters per job are sums here.
"""

from datetime import datetime, timedelta

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gangline.base.clock import Clock, SystemClock
from gangline.scheduler.types.cycle import Bind, CycleResult, Pending, Preempt

METRIC_PREFIX = "kube_batch"
_MILLISECOND_BUCKETS = tuple(5.0 * 2**power for power in range(10))
_MICROSECOND_BUCKETS = tuple(1000.0 * 4**power for power in range(12))
_CYCLE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_WAIT_BUCKETS = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400)


class PrometheusSchedulerMetrics:
    """All metrics of a scheduler, in one registry."""

    def __init__(self, registry: CollectorRegistry, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        # Since when the gang waits that waits longest; None if none waits.
        self._oldest: datetime | None = None
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
        self._cycle_seconds = Histogram(
            "gangline_scheduler_cycle_seconds",
            "Duration of scheduling cycles.",
            buckets=_CYCLE_BUCKETS,
            registry=registry,
        )
        self._gang_wait = Histogram(
            "gangline_scheduler_gang_wait_seconds",
            "Time that gangs waited for nodes until they were placed.",
            ("queue",),
            buckets=_WAIT_BUCKETS,
            registry=registry,
        )
        Gauge(
            "gangline_scheduler_oldest_waiting_gang_seconds",
            "For how long the gang has waited that waits longest; 0 if none waits.",
            registry=registry,
        ).set_function(self._oldest_wait)

    def observe_cycle(self, seconds: float, result: CycleResult, now: datetime) -> None:
        """Count the decisions of a cycle, and observe how long it took, and how long the placed gangs had waited."""
        self._cycle_latency.observe(seconds * 1000)
        self._cycle_seconds.observe(seconds)
        for decision in result.decisions:
            match decision:
                case Bind(request=request):
                    self._scheduled.inc()
                    # Otherwise the gang has its minimum already, and members beyond it are placed.
                    if request.min_members:
                        wait = max(timedelta(), now - request.waiting_since)
                        self._gang_wait.labels(request.queue).observe(wait.total_seconds())
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

    def set_pending(self, gangs: int, pods: int, oldest: datetime | None) -> None:
        """Set how many gangs and pods are waiting, and since when the first of them."""
        self._pending_gangs.set(gangs)
        self._pending_pods.set(pods)
        self._oldest = oldest

    def _oldest_wait(self) -> float:
        return 0.0 if self._oldest is None else max(0.0, (self._clock.now() - self._oldest).total_seconds())
