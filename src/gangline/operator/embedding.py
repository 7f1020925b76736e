"""The job engine inside a controller of your own."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Generic

from gangline.api.core import Pod, Service
from gangline.api.kubeflow.training import JOB_NAME
from gangline.api.meta import JSON, Key, Selector
from gangline.base.clock import Clock, SystemClock
from gangline.jobs.events import JobEvents
from gangline.jobs.executor import Executor
from gangline.jobs.framework import Framework, J, NeedsCompanions
from gangline.jobs.gangs.podgroup import GangScheduler
from gangline.jobs.observer import ORPHAN_INDEX, OWNER_INDEX, JobCaches, Observer, orphan_keys, owner_uid
from gangline.jobs.reconciler import CachedJobReconciler, VerdictRetries
from gangline.jobs.site import Site
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.kube.pods import PodSubresources
from gangline.operator.engine import PodLogs
from gangline.runtime.cache import Cache
from gangline.runtime.events import EventRecorder
from gangline.runtime.expectations import Expectations


class JobReconciler(Generic[J]):
    """Does what a job needs now: its pods, services and PodGroup, its status, its end.

    It reads the server at every call and keeps nothing, so it needs no caches and fits any loop. A controller of
    thousands of jobs is better off with `gangline.operator.run`, which watches.
    """

    def __init__(
        self,
        framework: Framework[J],
        client: Client,
        recorder: EventRecorder,
        gang: GangScheduler | None = None,
        *,
        site: Site | None = None,
        clock: Clock | None = None,
    ) -> None:
        """The client's scheme must know the kind: `Client(..., scheme=scheme_of([framework]))`.

        `gang`: who places all of a job's pods or none; None: nobody in particular. `recorder` writes in its own
        `run`.
        """
        self._framework, self._client, self._recorder = framework, client, recorder
        self._site = site or Site(gang_scheduler=gang)
        self._clock: Clock = clock or SystemClock()
        self._events, self._verdict_retries = JobEvents(recorder), VerdictRetries()

    async def reconcile(self, key: Key) -> timedelta | None:
        """One look at one job. Gives when to look again although nothing changes; None: no need.

        Look also when one of the job's pods, services or PodGroups changes. Raises `Conflict` if the job changed
        meanwhile: look again. Safe to repeat, and to call for a job that is gone.
        """
        caches = await self._read_caches(key)
        if caches is None:
            return None
        # Nothing is expected: what was read just now has all that we made.
        expectations = Expectations(self._clock)
        observe = Observer(self._framework, caches, expectations, self._site, self._clock)
        executor = Executor(self._client, expectations, self._events)
        logs = PodLogs(PodSubresources(self._client))
        reconciler = CachedJobReconciler(
            self._framework, observe, executor, logs, self._clock, verdict_retries=self._verdict_retries
        )
        return await reconciler.reconcile(key)

    async def _read_caches(self, key: Key) -> JobCaches[J] | None:
        model: type[Any] = self._framework.facts.model
        try:
            job: J = await self._client.get(model, key)
        except NotFound:
            return None
        where = Selector(namespace=key.namespace, labels=f"{JOB_NAME}={key.name}")
        pods: Cache[Pod] = Cache({OWNER_INDEX: owner_uid, ORPHAN_INDEX: orphan_keys})
        services: Cache[Service] = Cache({OWNER_INDEX: owner_uid, ORPHAN_INDEX: orphan_keys})
        jobs: Cache[J] = Cache()
        jobs.put(job)
        for pod in (await self._client.list(Pod, where)).items:
            pods.put(pod)
        for service in (await self._client.list(Service, where)).items:
            services.put(service)
        return JobCaches(
            jobs,
            pods,
            services,
            {name: await self._list_cache(name, key) for name in self._companion_resources()},
        )

    def _companion_resources(self) -> Iterable[str]:
        for gangs in self._site.gang_schedulers:
            yield from (kind.name for kind in gangs.kinds)
        if isinstance(self._framework, NeedsCompanions):
            yield from self._framework.resources

    async def _list_cache(self, name: str, key: Key) -> Cache[JSON]:
        kind = self._client.unstructured(self._client.scheme.find(name))
        found: Cache[JSON] = Cache()
        for each in (await self._client.list(kind, Selector(namespace=key.namespace))).items:
            found.put(each)
        return found
