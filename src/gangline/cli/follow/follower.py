"""Tells what becomes of a job, until it has ended."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple, Protocol

from gangline.api.core import Event, Namespace, Pod, PodPhase
from gangline.api.kubeflow.training import JOB_NAME, JobKind, TrainingJob
from gangline.api.meta import Key, Selector
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.base.tasks import every
from gangline.cli.follow.outcome import Outcome
from gangline.cli.follow.screen import Screen
from gangline.cli.follow.view import Facts, History, Seat, Span, Use, noted
from gangline.cli.output.curve import Point
from gangline.jobs.plan.status import newest
from gangline.jobs.pods.replicas import Member
from gangline.kube.client import Client
from gangline.kube.errors import AlreadyExists, KubeError
from gangline.kube.options import FieldValidation, WriteOptions
from gangline.progress.line import Progress, progress
from gangline.runtime.informer import Delta, Informer

LOOK = timedelta(milliseconds=100)
SAMPLE = timedelta(seconds=1)
WORRY = timedelta(seconds=2)
TAIL = 20
STRUCK = 2.0
"""For so many seconds it is shown that a member had failed, though it runs again."""
POINTS = 4000
"""So many points of a curve are kept per member; then every other one is dropped."""

Watcher = Callable[[str, Progress], str | None]
"""Is told a member's progress. What it gives is said to the viewer."""
Sampler = Callable[[], Mapping[str, Use]]
"""Gives what the processes of pods take."""
Keeper = Callable[[str, str], None]
"""Is given every line of every member."""


class Said(NamedTuple):
    """A line of a program's output, and the pod it came from."""

    pod: str
    text: str


class Lines(Protocol):
    """Where the lines of a job's members come from."""

    def seen(self, pod: Pod) -> None:
        """A pod of the job is there, or has changed."""

    async def read(self) -> None:
        """Whatever it takes to have lines; until cancelled, or nothing at all."""

    async def rest(self) -> None:
        """The job has ended: return when its last lines are there, or have taken too long."""

    def lines(self) -> Iterator[Said]:
        """What is new."""

    def close(self) -> None: ...


class JobDeleted(GanglineError):
    """Somebody deleted the job before it had ended."""


class Team:
    """What was seen of the job's members so far."""

    def __init__(self) -> None:
        self.job: TrainingJob | None = None
        self.pods: dict[str, Pod] = {}
        self.histories: dict[str, History] = {}
        # Who was seen to fail, or to come back from that, and when that was drawn first. None: not yet.
        self.struck: dict[str, float | None] = {}
        self.progress: dict[str, Progress] = {}
        self.curves: dict[str, list[Point]] = {}
        self.metric = ""
        self.uses: dict[str, Use] = {}
        self.tails: dict[str, deque[str]] = {}

    def pod(self, member: str, pod: Pod | None) -> None:
        """A pod as it is now; None: it is gone."""
        if pod is None:
            self.pods.pop(member, None)
            return
        self.pods[member] = pod
        before = self.histories.get(member, History())
        after = self.histories[member] = noted(before, pod)
        if after.exit_code is not None and (before.exit_code, before.restarts) != (
            after.exit_code,
            after.restarts,
        ):
            self.struck[member] = None

    def line(self, member: str, text: str) -> None:
        self.tails.setdefault(member, deque(maxlen=TAIL)).append(text)

    def report(self, member: str, found: Progress) -> None:
        """Progress of a member; its first metric, or the one called loss, becomes a point of its curve."""
        self.progress[member] = found
        if not self.metric and found.metrics:
            self.metric = "loss" if "loss" in found.metrics else next(iter(found.metrics))
        if self.metric in found.metrics:
            points = self.curves.setdefault(member, [])
            points.append(Point(found.step, found.metrics[self.metric]))
            if len(points) > POINTS:
                del points[1:-1:2]

    def failed(self) -> dict[str, int | None]:
        """Who is down, and with what exit code."""
        down = [name for name, pod in self.pods.items() if pod.status.phase == PodPhase.FAILED]
        return {name: self.histories[name].exit_code for name in sorted(down)}

    def facts(self, kind: JobKind, name: str, seconds: float) -> Facts:
        """All that can be drawn, so many seconds after the start."""
        specs = getattr(getattr(self.job, "spec", None), kind.attribute, {})
        wanted = {each: spec.replicas if spec.replicas is not None else 1 for each, spec in specs.items()}
        seats = [str(Member(each, index)) for each, number in wanted.items() for index in range(number)]
        names = [*seats, *(member for member in self.pods if member not in seats)]
        return Facts(
            kind.kind,
            name,
            newest(self.job.status) if self.job is not None else "Pending",
            tuple(
                Seat(
                    each,
                    self.pods.get(each),
                    self.histories.get(each, History()),
                    self.progress.get(each),
                    self._just_struck(each, seconds),
                    self.uses.get(each),
                )
                for each in names
            ),
            wanted,
            seconds,
        )

    def _just_struck(self, member: str, now: float) -> bool:
        """Counted from the first time that it is drawn: a machine that stood still until then hides nothing."""
        if member not in self.struck:
            return False
        drawn = self.struck[member]
        if drawn is None:
            drawn = self.struck[member] = now
        return now - drawn < STRUCK


class Follower:
    """Follows one job. `watcher` and `keeper` are told what comes by, if given."""

    def __init__(
        self,
        client: Client,
        facts: JobKind,
        lines: Lines,
        clock: Clock,
        screen: Screen,
        *,
        watcher: Watcher | None = None,
        keeper: Keeper | None = None,
        usage: Sampler | None = None,
    ) -> None:
        self._facts, self._screen = facts, screen
        self._client, self._lines, self._clock = client, lines, clock
        self._watcher, self._keeper, self._usage = watcher, keeper, usage
        self._key = Key("default", "")
        self._started = clock.monotonic()
        # How long the job took; what is told of it afterwards takes time, too.
        self._lasted = 0.0
        self._warned: set[tuple[str, str, str]] = set()
        self._worried: set[str] = set()
        self.team = Team()

    async def follow(self, body: dict[str, Any]) -> Outcome:
        """Create the job, then `watch` it.

        Its namespace is made where it is missing: files for a cluster name one.
        """
        namespace = body["metadata"].get("namespace", "default")
        with suppress(AlreadyExists):
            await self._client.create(Namespace, {"metadata": {"name": namespace}})
        # A field that nobody knows is a mistake: left out in silence it would be looked for in the training.
        strict = self._client.writing(WriteOptions(field_validation=FieldValidation.STRICT))
        return await self.watch(await strict.create(self._facts.model, body, namespace=namespace))

    async def watch(self, job: TrainingJob) -> Outcome:
        """Tell everything about a job until it has ended, give it as it ended. Raises `JobDeleted`."""
        self._key, self.team.job = job.metadata.key, job
        try:
            job = await self._finished()
            self._tell_logs()
        finally:
            self._lines.close()
        self.team.job = job
        self._draw()
        team = self.team
        return Outcome(job, self._lasted, team.tails, team.curves, team.metric, team.failed())

    def alive(self) -> list[str]:
        """The members that have a process, or are about to."""
        return [name for name, pod in self.team.pods.items() if pod.status.phase in ("Pending", "Running")]

    async def _finished(self) -> TrainingJob:
        namespace, name = self._key
        # Of a namespace that may be full of others, no more than is needed.
        members = Selector(namespace, labels=f"{JOB_NAME}={name}")
        itself = Selector(namespace, fields=f"metadata.name={name}")
        jobs = Informer(self._client, self._facts.model, itself, clock=self._clock)
        pods = Informer(self._client, Pod, members, clock=self._clock)
        events = Informer(self._client, Event, Selector(namespace), clock=self._clock)
        done: asyncio.Future[TrainingJob] = asyncio.get_running_loop().create_future()

        def tell_job(delta: Delta[TrainingJob]) -> None:
            self._tell_job(delta)
            if done.done():
                return
            if delta.newest.status.finished:
                done.set_result(delta.newest)
            elif delta.after is None:
                done.set_exception(JobDeleted(f"{self._shown} was deleted before it had ended"))

        async with asyncio.TaskGroup() as group:
            watches: dict[str, Informer[Any]] = {"the job": jobs, "its pods": pods}
            looks = (
                every(LOOK, self._look, self._clock),
                every(SAMPLE, self._sample, self._clock),
                every(WORRY, partial(self._worry, watches), self._clock),
            )
            work = (jobs.run(), pods.run(), events.run(), self._lines.read(), *looks)
            tasks = [group.create_task(each) for each in work]
            with pods.subscribed(self._tell_pod):
                with jobs.subscribed(tell_job), events.subscribed(self._tell_event):
                    job = await done
                self._lasted = self._seconds()
                await self._tell_rest(pods, members)
                await self._lines.rest()
            for task in tasks:
                task.cancel()
        return job

    async def _tell_rest(self, pods: Informer[Pod], where: Selector) -> None:
        """What the watch of pods had not brought yet when the job ended. The verdict does not wait for it."""
        with suppress(KubeError):
            for pod in (await self._client.list(Pod, where)).items:
                self._tell_pod(Delta(pods.cache.get(pod.metadata.key), pod))

    async def _look(self) -> None:
        self._tell_logs()
        self._draw()

    async def _sample(self) -> None:
        if self._usage is not None:
            self.team.uses = {self._member(pod): use for pod, use in self._usage().items()}

    async def _worry(self, watches: Mapping[str, Informer[Any]]) -> None:
        """Say once why something cannot be seen: the way to the server is broken, or it may not be seen by everyone."""
        for what, informer in watches.items():
            problem = informer.problem
            if problem is not None and problem not in self._worried:
                self._worried.add(problem)
                self._screen.say((Span("warning: ", "yellow"), Span(f"cannot see {what}: {problem}")))

    def _draw(self) -> None:
        self._screen.draw(self.team.facts(self._facts, self._key.name, self._seconds()))

    def _seconds(self) -> float:
        return self._clock.monotonic() - self._started

    def _tell_job(self, delta: Delta[TrainingJob]) -> None:
        job = delta.newest
        before = newest(delta.before.status) if delta.before else ""
        self.team.job = job
        if newest(job.status) != before:
            self._screen.state(self._shown, newest(job.status))

    def _tell_pod(self, delta: Delta[Pod]) -> None:
        self._lines.seen(delta.newest)
        member = self._member(delta.newest.metadata.name)
        self.team.pod(member, delta.after)
        before = delta.before.status.phase if delta.before else ""
        if delta.after is not None and delta.after.status.phase != before:
            self._tell_logs()
            self._screen.pod(member, delta.after.status.phase)

    def _tell_event(self, delta: Delta[Event]) -> None:
        """A warning about the job itself or one of its pods, once however often it is repeated."""
        event = delta.newest
        about = event.regarding
        ours = about.kind == self._facts.kind and about.name == self._key.name
        theirs = about.kind == "Pod" and self._member(about.name) in self.team.histories
        said = (about.name, event.reason, event.note)
        if event.type != "Warning" or not (ours or theirs) or said in self._warned:
            return
        self._warned.add(said)
        whom = "" if ours else f"{self._member(about.name)}: "
        self._screen.say((Span("warning: ", "yellow"), Span(f"{whom}{event.reason}: {event.note.strip()}")))

    def _tell_logs(self) -> None:
        for line in self._lines.lines():
            member = self._member(line.pod)
            self.team.line(member, line.text)
            if self._keeper is not None:
                self._keeper(member, line.text)
            found = progress(line.text)
            if found is None:
                self._screen.log(member, line.text)
            else:
                self._tell_progress(member, found)

    def _tell_progress(self, member: str, found: Progress) -> None:
        self.team.report(member, found)
        self._screen.progress(member, found)
        told = self._watcher(member, found) if self._watcher is not None else None
        if told:
            self._screen.say((Span(told, "bold yellow"),))

    @property
    def _shown(self) -> str:
        return f"{self._facts.kind.lower()}/{self._key.name}"

    def _member(self, name: str) -> str:
        return name.removeprefix(f"{self._key.name}-")
