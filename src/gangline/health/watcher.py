"""Watches the running jobs of an operator, and says which have stalled.

One watcher per process. A job that reports progress is looked at in the caches only. Logs, CPU use and stacks are read for
jobs that show no progress, a few at a time. The watcher writes nothing: it hands its verdicts to the list of jobs, and the
job is reconciled.
"""

import asyncio
import heapq
import logging
from collections import deque
from collections.abc import Sequence
from datetime import timedelta
from typing import Protocol

import msgspec

from gangline.api.core import Pod, PodPhase
from gangline.api.kubeflow.training import ConditionType, JobKind, TrainingJob
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.frameworks.ranks import rank_of, ranks_per_replica
from gangline.health.evidence import TeamSample
from gangline.health.settings import WatchSettings
from gangline.health.signs import ObservedTime, ReplicaSigns, TeamSigns
from gangline.health.stall import Look, StallFinding, WatchState, next_state
from gangline.health.watch_list import RunningJob, WatchList
from gangline.jobs.plan.stall import HangVerdict, Stall
from gangline.jobs.pods.replicas import leading_order
from gangline.stacks.model import RankStack, StackSampler

log = logging.getLogger(__name__)

TURN = timedelta(seconds=2)
"""The watcher wakes up at least so often while jobs run: by that it knows that time passes."""
LATE_TURN = 3.0
"""A turn that comes more than so many seconds late was not slow: everything stood still."""
READERS = 4
"""How many jobs are looked into at the same time."""
MAX_REPORTED = 100


class SignReader(Protocol):
    """Reads signs of life of pods."""

    async def read(self, kind: JobKind, pods: Sequence[Pod]) -> tuple[ReplicaSigns, ...]:
        """The signs of each pod, by the name of its replica. What cannot be read is None."""
        ...


class _WatchedJob:
    """A job and what is known of it."""

    def __init__(self, running: RunningJob, state: WatchState) -> None:
        self.running, self.state = running, state
        # The pods and how often their containers were restarted: a changed team begins anew.
        self.team: tuple[tuple[str, int], ...] = ()


class HangWatcher:
    """Keeps a watch over every job of a list."""

    def __init__(
        self,
        watch_list: WatchList,
        signs: SignReader,
        stacks: StackSampler | None,
        clock: Clock,
        settings: WatchSettings = WatchSettings(),  # noqa: B008 - frozen
    ) -> None:
        self._list, self._clock, self._settings = watch_list, clock, settings
        self._sign_reader, self._sampler = signs, stacks
        self._time = ObservedTime(clock.monotonic(), TURN.total_seconds() + LATE_TURN)
        # When each job is looked at next. Of jobs that are gone the entry is skipped.
        self._due: list[tuple[float, int, _WatchedJob]] = []
        self._entries = 0
        self._unread: deque[_WatchedJob] = deque()
        self._has_unread = asyncio.Event()
        self._reported: set[str] = set()

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(READERS):
                group.create_task(self._read_jobs())
            while True:
                await self._list.has_jobs.wait()
                now = self._time.advance(self._clock.monotonic())
                self._begin_new_jobs(now)
                self._look_at_due_jobs(now)
                wait = self._due[0][0] - now if self._due else TURN.total_seconds()
                await self._clock.sleep(min(TURN, timedelta(seconds=max(wait, 0.1))))

    def _begin_new_jobs(self, now: float) -> None:
        while self._list.new_jobs:
            running = self._list.new_jobs.popleft()
            job = running.job
            if job is not None:
                state = msgspec.structs.replace(WatchState.begin(now), stall=_recorded_finding(job, now))
                # Not at once: most short jobs end before anybody needs to look.
                self._schedule(_WatchedJob(running, state), now + self._settings.period)

    def _schedule(self, watched: _WatchedJob, at: float) -> None:
        self._entries += 1
        heapq.heappush(self._due, (at, self._entries, watched))

    def _look_at_due_jobs(self, now: float) -> None:
        """Look at the progress of the jobs whose time has come. Those of which more is needed are read by others."""
        while self._due and self._due[0][0] <= now:
            watched = heapq.heappop(self._due)[2]
            if not self._is_current(watched):
                continue
            if watched.state.look is Look.PROGRESS:
                self._look(watched, None, None, now)
            else:
                self._unread.append(watched)
                self._has_unread.set()

    def _is_current(self, watched: _WatchedJob) -> bool:
        return self._list.running.get(watched.running.uid) is watched.running

    async def _read_jobs(self) -> None:
        while True:
            await self._has_unread.wait()
            if not self._unread:
                self._has_unread.clear()
                continue
            watched = self._unread.popleft()
            if not self._is_current(watched):
                continue
            try:
                await self._read(watched)
            except (GanglineError, OSError) as error:
                self._report("a job cannot be watched now", str(error))
                self._schedule(watched, self._time.seconds + self._settings.longest_calm)

    async def _read(self, watched: _WatchedJob) -> None:
        pods = self._team(watched)
        if not pods:
            # A replica has not started, or ends: nobody can make progress, and others say why.
            watched.state = _anew(watched.state, self._time.seconds)
            self._schedule(watched, self._time.seconds + self._settings.period)
            return
        replicas = await self._sign_reader.read(watched.running.kind.kind, pods)
        stacks: tuple[RankStack, ...] = ()
        if watched.state.look is Look.STACKS and self._sampler is not None:
            stacks = _with_ranks(watched.running, await self._sampler.sample(pods))
            for error in sorted({stack.error for stack in stacks if stack.error}):
                self._report("stacks cannot be read", error)
        now = self._time.advance(self._clock.monotonic())
        if self._is_current(watched):
            is_complete = len(stacks) == len(pods)
            self._look(watched, replicas, TeamSample(now, stacks) if is_complete else None, now)

    def _look(
        self, watched: _WatchedJob, replicas: tuple[ReplicaSigns, ...] | None, sample: TeamSample | None, now: float
    ) -> None:
        before = watched.state
        signs = TeamSigns(_progress_mark(watched.running.job), replicas)
        watched.state = state = next_state(before, signs, sample, now, self._settings)
        if state.recovery:
            self._list.set_verdict(watched.running, HangVerdict(end=state.recovery))
        elif state.stall is not None and state.stall != before.stall:
            self._list.set_verdict(watched.running, HangVerdict(self._stall(state.stall, now)))
        self._schedule(watched, state.next_at)

    def _stall(self, finding: StallFinding, now: float) -> Stall:
        since = self._clock.now() - timedelta(seconds=now - finding.since)
        return Stall(since.replace(microsecond=0), finding.reason, finding.message, finding.replicas)

    def _team(self, watched: _WatchedJob) -> tuple[Pod, ...]:
        """The pods that run, leaders first; none if the team is not complete. A changed team is watched anew."""
        pods = watched.running.pods
        if any(not _is_settled(pod) for pod in pods):
            return ()
        running = sorted((pod for pod in pods if pod.status.phase == PodPhase.RUNNING), key=leading_order)
        team = tuple((pod.metadata.uid, _restarts(pod)) for pod in running)
        if watched.team and team != watched.team:
            watched.state = _anew(watched.state, self._time.seconds)
        watched.team = team
        return tuple(running)

    def _report(self, event: str, problem: str) -> None:
        """Log a problem once."""
        if problem not in self._reported and len(self._reported) < MAX_REPORTED:
            self._reported.add(problem)
            log.warning(event, extra={"error": problem})


def _recorded_finding(job: TrainingJob, now: float) -> StallFinding | None:
    """What an earlier process has written into the status: it holds until a sign of life is seen."""
    condition = job.status.condition(ConditionType.STALLED)
    if condition is None or condition.status != "True":
        return None
    return StallFinding(now, condition.reason, condition.message)


def _with_ranks(running: RunningJob, stacks: tuple[RankStack, ...]) -> tuple[RankStack, ...]:
    """The stacks with the framework's ranks of replicas that have one each. Some processes know theirs themselves."""
    kind, spec = running.kind.kind, getattr(running.job, "spec", None)
    count = getattr(spec, "nproc_per_node", None) or getattr(spec, "slots_per_worker", None)
    if ranks_per_replica(getattr(spec, "elastic_policy", None), count) != 1:
        return stacks
    specs = getattr(spec, kind.attribute, {})
    counts = {name: one.replicas if one.replicas is not None else 1 for name, one in specs.items()}
    return tuple(
        msgspec.structs.replace(stack, rank=rank_of(kind.kind, counts, stack.replica)) if stack.rank is None else stack
        for stack in stacks
    )


def _anew(state: WatchState, now: float) -> WatchState:
    """The state of a team that begins anew. What is usual for the job stays."""
    return msgspec.structs.replace(WatchState.begin(now), steps=state.steps, lines=state.lines, stall=state.stall)


def _progress_mark(job: TrainingJob | None) -> str:
    progress = job.status.progress if job is not None else None
    return f"{progress.replica} {progress.step}/{progress.total}" if progress is not None else ""


def _is_settled(pod: Pod) -> bool:
    return pod.metadata.deletion_timestamp is None and pod.status.phase in (PodPhase.RUNNING, PodPhase.SUCCEEDED)


def _restarts(pod: Pod) -> int:
    return sum(status.restart_count for status in pod.status.container_statuses)
