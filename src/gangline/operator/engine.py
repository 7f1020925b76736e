"""The job engine on a manager: one controller per kind, over shared caches."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from typing import Any

from gangline.api.core import Pod, Service
from gangline.api.kubeflow.kinds import JOBS
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
from gangline.jobs.events import Notes
from gangline.jobs.executor import Executor, Shares
from gangline.jobs.framework import Framework, NeedsCompanions
from gangline.jobs.gangs.podgroup import GangScheduler
from gangline.jobs.gangs.scheduler_plugins import SchedulerPlugins
from gangline.jobs.gangs.volcano import Volcano
from gangline.jobs.observer import (
    ORPHANS,
    OWNER_UID,
    Caches,
    Observe,
    Settling,
    children_of,
    orphaned,
    owner_uid,
)
from gangline.jobs.plan.actions import PODS, SERVICES
from gangline.jobs.reconciler import JobPass
from gangline.kube.client import Client
from gangline.kube.errors import KubeError
from gangline.kube.pods import Pods
from gangline.operator.definitions import CRDS
from gangline.operator.metrics import Deletions, JobMetrics, MeteredExecutor
from gangline.operator.settings import OperatorSettings
from gangline.runtime.events import Outcome, Recorder
from gangline.runtime.expectations import Expectations
from gangline.runtime.informer import Informer
from gangline.runtime.manager import ControllerOptions, Manager
from gangline.runtime.sources import Changes, Source, itself

COMPANIONS: tuple[Resource[Any], ...] = (
    Resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", dict),
    Resource("rbac.authorization.k8s.io", "v1", "Role", "roles", dict),
    Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", dict),
    *Volcano.kinds,
    *SchedulerPlugins.kinds,
)
"""Kinds that some jobs need beside pods and services, and that the client does not know by itself."""

SCHEME: Scheme = JOBS.extended(PODGROUPS, QUEUES, *COMPANIONS, CRDS)
"""All that an operator reads and writes."""


LOOKS_AGAIN = timedelta(minutes=1)
"""The longest pause after failures: a quota that was raised, or a name that is free again, tells nobody."""
LATER = timedelta(seconds=1)
"""Events are for people, who are slower than jobs: pods are made first."""


def frameworks(settings: OperatorSettings) -> tuple[Framework[Any], ...]:
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


class Engine:
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
        count: Callable[[Outcome], object] = lambda outcome: None,
    ) -> None:
        """`instance` is this process; `count` is told what becomes of events."""
        self._manager, self._client, self._settings = manager, client, settings
        self._instance, self._clock = instance, clock
        self._metrics, self._count = metrics, count
        self._expectations = Expectations(clock)
        where = Selector(namespace=settings.namespace, labels=JOB_NAME)
        self._pods = manager.informer(Pod, where, {OWNER_UID: owner_uid, ORPHANS: orphaned})
        self._services = manager.informer(Service, where, {OWNER_UID: owner_uid, ORPHANS: orphaned})
        self._companions: dict[str, Informer[JSON]] = {}
        self._settled: set[str] = set()
        # The kinds served, as owners are known by.
        self._kinds: set[tuple[str, str]] = set()
        self._shares = Shares()

    def add(self, wanted: Sequence[Framework[Any]]) -> None:
        """One controller per framework."""
        for framework in wanted:
            self._add(framework)

    def _add(self, framework: Framework[Any]) -> None:
        facts, settings = framework.facts, self._settings
        self._kinds.add((facts.model.API_VERSION, facts.kind))
        jobs: Informer[Any] = self._manager.informer(facts.model, Selector(namespace=settings.namespace))
        needed = framework.resources if isinstance(framework, NeedsCompanions) else ()
        groups = tuple(kind.name for gangs in settings.site.offered for kind in gangs.kinds)
        companions = {name: self._companion(name) for name in (*groups, *needed)}
        recorder = Recorder(
            self._client,
            facts.controller,
            self._instance,
            self._clock,
            scheme=self._client.scheme,
            delay=LATER,
            busy=lambda: self._shares.busy,
            count=self._count,
        )
        self._manager.add_runnable(recorder.run, leading=False)
        caches = Caches(
            jobs.cache,
            self._pods.cache,
            self._services.cache,
            {name: informer.cache for name, informer in companions.items()},
        )
        reconciler = JobPass(
            framework,
            Observe(framework, caches, self._expectations, settings.site, self._clock),
            self._executor(facts, Notes(recorder)),
            PodLogs(Pods(self._client)),
            self._clock,
        )
        self._manager.controller(
            facts.controller,
            reconciler,
            self._sources(facts, jobs, companions),
            ControllerOptions(workers=settings.workers, ceiling=LOOKS_AGAIN),
        )

    def _executor(self, facts: JobKind, notes: Notes) -> Executor:
        if self._metrics is None:
            return Executor(self._client, self._expectations, notes, self._shares)
        return MeteredExecutor(self._client, self._expectations, notes, self._shares, self._metrics.of(facts))

    def _sources(
        self, facts: JobKind, jobs: Informer[Any], companions: Mapping[str, Informer[JSON]]
    ) -> Sequence[Source]:
        children: dict[str, Informer[Any]] = {PODS: self._pods, SERVICES: self._services, **companions}
        return [
            Changes(jobs, itself),
            *(self._settling(name, informer) for name, informer in children.items() if self._fresh(name)),
            *(Changes(informer, children_of(facts.kind)) for informer in children.values()),
            *([Deletions(jobs, self._metrics.of(facts))] if self._metrics is not None else []),
        ]

    def _fresh(self, resource: str) -> bool:
        """Whether nobody tells expectations of a resource yet: they are shared, so the first kind's source does."""
        fresh = resource not in self._settled
        self._settled.add(resource)
        return fresh

    def _settling(self, resource: str, informer: Informer[Any]) -> Source:
        return Settling(informer, resource, self._expectations)

    def _companion(self, name: str) -> Informer[JSON]:
        """The informer of a resource of which only what jobs own is kept whole."""
        known = self._companions.get(name)
        if known is None:
            resource = self._client.plain(self._client.scheme.find(name))
            where = Selector(namespace=self._settings.namespace)
            trim = partial(bare_if_foreign, self._kinds)
            known = Informer(self._client, resource, where, clock=self._clock, trim=trim)
            self._manager.add_informer(known)
            self._companions[name] = known
        return known


def bare_if_foreign(kinds: Collection[tuple[str, str]], found: JSON) -> JSON:
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
    return SCHEME.extended(*(framework.facts.resource for framework in wanted), *kinds)


class PodLogs:
    """The end of a container's log, from the server."""

    def __init__(self, pods: Pods) -> None:
        self._pods = pods

    async def tail(self, pod: Key, container: str, lines: int) -> tuple[str, ...]:
        try:
            async with aclosing(
                self._pods.logs(pod, container=container, tail=lines, limit_bytes=8192)
            ) as found:
                return tuple([line.decode(errors="replace") async for line in found])
        except KubeError:
            # Not ours to read, or gone with its node: the failure is told without it.
            return ()
