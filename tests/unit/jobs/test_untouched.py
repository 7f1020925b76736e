"""A job that nobody has touched has its objects before its first status: when, and when not."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.core import Pod, Service
from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.api.kubeflow.training import ConditionType, JobStatus, TrainingJob
from gangline.api.meta import Key
from gangline.frameworks.pytorch import PyTorch
from gangline.jobs.executor import CreateRejected
from gangline.jobs.observer import ORPHAN_INDEX, OWNER_INDEX, JobCaches, Observer, orphan_keys, owner_uid
from gangline.jobs.plan.actions import Create, JobEvent, JobPlan, Rejection
from gangline.jobs.plan.conditions import status_with_condition
from gangline.jobs.pods.addressing import Site
from gangline.jobs.pods.render import owner_reference
from gangline.jobs.reconciler import (
    MAX_CREATES_BEFORE_STATUS,
    STALE_CACHE_RETRY,
    CachedJobReconciler,
    JobBlocked,
)
from gangline.kube.errors import Conflict, Status
from gangline.runtime.cache import Cache
from gangline.runtime.expectations import Expectations
from gangline.testing.builders import make_job
from gangline.testing.clock import FakeClock
from support.builders.observed_jobs import with_status

TORCH = PyTorch()


class World:
    """A server that keeps statuses, and a cache of it that lags behind as long as a test likes."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.stored: dict[str, TrainingJob] = {}
        self.jobs: Cache[Any] = Cache()
        self.done: list[str] = []
        self.trouble: Exception | None = None
        self.pods: Cache[Pod] = Cache({OWNER_INDEX: owner_uid, ORPHAN_INDEX: orphan_keys})
        self.services: Cache[Service] = Cache({OWNER_INDEX: owner_uid, ORPHAN_INDEX: orphan_keys})
        scalers: Cache[Any] = Cache()
        caches: JobCaches[Any] = JobCaches(
            self.jobs, self.pods, self.services, {"horizontalpodautoscalers.autoscaling": scalers}
        )
        self.expectations = Expectations(self.clock)
        observe = Observer(TORCH, caches, self.expectations, Site(), self.clock)
        self.reconciler: CachedJobReconciler[Any] = CachedJobReconciler(
            TORCH,
            observe,
            self,  # type: ignore[arg-type]
            clock=self.clock,
        )

    def submit(self, name: str, workers: int = 1) -> None:
        made = make_job(PYTORCHJOB, name, master=1, worker=workers)
        uid = f"uid-{name}"
        made = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, uid=uid))
        self.stored[name] = made
        self.jobs.put(made)

    def show(self, name: str) -> None:
        """The watch brings what is stored."""
        self.jobs.put(self.stored[name])

    async def look(self, name: str) -> timedelta | None:
        return await self.reconciler.reconcile(Key("default", name))

    # What an executor does

    async def write_status(self, job: Any, status: JobStatus) -> Any:
        if status == job.status:
            return job
        name = job.metadata.name
        if self.stored[name].metadata.resource_version != job.metadata.resource_version:
            raise Conflict(Status(code=409, message="changed"))
        self.done.append(f"{name}: {status.conditions[-1].type}")
        version = f"{job.metadata.resource_version}1"
        self.stored[name] = with_status(self.stored[name], status, resource_version=version)
        return with_status(job, status, resource_version=version)

    async def run_stages(self, job: Any, intent: JobPlan) -> None:
        creates = [action for stage in intent.stages for action in stage if isinstance(action, Create)]
        if creates:
            self.done.append(f"{job.metadata.name}: made {len(creates)}")
        if self.trouble is not None:
            raise self.trouble
        made = [(action.resource, action.name) for action in creates]
        self.expectations.expect_created(job.metadata.uid, made)

    def recheck_after(self, job: Any) -> timedelta | None:
        return None

    def emit(self, job: Any, note: JobEvent) -> None:
        pass


@pytest.fixture
async def world() -> World:
    """The cache has shown our own first write."""
    world = World()
    world.submit("first")
    await world.look("first")
    world.show("first")
    await world.look("first")
    world.done.clear()
    return world


async def test_the_first_job_of_a_process_has_its_status_first() -> None:
    world = World()
    world.submit("first")
    await world.look("first")
    assert world.done == ["first: Created", "first: made 4"]


async def test_a_cache_that_has_not_shown_our_first_write_may_be_old() -> None:
    world = World()
    world.submit("first")
    world.submit("over")
    # Who led before us has ended it, and the cache does not know.
    world.stored["over"] = with_status(world.stored["over"], JobStatus(), resource_version="9")
    await world.look("first")
    assert await world.look("first") == STALE_CACHE_RETRY
    with pytest.raises(Conflict):
        await world.look("over")
    assert world.done == ["first: Created", "first: made 4"]


async def test_a_new_job_has_its_objects_and_then_at_once_its_status(world: World) -> None:
    world.submit("new")
    assert await world.look("new") == timedelta()
    assert world.done == ["new: made 4"]
    await world.look("new")
    assert world.done == ["new: made 4", "new: Created"]


async def test_of_a_large_job_it_is_told_first_that_it_was_seen(world: World) -> None:
    world.submit("large", workers=MAX_CREATES_BEFORE_STATUS)
    await world.look("large")
    assert world.done[0] == "large: Created"


async def test_when_it_went_wrong_the_status_comes_first(world: World) -> None:
    world.submit("unlucky")
    world.trouble = TimeoutError()
    for _ in range(2):
        with pytest.raises(TimeoutError):
            await world.look("unlucky")
    assert world.done == ["unlucky: made 4", "unlucky: Created", "unlucky: made 4"]


@pytest.mark.parametrize("permanent", [False, True])
async def test_a_refusal_is_told_with_everything_else_in_one_write(world: World, *, permanent: bool) -> None:
    world.submit("refused")
    world.trouble = CreateRejected(Rejection("Pod", "no room in the quota", permanent=permanent))
    if permanent:
        await world.look("refused")
    else:
        with pytest.raises(JobBlocked):
            await world.look("refused")
    status = world.stored["refused"].status
    assert [found.type for found in status.conditions] == ["Created", "Failed" if permanent else "Blocked"]
    assert status.start_time is not None
    assert len(world.done) == 2


async def test_a_job_that_was_touched_has_its_status_first(world: World) -> None:
    """It was suspended: that it goes on is written before it does."""
    world.submit("old")
    was = status_with_condition(
        world.stored["first"].status, ConditionType.SUSPENDED, "PyTorchJobSuspended", "", world.clock.now()
    )
    world.stored["old"] = with_status(world.stored["old"], was, resource_version="7")
    world.show("old")
    await world.look("old")
    assert world.done == ["old: Suspended", "old: made 4"]


async def test_a_job_that_somebody_began_has_its_status_first(world: World) -> None:
    """Who led before us made a service of it, and was gone."""
    world.submit("begun")
    owner = owner_reference(world.stored["begun"])
    made = {"name": "begun-master-0", "namespace": "default", "uid": "s", "ownerReferences": [owner]}
    world.services.put(msgspec.convert({"metadata": made}, Service))
    await world.look("begun")
    assert world.done == ["begun: Created", "begun: made 3"]
