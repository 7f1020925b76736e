"""The watcher: which jobs it looks at, what it reads of them, and what it says."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec

from gangline.api.core import Pod
from gangline.api.kubeflow.kinds import JAXJOB, TFJOB
from gangline.api.kubeflow.training import ConditionType, JobKind, JobProgress, JobStatus
from gangline.api.meta import Key
from gangline.health.settings import watch_settings
from gangline.health.signs import ReplicaSigns
from gangline.health.watch_list import START_DELAY, WatchList
from gangline.health.watcher import HangWatcher
from gangline.jobs.plan.conditions import status_with_condition
from gangline.runtime.cache import Cache
from gangline.runtime.informer import Delta
from gangline.stacks.model import RankStack
from gangline.stacks.pods import replica_name
from gangline.testing import FakeClock, settle
from gangline.testing.builders import make_job, make_member
from support.builders.stacks import all_reduce, process

RUNNING = status_with_condition(JobStatus(), ConditionType.RUNNING, "r", "m", FakeClock().now())
SECOND = timedelta(seconds=1)


class SuspendableClock(FakeClock):
    """A clock of a machine that can be suspended: then no timer fires, and time has passed all the same."""

    lost_seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.lost_seconds


class FakeInformer:
    """Jobs in a cache, and who wants to hear of them."""

    def __init__(self) -> None:
        self.cache: Cache[Any] = Cache()
        self._listeners: list[Any] = []

    def subscribe(self, listener: Any) -> ExitStack:
        self._listeners.append(listener)
        for job in self.cache:
            listener(Delta(None, job))
        return ExitStack()

    def put(self, job: Any) -> None:
        before = self.cache.get(job.metadata.key)
        self.cache.put(job)
        for listener in self._listeners:
            listener(Delta(before, job))

    def drop(self, job: Any) -> None:
        for listener in self._listeners:
            listener(Delta(job, None))


class Machine:
    """Reads signs and stacks, as tests say, and counts how often."""

    def __init__(self) -> None:
        self.lines, self.cores = 0, 0.0
        self.read_jobs: list[str] = []
        self.sampled = 0
        self.frames = all_reduce()
        self.error: OSError | None = None

    async def read(self, kind: JobKind, pods: Sequence[Pod]) -> tuple[ReplicaSigns, ...]:
        self.read_jobs.append(kind.kind)
        if self.error is not None:
            raise self.error
        return tuple(ReplicaSigns(replica_name(pod), str(self.lines), cores=self.cores) for pod in pods)

    async def sample(self, pods: Sequence[Pod]) -> tuple[RankStack, ...]:
        self.sampled += 1
        stack = process(self.frames)
        return tuple(RankStack(replica_name(pod), None, pod.metadata.name, (stack,)) for pod in pods)


class Watch:
    """A watcher in a world of one kind of job."""

    def __init__(self) -> None:
        self.clock, self.machine, self.jobs = SuspendableClock(), Machine(), FakeInformer()
        self.list = WatchList()
        self.kind = TFJOB
        self.pods: dict[str, list[Pod]] = {}
        self.reconciled: list[Key] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        kind: Any = self.list.add_kind(self.kind, self.jobs, lambda uid: self.pods.get(uid, []))  # type: ignore[arg-type]

        def start() -> HangWatcher:
            return HangWatcher(self.list, self.machine, self.machine, self.clock, watch_settings(60.0, 5.0))

        with kind.attach(self.reconciled.append):
            task = asyncio.create_task(self.list.run(start, self.clock))
            await settle()
            try:
                yield
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def pass_time(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            await self.clock.advance(SECOND)
            await settle()

    def add(self, name: str = "job", *, status: JobStatus = RUNNING, phase: str = "Running") -> Any:
        job = make_job(self.kind, name=name, worker=2)
        job = msgspec.structs.replace(job, status=status)
        self.pods[job.metadata.uid] = [make_member("Worker", 0), make_member("Worker", 1, phase=phase)]
        self.jobs.put(job)
        return job

    def report(self, job: Any, step: int) -> Any:
        progress = JobProgress(step=step, replica="worker-0")
        job = msgspec.structs.replace(
            job,
            status=msgspec.structs.replace(job.status, progress=progress),
            metadata=msgspec.structs.replace(job.metadata, resource_version=str(step + 10)),
        )
        self.jobs.put(job)
        return job


async def test_a_job_that_hangs_gets_a_verdict_and_is_reconciled() -> None:
    watch = Watch()
    async with watch.running():
        job = watch.add()
        await watch.pass_time(120)
        stall = watch.list.verdict(job.metadata.uid).stall
        assert stall is not None
        assert stall.reason == "AllRanksWait"
        assert "both replicas wait in all_reduce (train.py:88)" in stall.message
        assert watch.clock.now() - stall.since <= timedelta(seconds=120)
        assert watch.reconciled == [job.metadata.key]


async def test_ranks_are_those_of_the_framework() -> None:
    watch = Watch()
    watch.kind = JAXJOB
    async with watch.running():
        job = watch.add()
        await watch.pass_time(120)
        stall = watch.list.verdict(job.metadata.uid).stall
        assert stall is not None
        assert "both ranks wait in all_reduce" in stall.message


async def test_a_sign_of_life_ends_it() -> None:
    watch = Watch()
    async with watch.running():
        job = watch.add()
        await watch.pass_time(120)
        watch.machine.lines += 1
        await watch.pass_time(60)
        verdict = watch.list.verdict(job.metadata.uid)
        assert (verdict.stall, verdict.end) == (None, "it writes log lines again")
        assert len(watch.reconciled) == 2


async def test_of_a_job_that_reports_steps_nothing_is_read() -> None:
    watch = Watch()
    async with watch.running():
        job = watch.add()
        for step in range(10):
            job = watch.report(job, step)
            await watch.pass_time(5)
        read = len(watch.machine.read_jobs)
        for step in range(10, 60):
            job = watch.report(job, step)
            await watch.pass_time(5)
        assert len(watch.machine.read_jobs) == read
        assert watch.machine.sampled == 0
        assert watch.reconciled == []


async def test_without_jobs_the_watcher_sleeps() -> None:
    watch = Watch()
    async with watch.running():
        job = watch.add()
        await watch.pass_time(START_DELAY.total_seconds() + 5)
        watch.jobs.drop(job)
        assert watch.list.running == {}
        read = len(watch.machine.read_jobs)
        await watch.pass_time(60)
        assert len(watch.machine.read_jobs) == read


async def test_an_incomplete_team_is_not_judged() -> None:
    watch = Watch()
    async with watch.running():
        watch.add(phase="Pending")
        await watch.pass_time(600)
        assert watch.reconciled == []
        assert watch.machine.read_jobs == []


async def test_a_team_that_was_restarted_is_watched_anew() -> None:
    watch = Watch()
    async with watch.running():
        job = watch.add()
        await watch.pass_time(70)
        watch.pods[job.metadata.uid] = [make_member("Worker", 0, uid="new"), make_member("Worker", 1)]
        await watch.pass_time(60)
        assert watch.reconciled == []
        await watch.pass_time(60)
        assert len(watch.reconciled) == 1


async def test_the_condition_that_an_earlier_operator_wrote_stays_until_there_is_a_sign_of_life() -> None:
    watch = Watch()
    status = status_with_condition(RUNNING, ConditionType.STALLED, "AllRanksWait", "text", watch.clock.now())
    async with watch.running():
        job = watch.add(status=status)
        await watch.pass_time(200)
        assert watch.list.verdict(job.metadata.uid).end == ""
        assert watch.reconciled == []
        watch.machine.lines += 1
        await watch.pass_time(60)
        assert watch.list.verdict(job.metadata.uid).end == "it writes log lines again"


async def test_a_job_that_cannot_be_read_does_not_end_the_watch_over_others() -> None:
    watch = Watch()
    async with watch.running():
        watch.machine.error = OSError("no such folder")
        job = watch.add()
        await watch.pass_time(30)
        watch.machine.error = None
        await watch.pass_time(300)
        assert watch.list.verdict(job.metadata.uid).stall is not None


async def test_time_in_which_everything_stood_still_does_not_count() -> None:
    watch = Watch()
    async with watch.running():
        watch.add()
        await watch.pass_time(30)
        watch.clock.lost_seconds = 3 * 3600.0
        await watch.pass_time(20)
        assert watch.reconciled == []


async def test_a_job_that_ends_is_forgotten() -> None:
    watch = Watch()
    async with watch.running():
        job = watch.add()
        await watch.pass_time(120)
        ended = status_with_condition(RUNNING, ConditionType.SUCCEEDED, "r", "m", watch.clock.now())
        watch.jobs.put(msgspec.structs.replace(job, status=ended))
        assert watch.list.verdict(job.metadata.uid).stall is None
        assert watch.list.running == {}
