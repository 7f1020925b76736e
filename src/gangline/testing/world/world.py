"""A small deterministic world for one job: a server, caches that lag, a kubelet, users and the operator.

The job engine in it is the real one. Everything happens when a test says so, in memory and with a fake clock. The
operator reconciles only when it would in a cluster: after an event that its caches receive, after an error, or at the
time that its last reconcile returned (the alarm).
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from gangline.api.core import Pod, Service
from gangline.api.kubeflow.training import ADDRESSES_ANNOTATION, JOB_NAME, TrainingJob
from gangline.api.meta import JSON, Key
from gangline.base.errors import GanglineError
from gangline.jobs.cause_reader import CauseReader
from gangline.jobs.executor import Executor
from gangline.jobs.framework import Framework, NeedsCompanions
from gangline.jobs.observer import ExpectationSource, JobCaches, Observer, owning_jobs
from gangline.jobs.plan.actions import JobEvent
from gangline.jobs.reconciler import CachedJobReconciler
from gangline.jobs.site import Site
from gangline.operator.engine import scheme_of
from gangline.runtime.expectations import Expectations
from gangline.runtime.sources import InformerSource, KeySource, own_key
from gangline.testing.clock import FakeClock
from gangline.testing.faults import Faults, SimulatedCrash
from gangline.testing.world.caches import LaggingInformer
from gangline.testing.world.server import WorldClient, WorldServer, WorldWrite, decode_as, labels_of

IMMEDIATE_RETRIES, RETRY_DELAY = 8, timedelta(seconds=60)
MAX_LOOKS = 60
"""The operator must be done after so many reconciles while nothing else happens."""


class RecordedEvents(NamedTuple):
    """The events that the engine emits."""

    events: list[JobEvent]

    def emit(self, job: TrainingJob, event: JobEvent) -> None:
        self.events.append(event)


class RecordedLogs(NamedTuple):
    """Reads the log tails that the kubelet of the world recorded."""

    world: "World"

    async def tail(self, pod: Key, container: str, lines: int, *, previous: bool = False) -> tuple[str, ...]:
        body = self.world.server.find("pods", pod.name)
        return self.world.logs.get(body["metadata"]["uid"], ()) if body is not None else ()


class SimulatedOperator:
    """The parts of the engine, joined as in `operator.engine`, with everything that they remember."""

    def __init__(self, world: "World", wake: Callable[[Key], None], *, first: bool) -> None:
        """`first`: no operator ran before this one."""
        framework, views = world.framework, world.views
        self.expectations = Expectations(world.clock)
        self.client = WorldClient(world.server, world.wrote, world.faults)
        caches: JobCaches[Any] = JobCaches(
            views[world.plural].cache,
            views["pods"].cache,
            views["services"].cache,
            {name: views[plural].cache for name, plural in world.companions.items()},
        )
        self.recorded_events = RecordedEvents([])
        self.reconciler: CachedJobReconciler[Any] = CachedJobReconciler(
            framework,
            Observer(framework, caches, self.expectations, world.site, world.clock),
            Executor(self.client, self.expectations, self.recorded_events),
            RecordedLogs(world),
            world.clock,
            # What is written later would make two worlds differ by chance.
            counter_interval=timedelta(),
            ledger_interval=timedelta(),
            causes=world.causes,
            cache_is_current=first,
        )
        self._sources = ExitStack()
        kind = framework.facts.kind
        resources = {"pods": "pods", "services": "services", **world.companions}
        informers: list[tuple[str, Any]] = [(name, views[plural]) for name, plural in resources.items()]
        jobs: Any = views[world.plural]
        sources: list[KeySource] = [
            InformerSource(jobs, own_key),
            *(ExpectationSource(view, name, self.expectations) for name, view in informers),
            *(InformerSource(view, owning_jobs(kind)) for _, view in informers),
        ]
        for source in sources:
            self._sources.enter_context(source.attach(wake))

    def detach(self) -> None:
        self._sources.close()


class World:
    """One job, and everything around it.

    `judge` is called with every write of the operator. Nothing happens by itself: call the methods of the world, change
    its pods with a `Kubelet`, and then call `settle`.
    """

    def __init__(
        self,
        framework: Framework[Any],
        job: JSON,
        site: Site = Site(),  # noqa: B008 - frozen
        judge: Callable[["World", WorldWrite], None] | None = None,
        *,
        nodes: Sequence[str] = (),
        causes: CauseReader | None = None,
    ) -> None:
        """`job` is a manifest, as in YAML. The world has no other namespace than the job's.

        With `nodes` each pod that starts gets the first of them that its affinity allows, and waits if there is none.
        `causes` diagnoses failures of a job with a recovery policy.
        """
        if site.gang_schedulers:
            raise ValueError("a World has no gang scheduler: leave `gang_scheduler` out of the site")
        self.framework, self.site, self._judge = framework, site, judge
        self.nodes, self.causes = tuple(nodes), causes
        self.plural = framework.facts.plural
        metadata = job["metadata"]
        self.key = Key(metadata.get("namespace") or "default", metadata["name"])
        self.clock = FakeClock()
        self.faults = Faults()
        scheme = scheme_of([framework])
        self.server = WorldServer(scheme, self.clock, self.key.namespace)
        resources = framework.resources if isinstance(framework, NeedsCompanions) else ()
        # Plurals by the resource names of the framework.
        self.companions = {name: scheme.find(name).plural for name in resources}
        self.logs: dict[str, tuple[str, ...]] = {}
        # Pods that failed by themselves: name by uid. And the number of happenings that may restart all replicas.
        self.failures: dict[str, str] = {}
        self.incidents = 0
        self.in_place: dict[str, int] = {}
        # The uids of objects that the job never owned.
        self.strangers: set[str] = set()
        self.views = {
            self.plural: LaggingInformer(self.plural, framework.facts.model),
            "pods": LaggingInformer("pods", Pod, labelled=True),
            "services": LaggingInformer("services", Service, labelled=True),
        }
        owners = {(framework.facts.model.API_VERSION, framework.facts.kind)}
        for plural in self.companions.values():
            self.views[plural] = LaggingInformer(plural, dict, owners=owners)
        self.manifest = job
        self.server.create(self.plural, job)
        self._dirty, self._retry_now = True, False
        self._errors = 0
        self.alarm: datetime | None = None
        self.operator = SimulatedOperator(self, self._mark_dirty, first=True)
        # The number of reconciles, and of writes of the operator.
        self.looks = 0
        self.writes = 0

    # State

    @property
    def body(self) -> JSON | None:
        """The job as it is stored; None if it does not exist."""
        return self.server.find(self.plural, self.key.name)

    @property
    def job(self) -> Any:
        """The job with its defaults. It must exist."""
        body = self.body
        assert body is not None
        return self.framework.default(decode_as(body, self.framework.facts.model))

    def pods(self) -> list[JSON]:
        """All pods, sorted by name."""
        return self.server.list_objects("pods")

    def owned(self) -> list[tuple[str, JSON]]:
        """The objects that the job owns, each with its resource."""
        body = self.body
        return self.server.owned_by(body["metadata"]["uid"]) if body is not None else []

    @property
    def late(self) -> bool:
        """Whether a cache has not received all events yet."""
        self._dispatch_events()
        return any(view.backlog for view in self.views.values())

    @property
    def due(self) -> bool:
        """Whether a reconcile is due."""
        return self._dirty or self._retry_now or (self.alarm is not None and self.alarm <= self.clock.now())

    # Happenings

    def wrote(self, write: WorldWrite) -> None:
        """Count a write of the operator, and pass it to the judge."""
        self.writes += 1
        if self._judge is not None:
            self._judge(self, write)

    def deliver(self, resource: str | None = None, count: int | None = None) -> None:
        """Let the cache of a resource, or all caches, receive `count` events, or all."""
        self._dispatch_events()
        for name, view in self.views.items():
            if resource in (None, name):
                view.deliver(count)

    def relist(self, resource: str) -> None:
        """Let the cache of a resource list its objects anew, without the events in between."""
        self._dispatch_events()
        self.views[resource].relist(self.server.list_objects(resource))

    def crash(self) -> None:
        """Replace the operator's process. The caches of the new one are as late as those of the old one."""
        self.operator.detach()
        self.alarm, self._dirty, self._retry_now, self._errors = None, True, False, 0
        self.operator = SimulatedOperator(self, self._mark_dirty, first=False)

    async def look(self) -> None:
        """Reconcile once, whether it is due or not."""
        self.looks += 1
        self._dirty, self._retry_now, self.alarm = False, False, None
        faults_before = len(self.faults.met)
        try:
            requeue_after = await self.operator.reconciler.reconcile(self.key)
        except GanglineError:
            self._schedule_retry(faulted=len(self.faults.met) > faults_before)
        except (SimulatedCrash, BaseExceptionGroup) as error:
            if _is_crash(error):
                self.crash()
            elif isinstance(error, ExceptionGroup) and error.subgroup(GanglineError):
                _, other = error.split(GanglineError)
                if other is not None:
                    raise other from None
                self._schedule_retry(faulted=len(self.faults.met) > faults_before)
            else:
                raise
        else:
            self._errors = 0
            if requeue_after is not None:
                assert requeue_after >= timedelta()
                self.alarm = self.clock.now() + requeue_after

    def _schedule_retry(self, *, faulted: bool) -> None:
        """Retry at once a few times, and always after a planned fault; then by an alarm."""
        self._errors += 1
        if self._errors < IMMEDIATE_RETRIES or faulted:
            self._retry_now = True
        else:
            self.alarm = self.clock.now() + RETRY_DELAY

    async def settle(self, lags: Sequence[int] = ()) -> int:
        """Deliver events and reconcile until no reconcile is due at this moment. Returns the number of reconciles.

        For each of `lags` only one cache receives only its next event before a reconcile, instead of all.
        """
        before, remaining = self.looks, list(lags)
        while True:
            self.node()
            self.server.collect_garbage()
            if remaining and self.late:
                late = [name for name, view in self.views.items() if view.backlog]
                self.deliver(late[remaining.pop() % len(late)], 1)
            else:
                self.deliver()
            if self.due:
                assert self.looks - before < MAX_LOOKS, "the operator is never done"
                await self.look()
            elif not self.late:
                return self.looks - before

    async def pass_time(self, duration: timedelta, lags: Sequence[int] = ()) -> None:
        """Let time pass, and settle at each alarm."""
        until = self.clock.now() + duration
        alarms = 0
        while self.alarm is not None and self.alarm <= until:
            alarms += 1
            assert alarms < MAX_LOOKS, "the operator wakes for nothing"
            self.advance(max(self.alarm - self.clock.now(), timedelta()))
            await self.settle(lags)
        self.advance(max(until - self.clock.now(), timedelta()))

    def advance(self, duration: timedelta) -> None:
        """Move the clock, without a reconcile."""
        self.clock.skip(duration)

    def node(self) -> None:
        """On one machine, give the services their addresses, as the local node does."""
        if not self.site.shared_host or self.framework.facts.port is None:
            return
        port = self.framework.facts.port.name
        for number, service in enumerate(self.server.list_objects("services")):
            metadata = service["metadata"]
            if ADDRESSES_ANNOTATION in (metadata.get("annotations") or {}) or JOB_NAME not in labels_of(service):
                continue
            addresses = msgspec.json.encode({port: f"127.0.0.1:{7000 + number}"}).decode()
            patch = {"metadata": {"annotations": {ADDRESSES_ANNOTATION: addresses}}}
            self.server.patch("services", metadata["name"], patch)

    def _mark_dirty(self, key: Key) -> None:
        if key == self.key:
            self._dirty = True

    def _dispatch_events(self) -> None:
        for resource, before, after in self.server.pending_events:
            if resource in self.views:
                self.views[resource].backlog.append((before, after))
        self.server.pending_events.clear()


def _is_crash(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_is_crash, error.exceptions))
    return isinstance(error, SimulatedCrash)
