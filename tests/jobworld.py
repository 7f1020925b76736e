"""A small deterministic world for the job engine: a server, caches that lag, a kubelet, users and the operator.

The engine in it is the real one. Everything happens when a test says so, in memory and by a clock that stands still;
the operator looks only when something wakes it, as it would: a change that its caches show, an error, or an alarm that
its last look asked for.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from gangline.api.core import Pod, Service
from gangline.api.kinds import JOBS
from gangline.api.meta import JSON, Key
from gangline.api.training import ADDRESSES, JOB_NAME, TrainingJob
from gangline.base.errors import GanglineError
from gangline.jobs.actions import Note
from gangline.jobs.execute import Executor
from gangline.jobs.framework import Framework, NeedsCompanions
from gangline.jobs.observe import (
    ORPHANS,
    OWNER_UID,
    Caches,
    Observe,
    Settling,
    children_of,
    orphaned,
    owner_uid,
)
from gangline.jobs.reconciler import JobReconciler
from gangline.jobs.site import Site
from gangline.operator.engine import COMPANIONS, bare_if_foreign
from gangline.runtime.cache import Cache, Index, key_of
from gangline.runtime.expectations import Expectations
from gangline.runtime.informer import Delta
from gangline.runtime.sources import Changes, Source, itself
from gangline.testing.clock import FakeClock
from jobserver import NAMESPACE, Died, OperatorClient, Server, Trouble, Write, decoded, labels_of

SCHEME = JOBS.extended(*COMPANIONS)
JOB = Key(NAMESPACE, "job")
AT_ONCE, RETRY = 8, timedelta(seconds=60)
PASSES = 60
"""More looks without a change of the world than this, and the operator will never be done."""


class View:
    """What an informer shows of one resource: the truth, late."""

    def __init__(self, resource: str, model: type[Any], *, labelled: bool, trim: bool) -> None:
        self.resource, self._model, self._labelled, self._trim = resource, model, labelled, trim
        indexes: dict[str, Index[Any]] = {OWNER_UID: owner_uid, ORPHANS: orphaned} if labelled else {}
        self.cache: Cache[Any] = Cache(indexes)
        self.backlog: list[tuple[JSON | None, JSON | None]] = []
        self._subscribers: list[Callable[[Delta[Any]], None]] = []

    @contextmanager
    def subscribed(self, tell: Callable[[Delta[Any]], None]) -> Iterator[None]:
        for found in self.cache:
            tell(Delta(None, found))
        self._subscribers.append(tell)
        yield
        self._subscribers.remove(tell)

    async def synced(self) -> None: ...

    def deliver(self, count: int | None = None) -> None:
        """Show the next changes; all of them if no number is given."""
        for before, after in self._taken(count):
            if after is not None and self._wanted(after):
                self._show(after)
            elif before is not None and self._wanted(before):
                self._drop(before)

    def relist(self, truth: Sequence[JSON]) -> None:
        """Show what there is, and never what was in between: the watch was broken for a while."""
        self.backlog.clear()
        there = {key_of(found): found for found in truth if self._wanted(found)}
        for known in self.cache:
            if key_of(known) not in there:
                self._tell(Delta(self.cache.drop(key_of(known)), None))
        for found in there.values():
            self._show(found)

    def _taken(self, count: int | None) -> list[tuple[JSON | None, JSON | None]]:
        taken = self.backlog[:count]
        del self.backlog[: len(taken)]
        return taken

    def _wanted(self, found: JSON) -> bool:
        return not self._labelled or JOB_NAME in labels_of(found)

    def _show(self, found: JSON) -> None:
        shown = decoded(bare_if_foreign(found) if self._trim else found, self._model)
        before = self.cache.put(shown)
        if before != shown:
            self._tell(Delta(before, shown))

    def _drop(self, found: JSON) -> None:
        before = self.cache.drop(key_of(found))
        if before is not None:
            self._tell(Delta(before, None))

    def _tell(self, delta: Delta[Any]) -> None:
        for tell in tuple(self._subscribers):
            tell(delta)


class Told(NamedTuple):
    """Takes notes."""

    notes: list[Note]

    def tell(self, job: TrainingJob, note: Note) -> None:
        self.notes.append(note)


class Logs(NamedTuple):
    """What pods said last, by uid."""

    world: "World"

    async def tail(self, pod: Key, container: str, lines: int) -> tuple[str, ...]:
        found = self.world.server.find("pods", pod.name)
        return self.world.logs.get(found["metadata"]["uid"], ()) if found is not None else ()


class Operator:
    """The engine's parts, wired as `operator.engine` wires them, and all that they remember."""

    def __init__(self, world: "World", wake: Callable[[Key], None], troubles: Sequence[Trouble] = ()) -> None:
        framework, views = world.framework, world.views
        self.expectations = Expectations(world.clock)
        self.client = OperatorClient(world.server, world.wrote, troubles)
        caches: Caches[Any] = Caches(
            views[world.plural].cache,
            views["pods"].cache,
            views["services"].cache,
            {name: views[SCHEME.find(name).plural].cache for name in companions(framework)},
        )
        self.told = Told([])
        self.reconciler: JobReconciler[Any] = JobReconciler(
            framework,
            Observe(framework, caches, self.expectations, world.site, world.clock),
            Executor(self.client, self.expectations, self.told),
            Logs(world),
            world.clock,
            # Counters that are written a moment later would only blur what is compared.
            quiet=timedelta(),
        )
        self._sources = ExitStack()
        kind = framework.facts.kind
        named = {"pods": "pods", "services": "services"} | {
            name: SCHEME.find(name).plural for name in companions(framework)
        }
        informers: list[tuple[str, Any]] = [(name, views[plural]) for name, plural in named.items()]
        jobs: Any = views[world.plural]
        sources: list[Source] = [
            Changes(jobs, itself),
            *(Settling(view, name, self.expectations) for name, view in informers),
            *(Changes(view, children_of(kind)) for _, view in informers),
        ]
        for source in sources:
            self._sources.enter_context(source.attached(wake))

    def end(self) -> None:
        self._sources.close()


def companions(framework: Framework[Any]) -> tuple[str, ...]:
    return framework.resources if isinstance(framework, NeedsCompanions) else ()


class World:
    """One job's world. `wrote` of the rules is shown every change that the operator makes."""

    def __init__(
        self,
        framework: Framework[Any],
        job: JSON,
        site: Site = Site(),  # noqa: B008 - frozen
        judge: Callable[["World", Write], None] = lambda world, write: None,
    ) -> None:
        self.framework, self.site, self._judge = framework, site, judge
        self.plural = framework.facts.plural
        self.clock = FakeClock()
        self.server = Server(SCHEME, self.clock)
        self.logs: dict[str, tuple[str, ...]] = {}
        # Pods that failed by themselves: name by uid. And how many things happened that a team might restart for.
        self.failures: dict[str, str] = {}
        self.incidents = 0
        self.in_place: dict[str, int] = {}
        # Objects, by uid, that were never the job's.
        self.strangers: set[str] = set()
        self.views = {
            self.plural: View(self.plural, framework.facts.model, labelled=False, trim=False),
            "pods": View("pods", Pod, labelled=True, trim=False),
            "services": View("services", Service, labelled=True, trim=False),
        }
        for name in companions(framework):
            plural = SCHEME.find(name).plural
            self.views[plural] = View(plural, dict, labelled=False, trim=True)
        self.manifest = job
        self.server.create(self.plural, job)
        self._dirty, self._retry = True, False
        self._errors = 0
        self.alarm: datetime | None = None
        self.operator = Operator(self, self._wake)
        # Looks, and changes that the operator made.
        self.looks = 0
        self.writes = 0

    # What there is

    @property
    def body(self) -> JSON | None:
        """The job as it is stored."""
        return self.server.find(self.plural, JOB.name)

    @property
    def job(self) -> Any:
        """The job with its defaults. There must be one."""
        body = self.body
        assert body is not None
        return self.framework.default(decoded(body, self.framework.facts.model))

    def pods(self) -> list[JSON]:
        return self.server.all("pods")

    def owned(self) -> list[tuple[str, JSON]]:
        body = self.body
        return self.server.owned_by(body["metadata"]["uid"]) if body is not None else []

    @property
    def late(self) -> bool:
        """Whether the caches do not show everything yet."""
        self._sort_events()
        return any(view.backlog for view in self.views.values())

    @property
    def due(self) -> bool:
        """Whether anything makes the operator look now."""
        return self._dirty or self._retry or (self.alarm is not None and self.alarm <= self.clock.now())

    # What happens

    def wrote(self, write: Write) -> None:
        self.writes += 1
        self._judge(self, write)

    def deliver(self, resource: str | None = None, count: int | None = None) -> None:
        self._sort_events()
        for name, view in self.views.items():
            if resource in (None, name):
                view.deliver(count)

    def relist(self, resource: str) -> None:
        self._sort_events()
        self.views[resource].relist(self.server.all(resource))

    def trouble(self, *troubles: Trouble) -> None:
        """What will happen to coming calls of the operator's."""
        self.operator.client.troubles.extend(troubles)

    def crash(self) -> None:
        """The operator's process is replaced. The caches of the new one are no newer than those of the old one."""
        left = self.operator.client.troubles
        self.operator.end()
        self.alarm, self._dirty, self._retry, self._errors = None, True, False, 0
        self.operator = Operator(self, self._wake, left)

    async def look(self) -> None:
        """One pass of the operator's, whether it is due or not."""
        self.looks += 1
        self._dirty, self._retry, self.alarm = False, False, None
        self.operator.client.troubled = False
        try:
            wake = await self.operator.reconciler.reconcile(JOB)
        except GanglineError:
            self._failed()
        except (Died, BaseExceptionGroup) as error:
            if _died(error):
                self.crash()
            elif isinstance(error, ExceptionGroup) and error.subgroup(GanglineError):
                _, other = error.split(GanglineError)
                if other is not None:
                    raise other from None
                self._failed()
            else:
                raise
        else:
            self._errors = 0
            if wake is not None:
                assert wake >= timedelta()
                self.alarm = self.clock.now() + wake

    def _failed(self) -> None:
        """Tried again: at once a few times, then by an alarm."""
        self._errors += 1
        if self._errors < AT_ONCE or self.operator.client.troubled:
            self._retry = True
        else:
            self.alarm = self.clock.now() + RETRY

    async def settle(self, lags: Sequence[int] = ()) -> int:
        """Until nothing makes the operator look any more, at this moment. Gives how many looks that took.

        A lag shows, before a look, only the next change of one of the caches instead of all that they owe.
        """
        before, late = self.looks, list(lags)
        while True:
            self.node()
            self.server.collect()
            if late and self.late:
                lag = late.pop()
                names = [name for name, view in self.views.items() if view.backlog]
                self.deliver(names[lag % len(names)], 1)
            else:
                self.deliver()
            if self.due:
                assert self.looks - before < PASSES, "the operator is never done"
                await self.look()
            elif not self.late:
                return self.looks - before

    async def pass_time(self, duration: timedelta, lags: Sequence[int] = ()) -> None:
        """Time goes by; the operator's alarms wake it."""
        until = self.clock.now() + duration
        rings = 0
        while self.alarm is not None and self.alarm <= until:
            rings += 1
            assert rings < PASSES, "the operator wakes for nothing"
            self.advance(max(self.alarm - self.clock.now(), timedelta()))
            await self.settle(lags)
        self.advance(max(until - self.clock.now(), timedelta()))

    def advance(self, duration: timedelta) -> None:
        """Only the clock moves."""
        self.clock._elapsed += duration

    def node(self) -> None:
        """On one machine, services get their addresses."""
        if not self.site.shared_host or self.framework.facts.port is None:
            return
        port = self.framework.facts.port.name
        for number, found in enumerate(self.server.all("services")):
            if ADDRESSES not in (found["metadata"].get("annotations") or {}) and JOB_NAME in labels_of(found):
                book = msgspec.json.encode({port: f"127.0.0.1:{7000 + number}"}).decode()
                self.server.patch(
                    "services", found["metadata"]["name"], {"metadata": {"annotations": {ADDRESSES: book}}}
                )

    def _wake(self, key: Key) -> None:
        if key == JOB:
            self._dirty = True

    def _sort_events(self) -> None:
        for resource, before, after in self.server.events:
            if resource in self.views:
                self.views[resource].backlog.append((before, after))
        self.server.events.clear()


def _died(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(map(_died, error.exceptions))
    return isinstance(error, Died)


def run(work: Callable[[], Any]) -> Any:
    """An example of a property, on a loop of its own."""
    with asyncio.Runner() as runner:
        return runner.run(work())


def manifest(
    framework: Framework[Any], replicas: Mapping[str, JSON], policy: JSON, spec: JSON | None = None
) -> JSON:
    """A job as somebody writes it."""
    container = {"name": framework.facts.container, "image": "train:1"}
    template = {"spec": {"containers": [container]}}
    entries = {kind: {"template": template, **entry} for kind, entry in replicas.items()}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": framework.facts.kind,
        "metadata": {"name": JOB.name, "namespace": NAMESPACE},
        "spec": {framework.facts.replicas: entries, "runPolicy": policy, **(spec or {})},
    }
