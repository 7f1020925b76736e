"""Metrics about jobs, under the names of the Kubeflow operator, so that dashboards and alerts fit.

Status writes are counted, not observations: a status changes from one state to the next once in the life of a job,
however often a reconcile is repeated and the operator restarted. A write whose process is killed before it is counted
is lost; nothing is counted twice.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from prometheus_client import CollectorRegistry, Counter

from gangline.api.kubeflow.training import ConditionType, JobKind, JobStatus
from gangline.api.meta import JSON, Key
from gangline.api.scheme import Scheme
from gangline.jobs.executor import CreateSlots, EventSink, Executor
from gangline.jobs.framework import J
from gangline.jobs.plan.actions import PODS, SERVICES
from gangline.kube.client import Client, Kind, T
from gangline.kube.errors import AlreadyExists, KubeError
from gangline.runtime.cache import key_of
from gangline.runtime.expectations import Expectations
from gangline.runtime.informer import Delta, Informer

PREFIX = "training_operator"
LABELS = ("job_namespace", "framework")


class JobMetrics:
    """All counters of the operator, in one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"{PREFIX}_{name}_total", text, LABELS, registry=registry)

        self.jobs = {
            "created": counter("jobs_created", "Jobs that got their first status, once each."),
            "deleted": counter("jobs_deleted", "Jobs deleted, by the operator or by users."),
            "successful": counter("jobs_successful", "Jobs that succeeded."),
            "failed": counter("jobs_failed", "Jobs that failed, for any reason."),
            "restarted": counter("jobs_restarted", "Restarts of replicas."),
        }
        self.children = {
            plural: {
                "created": counter(f"{plural}_created", f"{plural.capitalize()} created."),
                "deleted": counter(f"{plural}_deleted", f"{plural.capitalize()} deleted by the operator."),
                "failures": counter(f"{plural}_create_failures", f"{plural.capitalize()} that could not be created."),
            }
            for plural in (PODS, SERVICES)
        }

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

    def count_job(self, namespace: str, event: str, count: int = 1) -> None:
        self._metrics.jobs[event].labels(namespace, self._framework).inc(count)

    def count_child(self, namespace: str, plural: str, event: str) -> None:
        counters = self._metrics.children.get(plural)
        if counters is not None:
            counters[event].labels(namespace, self._framework).inc()


def transitions(before: JobStatus, after: JobStatus) -> dict[str, int]:
    """The events between two statuses of a job, and how often each happened."""
    counts = {
        "created": int(not before.conditions and bool(after.conditions)),
        "successful": _became_true(ConditionType.SUCCEEDED, before, after),
        "failed": _became_true(ConditionType.FAILED, before, after),
        "restarted": max(0, after.restarts - before.restarts),
    }
    return {event: count for event, count in counts.items() if count}


def _became_true(kind: ConditionType, before: JobStatus, after: JobStatus) -> int:
    return int(after.holds(kind) and not before.holds(kind))


class MeteredExecutor(Executor):
    """An executor that counts status changes, and objects created and deleted."""

    def __init__(
        self, client: Client, expectations: Expectations, events: EventSink, slots: CreateSlots, metrics: KindMetrics
    ) -> None:
        super().__init__(MeteredClient(client, metrics), expectations, events, slots)
        self._kind_metrics = metrics

    async def write_status(self, job: J, status: JobStatus) -> J:
        written = await super().write_status(job, status)
        if written is not job:
            self._kind_metrics.count_transitions(job.metadata.namespace, job.status, status)
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
        if delta.after is None:
            self._kind_metrics.count_job(key_of(delta.newest).namespace, "deleted")
