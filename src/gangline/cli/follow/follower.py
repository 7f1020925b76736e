"""Follows a job on a server and shows it on a screen until it has finished."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

import msgspec

from gangline.api.codec.codec import to_json
from gangline.api.core import Event, Pod
from gangline.api.kubeflow.training import (
    JOB_NAME,
    PROGRESS_ANNOTATION,
    PROGRESS_TIME_ANNOTATION,
    ConditionType,
    JobKind,
    TrainingJob,
)
from gangline.api.meta import Key, Selector
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.base.tasks import run_every
from gangline.cli.follow.job_end import fail_job
from gangline.cli.follow.job_view import JobView, replica_counts
from gangline.cli.follow.life_signs import (
    IDLE_CORES,
    HangWatch,
    LifeSigns,
    hang_lines,
    is_lifeless,
    silence_lines,
    stall_lines,
)
from gangline.cli.follow.log_sources import LogSource
from gangline.cli.follow.mistakes import ProgramMistake
from gangline.cli.follow.outcome import RunOutcome
from gangline.cli.follow.screen import Screen
from gangline.cli.follow.view import STOPPED
from gangline.cli.output.text import Span
from gangline.jobs.plan.conditions import current_condition
from gangline.jobs.plan.failures.records import PROVISIONAL_TIME, is_provisional
from gangline.kube.client import Client
from gangline.kube.errors import KubeError
from gangline.node.usage import ResourceUsage
from gangline.progress.line import Progress, parse_progress
from gangline.runtime.cache import Cache
from gangline.runtime.informer import Delta, Informer
from gangline.summary.log_lines import printable_text
from gangline.timeline.model import TeamTimeline

POLL_INTERVAL = timedelta(milliseconds=100)
BAR_INTERVAL = timedelta(milliseconds=500)
USAGE_INTERVAL = timedelta(seconds=1)
WATCH_CHECK_INTERVAL = timedelta(seconds=2)

ProgressHook = Callable[[str, Progress], str | None]
"""Called with every progress report of a replica. A text that it returns is shown on the screen."""
UsageSource = Callable[[], Mapping[str, ResourceUsage]]
"""Returns what the processes of each pod use, by the pod's name."""
MistakeExplainer = Callable[[ProgramMistake], str]
"""Says in one line what is wrong with a program, and what to do."""
LogHook = Callable[[str, str], None]
"""Called with every log line: replica and text."""


class JobDeleted(GanglineError):
    """The job was deleted before it had finished."""


class Follower:
    """Follows one job. `progress_hook` and `log_hook` are called as reports and lines arrive."""

    def __init__(
        self,
        client: Client,
        kind: JobKind,
        logs: LogSource,
        clock: Clock,
        screen: Screen,
        *,
        progress_hook: ProgressHook | None = None,
        log_hook: LogHook | None = None,
        usage: UsageSource | None = None,
        explain_mistake: MistakeExplainer | None = None,
        hang_watch: HangWatch | None = None,
    ) -> None:
        """With `explain_mistake`, a job whose every replica fails by a mistake in its program ends at once.

        A job with a backoffLimit does not: it says itself how often it is tried. With `hang_watch` the screen says when
        the job gives no sign of life; that needs `usage`.
        """
        self._kind, self._screen = kind, screen
        self._client, self._logs, self._clock = client, logs, clock
        self._progress_hook, self._log_hook, self._usage_source = progress_hook, log_hook, usage
        self._explain_mistake, self._hang_watch = explain_mistake, hang_watch
        self._life_signs, self._hang_shown = LifeSigns(), False
        # Whether the job is being ended from here: what a restarted program repeats is not shown any more.
        self._is_ending = False
        self._key = Key("default", "")
        self._started = clock.monotonic()
        # How long the job ran, without the time it takes to read its last logs.
        self._job_seconds = 0.0
        self._warned_events: set[tuple[str, str, str]] = set()
        self._warned_problems: set[str] = set()
        # Replicas that print their progress: what the operator writes about them comes later than the lines.
        self._printing_replicas: set[str] = set()
        self.view = JobView()

    async def watch(self, job: TrainingJob) -> RunOutcome:
        """Show the job until it has finished, and return its outcome. Raises `JobDeleted`.

        After it was cancelled, `show_stopped` shows the rest of the logs.
        """
        self._key, self.view.job = job.metadata.key, job
        job = await self._wait_finished()
        self._read_logs()
        self._logs.close()
        self.view.job = job
        self._draw()
        view = self.view
        failed, mistake = view.failed_replicas(), self._mistake_text(job)
        names = {replica: view.ranked_name(self._kind, replica) for replica in (*view.histories, *view.pods)}
        timeline = view.timeline.timeline(self._clock.now().timestamp(), fresh=True)
        return RunOutcome(
            job,
            self._job_seconds,
            view.tails,
            view.curves,
            view.metric,
            failed,
            mistake,
            names,
            timeline,
            view.reports,
        )

    def show_stopped(self) -> None:
        """Show what the programs wrote while they were stopped, and the job. Does nothing if it has finished."""
        job = self.view.job
        if job is None or job.status.finished:
            return
        self._read_logs()
        self._logs.close()
        self._screen.show_state(self._display_name, STOPPED)
        frame = self.view.frame(self._kind, self._key.name, self._elapsed_seconds(), timeline=self._timeline())
        self._screen.draw(msgspec.structs.replace(frame, state=STOPPED))

    def _mistake_text(self, job: TrainingJob) -> str:
        """What is wrong with the program of the replica that failed first, if the job failed by that."""
        first = job.status.first_failure
        if self._explain_mistake is None or first is None or not job.status.holds(ConditionType.FAILED):
            return ""
        mistake = self.view.mistake_of(first.replica)
        return self._explain_mistake(mistake) if mistake is not None else ""

    async def _wait_finished(self) -> TrainingJob:
        namespace, name = self._key
        # Selected by the server: the namespace may hold many other jobs.
        pod_selector = Selector(namespace, labels=f"{JOB_NAME}={name}")
        job_selector = Selector(namespace, fields=f"metadata.name={name}")
        jobs = Informer(self._client, self._kind.model, job_selector, clock=self._clock)
        pods = Informer(self._client, Pod, pod_selector, clock=self._clock)
        events = Informer(self._client, Event, Selector(namespace), clock=self._clock)
        finished: asyncio.Future[TrainingJob] = asyncio.get_running_loop().create_future()

        def on_job(delta: Delta[TrainingJob]) -> None:
            self._on_job(delta)
            if finished.done():
                return
            if delta.newest.status.finished:
                finished.set_result(delta.newest)
            elif delta.after is None:
                finished.set_exception(JobDeleted(f"{self._display_name} was deleted before it had ended"))

        async with asyncio.TaskGroup() as group:
            watches: dict[str, Informer[Any]] = {"the job": jobs, "its pods": pods}
            polls = (
                run_every(POLL_INTERVAL, self._refresh, self._clock),
                run_every(BAR_INTERVAL, self._read_bars, self._clock),
                run_every(USAGE_INTERVAL, self._sample_usage, self._clock),
                run_every(WATCH_CHECK_INTERVAL, partial(self._warn_broken_watches, watches), self._clock),
            )
            work = (jobs.run(), pods.run(), events.run(), self._logs.run(), *polls)
            tasks = [group.create_task(coroutine) for coroutine in work]
            with pods.subscribe(self._on_pod):
                with jobs.subscribe(on_job), events.subscribe(self._on_event):
                    job = await finished
                    self._job_seconds = self._elapsed_seconds()
                    job = await self._with_final_failure(jobs, job)
                await self._list_remaining_pods(pods, pod_selector)
                await self._logs.drain()
            for task in tasks:
                task.cancel()
        return job

    async def _with_final_failure(self, jobs: Informer[Any], job: TrainingJob) -> TrainingJob:
        """The job, after a moment in which its operator may correct which replica failed first."""
        key = job.metadata.key

        def is_final(cache: Cache[Any]) -> bool:
            found = cache.get(key)
            return found is None or not is_provisional(found.status)

        if is_provisional(job.status):
            with suppress(TimeoutError):
                await asyncio.wait_for(jobs.wait_until(is_final), PROVISIONAL_TIME.total_seconds())
        newest: TrainingJob | None = jobs.cache.get(key)
        return newest if newest is not None and newest.metadata.uid == job.metadata.uid else job

    async def _list_remaining_pods(self, pods: Informer[Pod], selector: Selector) -> None:
        """Take in pod changes that the watch had not delivered yet when the job finished. Errors are ignored."""
        with suppress(KubeError):
            for pod in (await self._client.list(Pod, selector)).items:
                self._on_pod(Delta(pods.cache.get(pod.metadata.key), pod))

    async def _refresh(self) -> None:
        self._read_logs()
        self._check_life()
        self._draw()
        await self._end_hopeless_job()

    async def _end_hopeless_job(self) -> None:
        """Fail the job if all of its replicas failed by a mistake in the program, which no restart mends."""
        job = self.view.job
        if self._explain_mistake is None or job is None or job.status.finished or not self.view.first_failures:
            return
        if self.view.backoff_limit is not None:
            return
        mistake = self.view.mistake(sum(replica_counts(self.view.job, self._kind).values()))
        if mistake is None:
            return
        text, self._is_ending = self._explain_mistake(mistake), True
        with suppress(KubeError):
            failure = self.view.failure_record(self._kind, mistake.replica)
            await fail_job(self._client, job, failure, text, self._clock.now())

    async def _sample_usage(self) -> None:
        now = self._elapsed_seconds()
        watched = self._hang_watch is not None and now - self._life_signs.last_sign >= self._hang_watch.seconds / 2
        if self._usage_source is None or not (self._screen.shows_usage or watched):
            return
        usage = {self._replica_name(pod): usage for pod, usage in self._usage_source().items()}
        # The processes of other jobs of the run are counted, too.
        self.view.usage = {replica: usage[replica] for replica in usage if replica in self.view.pods}
        if any(used.cores >= IDLE_CORES for used in self.view.usage.values()):
            self._life_signs = self._life_signs.with_sign(now)

    def _check_life(self) -> None:
        """Show once that the job seems to hang, and again after it has lived and hangs anew."""
        if not self.view.is_running:
            self._life_signs = self._life_signs.with_sign(self._elapsed_seconds())
        if self._hang_watch is None or self._usage_source is None:
            return
        signs, now = self._life_signs, self._elapsed_seconds()
        # Of a container of podman or docker nobody knows the CPU use.
        hangs = is_lifeless(signs, now, self._hang_watch) and self.view.has_all_usage
        # The operator has looked into it, and says more.
        if hangs and not self._hang_shown and not self.view.stall:
            self._screen.show_hang(*hang_lines(signs, now, self._hang_watch))
        self._hang_shown = hangs

    async def _warn_broken_watches(self, watches: Mapping[str, Informer[Any]]) -> None:
        """Warn once per problem when a watch fails: the server cannot be reached, or access is denied."""
        for what, informer in watches.items():
            problem = informer.problem
            if problem is not None and problem not in self._warned_problems:
                self._warned_problems.add(problem)
                self._screen.say((Span("warning: ", "yellow"), Span(f"cannot see {what}: {problem}")))

    def _draw(self) -> None:
        now = self._elapsed_seconds()
        watch = self._hang_watch if self.view.is_running and self.view.has_all_usage else None
        notices = silence_lines(self._life_signs, now, watch) if watch is not None else []
        if self.view.stall and self._hang_watch is not None:
            notices = stall_lines(self.view.stall, self._hang_watch.command)
        self._screen.draw(self.view.frame(self._kind, self._key.name, now, notices, self._timeline()))

    def _timeline(self) -> TeamTimeline | None:
        if not self._screen.shows_timeline:
            return None
        is_finished = self.view.job is not None and self.view.job.status.finished
        return self.view.timeline.timeline(self._clock.now().timestamp(), fresh=is_finished)

    def _record_version(self, plural: str, delta: Delta[Any]) -> None:
        """Add a version of an object to the timeline."""
        key, body = delta.newest.metadata.key, None if delta.after is None else to_json(delta.after)
        self.view.timeline.add(self._clock.now().timestamp(), f"/{plural}/{key.namespace}/{key.name}", body)

    def _elapsed_seconds(self) -> float:
        return self._clock.monotonic() - self._started

    def _on_job(self, delta: Delta[TrainingJob]) -> None:
        self._record_version(self._kind.plural, delta)
        job = delta.newest
        before = current_condition(delta.before.status) if delta.before else ""
        self.view.job = job
        if current_condition(job.status) != before:
            self._screen.show_state(self._display_name, current_condition(job.status))

    def _on_pod(self, delta: Delta[Pod]) -> None:
        self._record_version("pods", delta)
        self._life_signs = self._life_signs.with_sign(self._elapsed_seconds())
        self._logs.update_pod(delta.newest)
        replica = self._replica_name(delta.newest.metadata.name)
        self.view.update_pod(replica, delta.after)
        before = delta.before.status.phase if delta.before else ""
        if delta.after is not None and delta.after.status.phase != before:
            self._read_logs()
            self._screen.show_phase(self.view.ranked_name(self._kind, replica), delta.after.status.phase)
        self._read_report(replica, delta)

    def _read_report(self, replica: str, delta: Delta[Pod]) -> None:
        """Take the progress that a program has reported to the operator; printed progress is in the log."""
        if delta.after is None or replica in self._printing_replicas:
            return
        before = delta.before.metadata.annotations if delta.before is not None else {}
        after = delta.after.metadata.annotations
        if after.get(PROGRESS_TIME_ANNOTATION) == before.get(PROGRESS_TIME_ANNOTATION):
            return
        progress = parse_progress(after.get(PROGRESS_ANNOTATION, ""))
        if progress is not None:
            self._on_progress(replica, progress)

    def _on_event(self, delta: Delta[Event]) -> None:
        """Show a warning event of the job or one of its pods, once however often it is repeated."""
        event = delta.newest
        regarding = event.regarding
        is_job = regarding.kind == self._kind.kind and regarding.name == self._key.name
        is_pod = regarding.kind == "Pod" and self._replica_name(regarding.name) in self.view.histories
        if is_job or is_pod:
            self._record_version("events", delta)
        warning = (regarding.name, event.reason, event.note)
        if event.type != "Warning" or not (is_job or is_pod) or warning in self._warned_events:
            return
        self._warned_events.add(warning)
        prefix = "" if is_job else f"{self._replica_name(regarding.name)}: "
        self._screen.say((Span("warning: ", "yellow"), Span(f"{prefix}{event.reason}: {event.note.strip()}")))

    def _read_logs(self) -> None:
        for line in self._logs.new_lines():
            replica = self._replica_name(line.pod)
            self._life_signs = self._life_signs.with_line(self._elapsed_seconds())
            self.view.add_line(replica, line.text)
            if self._log_hook is not None:
                self._log_hook(replica, line.text)
            if self._is_ending:
                continue
            progress = parse_progress(line.text)
            if progress is None:
                self._screen.show_log(replica, line.text)
            else:
                self._printing_replicas.add(replica)
                self._on_progress(replica, progress)

    async def _read_bars(self) -> None:
        bars = {self._replica_name(pod): printable_text(text) for pod, text in self._logs.bars().items()}
        if bars != self.view.bars:
            self._life_signs = self._life_signs.with_line(self._elapsed_seconds())
        self.view.bars = bars

    def _on_progress(self, replica: str, progress: Progress) -> None:
        self.view.add_progress(replica, progress, self._clock.now().timestamp())
        self._screen.show_progress(replica, progress)
        message = self._progress_hook(replica, progress) if self._progress_hook is not None else None
        if message:
            self._screen.say((Span(message, "bold yellow"),))

    @property
    def _display_name(self) -> str:
        return f"{self._kind.kind.lower()}/{self._key.name}"

    def _replica_name(self, pod: str) -> str:
        return pod.removeprefix(f"{self._key.name}-")
