"""Reads a job and its children from caches into one frozen value."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from datetime import datetime
from functools import partial
from typing import Any, Generic

import msgspec

from gangline.api.core import Pod, PodPhase, Service
from gangline.api.kubeflow.training import JOB_NAME, OPERATOR_NAME
from gangline.api.meta import JSON, Key, Object, ObjectMeta
from gangline.base.clock import Clock
from gangline.jobs.bounded import BoundedDict
from gangline.jobs.framework import BATCH_JOBS, Framework, J, PlansByLauncherJob
from gangline.jobs.plan.actions import PODS, SERVICES
from gangline.jobs.plan.failures.records import REVISION_TIME, LogTails, may_be_revised
from gangline.jobs.plan.observed import JobChildren, ObservedJob, is_owned_by
from gangline.jobs.plan.recovery.affinity import NO_AVOIDANCE, NodeAvoidance
from gangline.jobs.plan.recovery.decision import FailureCause
from gangline.jobs.plan.stall import HangVerdict
from gangline.jobs.site import Site
from gangline.runtime.cache import Cache, key_of
from gangline.runtime.expectations import Expectations
from gangline.runtime.informer import Delta, Informer
from gangline.runtime.sources import KeyMapFunc, owner_key

OWNER_INDEX = "owner uid"
"""Index of children by the uid of their controller."""
ORPHAN_INDEX = "orphans"
"""Index of children without a controller, by namespace and the job name and operator name in their labels."""

MAX_DEPARTED_PODS = 1024

HangVerdicts = Callable[[str], HangVerdict]
"""What the hang watcher says of the job with this uid."""


def owner_uid(child: Object) -> Iterable[str]:
    """The key of `OWNER_INDEX`."""
    reference = child.metadata.controller
    return (reference.uid,) if reference is not None else ()


def orphan_keys(child: Object) -> Iterable[tuple[str, str, str]]:
    """The key of `ORPHAN_INDEX`."""
    metadata = child.metadata
    if metadata.controller is not None:
        return ()
    labels = metadata.labels
    if JOB_NAME in labels and OPERATOR_NAME in labels:
        return ((metadata.namespace, labels[JOB_NAME], labels[OPERATOR_NAME]),)
    return ()


def owning_jobs(kind: str) -> KeyMapFunc[Any]:
    """Maps a child to its job of that kind: to its controller, or, if it has none, to the job that its labels name."""
    owner_keys = owner_key(kind)
    controller = f"{kind.lower()}-controller"

    def keys(child: Any) -> Iterable[Key]:
        if isinstance(child, dict) or child.metadata.controller is not None:
            return owner_keys(child)
        return [Key(namespace, name) for namespace, name, operator in orphan_keys(child) if operator == controller]

    return keys


def launching_jobs(operator: str) -> KeyMapFunc[Any]:
    """Maps a pod of a launcher's Job to the training job that its labels name, if they name this operator, too."""

    def keys(pod: Any) -> Iterable[Key]:
        labels, controller = pod.metadata.labels, pod.metadata.controller
        if controller is None or controller.kind != "Job" or labels.get(OPERATOR_NAME) != operator:
            return ()
        return (Key(pod.metadata.namespace, labels[JOB_NAME]),) if JOB_NAME in labels else ()

    return keys


class JobCaches(msgspec.Struct, Generic[J], frozen=True):
    """The caches that the engine reads."""

    jobs: Cache[J]
    # Both have OWNER_INDEX and ORPHAN_INDEX.
    pods: Cache[Pod]
    services: Cache[Service]
    companions: Mapping[str, Cache[JSON]] = {}


class DepartedPods:
    """A source that adds no keys: it remembers the last states of pods that are gone and have not succeeded.

    The clean-up deletes pods that still look as if they ran. Their kubelets report how they ended, and remove them at
    once. Kept only as long as that may correct the first failure of a job. Attach it before the source that adds keys.
    """

    def __init__(self, informer: Informer[Pod], clock: Clock) -> None:
        self._informer, self._clock = informer, clock
        # By pod uid: when it went, the uid of its job, and its last state.
        self._pods: BoundedDict[str, tuple[datetime, str, Pod]] = BoundedDict(MAX_DEPARTED_PODS)

    def attach(self, add: Callable[[Key], None]) -> AbstractContextManager[None]:
        return self._informer.subscribe(self._observe_delta)

    async def wait_for_sync(self) -> None:
        await self._informer.wait_for_sync()

    def since(self, job_uid: str, time: datetime) -> tuple[Pod, ...]:
        """The pods of a job that went at that time or later, oldest first."""
        return tuple(pod for went_at, owner, pod in self._pods.values() if owner == job_uid and went_at >= time)

    def _observe_delta(self, delta: Delta[Pod]) -> None:
        pod = delta.before
        if delta.after is not None or pod is None or pod.status.phase == PodPhase.SUCCEEDED:
            return
        now = self._clock.now()
        while self._pods and now - next(iter(self._pods.values()))[0] > REVISION_TIME:
            self._pods.popitem(last=False)
        for owner in owner_uid(pod):
            self._pods[pod.metadata.uid] = now, owner, pod


class Observer(Generic[J]):
    """Observes jobs of one kind. Reads the caches, never the server."""

    def __init__(
        self,
        framework: Framework[J],
        caches: JobCaches[J],
        expectations: Expectations,
        site: Site,
        clock: Clock,
        bad_nodes: Callable[[datetime], NodeAvoidance] | None = None,
        hang_verdicts: HangVerdicts = lambda uid: HangVerdict(),
        departed_pods: DepartedPods | None = None,
    ) -> None:
        """`bad_nodes` returns the nodes that jobs with a recovery policy avoid at a time."""
        self._departed_pods = departed_pods
        self._framework, self._caches, self._expectations = framework, caches, expectations
        self._site, self._clock, self._bad_nodes, self._hang_verdicts = site, clock, bad_nodes, hang_verdicts

    def find_job(self, key: Key) -> J | None:
        """The job alone, as the cache shows it; None if it does not exist or is being deleted."""
        job = self._caches.jobs.get(key)
        if job is None or job.metadata.deletion_timestamp is not None or not job.is_of_this_api:
            return None
        return job

    def __call__(
        self, key: Key, logs: LogTails | None = None, cause: FailureCause | None = None
    ) -> ObservedJob[J] | None:
        """The job with all that belongs to it; None if it does not exist or is being deleted."""
        job = self.find_job(key)
        if job is None:
            return None
        children = self._children(job, logs or {}, cause)
        find, now = partial(self._find, job), self._clock.now()
        bad_nodes = self._bad_nodes(now) if self._bad_nodes is not None else NO_AVOIDANCE
        verdict = self._hang_verdicts(job.metadata.uid)
        return ObservedJob.of(self._framework, job, now, children, self._site, find, bad_nodes, verdict)

    def _children(self, job: J, logs: LogTails, cause: FailureCause | None) -> JobChildren:
        uid = job.metadata.uid
        creates, deletes = self._expectations.pending(uid)
        launcher = self._launcher(job)
        return JobChildren(
            pods=self._caches.pods.by_index(OWNER_INDEX, uid),
            services=self._caches.services.by_index(OWNER_INDEX, uid),
            orphans=self._orphans(job),
            pending_creates=frozenset(name for name in creates if isinstance(name, tuple)),
            pending_deletes=frozenset(str(uid) for uid in deletes),
            log_tails=logs,
            cause=cause,
            launcher=launcher,
            launched=() if launcher is None else self._caches.pods.by_index(OWNER_INDEX, launcher["metadata"]["uid"]),
            departed=self._departed(job),
        )

    def _departed(self, job: J) -> tuple[Pod, ...]:
        ended_at = job.status.completion_time
        if self._departed_pods is None or ended_at is None or not may_be_revised(job.status, self._clock.now()):
            return ()
        return self._departed_pods.since(job.metadata.uid, ended_at)

    def _launcher(self, job: J) -> JSON | None:
        if not isinstance(self._framework, PlansByLauncherJob):
            return None
        launcher = self._find(job, BATCH_JOBS, self._framework.launcher_job(job))
        return launcher if launcher is not None and is_owned_by(launcher, job.metadata.uid) else None

    def _orphans(self, job: J) -> tuple[tuple[str, Pod | Service], ...]:
        labels = (job.metadata.namespace, job.metadata.name, self._framework.facts.controller)
        return (
            *((PODS, pod) for pod in self._caches.pods.by_index(ORPHAN_INDEX, labels)),
            *((SERVICES, service) for service in self._caches.services.by_index(ORPHAN_INDEX, labels)),
        )

    def _find(self, job: J, resource: str, name: str) -> JSON | None:
        return self._caches.companions[resource].get(Key(job.metadata.namespace, name))


class ExpectationSource:
    """A source that adds no keys: it tells the expectations which objects the cache shows.

    Attach it before the source that adds keys, so that a reconcile sees its own expectations fulfilled.
    """

    def __init__(self, informer: Informer[Any], resource: str, expectations: Expectations) -> None:
        self._informer, self._resource, self._expectations = informer, resource, expectations

    def attach(self, add: Callable[[Key], None]) -> AbstractContextManager[None]:
        return self._informer.subscribe(self._observe_delta)

    async def wait_for_sync(self) -> None:
        await self._informer.wait_for_sync()

    def _observe_delta(self, delta: Delta[Any]) -> None:
        child = delta.newest
        metadata = _metadata(child)
        reference = metadata.controller
        if reference is None:
            return
        self._expectations.observe_created(reference.uid, (self._resource, key_of(child).name))
        if delta.after is None or metadata.deletion_timestamp is not None:
            self._expectations.observe_deleted(reference.uid, metadata.uid)


def _metadata(child: Any) -> ObjectMeta:
    if isinstance(child, dict):
        return msgspec.convert(child["metadata"], ObjectMeta)
    metadata: ObjectMeta = child.metadata
    return metadata
