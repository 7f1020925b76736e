"""The container run and the options of a log request."""

from datetime import UTC, datetime, timedelta

import pytest

from gangline.api.meta import JSON
from gangline.apiserver.errors import StatusError
from gangline.apiserver.streaming.log_options import container_name, container_run_id, log_options
from gangline.kube.podstreams import LogOptions

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
WAITING = {"waiting": {"reason": "ContainerCreating"}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff"}}
RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}


def ended(run: str) -> JSON:
    return {"terminated": {"exitCode": 1, "containerID": f"process://{run}" if run else ""}}


def pod(state: JSON | None, last: JSON | None = None, run: str = "now") -> JSON:
    status = {"name": "c", "state": state, "lastState": last or {}, "containerID": f"process://{run}"}
    return {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c"}]},
        "status": {"containerStatuses": [status]} if state is not None else {},
    }


@pytest.mark.parametrize(
    ("found", "previous", "run"),
    [
        (pod(RUNNING), False, "now"),
        (pod(RUNNING, ended("before")), False, "now"),
        (pod(RUNNING, ended("before")), True, "before"),
        (pod(ended("over")), False, "over"),
        # The next run never started: its terminated state has no container id.
        (pod(ended(""), ended("before")), False, "before"),
        # Between two runs, the last one is both the newest and the previous.
        (pod(BACK_OFF, ended("before")), False, "before"),
        (pod(BACK_OFF, ended("before")), True, "before"),
    ],
)
def test_run_is_the_one_that_the_kubelet_chooses(found: JSON, previous: bool, run: str) -> None:
    assert container_run_id(found, "c", previous=previous) == run


@pytest.mark.parametrize(
    ("found", "previous", "message"),
    [
        (pod(WAITING), False, 'container "c" in pod "p" is waiting to start: ContainerCreating'),
        (pod({}), False, 'container "c" in pod "p" is waiting to start - no logs yet'),
        (pod(None), False, 'container "c" in pod "p" is not available'),
        (pod(ended("")), False, 'container "c" in pod "p" is terminated'),
        (pod(RUNNING), True, 'previous terminated container "c" in pod "p" not found'),
        (pod(RUNNING, ended("")), True, 'previous terminated container "c" in pod "p" not found'),
    ],
)
def test_there_is_no_log_yet(found: JSON, previous: bool, message: str) -> None:
    with pytest.raises(StatusError) as refused:
        container_run_id(found, "c", previous=previous)
    assert (refused.value.code, refused.value.status["message"]) == (400, message)


def test_every_kind_of_container_can_be_named() -> None:
    pod_object = pod(RUNNING)
    pod_object["spec"]["initContainers"] = [{"name": "i"}]
    assert container_name(pod_object, "") == "c"
    assert container_name(pod_object, "i") == "i"
    pod_object["spec"]["containers"].append({"name": "d"})
    with pytest.raises(StatusError, match=r"choose one of: \[i c d\]"):
        container_name(pod_object, "")


def test_options_are_read_as_the_api_spells_them() -> None:
    query = {
        "follow": "true",
        "previous": "false",
        "timestamps": "1",
        "tailLines": "5",
        "sinceSeconds": "10",
        "limitBytes": "7",
    }
    assert log_options(query, "p", NOW) == LogOptions(
        follow=True, timestamps=True, tail=5, since=NOW - timedelta(seconds=10), since_seconds=10, limit_bytes=7
    )
    at = log_options({"sinceTime": "2026-01-02T03:04:05.123456789Z"}, "p", NOW).since
    assert at == NOW + timedelta(microseconds=123456)


def test_all_invalid_options_are_reported_together() -> None:
    with pytest.raises(StatusError) as refused:
        log_options({"tailLines": "-1", "limitBytes": "0"}, "p", NOW)
    assert [cause["field"] for cause in refused.value.status["details"]["causes"]] == [
        "tailLines",
        "limitBytes",
    ]
