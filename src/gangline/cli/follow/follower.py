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
from gangline.base.tasks import run_every
from gangline.cli.follow.outcome import RunOutcome
from gangline.cli.follow.screen import Screen
from gangline.cli.follow.view import (
    JobFrame,
    ReplicaState,
    ReplicaUsage,
    RestartHistory,
    Span,
    updated_history,
)
from gangline.cli.output.curve import Point
from gangline.jobs.plan.conditions import current_condition
from gangline.jobs.pods.replicas import Member
from gangline.kube.client import Client
from gangline.kube.errors import AlreadyExists, KubeError
from gangline.kube.options import FieldValidation, WriteOptions
from gangline.progress.line import Progress, parse_progress
from gangline.runtime.informer import Delta, Informer

POLL_INTERVAL = timedelta(milliseconds=100)
USAGE_INTERVAL = timedelta(seconds=1)
WATCH_CHECK_INTERVAL = timedelta(seconds=2)
TAIL_LINES = 20
FAILURE_SHOWN_SECONDS = 2.0
"""For so many seconds it is shown that a member had failed, though it runs again."""
MAX_CURVE_POINTS = 4000
"""So many points of a curve are kept per member; then every other one is dropped."""

ProgressHook = Callable[[str, Progress], str | None]
"""Is told a member's progress. What it gives is said to the viewer."""
UsageSource = Callable[[], Mapping[str, ReplicaUsage]]
"""Gives what the processes of pods take."""
LogHook = Callable[[str, str], None]
"""Is given every line of every member."""


class PodLine(NamedTuple):
    """A line of a program's output, and the pod it came from."""

    pod: str
    text: str


class LogSource(Protocol):
    """Where the lines of a job's members come from."""

    def update_pod(self, pod: Pod) -> None:
        """A pod of the job is there, or has changed."""

    async def run(self) -> None:
        """Whatever it takes to have lines; until cancelled, or nothing at all."""

    async def drain(self) -> None:
        """The job has ended: return when its last lines are there, or have taken too long."""

    def new_lines(self) -> Iterator[PodLine]:
        """What is new."""

    def close(self) -> None: ...


class JobDeleted(GanglineError):
    """Somebody deleted the job before it had ended."""


class JobView:
    """What was seen of the job's members so far."""

    def __init__(self) -> None:
        self.job: TrainingJob | None = None
        self.pods: dict[str, Pod] = {}
        self.histories: dict[str, RestartHistory] = {}
        # Who was seen to fail, or to come back from that, and when that was drawn first. None: not yet.
        self.failures_shown_at: dict[str, float | None] = {}
        self.progress: dict[str, Progress] = {}
        self.curves: dict[str, list[Point]] = {}
        self.metric = ""
        self.usage: dict[str, ReplicaUsage] = {}
        self.tails: dict[str, deque[str]] = {}

    def update_pod(self, member: str, pod: Pod | None) -> None:
        """A pod as it is now; None: it is gone."""
        if pod is None:
            self.pods.pop(member, None)
            return
        self.pods[member] = pod
        before = self.histories.get(member, RestartHistory())
        after = self.histories[member] = updated_history(before, pod)
        if after.exit_code is not None and (before.exit_code, before.restarts) != (
            after.exit_code,
            after.restarts,
        ):
            self.failures_shown_at[member] = None

    def add_line(self, member: str, text: str) -> None:
        self.tails.setdefault(member, deque(maxlen=TAIL_LINES)).append(text)

    def add_progress(self, member: str, found: Progress) -> None:
        """Progress of a member; its first metric, or the one called loss, becomes a point of its curve."""
        self.progress[member] = found
        if not self.metric and found.metrics:
            self.metric = "loss" if "loss" in found.metrics else next(iter(found.metrics))
        if self.metric in found.metrics:
            points = self.curves.setdefault(member, [])
            points.append(Point(found.step, found.metrics[self.metric]))
            if len(points) > MAX_CURVE_POINTS:
                del points[1:-1:2]

    def failed_replicas(self) -> dict[str, int | None]:
        """Who is down, and with what exit code."""
        down = [name for name, pod in self.pods.items() if pod.status.phase == PodPhase.FAILED]
        return {name: self.histories[name].exit_code for name in sorted(down)}

    def frame(self, kind: JobKind, name: str, seconds: float) -> JobFrame:
        """All that can be drawn, so many seconds after the start."""
        specs = getattr(getattr(self.job, "spec", None), kind.attribute, {})
        wanted = {each: spec.replicas if spec.replicas is not None else 1 for each, spec in specs.items()}
        seats = [str(Member(each, index)) for each, number in wanted.items() for index in range(number)]
        names = [*seats, *(member for member in self.pods if member not in seats)]
        return JobFrame(
            kind.kind,
            name,
            current_condition(self.job.status) if self.job is not None else "Pending",
            tuple(
                ReplicaState(
                    each,
                    self.pods.get(each),
                    self.histories.get(each, RestartHistory()),
                    self.progress.get(each),
                    self._failed_recently(each, seconds),
                    self.usage.get(each),
                )
                for each in names
            ),
            wanted,
            seconds,
        )

    def _failed_recently(self, member: str, now: float) -> bool:
        """Counted from the first time that it is drawn: a machine that stood still until then hides nothing."""
        if member not in self.failures_shown_at:
            return False
        drawn = self.failures_shown_at[member]
        if drawn is None:
            drawn = self.failures_shown_at[member] = now
        return now - drawn < FAILURE_SHOWN_SECONDS


class Follower:
    """Follows one job. `watcher` and `keeper` are told what comes by, if given."""

    def __init__(
        self,
        client: Client,
        facts: JobKind,
        lines: LogSource,
        clock: Clock,
        screen: Screen,
        *,
        watcher: ProgressHook | None = None,
        keeper: LogHook | None = None,
        usage: UsageSource | None = None,
    ) -> None:
        self._kind, self._screen = facts, screen
        self._client, self._logs, self._clock = client, lines, clock
        self._progress_hook, self._log_hook, self._usage_source = watcher, keeper, usage
        self._key = Key("default", "")
        self._started = clock.monotonic()
        # How long the job took; what is told of it afterwards takes time, too.
        self._job_seconds = 0.0
        self._warned_events: set[tuple[str, str, str]] = set()
        self._warned_problems: set[str] = set()
        self.view = JobView()

    async def submit_and_follow(self, body: dict[str, Any]) -> RunOutcome:
        """Create the job, then `watch` it.

        Its namespace is made where it is missing: files for a cluster name one.
        """
        namespace = body["metadata"].get("namespace", "default")
        with suppress(AlreadyExists):
            await self._client.create(Namespace, {"metadata": {"name": namespace}})
        # A field that nobody knows is a mistake: left out in silence it would be looked for in the training.
        strict = self._client.with_options(WriteOptions(field_validation=FieldValidation.STRICT))
        return await self.watch(await strict.create(self._kind.model, body, namespace=namespace))

    async def watch(self, job: TrainingJob) -> RunOutcome:
        """Tell everything about a job until it has ended, give it as it ended. Raises `JobDeleted`."""
        self._key, self.view.job = job.metadata.key, job
        try:
            job = await self._wait_finished()
            self._read_logs()
        finally:
            self._logs.close()
        self.view.job = job
        self._draw()
        team = self.view
        return RunOutcome(job, self._job_seconds, team.tails, team.curves, team.metric, team.failed_replicas())

    def live_replicas(self) -> list[str]:
        """The members that have a process, or are about to."""
        return [name for name, pod in self.view.pods.items() if pod.status.phase in ("Pending", "Running")]

    async def _wait_finished(self) -> TrainingJob:
        namespace, name = self._key
        # Of a namespace that may be full of others, no more than is needed.
        members = Selector(namespace, labels=f"{JOB_NAME}={name}")
        itself = Selector(namespace, fields=f"metadata.name={name}")
        jobs = Informer(self._client, self._kind.model, itself, clock=self._clock)
        pods = Informer(self._client, Pod, members, clock=self._clock)
        events = Informer(self._client, Event, Selector(namespace), clock=self._clock)
        done: asyncio.Future[TrainingJob] = asyncio.get_running_loop().create_future()

        def tell_job(delta: Delta[TrainingJob]) -> None:
            self._on_job(delta)
            if done.done():
                return
            if delta.newest.status.finished:
                done.set_result(delta.newest)
            elif delta.after is None:
                done.set_exception(JobDeleted(f"{self._display_name} was deleted before it had ended"))

        async with asyncio.TaskGroup() as group:
            watches: dict[str, Informer[Any]] = {"the job": jobs, "its pods": pods}
            looks = (
                run_every(POLL_INTERVAL, self._refresh, self._clock),
                run_every(USAGE_INTERVAL, self._sample_usage, self._clock),
                run_every(WATCH_CHECK_INTERVAL, partial(self._warn_broken_watches, watches), self._clock),
            )
            work = (jobs.run(), pods.run(), events.run(), self._logs.run(), *looks)
            tasks = [group.create_task(each) for each in work]
            with pods.subscribe(self._on_pod):
                with jobs.subscribe(tell_job), events.subscribe(self._on_event):
                    job = await done
                self._job_seconds = self._elapsed_seconds()
                await self._list_remaining_pods(pods, members)
                await self._logs.drain()
            for task in tasks:
                task.cancel()
        return job

    async def _list_remaining_pods(self, pods: Informer[Pod], where: Selector) -> None:
        """What the watch of pods had not brought yet when the job ended. The verdict does not wait for it."""
        with suppress(KubeError):
            for pod in (await self._client.list(Pod, where)).items:
                self._on_pod(Delta(pods.cache.get(pod.metadata.key), pod))

    async def _refresh(self) -> None:
        self._read_logs()
        self._draw()

    async def _sample_usage(self) -> None:
        if self._usage_source is not None:
            self.view.usage = {self._replica_name(pod): use for pod, use in self._usage_source().items()}

    async def _warn_broken_watches(self, watches: Mapping[str, Informer[Any]]) -> None:
        """Say once why something cannot be seen: the way to the server is broken, or it may not be seen by everyone."""
        for what, informer in watches.items():
            problem = informer.problem
            if problem is not None and problem not in self._warned_problems:
                self._warned_problems.add(problem)
                self._screen.say((Span("warning: ", "yellow"), Span(f"cannot see {what}: {problem}")))

    def _draw(self) -> None:
        self._screen.draw(self.view.frame(self._kind, self._key.name, self._elapsed_seconds()))

    def _elapsed_seconds(self) -> float:
        return self._clock.monotonic() - self._started

    def _on_job(self, delta: Delta[TrainingJob]) -> None:
        job = delta.newest
        before = current_condition(delta.before.status) if delta.before else ""
        self.view.job = job
        if current_condition(job.status) != before:
            self._screen.show_state(self._display_name, current_condition(job.status))

    def _on_pod(self, delta: Delta[Pod]) -> None:
        self._logs.update_pod(delta.newest)
        member = self._replica_name(delta.newest.metadata.name)
        self.view.update_pod(member, delta.after)
        before = delta.before.status.phase if delta.before else ""
        if delta.after is not None and delta.after.status.phase != before:
            self._read_logs()
            self._screen.show_phase(member, delta.after.status.phase)

    def _on_event(self, delta: Delta[Event]) -> None:
        """A warning about the job itself or one of its pods, once however often it is repeated."""
        event = delta.newest
        about = event.regarding
        ours = about.kind == self._kind.kind and about.name == self._key.name
        theirs = about.kind == "Pod" and self._replica_name(about.name) in self.view.histories
        said = (about.name, event.reason, event.note)
        if event.type != "Warning" or not (ours or theirs) or said in self._warned_events:
            return
        self._warned_events.add(said)
        whom = "" if ours else f"{self._replica_name(about.name)}: "
        self._screen.say((Span("warning: ", "yellow"), Span(f"{whom}{event.reason}: {event.note.strip()}")))

    def _read_logs(self) -> None:
        for line in self._logs.new_lines():
            member = self._replica_name(line.pod)
            self.view.add_line(member, line.text)
            if self._log_hook is not None:
                self._log_hook(member, line.text)
            found = parse_progress(line.text)
            if found is None:
                self._screen.show_log(member, line.text)
            else:
                self._on_progress(member, found)

    def _on_progress(self, member: str, found: Progress) -> None:
        self.view.add_progress(member, found)
        self._screen.show_progress(member, found)
        told = self._progress_hook(member, found) if self._progress_hook is not None else None
        if told:
            self._screen.say((Span(told, "bold yellow"),))

    @property
    def _display_name(self) -> str:
        return f"{self._kind.kind.lower()}/{self._key.name}"

    def _replica_name(self, name: str) -> str:
        return name.removeprefix(f"{self._key.name}-")
