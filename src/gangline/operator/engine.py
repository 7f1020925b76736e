"""The job engine on a manager: one controller per kind, over shared caches."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from typing import Any

from gangline.api.core import Pod, Service
from gangline.api.kubeflow.kinds import JOB_SCHEME
from gangline.api.kubeflow.training import JOB_NAME, JobKind
from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheduling import PODGROUPS, QUEUES
from gangline.api.scheme import Resource, Scheme
from gangline.base.clock import Clock
from gangline.frameworks.jax import Jax
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.paddle import Paddle
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.frameworks.xgboost import XGBoost
from gangline.jobs.events import JobEvents
from gangline.jobs.executor import CreateSlots, Executor
from gangline.jobs.framework import Framework, NeedsCompanions
from gangline.jobs.gangs.podgroup import GangScheduler
from gangline.jobs.gangs.scheduler_plugins import SchedulerPlugins
from gangline.jobs.gangs.volcano import Volcano
from gangline.jobs.observer import (
    ORPHAN_INDEX,
    OWNER_INDEX,
    ExpectationSource,
    JobCaches,
    Observer,
    orphan_keys,
    owner_uid,
    owning_jobs,
)
from gangline.jobs.plan.actions import PODS, SERVICES
from gangline.jobs.reconciler import CachedJobReconciler
from gangline.kube.client import Client
from gangline.kube.errors import KubeError
from gangline.kube.pods import PodSubresources
from gangline.operator.definitions import CRDS
from gangline.operator.metrics import DeletedJobsCounter, JobMetrics, MeteredExecutor
from gangline.operator.settings import OperatorSettings
from gangline.runtime.events import EventRecorder, RecordResult
from gangline.runtime.expectations import Expectations
from gangline.runtime.informer import Informer
from gangline.runtime.manager import ControllerOptions, Manager
from gangline.runtime.sources import InformerSource, KeySource, own_key

COMPANION_RESOURCES: tuple[Resource[Any], ...] = (
    Resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", dict),
    Resource("rbac.authorization.k8s.io", "v1", "Role", "roles", dict),
    Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", dict),
    *Volcano.kinds,
    *SchedulerPlugins.kinds,
)
"""Kinds that some jobs need beside pods and services, and that the client does not know by itself."""

OPERATOR_SCHEME: Scheme = JOB_SCHEME.with_resources(PODGROUPS, QUEUES, *COMPANION_RESOURCES, CRDS)
"""All that an operator reads and writes."""


MAX_RETRY_DELAY = timedelta(minutes=1)
"""The longest pause after failures: a quota that was raised, or a name that is free again, tells nobody."""
EVENT_DELAY = timedelta(seconds=1)
"""Events are for people, who are slower than jobs: pods are made first."""


def enabled_frameworks(settings: OperatorSettings) -> tuple[Framework[Any], ...]:
    """The frameworks of the kinds asked for."""
    known: tuple[Framework[Any], ...] = (
        TensorFlow(),
        PyTorch(settings.pytorch_init_image, settings.pytorch_init_tries, settings.pytorch_init_template),
        XGBoost(),
        Mpi(settings.mpi_delivery_image, settings.mpi_agent),
        Paddle(),
        Jax(),
    )
    return tuple(framework for framework in known if framework.facts.kind in settings.kinds)


class JobEngine:
    """Adds what jobs need to a manager. Inert: the manager runs it."""

    def __init__(
        self,
        manager: Manager,
        client: Client,
        settings: OperatorSettings,
        instance: str,
        clock: Clock,
        *,
        metrics: JobMetrics | None = None,
        count: Callable[[RecordResult], object] = lambda outcome: None,
    ) -> None:
        """`instance` is this process; `count` is told what becomes of events."""
        self._manager, self._client, self._settings = manager, client, settings
        self._instance, self._clock = instance, clock
        self._metrics, self._count_event = metrics, count
        self._expectations = Expectations(clock)
        where = Selector(namespace=settings.namespace, labels=JOB_NAME)
        self._pods = manager.informer(Pod, where, {OWNER_INDEX: owner_uid, ORPHAN_INDEX: orphan_keys})
        self._services = manager.informer(Service, where, {OWNER_INDEX: owner_uid, ORPHAN_INDEX: orphan_keys})
        self._companions: dict[str, Informer[JSON]] = {}
        self._claimed_resources: set[str] = set()
        # The kinds served, as owners are known by.
        self._kinds: set[tuple[str, str]] = set()
        self._slots = CreateSlots()

    def add_frameworks(self, wanted: Sequence[Framework[Any]]) -> None:
        """One controller per framework."""
        for framework in wanted:
            self._add_framework(framework)

    def _add_framework(self, framework: Framework[Any]) -> None:
        facts, settings = framework.facts, self._settings
        self._kinds.add((facts.model.API_VERSION, facts.kind))
        jobs: Informer[Any] = self._manager.informer(facts.model, Selector(namespace=settings.namespace))
        needed = framework.resources if isinstance(framework, NeedsCompanions) else ()
        groups = tuple(kind.name for gangs in settings.site.gang_schedulers for kind in gangs.kinds)
        companions = {name: self._companion_informer(name) for name in (*groups, *needed)}
        recorder = EventRecorder(
            self._client,
            facts.controller,
            self._instance,
            self._clock,
            scheme=self._client.scheme,
            delay=EVENT_DELAY,
            busy=lambda: self._slots.busy,
            count=self._count_event,
        )
        self._manager.add_runnable(recorder.run, leading=False)
        caches = JobCaches(
            jobs.cache,
            self._pods.cache,
            self._services.cache,
            {name: informer.cache for name, informer in companions.items()},
        )
        reconciler = CachedJobReconciler(
            framework,
            Observer(framework, caches, self._expectations, settings.site, self._clock),
            self._executor(facts, JobEvents(recorder)),
            PodLogs(PodSubresources(self._client)),
            self._clock,
        )
        self._manager.new_controller(
            facts.controller,
            reconciler,
            self._sources(facts, jobs, companions),
            ControllerOptions(workers=settings.workers, ceiling=MAX_RETRY_DELAY),
        )

    def _executor(self, facts: JobKind, notes: JobEvents) -> Executor:
        if self._metrics is None:
            return Executor(self._client, self._expectations, notes, self._slots)
        return MeteredExecutor(self._client, self._expectations, notes, self._slots, self._metrics.for_kind(facts))

    def _sources(
        self, facts: JobKind, jobs: Informer[Any], companions: Mapping[str, Informer[JSON]]
    ) -> Sequence[KeySource]:
        children: dict[str, Informer[Any]] = {PODS: self._pods, SERVICES: self._services, **companions}
        return [
            InformerSource(jobs, own_key),
            *(
                self._expectation_source(name, informer)
                for name, informer in children.items()
                if self._claim_resource(name)
            ),
            *(InformerSource(informer, owning_jobs(facts.kind)) for informer in children.values()),
            *([DeletedJobsCounter(jobs, self._metrics.for_kind(facts))] if self._metrics is not None else []),
        ]

    def _claim_resource(self, resource: str) -> bool:
        """Whether nobody tells expectations of a resource yet: they are shared, so the first kind's source does."""
        fresh = resource not in self._claimed_resources
        self._claimed_resources.add(resource)
        return fresh

    def _expectation_source(self, resource: str, informer: Informer[Any]) -> KeySource:
        return ExpectationSource(informer, resource, self._expectations)

    def _companion_informer(self, name: str) -> Informer[JSON]:
        """The informer of a resource of which only what jobs own is kept whole."""
        known = self._companions.get(name)
        if known is None:
            resource = self._client.unstructured(self._client.scheme.find(name))
            where = Selector(namespace=self._settings.namespace)
            trim = partial(metadata_if_foreign, self._kinds)
            known = Informer(self._client, resource, where, clock=self._clock, trim=trim)
            self._manager.add_informer(known)
            self._companions[name] = known
        return known


def metadata_if_foreign(kinds: Collection[tuple[str, str]], found: JSON) -> JSON:
    """Of an object that no job of these kinds owns, only that it is there."""
    metadata = found["metadata"]
    owners = metadata.get("ownerReferences") or []
    if any((owner.get("apiVersion"), owner.get("kind")) in kinds for owner in owners):
        return found
    kept = ("name", "namespace", "uid", "resourceVersion", "ownerReferences")
    return {"metadata": {name: metadata[name] for name in kept if name in metadata}}


def scheme_of(wanted: Iterable[Framework[Any]], gangs: Iterable[GangScheduler] = ()) -> Scheme:
    """All that an operator of these frameworks reads and writes, with these gang schedulers."""
    kinds = (kind for each in gangs for kind in each.kinds)
    return OPERATOR_SCHEME.with_resources(*(framework.facts.resource for framework in wanted), *kinds)


class PodLogs:
    """The end of a container's log, from the server."""

    def __init__(self, pods: PodSubresources) -> None:
        self._pods = pods

    async def tail(self, pod: Key, container: str, lines: int) -> tuple[str, ...]:
        try:
            async with aclosing(self._pods.logs(pod, container=container, tail=lines, limit_bytes=8192)) as found:
                return tuple([line.decode(errors="replace") async for line in found])
        except KubeError:
            # Not ours to read, or gone with its node: the failure is told without it.
            return ()
