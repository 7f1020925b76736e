"""How the objects of a run look when it is over."""

import msgspec

from gangline.api.kubeflow.training import RUN_ENDED
from gangline.api.meta import JSON
from gangline.apiserver.store.records import Record
from gangline.local.archive.snapshot import (
    MOST_EVENTS,
    PLANE_ENDED,
    PLANE_STOPPED,
    STOPPED,
    closed,
    closed_plane,
    ended,
    ended_job,
    halted,
    told,
)
from gangline.node.checkpoint import Exit
from support.builders.runs import NOW, event, job, meta, objects, pod

HOW = "the run was interrupted"


def records(*bodies: JSON) -> list[Record]:
    found = enumerate(objects(*bodies).items(), start=1)
    return [Record(path, revision, msgspec.json.encode(body)) for revision, (path, body) in found]


def test_secrets_are_kept_without_what_they_hold() -> None:
    secret = {"kind": "Secret", "metadata": meta("s", "s"), "data": {"key": "aGk="}, "type": "Opaque"}
    (kept,) = told(records(secret)).values()
    assert kept == {"kind": "Secret", "metadata": meta("s", "s"), "type": "Opaque"}


def test_what_only_matters_to_a_living_server_is_not_kept() -> None:
    assert not told(records({"kind": "Lease", "metadata": meta("l", "l")}))


def test_what_a_reader_has_by_himself_is_not_kept() -> None:
    assert set(told(records(job(), pod()), known=["//pods/default/small-worker-0"])) == set(objects(job()))


def test_of_very_many_events_the_last_are_kept() -> None:
    events = [event(f"e{number}", "job") for number in range(MOST_EVENTS + 3)]
    kept = told(records(job(), *events))
    assert len(kept) == MOST_EVENTS + 1
    assert "//events/default/e2" not in kept
    assert f"//events/default/e{MOST_EVENTS + 2}" in kept


def test_a_job_that_ended_keeps_its_verdict() -> None:
    done = ended_job(job("small", "Created", "Succeeded"), NOW, HOW)
    assert done["metadata"]["annotations"] == {RUN_ENDED: "2026-01-01T00:01:00Z"}
    assert closed(objects(done), {}) == objects(done)


def test_a_job_that_had_not_ended_has_failed_and_says_how_its_run_ended() -> None:
    (body,) = closed(objects(ended_job(job("small", "Created", "Running"), NOW, HOW)), {}).values()
    status = body["status"]
    assert [(each["type"], each["status"]) for each in status["conditions"]] == [
        ("Created", "True"),
        ("Running", "False"),
        ("Failed", "True"),
    ]
    assert (status["conditions"][-1]["reason"], status["conditions"][-1]["message"]) == (STOPPED, HOW)
    assert status["replicaStatuses"] == {"Worker": {"active": 0}}
    assert status["completionTime"] == "2026-01-01T00:01:00Z"


def test_a_pod_that_ran_was_stopped_with_the_exit_code_of_its_process() -> None:
    over = ended_job(job("small", "Running"), NOW, HOW)
    shown = closed(objects(over, pod()), {"run": Exit(NOW.timestamp(), -15)})
    status = shown["//pods/default/small-worker-0"]["status"]
    ended_state = status["containerStatuses"][0]["state"]["terminated"]
    assert status["phase"] == "Failed"
    assert (ended_state["exitCode"], ended_state["reason"]) == (143, "Stopped")
    assert ended_state["containerID"] == "process://run"


def test_a_pod_of_whose_end_nothing_is_known_was_killed() -> None:
    shown = closed(objects(ended_job(job(), NOW, HOW), pod()), {})
    (container,) = shown["//pods/default/small-worker-0"]["status"]["containerStatuses"]
    assert container["state"]["terminated"]["exitCode"] == 137


def test_nothing_is_being_deleted_any_more() -> None:
    over = ended_job(job("small", "Succeeded", deletionTimestamp="x"), NOW, HOW)
    assert "deletionTimestamp" not in next(iter(closed(objects(over), {}).values()))["metadata"]


def test_pods_that_wait_or_have_ended_are_left_as_they_are() -> None:
    waiting = pod()
    waiting["status"] = {"phase": "Pending"}
    over = objects(ended_job(job(), NOW, HOW), waiting)
    assert closed(over, {})["//pods/default/small-worker-0"] == waiting


def test_objects_of_no_run_are_left_as_they_are() -> None:
    assert closed(objects(job(), pod()), {}) == objects(job(), pod())
    assert ended(job()) is None


def test_a_pod_that_was_stopped_is_not_ready() -> None:
    running = pod()
    running["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "True"},
        {"type": "Ready", "status": "True"},
    ]
    shown = closed(objects(ended_job(job(), NOW, HOW), running), {})["//pods/default/small-worker-0"]
    assert {each["type"]: each["status"] for each in shown["status"]["conditions"]} == {
        "PodScheduled": "True",
        "Ready": "False",
    }


# Of a plane


def test_a_job_that_had_not_ended_when_its_plane_was_stopped_is_stopped_too() -> None:
    left = halted(objects(job("small", "Created", "Running"), pod()), {"pod"}, NOW)
    found = ended(left["/kubeflow.org/tfjobs/default/small"])
    assert found == (NOW, PLANE_ENDED)
    shown = closed_plane(left, {"run": Exit(NOW.timestamp(), -15)}, {"pod"}, NOW)
    status = shown["/kubeflow.org/tfjobs/default/small"]["status"]
    assert [(each["type"], each["status"]) for each in status["conditions"]] == [
        ("Created", "True"),
        ("Running", "False"),
        ("Stopped", "True"),
    ]
    assert (status["conditions"][-1]["reason"], status["replicaStatuses"]) == (
        PLANE_STOPPED,
        {"Worker": {"active": 0}},
    )
    # It may go on when the plane does.
    assert "completionTime" not in status
    replica = shown["//pods/default/small-worker-0"]["status"]
    assert replica["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143


def test_a_job_whose_processes_outlived_their_plane_goes_on() -> None:
    there = objects(job("small", "Created", "Running"), pod())
    assert halted(there, (), NOW) == there
    assert closed_plane(there, {}, (), NOW) == there


def test_jobs_that_ended_or_are_suspended_stay_so_without_a_plane() -> None:
    there = objects(job("done", "Succeeded", uid="a"), job("rest", "Created", "Suspended", uid="b"))
    shown = closed_plane(halted(there, (), NOW), {}, (), NOW)
    assert {path: body["status"] for path, body in shown.items()} == {
        path: body["status"] for path, body in there.items()
    }


def test_a_node_without_its_plane_is_not_ready() -> None:
    ready = [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": "True"}]
    node = {"kind": "Node", "metadata": {"name": "local", "uid": "n"}, "status": {"conditions": ready}}
    (shown,) = closed_plane({"//nodes//local": node}, {}, (), NOW).values()
    assert [each["status"] for each in shown["status"]["conditions"]] == ["False", "Unknown"]
