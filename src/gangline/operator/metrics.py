"""What an operator counts of jobs, under the names of the Kubeflow operator, so that dashboards and alerts fit.

Counted is what was written down, not what was seen: a status goes from one state to the next once in the life of a
job, however often a pass is repeated and the operator restarted. A pass that wrote and was killed before it counted is
not counted; nothing is counted twice.
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
    """All counters, in one registry. Hands each kind what it reports to."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, what: str) -> Counter:
            return Counter(f"{PREFIX}_{name}_total", what, LABELS, registry=registry)

        self.jobs = {
            "created": counter("jobs_created", "Jobs taken up, once each."),
            "deleted": counter("jobs_deleted", "Jobs deleted, by whomever."),
            "successful": counter("jobs_successful", "Jobs that succeeded."),
            "failed": counter("jobs_failed", "Jobs that failed, for whatever reason."),
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
        """For the jobs of one kind."""
        # The container is named after the framework, and so is this label in v1.
        return KindMetrics(self, kind.container)


class KindMetrics:
    """What jobs of one kind report to."""

    def __init__(self, metrics: JobMetrics, framework: str) -> None:
        self._metrics, self._framework = metrics, framework

    def count_transitions(self, namespace: str, before: JobStatus, after: JobStatus) -> None:
        """A status took the place of another one."""
        for event, count in transitions(before, after).items():
            self.count_job(namespace, event, count)

    def count_job(self, namespace: str, event: str, count: int = 1) -> None:
        self._metrics.jobs[event].labels(namespace, self._framework).inc(count)

    def count_child(self, namespace: str, plural: str, event: str) -> None:
        counters = self._metrics.children.get(plural)
        if counters is not None:
            counters[event].labels(namespace, self._framework).inc()


def transitions(before: JobStatus, after: JobStatus) -> dict[str, int]:
    """What happened to a job between two of its statuses, and how often."""
    happened = {
        "created": int(not before.conditions and bool(after.conditions)),
        "successful": _became_true(ConditionType.SUCCEEDED, before, after),
        "failed": _became_true(ConditionType.FAILED, before, after),
        "restarted": max(0, after.restarts - before.restarts),
    }
    return {event: count for event, count in happened.items() if count}


def _became_true(kind: ConditionType, before: JobStatus, after: JobStatus) -> int:
    return int(after.holds(kind) and not before.holds(kind))


class MeteredExecutor(Executor):
    """An executor that counts what it has done."""

    def __init__(
        self,
        client: Client,
        expectations: Expectations,
        teller: EventSink,
        shares: CreateSlots,
        report: KindMetrics,
    ) -> None:
        super().__init__(MeteredClient(client, report), expectations, teller, shares)
        self._kind_metrics = report

    async def write_status(self, job: J, status: JobStatus) -> J:
        written = await super().write_status(job, status)
        if written is not job:
            self._kind_metrics.count_transitions(job.metadata.namespace, job.status, status)
        return written


class MeteredClient:
    """A client that counts the children it makes and ends."""

    def __init__(self, client: Client, report: KindMetrics) -> None:
        self._client, self._kind_metrics = client, report
        # Nothing to count in these.
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
            made = await self._client.create(kind, body, namespace=namespace)
        except AlreadyExists:
            raise
        except KubeError:
            self._kind_metrics.count_child(namespace, plural, "failures")
            raise
        self._kind_metrics.count_child(namespace, plural, "created")
        return made

    async def delete(self, kind: Kind[Any], key: Key, **how: Any) -> None:
        await self._client.delete(kind, key, **how)
        self._kind_metrics.count_child(key.namespace, self.scheme.of(kind).plural, "deleted")


class DeletedJobsCounter:
    """A source that adds no keys: it counts the jobs that go, while this process acts on them."""

    def __init__(self, jobs: Informer[Any], report: KindMetrics) -> None:
        self._jobs, self._kind_metrics = jobs, report

    @contextmanager
    def attach(self, add: Callable[[Key], None]) -> Iterator[None]:
        with self._jobs.subscribe(self._count_deletion):
            yield

    async def wait_for_sync(self) -> None:
        await self._jobs.wait_for_sync()

    def _count_deletion(self, delta: Delta[Any]) -> None:
        if delta.after is None:
            self._kind_metrics.count_job(key_of(delta.newest).namespace, "deleted")
