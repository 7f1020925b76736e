"""The reconciler paces status writes."""

from datetime import timedelta
from typing import Any

import msgspec

from gangline.api.core import Pod, Service
from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.api.kubeflow.training import PROGRESS_ANNOTATION, JobStatus, RestartLedger
from gangline.api.meta import Key
from gangline.frameworks.pytorch import PyTorch
from gangline.jobs.executor import CreateSlots
from gangline.jobs.log_tails import LogTailCache
from gangline.jobs.observer import ORPHAN_INDEX, OWNER_INDEX, JobCaches, Observer
from gangline.jobs.pacing import (
    COUNTER_INTERVAL,
    MIN_PACED_REPLICAS,
    PLAN_INTERVAL_PER_REPLICA,
    PROGRESS_INTERVAL,
)
from gangline.jobs.plan.actions import JobEvent, JobPlan
from gangline.jobs.reconciler import CachedJobReconciler
from gangline.jobs.site import Site
from gangline.runtime.cache import Cache
from gangline.runtime.expectations import Expectations
from gangline.testing.builders import make_job, make_member
from gangline.testing.clock import FakeClock
from support.builders.observed_jobs import job_services, with_status

TORCH = PyTorch()


class Desk:
    """An executor whose writes the next reconcile sees at once."""

    def __init__(self, workers: int = 3) -> None:
        self.clock = FakeClock()
        self.job = make_job(PYTORCHJOB, master=1, worker=workers)
        self.jobs: Cache[Any] = Cache()
        self.pods: Cache[Pod] = Cache({OWNER_INDEX: lambda pod: ("uid-job",), ORPHAN_INDEX: lambda found: ()})
        self.services: Cache[Service] = Cache({OWNER_INDEX: lambda found: ("uid-job",), ORPHAN_INDEX: lambda found: ()})
        self.writes: list[JobStatus] = []
        self.jobs.put(self.job)
        for service in job_services(TORCH, self.job):
            self.services.put(service)
        caches: JobCaches[Any] = JobCaches(
            self.jobs, self.pods, self.services, {"horizontalpodautoscalers.autoscaling": Cache()}
        )
        observe = Observer(TORCH, caches, Expectations(self.clock), Site(), self.clock)
        self.reconciler: CachedJobReconciler[Any] = CachedJobReconciler(
            TORCH,
            observe,
            self,  # type: ignore[arg-type]
            clock=self.clock,
        )

    async def write_status(self, job: Any, status: JobStatus) -> Any:
        if status == job.status:
            return job
        self.writes.append(status)
        self.job = with_status(job, status, resource_version=str(len(self.writes) + 1))
        self.jobs.put(self.job)
        return self.job

    async def run_stages(self, job: Any, plan: JobPlan) -> None:
        pass

    def recheck_after(self, job: Any) -> timedelta | None:
        return None

    def emit(self, job: Any, note: JobEvent) -> None:
        pass

    def run(self, *members: Any) -> None:
        for member in members:
            self.pods.put(member)

    async def look(self) -> timedelta | None:
        return await self.reconciler.reconcile(Key("default", "job"))


async def test_counters_alone_wait_a_moment_for_more_of_them() -> None:
    desk = Desk()
    pods = [
        make_member("Master", of=PYTORCHJOB),
        *(make_member("Worker", n, of=PYTORCHJOB) for n in range(3)),
    ]
    pending = [make_member("Worker", n, of=PYTORCHJOB, phase="Pending") for n in range(3)]
    desk.run(pods[0], *pending)
    await desk.look()
    written = len(desk.writes)
    desk.run(pods[1])
    assert await desk.look() == COUNTER_INTERVAL
    desk.run(pods[2])
    await desk.clock.advance(COUNTER_INTERVAL)
    await desk.look()
    assert len(desk.writes) == written + 1
    assert desk.job.status.replica_statuses["Worker"].active == 2


async def test_that_all_replicas_are_active_never_waits() -> None:
    desk = Desk()
    pending = [make_member("Worker", n, of=PYTORCHJOB, phase="Pending") for n in range(3)]
    desk.run(make_member("Master", of=PYTORCHJOB), *pending)
    await desk.look()
    desk.run(*(make_member("Worker", n, of=PYTORCHJOB) for n in range(3)))
    assert await desk.look() is None
    assert desk.job.status.replica_statuses["Worker"].active == 3


async def test_a_large_job_is_not_planned_at_every_change_of_a_pod() -> None:
    desk = Desk(workers=MIN_PACED_REPLICAS - 1)
    workers = range(MIN_PACED_REPLICAS - 1)
    desk.run(
        make_member("Master", of=PYTORCHJOB),
        *(make_member("Worker", n, of=PYTORCHJOB, phase="Pending") for n in workers),
    )
    await desk.look()
    written = len(desk.writes)
    desk.run(*(make_member("Worker", n, of=PYTORCHJOB) for n in workers))
    interval = PLAN_INTERVAL_PER_REPLICA * MIN_PACED_REPLICAS
    delay = await desk.look()
    assert delay is not None
    assert timedelta() < delay <= interval
    assert len(desk.writes) == written
    await desk.clock.advance(2 * interval)
    await desk.look()
    assert desk.job.status.replica_statuses["Worker"].active == len(workers)


async def test_a_condition_never_waits() -> None:
    desk = Desk()
    desk.run(
        make_member("Master", of=PYTORCHJOB, phase="Pending"),
        *(make_member("Worker", n, of=PYTORCHJOB) for n in range(3)),
    )
    await desk.look()
    desk.run(make_member("Master", of=PYTORCHJOB))
    await desk.look()
    assert [condition.type for condition in desk.job.status.conditions] == ["Created", "Running"]


class PruningDesk(Desk):
    """The server prunes what v1 does not have, so that a write of nothing else changes nothing, not even the version."""

    async def write_status(self, job: Any, status: JobStatus) -> Any:
        kept = msgspec.structs.replace(status, phase="", state="", observed_generation=0, ledger=RestartLedger())
        if kept == job.status:
            self.writes.append(kept)
            return msgspec.structs.replace(job, status=status)
        return await super().write_status(job, kept)


async def test_a_job_goes_on_under_a_definition_that_prunes_our_fields() -> None:
    desk = PruningDesk()
    workers = [make_member("Worker", n, of=PYTORCHJOB) for n in range(3)]
    desk.run(make_member("Master", of=PYTORCHJOB, phase="Pending"), *workers)
    for _ in range(3):
        await desk.look()
        await desk.clock.advance(COUNTER_INTERVAL)
    desk.run(make_member("Master", of=PYTORCHJOB))
    await desk.look()
    assert [condition.type for condition in desk.job.status.conditions] == ["Created", "Running"]


def test_a_job_has_all_the_room_until_others_need_some() -> None:
    shares = CreateSlots(24)
    with shares.reserve() as part:
        assert part() == 24
        with shares.reserve() as other:
            assert part() == other() == 12
            with shares.reserve(), shares.reserve():
                assert part() == 6
        assert part() == 24


def reporting(step: int) -> Pod:
    pod = make_member("Master", of=PYTORCHJOB)
    notes = {PROGRESS_ANNOTATION: f'{{"progress": {{"step": {step}}}}}'}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=notes))


def at(desk: Desk) -> float:
    assert desk.job.status.progress is not None
    found: float = desk.job.status.progress.step
    return found


async def test_progress_alone_is_written_every_five_seconds_however_often_it_comes() -> None:
    desk = Desk()
    desk.run(reporting(1), *(make_member("Worker", n, of=PYTORCHJOB) for n in range(3)))
    await desk.look()
    written = len(desk.writes)
    for step in range(2, 52):
        desk.run(reporting(step))
        wait = await desk.look()
        assert wait is None or wait <= PROGRESS_INTERVAL
        await desk.clock.advance(timedelta(milliseconds=500))
    assert len(desk.writes) - written == 4
    await desk.clock.advance(PROGRESS_INTERVAL)
    await desk.look()
    assert at(desk) == 51


async def test_progress_goes_with_whatever_else_is_written() -> None:
    desk = Desk()
    desk.run(reporting(1), *(make_member("Worker", n, of=PYTORCHJOB, phase="Pending") for n in range(3)))
    await desk.look()
    desk.run(reporting(2), make_member("Worker", 0, of=PYTORCHJOB))
    assert await desk.look() == COUNTER_INTERVAL
    await desk.clock.advance(COUNTER_INTERVAL)
    await desk.look()
    assert (at(desk), desk.job.status.replica_statuses["Worker"].active) == (2, 1)


async def test_the_same_progress_is_not_written_again() -> None:
    desk = Desk()
    desk.run(reporting(1), *(make_member("Worker", n, of=PYTORCHJOB) for n in range(3)))
    await desk.look()
    written = len(desk.writes)
    await desk.clock.advance(timedelta(minutes=1))
    assert await desk.look() is None
    assert len(desk.writes) == written


class LateReader:
    """Reads logs; while it reads the first one, another pod fails."""

    def __init__(self, desk: Desk, late: Pod) -> None:
        self._desk, self._late = desk, late

    async def tail(self, pod: Key, container: str, lines: int, *, previous: bool = False) -> tuple[str, ...]:
        self._desk.run(self._late)
        return ("KeyError: 'label'",) if pod.name == self._late.metadata.name else ("Connection reset by peer",)


async def test_the_log_of_a_pod_that_fails_while_logs_are_read_is_read_too() -> None:
    desk = Desk()
    desk.job = make_job(PYTORCHJOB, master=1, worker=3, restart="Never")
    desk.jobs.put(desk.job)
    at = desk.clock.now()
    first, late = (
        make_member("Worker", n, of=PYTORCHJOB, phase="Failed", exit_code=1, finished_at=at) for n in range(2)
    )
    desk.run(make_member("Master", of=PYTORCHJOB), first, make_member("Worker", 1, of=PYTORCHJOB))
    desk.reconciler._log_tails = LogTailCache(LateReader(desk, late), TORCH)
    await desk.look()
    failure = desk.job.status.first_failure
    assert failure is not None
    assert (failure.replica, failure.rank, failure.log) == ("worker-1", 2, ("KeyError: 'label'",))
