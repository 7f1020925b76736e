"""The page of `describe`, and the events of a job."""

from datetime import UTC, datetime
from typing import Any

from gangline.cli.jobs.describe import describe_page
from gangline.summary.event_rows import event_row, is_about, sorted_events
from gangline.summary.job_rows import PROGRESS_ANNOTATION
from gangline.summary.objects import JOB_KINDS, ServerJob
from gangline.summary.replicas import REPLICA_INDEX, REPLICA_TYPE

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
BODY: dict[str, Any] = {
    "metadata": {
        "name": "linear",
        "namespace": "ns",
        "uid": "u",
        "creationTimestamp": "2026-01-01T11:00:00Z",
    },
    "spec": {
        "runPolicy": {"backoffLimit": 3},
        "tfReplicaSpecs": {
            "Worker": {
                "replicas": 2,
                "restartPolicy": "ExitCode",
                "template": {
                    "spec": {"containers": [{"name": "tensorflow", "image": "i", "command": ["python", "t.py"]}]}
                },
            }
        },
    },
    "status": {
        "startTime": "2026-01-01T11:00:01Z",
        "restarts": 1,
        "conditions": [{"type": "Restarting", "status": "True", "reason": "TFJobRestarting", "message": "again"}],
        "firstFailure": {
            "replica": "worker-1",
            "pod": "linear-worker-1",
            "exitCode": 137,
            "reason": "OOMKilled",
            "log": ["step 1", "step 2"],
        },
    },
}
JOB = ServerJob(JOB_KINDS[0], BODY)


def pod(index: int, state: dict[str, Any]) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"linear-worker-{index}",
            "labels": {REPLICA_TYPE: "worker", REPLICA_INDEX: str(index)},
            "creationTimestamp": "2026-01-01T11:00:02Z",
        },
        "spec": {"nodeName": "n", "containers": [{"name": "tensorflow"}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "tensorflow", "restartCount": index, "state": state}],
        },
    }


def event(kind: str, name: str, at: str = "2026-01-01T11:30:00Z", **more: Any) -> dict[str, Any]:
    about = {"kind": kind, "name": name}
    return {
        "involvedObject": about,
        "reason": "R",
        "type": "Normal",
        "message": "m",
        "lastTimestamp": at,
        **more,
    }


def page() -> str:
    ended = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "message": "too much"}}
    return describe_page(JOB, [pod(0, {"running": {}}), pod(1, ended)], [event("Pod", "linear-worker-1")], NOW)


def lines() -> list[str]:
    return [" ".join(line.split()) for line in page().splitlines()]


def test_a_page_shows_spec_and_state() -> None:
    assert "State: Restarting: worker-1 OOMKilled, restarting" in lines()
    assert "Run policy: backoffLimit=3" in lines()
    assert "Worker 2 ExitCode i - python t.py" in lines()


def test_a_page_has_a_line_for_every_replica_with_its_exit() -> None:
    assert "worker-0 Running n 0 - 59m -" in lines()
    assert "worker-1 OOMKilled n 1 137 (OOMKilled) 59m too much" in lines()


def test_a_page_shows_the_ranks_of_a_framework_that_has_them() -> None:
    resource = next(kind for kind in JOB_KINDS if kind.kind == "JAXJob")
    body = {**BODY, "spec": {"jaxReplicaSpecs": {"Worker": {"replicas": 2}}}}
    text = describe_page(ServerJob(resource, body), [pod(1, {"running": {}})], [], NOW)
    assert "worker-1 (rank 1) Running n" in " ".join(text.split())


def test_a_page_shows_the_first_failure_with_its_log() -> None:
    assert "First failure: worker-1 OOMKilled" in lines()
    assert "worker-1| step 2" in lines()


def test_a_page_says_what_the_time_of_the_replicas_went_into() -> None:
    ledger = {"seconds": {"queueing": 10, "working": 30}}
    body = {**JOB.body, "status": {**JOB.body["status"], "goodput": ledger}}
    lines = describe_page(ServerJob(JOB.resource, body), [], [], NOW).splitlines()
    assert "Goodput:       working 75 %, queueing 25 % of 40s" in lines
    assert "Goodput" not in describe_page(JOB, [], [], NOW)


def test_a_page_ends_with_events() -> None:
    assert lines()[-1] == "30m Normal R Pod/linear-worker-1 m"


def test_a_job_without_conditions_says_that_no_operator_has_seen_it() -> None:
    fresh = ServerJob(JOB_KINDS[0], {**BODY, "status": {}})
    assert "no operator has seen the job" in describe_page(fresh, [], [], NOW)


def test_events_belong_to_a_job_by_its_name_or_its_pods_names() -> None:
    assert is_about(event("TFJob", "linear"), JOB)
    assert is_about(event("Pod", "linear-worker-0"), JOB)
    assert not is_about(event("Pod", "linears-worker-0"), JOB)
    assert not is_about(event("TFJob", "linear-worker-0"), JOB)
    assert not is_about(event("Pod", "linear-worker-0"), JOB, ["Warning"])


def test_events_of_an_earlier_job_of_the_same_name_do_not_belong_to_it() -> None:
    assert not is_about(event("Pod", "linear-worker-0", "2026-01-01T10:00:00Z"), JOB)
    other = {"kind": "TFJob", "name": "linear", "uid": "other"}
    assert not is_about(event("TFJob", "linear", involvedObject=other), JOB)


def test_events_come_oldest_first_and_repeats_are_counted() -> None:
    old, new = event("Pod", "a", "2026-01-01T11:00:00Z"), event("Pod", "b", "2026-01-01T11:50:00Z")
    assert sorted_events([new, old]) == [old, new]
    often = {**new, "count": 5, "firstTimestamp": "2026-01-01T11:00:00Z"}
    assert event_row(often, NOW)[0] == "10m (x5 over 60m)"


def test_a_page_shows_reported_progress() -> None:
    reported = {
        "step": 120,
        "total": 500,
        "metrics": {"loss": 0.12},
        "replica": "worker-0",
        "updated": "2026-01-01T11:59:56Z",
    }
    body = ServerJob(JOB_KINDS[0], {**BODY, "status": {**BODY["status"], "progress": reported}})
    going = pod(0, {"running": {}})
    going["metadata"]["annotations"] = {PROGRESS_ANNOTATION: '{"progress": {"step": 121, "total": 500}}'}
    text = [
        " ".join(line.split()) for line in describe_page(body, [going, pod(1, {"running": {}})], [], NOW).splitlines()
    ]
    assert "Progress: step 120/500 loss=0.12 (24 %), worker-0, 4s ago" in text
    assert "REPLICA STATE NODE RESTARTS EXIT AGE PROGRESS WHY" in text
    assert "worker-0 Running n 0 - 59m step 121/500 -" in text
    assert "worker-1 Running n 1 - 59m - -" in text


def test_a_page_without_reports_has_no_progress() -> None:
    assert "rogress" not in page()
    assert "PROGRESS" not in page()


def test_what_the_recovery_policy_did_is_on_the_page() -> None:
    record = {
        "action": "RestartElsewhere",
        "cause": "evicted",
        "message": "restarted elsewhere because worker-1 was evicted from n; node n is left out for 1h",
        "time": "2026-01-01T11:55:00Z",
        "excludedNodes": [
            {"name": "n", "until": "2026-01-01T12:55:00Z", "cause": "evicted"},
            {"name": "forgiven", "until": "2026-01-01T11:59:00Z", "cause": "killed"},
        ],
        "memory": {"Worker": "12Gi"},
    }
    body = {**BODY, "status": {**BODY["status"], "recovery": record}}
    page = describe_page(ServerJob(JOB_KINDS[0], body), [], [], NOW)
    assert (
        "Recovery:      restarted elsewhere because worker-1 was evicted from n; node n is left out for 1h, 5m ago\n"
        "  node n is left out for 55m (evicted)\n"
        "  Worker: 12Gi memory\n"
    ) in page
    assert "forgiven" not in page
    assert "Recovery" not in describe_page(JOB, [], [], NOW)
