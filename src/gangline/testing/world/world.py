"""A small deterministic world for one job: a server, caches that lag, a kubelet, users and the operator.

The engine in it is the real one. Everything happens when a test says so, in memory and by a clock that stands still;
the operator looks only when something wakes it, as it would: a change that its caches show, an error, or an alarm that
its last look asked for.
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
"""More looks without a change of the world than this, and the operator will never be done."""


class RecordedEvents(NamedTuple):
    """Takes notes."""

    events: list[JobEvent]

    def emit(self, job: TrainingJob, note: JobEvent) -> None:
        self.events.append(note)


class RecordedLogs(NamedTuple):
    """What pods said last, by uid."""

    world: "World"

    async def tail(self, pod: Key, container: str, lines: int) -> tuple[str, ...]:
        found = self.world.server.find("pods", pod.name)
        return self.world.logs.get(found["metadata"]["uid"], ()) if found is not None else ()


class SimulatedOperator:
    """The engine's parts, wired as `operator.engine` wires them, and all that they remember."""

    def __init__(self, world: "World", wake: Callable[[Key], None], *, first: bool) -> None:
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
            # Counters that are written later would make two worlds differ by chance.
            counter_interval=timedelta(),
            cache_is_current=first,
        )
        self._sources = ExitStack()
        kind = framework.facts.kind
        named = {"pods": "pods", "services": "services", **world.companions}
        informers: list[tuple[str, Any]] = [(name, views[plural]) for name, plural in named.items()]
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
    """One job and all that happens to it.

    `judge` is shown every change that the operator makes. Nothing happens by itself: tell the world what happens, let
    a `Kubelet` move its pods, and `settle` it.
    """

    def __init__(
        self,
        framework: Framework[Any],
        job: JSON,
        site: Site = Site(),  # noqa: B008 - frozen
        judge: Callable[["World", WorldWrite], None] | None = None,
    ) -> None:
        """`job` is a manifest, as written in YAML. Its namespace is the only one."""
        if site.gang_schedulers:
            raise ValueError("nobody places gangs in this world: leave `gangs` out of the site")
        self.framework, self.site, self._judge = framework, site, judge
        self.plural = framework.facts.plural
        metadata = job["metadata"]
        self.key = Key(metadata.get("namespace") or "default", metadata["name"])
        self.clock = FakeClock()
        self.faults = Faults()
        scheme = scheme_of([framework])
        self.server = WorldServer(scheme, self.clock, self.key.namespace)
        needed = framework.resources if isinstance(framework, NeedsCompanions) else ()
        # Plural by the name that the framework uses.
        self.companions = {name: scheme.find(name).plural for name in needed}
        self.logs: dict[str, tuple[str, ...]] = {}
        # Pods that failed by themselves: name by uid. And how many things happened that a team might restart for.
        self.failures: dict[str, str] = {}
        self.incidents = 0
        self.in_place: dict[str, int] = {}
        # Objects, by uid, that were never the job's.
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
        # Looks, and changes that the operator made.
        self.looks = 0
        self.writes = 0

    # What there is

    @property
    def body(self) -> JSON | None:
        """The job as it is stored."""
        return self.server.find(self.plural, self.key.name)

    @property
    def job(self) -> Any:
        """The job with its defaults. There must be one."""
        body = self.body
        assert body is not None
        return self.framework.default(decode_as(body, self.framework.facts.model))

    def pods(self) -> list[JSON]:
        return self.server.list_objects("pods")

    def owned(self) -> list[tuple[str, JSON]]:
        body = self.body
        return self.server.owned_by(body["metadata"]["uid"]) if body is not None else []

    @property
    def late(self) -> bool:
        """Whether the caches do not show everything yet."""
        self._dispatch_events()
        return any(view.backlog for view in self.views.values())

    @property
    def due(self) -> bool:
        """Whether anything makes the operator look now."""
        return self._dirty or self._retry_now or (self.alarm is not None and self.alarm <= self.clock.now())

    # What happens

    def wrote(self, write: WorldWrite) -> None:
        self.writes += 1
        if self._judge is not None:
            self._judge(self, write)

    def deliver(self, resource: str | None = None, count: int | None = None) -> None:
        self._dispatch_events()
        for name, view in self.views.items():
            if resource in (None, name):
                view.deliver(count)

    def relist(self, resource: str) -> None:
        self._dispatch_events()
        self.views[resource].relist(self.server.list_objects(resource))

    def crash(self) -> None:
        """The operator's process is replaced. The caches of the new one are no newer than those of the old one."""
        self.operator.detach()
        self.alarm, self._dirty, self._retry_now, self._errors = None, True, False, 0
        self.operator = SimulatedOperator(self, self._mark_dirty, first=False)

    async def look(self) -> None:
        """One pass of the operator's, whether it is due or not."""
        self.looks += 1
        self._dirty, self._retry_now, self.alarm = False, False, None
        met = len(self.faults.met)
        try:
            wake = await self.operator.reconciler.reconcile(self.key)
        except GanglineError:
            self._schedule_retry(troubled=len(self.faults.met) > met)
        except (SimulatedCrash, BaseExceptionGroup) as error:
            if _is_crash(error):
                self.crash()
            elif isinstance(error, ExceptionGroup) and error.subgroup(GanglineError):
                _, other = error.split(GanglineError)
                if other is not None:
                    raise other from None
                self._schedule_retry(troubled=len(self.faults.met) > met)
            else:
                raise
        else:
            self._errors = 0
            if wake is not None:
                assert wake >= timedelta()
                self.alarm = self.clock.now() + wake

    def _schedule_retry(self, *, troubled: bool) -> None:
        """Tried again: at once a few times, then by an alarm."""
        self._errors += 1
        if self._errors < IMMEDIATE_RETRIES or troubled:
            self._retry_now = True
        else:
            self.alarm = self.clock.now() + RETRY_DELAY

    async def settle(self, lags: Sequence[int] = ()) -> int:
        """Until nothing makes the operator look any more, at this moment. Gives how many looks that took.

        A lag shows, before a look, only the next change of one of the caches instead of all that they owe.
        """
        before, late = self.looks, list(lags)
        while True:
            self.node()
            self.server.collect_garbage()
            if late and self.late:
                lag = late.pop()
                names = [name for name, view in self.views.items() if view.backlog]
                self.deliver(names[lag % len(names)], 1)
            else:
                self.deliver()
            if self.due:
                assert self.looks - before < MAX_LOOKS, "the operator is never done"
                await self.look()
            elif not self.late:
                return self.looks - before

    async def pass_time(self, duration: timedelta, lags: Sequence[int] = ()) -> None:
        """Time goes by; the operator's alarms wake it."""
        until = self.clock.now() + duration
        rings = 0
        while self.alarm is not None and self.alarm <= until:
            rings += 1
            assert rings < MAX_LOOKS, "the operator wakes for nothing"
            self.advance(max(self.alarm - self.clock.now(), timedelta()))
            await self.settle(lags)
        self.advance(max(until - self.clock.now(), timedelta()))

    def advance(self, duration: timedelta) -> None:
        """Only the clock moves."""
        self.clock.skip(duration)

    def node(self) -> None:
        """On one machine, services get their addresses."""
        if not self.site.shared_host or self.framework.facts.port is None:
            return
        port = self.framework.facts.port.name
        for number, found in enumerate(self.server.list_objects("services")):
            if ADDRESSES_ANNOTATION not in (found["metadata"].get("annotations") or {}) and JOB_NAME in labels_of(
                found
            ):
                book = msgspec.json.encode({port: f"127.0.0.1:{7000 + number}"}).decode()
                self.server.patch(
                    "services",
                    found["metadata"]["name"],
                    {"metadata": {"annotations": {ADDRESSES_ANNOTATION: book}}},
                )

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
