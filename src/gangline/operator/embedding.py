"""The job engine for use inside another controller."""

from datetime import timedelta
from typing import Any, Generic

from gangline.api.core import Pod, Service
from gangline.api.kubeflow.training import JOB_NAME
from gangline.api.meta import JSON, Key, Selector
from gangline.base.clock import Clock, SystemClock
from gangline.jobs.events import JobEvents
from gangline.jobs.executor import Executor
from gangline.jobs.framework import Framework, J
from gangline.jobs.gangs.podgroup import GangScheduler
from gangline.jobs.observer import ORPHAN_INDEX, OWNER_INDEX, JobCaches, Observer, orphan_keys, owner_uid
from gangline.jobs.reconciler import CachedJobReconciler, VerdictRetries
from gangline.jobs.site import Site
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.kube.pods import PodSubresources
from gangline.operator.engine import PodLogs, companion_resources
from gangline.runtime.cache import Cache
from gangline.runtime.events import EventRecorder
from gangline.runtime.expectations import Expectations


class JobReconciler(Generic[J]):
    """Reconciles jobs of one framework: their pods, services, PodGroups and status.

    It reads the server at every call and caches nothing, so it fits into any controller. A controller of thousands of
    jobs should use `gangline.operator.run`, which watches.
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

        `gang` is the gang scheduler of the jobs; None: pods are placed one by one. `recorder` writes events while its
        own `run` runs.
        """
        self._framework, self._client, self._recorder = framework, client, recorder
        self._site = site or Site(gang_scheduler=gang)
        self._clock: Clock = clock or SystemClock()
        self._events, self._verdict_retries = JobEvents(recorder), VerdictRetries()

    async def reconcile(self, key: Key) -> timedelta | None:
        """Reconcile one job. Returns after how long to reconcile again although nothing changes; None: no need.

        Reconcile also when one of the job's pods, services or PodGroups changes. Raises `Conflict` if the job changed
        meanwhile: reconcile again. Safe to repeat, and to call for a job that does not exist.
        """
        caches = await self._read_caches(key)
        if caches is None:
            return None
        # Without expectations: what was just read contains everything that we created.
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
        labelled = Selector(namespace=key.namespace, labels=f"{JOB_NAME}={key.name}")
        pods: Cache[Pod] = Cache({OWNER_INDEX: owner_uid, ORPHAN_INDEX: orphan_keys})
        services: Cache[Service] = Cache({OWNER_INDEX: owner_uid, ORPHAN_INDEX: orphan_keys})
        jobs: Cache[J] = Cache()
        jobs.put(job)
        for pod in (await self._client.list(Pod, labelled)).items:
            pods.put(pod)
        for service in (await self._client.list(Service, labelled)).items:
            services.put(service)
        return JobCaches(
            jobs,
            pods,
            services,
            {name: await self._list_cache(name, key) for name in companion_resources(self._framework, self._site)},
        )

    async def _list_cache(self, name: str, key: Key) -> Cache[JSON]:
        resource = self._client.unstructured(self._client.scheme.find(name))
        cache: Cache[JSON] = Cache()
        for body in (await self._client.list(resource, Selector(namespace=key.namespace))).items:
            cache.put(body)
        return cache
