"""Caches in, one frozen value out."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Generic

import msgspec

from gangline.api.core import Pod, Service
from gangline.api.kubeflow.training import JOB_NAME, OPERATOR_NAME
from gangline.api.meta import JSON, Key, Object, ObjectMeta
from gangline.base.clock import Clock
from gangline.jobs.framework import Framework, J
from gangline.jobs.plan.actions import PODS, SERVICES
from gangline.jobs.plan.observed import JobChildren, ObservedJob
from gangline.jobs.pods.addressing import Site
from gangline.runtime.cache import Cache, key_of
from gangline.runtime.expectations import Expectations
from gangline.runtime.informer import Delta, Informer
from gangline.runtime.sources import KeyMapFunc, owner_key

OWNER_INDEX = "owner uid"
"""The index under which children are found: the uid of their controlling owner."""
ORPHAN_INDEX = "orphans"
"""The index of children whom nobody owns: by namespace, job name and operator name, as their labels have them."""

LogTails = Mapping[str, tuple[str, ...]]


def owner_uid(found: Object) -> Iterable[str]:
    reference = found.metadata.controller
    return (reference.uid,) if reference is not None else ()


def orphan_keys(found: Object) -> Iterable[tuple[str, str, str]]:
    labels = found.metadata.labels
    if found.metadata.controller is None and JOB_NAME in labels and OPERATOR_NAME in labels:
        return ((found.metadata.namespace, labels[JOB_NAME], labels[OPERATOR_NAME]),)
    return ()


def owning_jobs(kind: str) -> KeyMapFunc[Any]:
    """Which job of a kind a child belongs to: its owner; or, if nobody owns it, the one its labels name."""
    owned = owner_key(kind)
    controller = f"{kind.lower()}-controller"

    def keys(found: Any) -> Iterable[Key]:
        known = owned(found)
        if known or isinstance(found, dict):
            return known
        return [Key(namespace, name) for namespace, name, named in orphan_keys(found) if named == controller]

    return keys


class JobCaches(msgspec.Struct, Generic[J], frozen=True):
    """Where the engine looks."""

    jobs: Cache[J]
    # Both indexed by OWNER_UID and ORPHANS.
    pods: Cache[Pod]
    services: Cache[Service]
    companions: Mapping[str, Cache[JSON]] = {}


class Observer(Generic[J]):
    """Reads the caches, never the server."""

    def __init__(
        self,
        framework: Framework[J],
        caches: JobCaches[J],
        expectations: Expectations,
        site: Site,
        clock: Clock,
    ) -> None:
        self._framework, self._caches, self._expectations = framework, caches, expectations
        self._site, self._clock = site, clock

    def __call__(self, key: Key, logs: LogTails | None = None) -> ObservedJob[J] | None:
        job = self._caches.jobs.get(key)
        if job is None or job.metadata.deletion_timestamp is not None:
            return None
        found = self._children(job, logs or {})
        find = partial(self._find, job)
        return ObservedJob.of(self._framework, job, self._clock.now(), found, self._site, find)

    def _children(self, job: J, logs: LogTails) -> JobChildren:
        uid = job.metadata.uid
        made, ended = self._expectations.pending(uid)
        return JobChildren(
            pods=self._caches.pods.by_index(OWNER_INDEX, uid),
            services=self._caches.services.by_index(OWNER_INDEX, uid),
            orphans=self._orphans(job),
            pending_creates=frozenset(name for name in made if isinstance(name, tuple)),
            pending_deletes=frozenset(str(child) for child in ended),
            log_tails=logs,
        )

    def _orphans(self, job: J) -> tuple[tuple[str, Pod | Service], ...]:
        labelled = (job.metadata.namespace, job.metadata.name, self._framework.facts.controller)
        return (
            *((PODS, found) for found in self._caches.pods.by_index(ORPHAN_INDEX, labelled)),
            *((SERVICES, found) for found in self._caches.services.by_index(ORPHAN_INDEX, labelled)),
        )

    def _find(self, job: J, resource: str, name: str) -> JSON | None:
        return self._caches.companions[resource].get(Key(job.metadata.namespace, name))


class ExpectationSource:
    """A source that wakes nobody: it tells expectations what the cache shows. Goes before the source that wakes."""

    def __init__(self, informer: Informer[Any], resource: str, expectations: Expectations) -> None:
        self._informer, self._resource, self._expectations = informer, resource, expectations

    def attach(self, add: Callable[[Key], None]) -> AbstractContextManager[None]:
        return self._informer.subscribe(self._observe_delta)

    async def wait_for_sync(self) -> None:
        await self._informer.wait_for_sync()

    def _observe_delta(self, delta: Delta[Any]) -> None:
        found = delta.newest
        metadata = _metadata(found)
        reference = metadata.controller
        if reference is None:
            return
        self._expectations.observe_created(reference.uid, (self._resource, key_of(found).name))
        if delta.after is None or metadata.deletion_timestamp is not None:
            self._expectations.observe_deleted(reference.uid, metadata.uid)


def _metadata(found: Any) -> ObjectMeta:
    if isinstance(found, dict):
        return msgspec.convert(found["metadata"], ObjectMeta)
    metadata: ObjectMeta = found.metadata
    return metadata
