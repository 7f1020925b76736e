"""What a scheduler counts, under kube-batch's names where it counts the same, so that dashboards and alerts fit.

No label names a job: kube-batch's counters per job are sums here.
"""

from datetime import timedelta

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from gangline.scheduler.types.cycle import Evict, Place, Round, Wait

PREFIX = "kube_batch"
_MILLISECONDS = tuple(5.0 * 2**power for power in range(10))
_MICROSECONDS = tuple(1000.0 * 4**power for power in range(12))


class SchedulerMetrics:
    """All metrics of a scheduler, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._rounds = Histogram(
            f"{PREFIX}_e2e_scheduling_latency_milliseconds",
            "How long rounds of decisions took.",
            buckets=_MILLISECONDS,
            registry=registry,
        )
        self._waited = Histogram(
            f"{PREFIX}_task_scheduling_latency_microseconds",
            "From the creation of pods until they were placed.",
            buckets=_MICROSECONDS,
            registry=registry,
        )
        attempts = Counter(
            f"{PREFIX}_schedule_attempts",
            "Decisions about gangs (scheduled, unschedulable), and calls that failed (error).",
            ("result",),
            registry=registry,
        )
        self._placed, self._short = attempts.labels("scheduled"), attempts.labels("unschedulable")
        self._errors = attempts.labels("error")
        self._attempts = Counter(
            f"{PREFIX}_total_preemption_attempts", "How often others were made to leave.", registry=registry
        )
        self._victims = Counter(
            f"{PREFIX}_pod_preemption_victims", "Pods that were asked to leave.", registry=registry
        )
        self._tasks = Gauge(f"{PREFIX}_unschedule_task_count", "Pods that wait.", registry=registry)
        self._jobs = Gauge(f"{PREFIX}_unschedule_job_count", "Gangs that wait.", registry=registry)
        self._bound = Counter(
            "gangline_scheduler_pods_bound",
            "Pods placed; its rate is the throughput.",
            registry=registry,
        )

    def round(self, seconds: float, found: Round) -> None:
        """A round was made."""
        self._rounds.observe(seconds * 1000)
        for decision in found.decisions:
            match decision:
                case Place():
                    self._placed.inc()
                case Evict():
                    self._attempts.inc()
                case Wait():
                    self._short.inc()

    def bound(self, waited: timedelta | None) -> None:
        """A pod has its place, so long after it was made."""
        self._bound.inc()
        if waited is not None:
            self._waited.observe(waited.total_seconds() * 1e6)

    def failed(self) -> None:
        """A call failed."""
        self._errors.inc()

    def victims(self, count: int) -> None:
        """So many are asked to leave."""
        self._victims.inc(count)

    def waiting(self, gangs: int, pods: int) -> None:
        """So many wait now."""
        self._jobs.set(gangs)
        self._tasks.set(pods)
