"""The job engine on a manager: one controller per kind of job, over shared caches."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import aclosing
from datetime import timedelta
from functools import partial
from importlib import import_module
from typing import Any

from gangline.api.core import Pod, Service
from gangline.api.kubeflow.kinds import JOB_SCHEME
from gangline.api.kubeflow.training import JOB_NAME, JobKind, TrainingJob
from gangline.api.meta import JSON, Key, Selector
from gangline.api.scheduling import PODGROUPS, QUEUES
from gangline.api.scheme import Resource, Scheme
from gangline.base.clock import Clock
from gangline.frameworks.jax import Jax
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.mpi_v2.framework import AgentMpi, SshMpi
from gangline.frameworks.mpi_v2.objects import OPERATOR_LABEL
from gangline.frameworks.paddle import Paddle
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.frameworks.xgboost import XGBoost
from gangline.health.watch_list import WatchList
from gangline.jobs.cause_reader import CauseReader
from gangline.jobs.events import JobEvents
from gangline.jobs.executor import CreateSlots, Executor
from gangline.jobs.framework import Framework, NeedsCompanions, PlansByLauncherJob
from gangline.jobs.gangs.podgroup import GangScheduler
from gangline.jobs.gangs.scheduler_plugins import SchedulerPlugins
from gangline.jobs.gangs.volcano import Volcano
from gangline.jobs.missing_rights import MissingRightsReporter
from gangline.jobs.node_records import NodeRecords, NodeRecordSource
from gangline.jobs.observer import (
    ORPHAN_INDEX,
    OWNER_INDEX,
    DepartedPods,
    ExpectationSource,
    JobCaches,
    Observer,
    launching_jobs,
    orphan_keys,
    owner_uid,
    owning_jobs,
)
from gangline.jobs.plan.actions import PODS, SERVICES
from gangline.jobs.plan.recovery.decision import FailureCause
from gangline.jobs.plan.stall import HangVerdict
from gangline.jobs.reconciler import CachedJobReconciler
from gangline.jobs.site import Site
from gangline.kube.client import Client
from gangline.kube.errors import KubeError
from gangline.kube.pods import PodSubresources
from gangline.operator.definitions import CRDS
from gangline.operator.metrics import DeletedJobsCounter, JobMetrics, MeteredExecutor
from gangline.operator.settings import OperatorSettings
from gangline.runtime.controller import Reconciler
from gangline.runtime.events import EventRecorder, RecordResult
from gangline.runtime.expectations import Expectations
from gangline.runtime.informer import Informer
from gangline.runtime.manager import ControllerOptions, Manager
from gangline.runtime.sources import InformerSource, KeySource, own_key
from gangline.runtime.work_queue import WorkQueue

COMPANION_RESOURCES: tuple[Resource[Any], ...] = (
    Resource("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", dict),
    Resource("batch", "v1", "Job", "jobs", dict),
    Resource("rbac.authorization.k8s.io", "v1", "Role", "roles", dict),
    Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", dict),
    *Volcano.kinds,
    *SchedulerPlugins.kinds,
)
"""Resources that some jobs need beside pods and services, and that are not in the client's own scheme."""

OPERATOR_SCHEME: Scheme = JOB_SCHEME.with_resources(PODGROUPS, QUEUES, *COMPANION_RESOURCES, CRDS)
"""All resources that an operator reads and writes."""


MAX_RETRY_DELAY = timedelta(minutes=1)
"""The longest delay after errors: no event tells that a quota was raised or that a name is free again."""
NAMESPACE_RETRY = timedelta(seconds=1)
"""When to look again at a job in a namespace that is not completely readable."""
EVENT_DELAY = timedelta(seconds=1)
"""Events wait at least this long, so that creating pods comes first."""


def enabled_frameworks(settings: OperatorSettings) -> tuple[Framework[Any], ...]:
    """The built-in frameworks of the kinds that are enabled."""
    frameworks: tuple[Framework[Any], ...] = (
        TensorFlow(),
        PyTorch(settings.pytorch_init_image, settings.pytorch_init_tries, settings.pytorch_init_template),
        XGBoost(),
        Mpi(
            settings.mpi_delivery_image,
            settings.mpi_agent,
            agent_image=settings.agent_image,
            launcher_account=settings.mpi_launcher_account,
        ),
        SshMpi(settings.site.domain) if settings.mpi_agent is None else AgentMpi(settings.mpi_agent),
        Paddle(),
        Jax(),
    )
    return tuple(framework for framework in frameworks if framework.facts.scheme in settings.kinds)


class JobEngine:
    """Adds controllers, informers and event recorders for jobs to a manager, which runs them."""

    def __init__(
        self,
        manager: Manager,
        client: Client,
        settings: OperatorSettings,
        instance: str,
        clock: Clock,
        *,
        metrics: JobMetrics | None = None,
        count: Callable[[RecordResult], object] = lambda result: None,
        may_serve: Callable[[str], bool] = lambda namespace: True,
        watch_list: WatchList | None = None,
    ) -> None:
        """`instance` names this process in events; `count` is called with the result of every event.

        `may_serve` says whether jobs of a namespace may be reconciled by now, if there are several. `watch_list` is
        kept for a hang watcher, and has its verdicts.
        """
        self._manager, self._client, self._settings = manager, client, settings
        self._instance, self._clock = instance, clock
        self._metrics, self._count_event, self._may_serve = metrics, count, may_serve
        self._watch_list = watch_list
        self._expectations = Expectations(clock)
        labelled, indexes = Selector(labels=JOB_NAME), {OWNER_INDEX: owner_uid, ORPHAN_INDEX: orphan_keys}
        self._pods = manager.informer(Pod, labelled, indexes, namespaces=settings.namespaces)
        self._services = manager.informer(Service, labelled, indexes, namespaces=settings.namespaces)
        self._departed_pods = DepartedPods(self._pods, clock)
        self._companions: dict[str, Informer[JSON]] = {}
        # Resources whose informer reports to the expectations. These are shared, so the first kind's source does it.
        self._reported_resources: set[str] = set()
        # API version and kind of the jobs, as in owner references.
        self._kinds: set[tuple[str, str]] = set()
        self._slots = CreateSlots()
        self._queues: list[WorkQueue[Key]] = []
        self._causes = LazyCauseReader(settings.cause_reader, client, clock) if settings.cause_reader else None
        self._node_records = NodeRecords(settings.bad_nodes, self._known_nodes)
        if metrics is not None:
            metrics.states.add_bad_nodes(self._node_records.bad_nodes)

    def add_frameworks(self, frameworks: Sequence[Framework[Any]]) -> None:
        """Add one controller per framework."""
        for framework in frameworks:
            self._add_framework(framework)

    def _add_framework(self, framework: Framework[Any]) -> None:
        job_kind, settings = framework.facts, self._settings
        self._kinds.add((job_kind.model.API_VERSION, job_kind.kind))
        jobs: Informer[Any] = self._manager.informer(job_kind.model, namespaces=settings.namespaces)
        if self._metrics is not None:
            self._metrics.states.add_cache(job_kind, jobs.cache)
        # Without the right to read what one framework alone needs, the jobs of the others are served all the same.
        gangs = {name: self._companion_informer(name) for name in gang_resources(settings.site)}
        own = {name: self._companion_informer(name, required=False) for name in framework_resources(framework)}
        companions = {**gangs, **own}
        recorder = EventRecorder(
            self._client,
            job_kind.controller,
            self._instance,
            self._clock,
            scheme=self._client.scheme,
            delay=EVENT_DELAY,
            busy=self._has_work,
            count=self._count_event,
        )
        self._manager.add_runnable(recorder.run, leading=False)
        caches = JobCaches(
            jobs.cache,
            self._pods.cache,
            self._services.cache,
            {name: informer.cache for name, informer in companions.items()},
        )
        events = JobEvents(recorder)
        if own:
            reporter = MissingRightsReporter(job_kind.kind, jobs, tuple(own.values()), events, self._clock)
            self._manager.add_runnable(reporter.run)
        reconciler = CachedJobReconciler(
            framework,
            Observer(
                framework,
                caches,
                self._expectations,
                settings.site,
                self._clock,
                bad_nodes=self._node_records.avoidance,
                hang_verdicts=self._hang_verdict,
                departed_pods=self._departed_pods,
            ),
            self._executor(job_kind, events),
            PodLogs(PodSubresources(self._client)),
            self._clock,
            causes=self._causes,
        )
        informers = [jobs, self._pods, self._services, *companions.values()]
        controller = self._manager.new_controller(
            job_kind.controller,
            self._guarded(reconciler, informers),
            self._sources(framework, jobs, companions),
            ControllerOptions(workers=settings.workers, ceiling=MAX_RETRY_DELAY),
        )
        self._queues.append(controller.queue)

    def _hang_verdict(self, uid: str) -> HangVerdict:
        return self._watch_list.verdict(uid) if self._watch_list is not None else HangVerdict()

    def _has_work(self) -> bool:
        """Whether any job is being reconciled, or waits for it: its pods and its status come before events."""
        return not all(queue.is_idle for queue in self._queues)

    def _guarded(self, reconciler: Reconciler, informers: Sequence[Informer[Any]]) -> Reconciler:
        """The reconciler, which waits for the caches of each namespace if there are several."""
        namespaces = self._settings.namespaces
        return NamespaceGate(reconciler, informers, self._may_serve) if len(namespaces) > 1 else reconciler

    def _executor(self, job_kind: JobKind, events: JobEvents) -> Executor:
        if self._metrics is None:
            return Executor(self._client, self._expectations, events, self._slots)
        kind_metrics = self._metrics.for_kind(job_kind)
        return MeteredExecutor(
            self._client,
            self._expectations,
            events,
            self._slots,
            kind_metrics,
            self._pods_of,
        )

    def _sources(
        self, framework: Framework[Any], jobs: Informer[Any], companions: Mapping[str, Informer[JSON]]
    ) -> Sequence[KeySource]:
        job_kind = framework.facts
        launches = isinstance(framework, PlansByLauncherJob)
        children: dict[str, Informer[Any]] = {PODS: self._pods, SERVICES: self._services, **companions}
        unreported = children.keys() - self._reported_resources
        self._reported_resources |= unreported
        return [
            InformerSource(jobs, own_key),
            *(
                ExpectationSource(informer, resource, self._expectations)
                for resource, informer in children.items()
                if resource in unreported
            ),
            *([self._departed_pods] if PODS in unreported else []),
            *(InformerSource(informer, owning_jobs(job_kind.kind)) for informer in children.values()),
            *([InformerSource(self._pods, launching_jobs(OPERATOR_LABEL))] if launches else []),
            NodeRecordSource(jobs, framework, self._node_records),
            *([DeletedJobsCounter(jobs, self._metrics.for_kind(job_kind))] if self._metrics is not None else []),
            *([self._watch_list.add_kind(job_kind, jobs, self._pods_of)] if self._watch_list is not None else []),
        ]

    def _pods_of(self, uid: str) -> Sequence[Pod]:
        """The pods that a job owns."""
        return self._pods.cache.by_index(OWNER_INDEX, uid)

    def _known_nodes(self) -> set[str]:
        """The nodes on which pods of jobs are. To list nodes would take a right that v1's role does not have."""
        return {pod.spec.node_name for pod in self._pods.cache if pod.spec.node_name}

    def _companion_informer(self, name: str, *, required: bool = True) -> Informer[JSON]:
        """The informer of a resource, shared by all kinds. Objects that no job owns are stripped to their metadata."""
        informer = self._companions.get(name)
        if informer is None:
            resource = self._client.unstructured(self._client.scheme.find(name))
            trim = partial(metadata_if_foreign, self._kinds)
            informer = Informer(
                self._client, resource, clock=self._clock, namespaces=self._settings.namespaces, trim=trim
            )
            self._manager.add_informer(informer, required=required)
            self._companions[name] = informer
        return informer


class LazyCauseReader:
    """Loads the reader of causes when the first job needs it."""

    def __init__(self, name: str, client: Client, clock: Clock) -> None:
        """`name`: the module and the function that makes the reader, `package.module:function`."""
        self._name, self._client, self._clock = name, client, clock
        self._reader: CauseReader | None = None

    async def cause(self, job: TrainingJob, kind: JobKind) -> FailureCause | None:
        if self._reader is None:
            module, _, function = self._name.partition(":")
            make: Callable[[Client, Clock], CauseReader] = getattr(import_module(module), function)
            self._reader = make(self._client, self._clock)
        return await self._reader.cause(job, kind)


class NamespaceGate:
    """A reconciler that leaves a namespace alone until it may be served and all caches show its state.

    Rights arrive one by one in a namespace that was just created: a job without its pods would look like a new one.
    """

    def __init__(
        self, reconciler: Reconciler, informers: Sequence[Informer[Any]], may_serve: Callable[[str], bool]
    ) -> None:
        self._reconciler, self._informers, self._may_serve = reconciler, informers, may_serve

    async def reconcile(self, key: Key) -> timedelta | None:
        namespace = key.namespace
        if not (self._may_serve(namespace) and all(informer.has_listed(namespace) for informer in self._informers)):
            return NAMESPACE_RETRY
        return await self._reconciler.reconcile(key)


def companion_resources(framework: Framework[Any], site: Site) -> tuple[str, ...]:
    """The resources of a job's companions, as in kubectl: those of gang schedulers, then those of the framework."""
    return (*gang_resources(site), *framework_resources(framework))


def gang_resources(site: Site) -> tuple[str, ...]:
    """The resources of gang schedulers."""
    return tuple(kind.name for scheduler in site.gang_schedulers for kind in scheduler.kinds)


def framework_resources(framework: Framework[Any]) -> tuple[str, ...]:
    """The resources that jobs of one framework need beside pods and services."""
    return framework.resources if isinstance(framework, NeedsCompanions) else ()


def metadata_if_foreign(kinds: Collection[tuple[str, str]], body: JSON) -> JSON:
    """The object, stripped to its identity and owners if no job of these kinds owns it."""
    metadata = body["metadata"]
    owners = metadata.get("ownerReferences") or []
    if any((owner.get("apiVersion"), owner.get("kind")) in kinds for owner in owners):
        return body
    fields = ("name", "namespace", "uid", "resourceVersion", "ownerReferences")
    return {"metadata": {name: metadata[name] for name in fields if name in metadata}}


def scheme_of(wanted: Iterable[Framework[Any]], gangs: Iterable[GangScheduler] = ()) -> Scheme:
    """All resources that an operator of these frameworks reads and writes, with these gang schedulers."""
    kinds = (kind for scheduler in gangs for kind in scheduler.kinds)
    return OPERATOR_SCHEME.with_resources(*(framework.facts.resource for framework in wanted), *kinds)


MAX_LOG_BYTES = 256 * 1024
"""More than any sensible tail has: a server that reaches the limit leaves out the last lines, not the first."""


class PodLogs:
    """Reads the end of a container's log from the server."""

    def __init__(self, pods: PodSubresources) -> None:
        self._pods = pods

    async def tail(self, pod: Key, container: str, lines: int, *, previous: bool = False) -> tuple[str, ...]:
        try:
            last = await self._read(pod, container, lines, previous=previous)
            if not _is_cut(last):
                return _decoded(last)
            # One line is so long that those after it were left out: as many lines as can be read with the last one.
            last, fewest, most = last[-1:], 0, lines
            while most - fewest > 1:
                count = (fewest + most) // 2
                read = await self._read(pod, container, count, previous=previous)
                if _is_cut(read):
                    last, most = last if fewest else read[-1:], count
                else:
                    last, fewest = read, count
        except KubeError:
            # Not allowed, or gone with its node: the failure is reported without it.
            return ()
        return _decoded(last)

    async def _read(self, pod: Key, container: str, lines: int, *, previous: bool) -> list[bytes]:
        reading = self._pods.logs(
            pod, container=container, tail=lines, previous=previous, timestamps=True, limit_bytes=MAX_LOG_BYTES
        )
        async with aclosing(reading) as log:
            return [line async for line in log]


def _is_cut(lines: Sequence[bytes]) -> bool:
    """Whether the server has reached the limit."""
    return sum(len(line) + 1 for line in lines) >= MAX_LOG_BYTES


def _decoded(lines: Sequence[bytes]) -> tuple[str, ...]:
    return tuple(line.decode(errors="replace") for line in lines)
