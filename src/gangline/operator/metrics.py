"""Metrics about jobs, under the names of the Kubeflow operator, so that dashboards and alerts fit.

Status writes are counted, not observations: a status changes from one state to the next once in the life of a job,
however often a reconcile is repeated and the operator restarted. A write whose process is killed before it is counted
is lost; nothing is counted twice. Times of jobs are read from objects at such a write (`gangline.jobs.milestones`).
Gauges are read from the caches at every scrape, while this process leads.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from gangline.api.core import Pod
from gangline.api.kubeflow.training import QUEUE_LABEL, ConditionType, JobKind, JobStatus, RunPolicy, TrainingJob
from gangline.api.meta import JSON, Key
from gangline.api.scheme import Scheme
from gangline.base.clock import Clock, SystemClock
from gangline.goodput.model import Activity
from gangline.jobs.executor import CreateSlots, EventSink, Executor
from gangline.jobs.framework import J
from gangline.jobs.milestones import JobMilestones, has_just_started, milestones
from gangline.jobs.plan.actions import PODS, SERVICES
from gangline.jobs.plan.conditions import current_condition
from gangline.jobs.plan.recovery.bad_nodes import BadNode
from gangline.kube.client import Client, Kind, T
from gangline.kube.errors import AlreadyExists, KubeError
from gangline.runtime.cache import Cache, key_of
from gangline.runtime.expectations import Expectations
from gangline.runtime.informer import Delta, Informer

PREFIX = "training_operator"
LABELS = ("job_namespace", "framework")
START_BUCKETS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 43200, 86400)
"""Seconds: from a job whose images are on the nodes to one that waits for GPUs overnight."""
JOB_STATES = ("Pending", *(kind.value for kind in ConditionType))
"""A job without any condition is Pending."""
PodsOfJob = Callable[[str], Iterable[Pod]]
"""The pods that a job with this uid owns, from a cache."""


class JobMetrics:
    """All metrics of jobs, in one registry."""

    def __init__(
        self, registry: CollectorRegistry, clock: Clock | None = None, is_leading: Callable[[], bool] = lambda: True
    ) -> None:
        """`is_leading`: whether to report gauges of jobs now, so that of several replicas only one does."""

        def counter(name: str, text: str) -> Counter:
            return Counter(f"{PREFIX}_{name}_total", text, LABELS, registry=registry)

        self.jobs = {
            "created": counter("jobs_created", "Jobs that got their first status, once each."),
            "deleted": counter("jobs_deleted", "Jobs deleted, by the operator or by users."),
            "successful": counter("jobs_successful", "Jobs that succeeded."),
            "failed": counter("jobs_failed", "Jobs that failed, for any reason."),
            "restarted": counter("jobs_restarted", "Restarts of replicas."),
            "stalled": counter("jobs_stalled", "Jobs that ran and made no progress, as often as that happened."),
        }
        self.children = {
            plural: {
                "created": counter(f"{plural}_created", f"{plural.capitalize()} created."),
                "deleted": counter(f"{plural}_deleted", f"{plural.capitalize()} deleted by the operator."),
                "failures": counter(f"{plural}_create_failures", f"{plural.capitalize()} that could not be created."),
            }
            for plural in (PODS, SERVICES)
        }

        def histogram(name: str, text: str) -> Histogram:
            return Histogram(f"gangline_job_{name}_seconds", text, LABELS, buckets=START_BUCKETS, registry=registry)

        self.pods_created_seconds = histogram(
            "pods_created", "Time from the creation of a job, or its resumption, until all its pods were created."
        )
        self.gang_wait_seconds = histogram(
            "gang_wait", "Time from the creation of a job's last pod until all its pods had nodes."
        )
        self.all_running_seconds = histogram(
            "all_running", "Time from the creation of a job, or its resumption, until all its replicas ran."
        )
        self.replica_seconds = Counter(
            "gangline_job_replica_seconds_total",
            "Seconds of replicas by what they did, as the goodput ledgers of jobs have them.",
            (*LABELS, "queue", "activity"),
            registry=registry,
        )
        self.states = JobStateCollector(clock or SystemClock(), is_leading)
        registry.register(self.states)

    def for_kind(self, kind: JobKind) -> "KindMetrics":
        """The counters of one kind of job."""
        # As in v1 the label `framework` is the name of the training container.
        return KindMetrics(self, kind.container)


class KindMetrics:
    """The counters of one kind of job."""

    def __init__(self, metrics: JobMetrics, framework: str) -> None:
        self._metrics, self._framework = metrics, framework

    def count_transitions(self, namespace: str, before: JobStatus, after: JobStatus) -> None:
        """Count what happened between two statuses that were written one after the other."""
        for event, count in transitions(before, after).items():
            self.count_job(namespace, event, count)

    def observe_times(self, job: TrainingJob, after: JobStatus, pods: PodsOfJob) -> None:
        """Count the times that end with this change of a job's status. The pods are read only if they are needed."""
        labels = (job.metadata.namespace, self._framework)
        for activity, seconds in _booked_seconds(job.status, after).items():
            self._metrics.replica_seconds.labels(*labels, queue_of(job), activity).inc(seconds)
        if has_just_started(job.status, after):
            self._observe_start(labels, milestones(job, after, pods(job.metadata.uid)))

    def _observe_start(self, labels: tuple[str, str], start: JobMilestones) -> None:
        metrics = self._metrics
        for histogram, seconds in (
            (metrics.pods_created_seconds, start.pods_created),
            (metrics.gang_wait_seconds, start.gang_wait),
            (metrics.all_running_seconds, start.all_running),
        ):
            if seconds is not None:
                histogram.labels(*labels).observe(seconds)

    def count_job(self, namespace: str, event: str, count: int = 1) -> None:
        self._metrics.jobs[event].labels(namespace, self._framework).inc(count)

    def count_child(self, namespace: str, plural: str, event: str) -> None:
        counters = self._metrics.children.get(plural)
        if counters is not None:
            counters[event].labels(namespace, self._framework).inc()


def _booked_seconds(before: JobStatus, after: JobStatus) -> dict[str, int]:
    """What was added to the ledger of a job. Time that was moved from one activity to another is not added twice."""
    if after.goodput is None:
        return {}
    earlier = before.goodput.seconds if before.goodput is not None else {}
    names = {**earlier, **after.goodput.seconds}
    added = {name: after.goodput.seconds.get(name, 0) - earlier.get(name, 0) for name in names}
    moved = -sum(seconds for seconds in added.values() if seconds < 0)
    added[Activity.STALLED] = added.get(Activity.STALLED, 0) - moved
    return {name: seconds for name, seconds in added.items() if seconds > 0}


def queue_of(job: TrainingJob) -> str:
    """The queue of a job: that of Kueue, else the one of its scheduling policy; empty if it has none."""
    policy = getattr(getattr(job, "spec", None), "run_policy", None)
    scheduling = policy.scheduling_policy if isinstance(policy, RunPolicy) else None
    return job.metadata.labels.get(QUEUE_LABEL) or (scheduling.queue if scheduling is not None else "")


def transitions(before: JobStatus, after: JobStatus) -> dict[str, int]:
    """The events between two statuses of a job, and how often each happened."""
    counts = {
        "created": int(not before.conditions and bool(after.conditions)),
        "successful": _became_true(ConditionType.SUCCEEDED, before, after),
        "failed": _became_true(ConditionType.FAILED, before, after),
        "restarted": max(0, after.restarts - before.restarts),
        "stalled": _became_true(ConditionType.STALLED, before, after),
    }
    return {event: count for event, count in counts.items() if count}


def _became_true(kind: ConditionType, before: JobStatus, after: JobStatus) -> int:
    return int(after.holds(kind) and not before.holds(kind))


class MeteredExecutor(Executor):
    """An executor that counts status changes, and objects created and deleted."""

    def __init__(
        self,
        client: Client,
        expectations: Expectations,
        events: EventSink,
        slots: CreateSlots,
        metrics: KindMetrics,
        pods: PodsOfJob,
    ) -> None:
        super().__init__(MeteredClient(client, metrics), expectations, events, slots)
        self._kind_metrics, self._pods_of_job = metrics, pods

    async def write_status(self, job: J, status: JobStatus) -> J:
        written = await super().write_status(job, status)
        if written is not job:
            self._kind_metrics.count_transitions(job.metadata.namespace, job.status, status)
            self._kind_metrics.observe_times(job, status, self._pods_of_job)
        return written


class MeteredClient:
    """A client that counts the objects it creates and deletes."""

    def __init__(self, client: Client, metrics: KindMetrics) -> None:
        self._client, self._kind_metrics = client, metrics
        # Not counted.
        self.get, self.patch, self.apply, self.unstructured = (
            client.get,
            client.patch,
            client.apply,
            client.unstructured,
        )

    @property
    def scheme(self) -> Scheme:
        return self._client.scheme

    async def create(self, kind: Kind[T], body: JSON, *, namespace: str = "") -> T:
        plural = self.scheme.of(kind).plural
        try:
            created = await self._client.create(kind, body, namespace=namespace)
        except AlreadyExists:
            raise
        except KubeError:
            self._kind_metrics.count_child(namespace, plural, "failures")
            raise
        self._kind_metrics.count_child(namespace, plural, "created")
        return created

    async def delete(self, kind: Kind[Any], key: Key, **options: Any) -> None:
        await self._client.delete(kind, key, **options)
        self._kind_metrics.count_child(key.namespace, self.scheme.of(kind).plural, "deleted")


class DeletedJobsCounter:
    """A source that adds no keys: it counts the jobs that are deleted while this process leads."""

    def __init__(self, jobs: Informer[Any], metrics: KindMetrics) -> None:
        self._jobs, self._kind_metrics = jobs, metrics

    @contextmanager
    def attach(self, add: Callable[[Key], None]) -> Iterator[None]:
        with self._jobs.subscribe(self._count_deletion):
            yield

    async def wait_for_sync(self) -> None:
        await self._jobs.wait_for_sync()

    def _count_deletion(self, delta: Delta[Any]) -> None:
        if delta.after is None and delta.newest.is_of_this_api:
            self._kind_metrics.count_job(key_of(delta.newest).namespace, "deleted")


class NotificationCounters:
    """What became of notifications, and how many wait. Every route is there from the start, at zero."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._results = Counter(
            "gangline_notifications_total",
            "Notifications that were delivered, failed for good, or were dropped because too many waited.",
            ("route", "result"),
            registry=registry,
        )
        self._queue = Gauge(
            "gangline_notification_queue_length",
            "Notifications that wait for a receiver.",
            ("route",),
            registry=registry,
        )

    def count(self, route: str, result: StrEnum) -> None:
        self._results.labels(route, result.value).inc()

    def set_queue(self, route: str, length: Callable[[], int], results: Iterable[StrEnum]) -> None:
        """Read the length at every scrape."""
        for result in results:
            self._results.labels(route, result.value)
        self._queue.labels(route).set_function(length)


class JobStateCollector:
    """Counts the jobs in the caches by state at every scrape, and says how long the oldest waits."""

    def __init__(self, clock: Clock, is_leading: Callable[[], bool]) -> None:
        self._clock, self._is_leading = clock, is_leading
        self._caches: list[tuple[str, Cache[Any]]] = []
        self._bad_nodes: Callable[[datetime], Iterable[BadNode]] = lambda now: ()

    def add_bad_nodes(self, find: Callable[[datetime], Iterable[BadNode]]) -> None:
        """Report the nodes that `find` returns for a time as avoided."""
        self._bad_nodes = find

    def add_cache(self, kind: JobKind, jobs: Cache[Any]) -> None:
        """Count these jobs, too."""
        self._caches.append((kind.container, jobs))

    def collect(self) -> Iterable[Metric]:
        states = GaugeMetricFamily(
            "gangline_jobs", "Jobs in the cluster, by their newest condition.", labels=(*LABELS, "state")
        )
        waits = GaugeMetricFamily(
            "gangline_job_oldest_waiting_seconds",
            "For how long the job has waited that waits longest to run; 0 if none waits.",
            labels=LABELS,
        )
        avoided = GaugeMetricFamily(
            "gangline_bad_nodes",
            "Nodes that jobs with a recovery policy avoid, because jobs of several owners failed there: the owners.",
            labels=("node", "level"),
        )
        if self._is_leading():
            now = self._clock.now()
            for node in self._bad_nodes(now):
                avoided.add_metric((node.name, "required" if node.is_excluded else "preferred"), node.owners)
            for labels, jobs in self._jobs_by_labels().items():
                self._add_samples(states, waits, labels, jobs, now)
        yield states
        yield waits
        yield avoided

    def _jobs_by_labels(self) -> dict[tuple[str, str], list[TrainingJob]]:
        """The jobs by namespace and framework. Two APIs of one framework may show the same objects."""
        found: dict[tuple[str, str], list[TrainingJob]] = {}
        for framework, jobs in self._caches:
            for job in jobs:
                if job.is_of_this_api:
                    found.setdefault((job.metadata.namespace, framework), []).append(job)
        return found

    def _add_samples(
        self,
        states: GaugeMetricFamily,
        waits: GaugeMetricFamily,
        labels: tuple[str, str],
        jobs: Iterable[TrainingJob],
        now: datetime,
    ) -> None:
        counts, longest = dict.fromkeys(JOB_STATES, 0), 0.0
        for job in jobs:
            state = current_condition(job.status)
            counts[state] = counts.get(state, 0) + 1
            if state in _WAITING_STATES:
                since = job.status.start_time or job.metadata.creation_timestamp or now
                longest = max(longest, (now - since).total_seconds())
        for state, count in counts.items():
            states.add_metric((*labels, state), count)
        waits.add_metric(labels, longest)


_WAITING_STATES = frozenset({"Pending", ConditionType.CREATED.value, ConditionType.BLOCKED.value})
