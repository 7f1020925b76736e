"""The executor turns actions into requests."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gangline.api.kubeflow.kinds import JOB_SCHEME, TFJob
from gangline.api.kubeflow.training import JobStatus, ReplicaStatus, TrainingJob
from gangline.api.meta import JSON, Key, Object
from gangline.api.scheme import Resource
from gangline.jobs.executor import INITIAL_CREATES, CreateRejected, Executor, NameBeingFreed
from gangline.jobs.plan.actions import (
    Adopt,
    ConfirmEnded,
    ConfirmJob,
    Create,
    Delete,
    DeleteJob,
    JobEvent,
    JobPlan,
    Patch,
)
from gangline.jobs.pods.labels import owner_reference
from gangline.kube.errors import ApiError, Conflict, Status, error_from_status
from gangline.runtime.expectations import Expectations
from gangline.testing.builders import make_tfjob
from gangline.testing.clock import FakeClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def failure(code: int, reason: str) -> ApiError:
    return error_from_status(Status(status="Failure", code=code, reason=reason, message=reason))


class World:
    """A server with a few objects that records requests and rejects some."""

    def __init__(self, *there: JSON) -> None:
        self.scheme = JOB_SCHEME
        self.objects = {found["metadata"]["name"]: found for found in there}
        self.calls: list[tuple[str, str]] = []
        self.patches: list[JSON] = []
        self.refuses: dict[str, ApiError] = {}
        self.job = make_tfjob(worker=2)
        self.told: list[JobEvent] = []

    def unstructured(self, kind: Any) -> Resource[JSON]:
        return Resource(kind.group, kind.version, kind.kind, kind.plural, dict, kind.namespaced)

    def _note(self, verb: str, name: str) -> None:
        self.calls.append((verb, name))
        if name in self.refuses:
            raise self.refuses[name]

    async def create(self, kind: Any, body: JSON, *, namespace: str = "") -> Any:
        name = body["metadata"]["name"]
        self._note("create", name)
        if name in self.objects:
            raise failure(409, "AlreadyExists")
        self.objects[name] = body
        return body

    async def patch(self, kind: Any, key: Key, body: Any, **_: Any) -> Any:
        self._note("patch", key.name)
        self.patches.append(body)
        return self.job if kind.model is Object and kind.kind == "TFJob" else body

    async def delete(self, kind: Any, key: Key, *, uid: str | None = None, **_: Any) -> None:
        self._note("delete", key.name)
        found = self.objects.get(key.name)
        if found is None:
            raise failure(404, "NotFound")
        if found["metadata"].get("uid") != uid:
            raise failure(409, "Conflict")
        del self.objects[key.name]

    async def get(self, kind: Any, key: Key) -> Any:
        self._note("get", key.name)
        if kind is TFJob:
            return self.job
        if key.name not in self.objects:
            raise failure(404, "NotFound")
        return self.objects[key.name]

    async def apply(self, *_: Any, **__: Any) -> Any:
        raise AssertionError

    def emit(self, job: TrainingJob, note: JobEvent) -> None:
        self.told.append(note)

    async def act(self, *actions: Any) -> Expectations:
        expectations = Expectations(FakeClock())
        await Executor(self, expectations, self).run_stages(self.job, JobPlan(self.job.status, (actions,)))
        return expectations


def pod(name: str, **metadata: Any) -> JSON:
    return {"metadata": {"name": name, "uid": f"uid-{name}", **metadata}}


def job(**counts: Any) -> TFJob:
    status = JobStatus(replica_statuses={"Worker": ReplicaStatus(**counts)}, start_time=NOW)
    return msgspec.structs.replace(make_tfjob(worker=2), status=status)


async def patched(before: TFJob, after: JobStatus) -> list[JSON]:
    world = World()
    await Executor(world, Expectations(FakeClock()), world).write_status(before, after)
    return world.patches


async def test_a_number_that_falls_to_zero_is_taken_out_of_the_status() -> None:
    (patch,) = await patched(job(active=2), job(succeeded=2).status)
    assert patch == {"status": {"replicaStatuses": {"Worker": {"active": None, "succeeded": 2}}}}


async def test_what_is_gone_is_null_and_what_stays_is_not_sent() -> None:
    (patch,) = await patched(job(active=1), JobStatus(start_time=NOW))
    assert patch == {"status": {"replicaStatuses": None}}


async def test_the_same_status_is_not_written() -> None:
    assert await patched(job(active=1), job(active=1).status) == []


async def test_what_was_made_is_awaited_until_the_cache_shows_it() -> None:
    expectations = await World().act(Create("pods", pod("a")), Create("services", pod("b")))
    assert expectations.pending("uid-job")[0] == {("pods", "a"), ("services", "b")}


async def test_many_pods_are_told_in_one_note() -> None:
    world = World()
    await world.act(*(Create("pods", pod(f"p-{n}")) for n in range(3)))
    assert [note.message for note in world.told] == ["Created 3 pods: p-0 to p-2"]


class Overtaken(World):
    """A server that answers for the first pod only when the next one exists."""

    async def create(self, kind: Any, body: JSON, *, namespace: str = "") -> Any:
        if body["metadata"]["name"] == "p-0":
            await self.next.wait()
        self.next.set()
        return await super().create(kind, body, namespace=namespace)

    def __init__(self) -> None:
        super().__init__()
        self.next = asyncio.Event()


async def test_many_pods_are_told_from_the_first_seat_to_the_last_whichever_was_made_first() -> None:
    world = Overtaken()
    await world.act(*(Create("pods", pod(f"p-{number}")) for number in range(2)))
    assert [name for verb, name in world.calls if verb == "create"] == ["p-1", "p-0"]
    assert [note.message for note in world.told] == ["Created 2 pods: p-0 to p-1"]


async def test_our_own_pod_that_the_cache_does_not_show_is_no_error() -> None:
    world = World()
    world.objects["a"] = pod("a", ownerReferences=[owner_reference(world.job)])
    expectations = await world.act(Create("pods", pod("a")))
    assert expectations.is_satisfied("uid-job")


async def test_our_own_pod_whose_labels_hide_it_from_the_cache_gets_them_back() -> None:
    world = World()
    world.objects["a"] = pod("a", ownerReferences=[owner_reference(world.job)], labels={"x": "y"})
    await world.act(Create("pods", pod("a", labels={"job": "a"})))
    assert world.patches == [{"metadata": {"labels": {"job": "a"}, "uid": "uid-a"}}]


async def test_a_strangers_object_is_told_and_never_touched() -> None:
    world = World(pod("a", ownerReferences=[{"uid": "other"}]))
    with pytest.raises(CreateRejected) as caught:
        await world.act(Create("pods", pod("a")))
    assert caught.value.rejection.name_conflict
    assert [note.reason for note in world.told] == ["ErrResourceExists"]
    assert world.patches == []


@pytest.mark.parametrize(("code", "reason", "permanent"), [(422, "Invalid", True), (403, "Forbidden", False)])
async def test_what_the_server_refuses_is_told_and_raised(code: int, reason: str, permanent: bool) -> None:
    world = World()
    world.refuses["a"] = failure(code, reason)
    with pytest.raises(CreateRejected) as caught:
        await world.act(Create("pods", pod("a")))
    assert caught.value.rejection.permanent is permanent
    assert [(note.reason, note.warning) for note in world.told] == [("FailedCreatePod", True)]


async def test_after_a_refusal_no_more_are_tried() -> None:
    world = World()
    world.refuses["p-0"] = failure(403, "Forbidden")
    with pytest.raises(CreateRejected):
        await world.act(*(Create("pods", pod(f"p-{n}")) for n in range(100)))
    assert len(world.calls) == INITIAL_CREATES


async def test_only_the_very_object_is_deleted() -> None:
    world = World(pod("a"), pod("b"))
    expectations = await world.act(Delete("pods", "a", "uid-a"), Delete("pods", "c", "x"))
    assert list(world.objects) == ["b"]
    assert expectations.pending("uid-job")[1] == {"uid-a"}
    # Contention, or another object of that name: the reconcile is repeated.
    with pytest.raises(Conflict):
        await world.act(Delete("pods", "b", "older"))
    assert list(world.objects) == ["b"]


async def test_a_deletion_that_fails_is_awaited_no_more() -> None:
    world = World(pod("a"))
    world.refuses["a"] = failure(500, "InternalError")
    with pytest.raises(ApiError):
        await world.act(Delete("pods", "a", "uid-a"))
    assert [note.reason for note in world.told] == ["FailedDeletePod"]


async def test_a_change_is_guarded_by_uid() -> None:
    world = World(pod("a"))
    await world.act(Patch("pods", "a", {"metadata": {"labels": {"x": "y"}}}, "uid-a"))
    assert world.patches == [{"metadata": {"labels": {"x": "y"}, "uid": "uid-a"}}]


async def test_nothing_is_adopted_for_a_job_that_is_going_away() -> None:
    world = World(pod("a"))
    world.job = msgspec.structs.replace(
        world.job, metadata=msgspec.structs.replace(world.job.metadata, deletion_timestamp=NOW)
    )
    await world.act(Adopt("pods", "a", "uid-a"))
    assert world.patches == []


async def test_an_orphan_is_adopted_by_uid() -> None:
    world = World(pod("a"))
    await world.act(Adopt("pods", "a", "uid-a"))
    assert world.patches == [{"metadata": {"uid": "uid-a", "ownerReferences": [owner_reference(world.job)]}}]


async def test_a_job_that_is_gone_already_is_deleted_without_a_word() -> None:
    world = World()
    await world.act(DeleteJob())
    assert world.told == []


async def test_a_stale_view_does_nothing_at_all() -> None:
    world = World()
    world.refuses["job"] = failure(409, "Conflict")
    executor = Executor(world, Expectations(FakeClock()), world)
    with pytest.raises(Conflict):
        await executor.write_status(world.job, JobStatus(start_time=NOW))
    assert world.calls == [("patch", "job")]


async def test_a_job_that_has_changed_stops_the_plan() -> None:
    world = World()
    await world.act(ConfirmJob())
    newer = msgspec.structs.replace(world.job.metadata, resource_version="99")
    executor = Executor(world, Expectations(FakeClock()), world)
    plan = JobPlan(world.job.status, ((ConfirmJob(),), (Create("pods", pod("a")),)))
    seen, world.job = world.job, msgspec.structs.replace(world.job, metadata=newer)
    with pytest.raises(Conflict):
        await executor.run_stages(seen, plan)
    assert ("create", "a") not in world.calls


async def test_a_pod_of_an_earlier_round_without_labels_stops_the_plan_and_gets_them_back() -> None:
    owner = [owner_reference(make_tfjob(worker=2))]
    world = World(pod("a", ownerReferences=owner))
    with pytest.raises(NameBeingFreed, match="earlier round"):
        await world.act(ConfirmEnded("a", 1, {"job": "a"}))
    assert world.patches == [{"metadata": {"labels": {"job": "a"}, "uid": "uid-a"}}]


@pytest.mark.parametrize(
    "existing",
    [
        (),
        (pod("a"),),
        (
            pod(
                "a",
                ownerReferences=[owner_reference(make_tfjob(worker=2))],
                annotations={"training.gangline.dev/round": "1"},
            ),
        ),
    ],
    ids=["none", "a stranger's", "of this round"],
)
async def test_any_other_pod_does_not_stop_it(existing: Any) -> None:
    world = World(*existing)
    await world.act(ConfirmEnded("a", 1, {"job": "a"}))
    assert world.patches == []
