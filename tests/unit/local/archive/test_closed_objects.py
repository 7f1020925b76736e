"""Objects of ended runs and stopped planes."""

import msgspec

from gangline.api.kubeflow.training import RUN_ENDED_ANNOTATION
from gangline.api.meta import JSON
from gangline.apiserver.store.records import StoreRecord
from gangline.local.archive.closed_objects import (
    MAX_EVENTS,
    PLANE_STOPPED,
    PLANE_STOPPED_MESSAGE,
    RUN_STOPPED,
    archived_objects,
    closed_plane,
    closed_run,
    job_with_run_end,
    objects_with_run_end,
    run_end,
)
from gangline.node.checkpoint import ExitRecord
from support.builders.runs import (
    RECORDED_AT,
    object_meta,
    recorded_event,
    recorded_job,
    recorded_pod,
    stored_objects,
)

HOW = "the run was interrupted"


def records(*bodies: JSON) -> list[StoreRecord]:
    numbered = enumerate(stored_objects(*bodies).items(), start=1)
    return [StoreRecord(path, revision, msgspec.json.encode(body)) for revision, (path, body) in numbered]


def test_secrets_are_kept_without_what_they_hold() -> None:
    secret = {"kind": "Secret", "metadata": object_meta("s", "s"), "data": {"key": "aGk="}, "type": "Opaque"}
    (archived,) = archived_objects(records(secret)).values()
    assert archived == {"kind": "Secret", "metadata": object_meta("s", "s"), "type": "Opaque"}


def test_what_only_matters_to_a_living_server_is_not_kept() -> None:
    assert not archived_objects(records({"kind": "Lease", "metadata": object_meta("l", "l")}))


def test_what_a_reader_has_by_himself_is_not_kept() -> None:
    assert set(
        archived_objects(records(recorded_job(), recorded_pod()), known=["//pods/default/small-worker-0"])
    ) == set(stored_objects(recorded_job()))


def test_of_very_many_events_the_last_are_kept() -> None:
    events = [recorded_event(f"e{number}", "job") for number in range(MAX_EVENTS + 3)]
    archived = archived_objects(records(recorded_job(), *events))
    assert len(archived) == MAX_EVENTS + 1
    assert "//events/default/e2" not in archived
    assert f"//events/default/e{MAX_EVENTS + 2}" in archived


def test_a_job_that_ended_keeps_its_verdict() -> None:
    done = job_with_run_end(recorded_job("small", "Created", "Succeeded"), RECORDED_AT, HOW)
    assert done["metadata"]["annotations"] == {RUN_ENDED_ANNOTATION: "2026-01-01T00:01:00Z"}
    assert closed_run(stored_objects(done), {}) == stored_objects(done)


def test_a_job_that_had_not_ended_has_failed_and_says_how_its_run_ended() -> None:
    (body,) = closed_run(
        stored_objects(job_with_run_end(recorded_job("small", "Created", "Running"), RECORDED_AT, HOW)), {}
    ).values()
    status = body["status"]
    assert [(each["type"], each["status"]) for each in status["conditions"]] == [
        ("Created", "True"),
        ("Running", "False"),
        ("Failed", "True"),
    ]
    assert (status["conditions"][-1]["reason"], status["conditions"][-1]["message"]) == (RUN_STOPPED, HOW)
    assert status["replicaStatuses"] == {"Worker": {"active": 0}}
    assert status["completionTime"] == "2026-01-01T00:01:00Z"


def test_a_pod_that_ran_was_stopped_with_the_exit_code_of_its_process() -> None:
    ended_job = job_with_run_end(recorded_job("small", "Running"), RECORDED_AT, HOW)
    closed = closed_run(stored_objects(ended_job, recorded_pod()), {"run": ExitRecord(RECORDED_AT.timestamp(), -15)})
    status = closed["//pods/default/small-worker-0"]["status"]
    ended_state = status["containerStatuses"][0]["state"]["terminated"]
    assert status["phase"] == "Failed"
    assert (ended_state["exitCode"], ended_state["reason"]) == (143, "Stopped")
    assert ended_state["containerID"] == "process://run"


def test_a_pod_of_whose_end_nothing_is_known_was_killed() -> None:
    closed = closed_run(stored_objects(job_with_run_end(recorded_job(), RECORDED_AT, HOW), recorded_pod()), {})
    (container,) = closed["//pods/default/small-worker-0"]["status"]["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 137


def test_nothing_is_being_deleted_any_more() -> None:
    over = job_with_run_end(recorded_job("small", "Succeeded", deletionTimestamp="x"), RECORDED_AT, HOW)
    assert "deletionTimestamp" not in next(iter(closed_run(stored_objects(over), {}).values()))["metadata"]


def test_pods_that_wait_or_have_ended_are_left_as_they_are() -> None:
    waiting = recorded_pod()
    waiting["status"] = {"phase": "Pending"}
    over = stored_objects(job_with_run_end(recorded_job(), RECORDED_AT, HOW), waiting)
    assert closed_run(over, {})["//pods/default/small-worker-0"] == waiting


def test_objects_of_no_run_are_left_as_they_are() -> None:
    assert closed_run(stored_objects(recorded_job(), recorded_pod()), {}) == stored_objects(
        recorded_job(), recorded_pod()
    )
    assert run_end(recorded_job()) is None


def test_a_pod_that_was_stopped_is_not_ready() -> None:
    running = recorded_pod()
    running["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "True"},
        {"type": "Ready", "status": "True"},
    ]
    closed = closed_run(stored_objects(job_with_run_end(recorded_job(), RECORDED_AT, HOW), running), {})[
        "//pods/default/small-worker-0"
    ]
    assert {each["type"]: each["status"] for each in closed["status"]["conditions"]} == {
        "PodScheduled": "True",
        "Ready": "False",
    }


# Planes


def test_a_job_that_had_not_ended_when_its_plane_was_stopped_is_stopped_too() -> None:
    objects = objects_with_run_end(
        stored_objects(recorded_job("small", "Created", "Running"), recorded_pod()), {"pod"}, RECORDED_AT
    )
    end = run_end(objects["/kubeflow.org/tfjobs/default/small"])
    assert end == (RECORDED_AT, PLANE_STOPPED_MESSAGE)
    closed = closed_plane(objects, {"run": ExitRecord(RECORDED_AT.timestamp(), -15)}, {"pod"}, RECORDED_AT)
    status = closed["/kubeflow.org/tfjobs/default/small"]["status"]
    assert [(each["type"], each["status"]) for each in status["conditions"]] == [
        ("Created", "True"),
        ("Running", "False"),
        ("Stopped", "True"),
    ]
    assert (status["conditions"][-1]["reason"], status["replicaStatuses"]) == (
        PLANE_STOPPED,
        {"Worker": {"active": 0}},
    )
    # The job may continue when the plane starts again.
    assert "completionTime" not in status
    replica = closed["//pods/default/small-worker-0"]["status"]
    assert replica["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143


def test_a_job_whose_processes_outlived_their_plane_goes_on() -> None:
    objects = stored_objects(recorded_job("small", "Created", "Running"), recorded_pod())
    assert objects_with_run_end(objects, (), RECORDED_AT) == objects
    assert closed_plane(objects, {}, (), RECORDED_AT) == objects


def test_jobs_that_ended_or_are_suspended_stay_so_without_a_plane() -> None:
    objects = stored_objects(
        recorded_job("done", "Succeeded", uid="a"), recorded_job("rest", "Created", "Suspended", uid="b")
    )
    closed = closed_plane(objects_with_run_end(objects, (), RECORDED_AT), {}, (), RECORDED_AT)
    assert {path: body["status"] for path, body in closed.items()} == {
        path: body["status"] for path, body in objects.items()
    }


def test_a_node_without_its_plane_is_not_ready() -> None:
    ready = [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}]
    node = {"kind": "Node", "metadata": {"name": "local", "uid": "n"}, "status": {"conditions": ready}}
    (closed,) = closed_plane({"//nodes//local": node}, {}, (), RECORDED_AT).values()
    assert [each["status"] for each in closed["status"]["conditions"]] == ["False", "Unknown"]
