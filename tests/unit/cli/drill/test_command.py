"""The victims of a drill, its verdict and its report."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gangline.api.drill import FaultKind
from gangline.api.meta import JSON, Key
from gangline.base.errors import InputError
from gangline.cli.connect import live_runs
from gangline.cli.connect.server import ServerOptions
from gangline.cli.drill.report import json_report, summary
from gangline.cli.drill.run import server_for_job, victim_pods
from gangline.cli.drill.timeline import DrillTimeline, InjectedFault, container_attempt, end_text
from gangline.cli.exit_codes import CANCELLED, FAILED, SUCCEEDED, UNFINISHED
from gangline.cli.main import run
from gangline.kube.config.access import PlaneAccess
from gangline.summary.job_rows import PROGRESS_ANNOTATION
from gangline.summary.objects import JOB_KINDS, ServerJob
from gangline.summary.replicas import REPLICA_INDEX, REPLICA_TYPE

HOLD = 5.0


def body(state: str = "Running", **status: Any) -> JSON:
    conditions = [{"type": "Created", "status": "True"}, {"type": state, "status": "True"}]
    return {
        "metadata": {"name": "toy", "namespace": "default", "uid": "job"},
        "spec": {"tfReplicaSpecs": {"PS": {}, "Worker": {"replicas": 2}}},
        "status": {"conditions": conditions, **status},
    }


JOB = ServerJob(JOB_KINDS[0], body())
GOING: JSON = {"running": {}}


def ended(code: int, reason: str = "Error") -> JSON:
    return {"terminated": {"exitCode": code, "reason": reason}}


def pod(
    replica: str,
    state: JSON = GOING,
    *,
    uid: str = "",
    restarts: int = 0,
    last: JSON | None = None,
    phase: str = "Running",
    reason: str = "",
    step: int | None = None,
    node: str = "local",
) -> JSON:
    kind, _, index = replica.rpartition("-")
    notes = {PROGRESS_ANNOTATION: f'{{"progress": {{"step": {step}}}}}'} if step is not None else {}
    container = {"name": "tensorflow", "restartCount": restarts, "state": state, "lastState": last or {}}
    return {
        "metadata": {
            "name": f"toy-{replica}",
            "namespace": "default",
            "uid": uid or replica,
            "labels": {REPLICA_TYPE: kind, REPLICA_INDEX: index},
            "annotations": notes,
        },
        "spec": {"nodeName": node, "containers": [{"name": "tensorflow"}]},
        "status": {"phase": phase, "reason": reason, "containerStatuses": [container]},
    }


TEAM = [pod("ps-0"), pod("worker-0"), pod("worker-1")]


def new_timeline(
    fault: str = "kill", *victims: str, lasts: float = 0.0, pods: list[JSON] | None = None
) -> DrillTimeline:
    return DrillTimeline(JOB, pods or TEAM, InjectedFault(fault, victims or ("worker-1",), 100.0, lasts, HOLD))


# Victims


def names(pods: list[JSON]) -> list[str]:
    return [found["metadata"]["name"].removeprefix("toy-") for found in pods]


def test_the_default_victim_is_the_last_worker() -> None:
    assert names(victim_pods(JOB, TEAM, FaultKind.KILL, "")) == ["worker-1"]
    assert names(victim_pods(JOB, TEAM[:1], FaultKind.KILL, "")) == ["ps-0"]


def test_a_lost_node_hits_all_of_its_pods_and_a_name_only_one() -> None:
    pods = [*TEAM, pod("worker-2", node="other"), pod("worker-3", phase="Pending")]
    assert names(victim_pods(JOB, pods, FaultKind.NODE_LOST, "")) == ["worker-2"]
    assert names(victim_pods(JOB, TEAM, FaultKind.NODE_LOST, "")) == ["ps-0", "worker-0", "worker-1"]
    assert names(victim_pods(JOB, TEAM, FaultKind.NODE_LOST, "ps/0")) == ["ps-0"]


@pytest.mark.parametrize(
    ("pods", "replica", "message"),
    [
        ([], "", "has no pods yet"),
        (TEAM, "worker-7", 'has no replica "worker-7"; there is ps-0, worker-0, worker-1'),
        (TEAM, "worker", '"worker" is 2 replicas; name one, such as worker-0'),
        ([pod("worker-0", phase="Pending", state={})], "worker-0", "worker-0 does not run"),
        ([pod("worker-0", phase="Pending", state={})], "", "no replica of tfjob.kubeflow.org/toy runs"),
    ],
)
def test_a_replica_that_cannot_be_hit_is_an_error(pods: list[JSON], replica: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        victim_pods(JOB, pods, FaultKind.KILL, replica)


@pytest.mark.parametrize("words", [(), ("--kill", "worker-1", "--oom"), ("--slow", "1s", "--disk")])
def test_exactly_one_fault_is_required(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["drill", "toy", *words]) == 1
    assert "choose one fault: --kill worker-1, --oom" in capsys.readouterr().err


def test_a_job_name_that_was_parsed_as_a_replica_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["drill", "--oom", "toy"]) == 1
    error = capsys.readouterr().err
    assert error.startswith('error: the demo job has no replica "toy"; write one of ps-0, worker-0, ')
    assert "or name your job before the fault" in error


def test_a_pause_of_zero_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["drill", "toy", "--slow", "0s"]) == 1
    assert "such as 200ms" in capsys.readouterr().err


# Verdict and report


def test_a_job_whose_replicas_run_for_the_hold_time_has_survived() -> None:
    timeline = new_timeline()
    timeline.update_pod(pod("worker-1", GOING, restarts=1, last=ended(137)), 102.1)
    assert timeline.exit_code(102.1) is None
    assert timeline.exit_code(102.0 + HOLD) is None
    assert timeline.exit_code(102.2 + HOLD) == SUCCEEDED
    assert timeline.drain_lines() == ["  2.1 s  worker-1 ended: exit 137", "  2.1 s  worker-1 runs again"]
    assert summary(timeline.outcome(SUCCEEDED, 107.2)) == (
        "worker-1 killed (exit 137) · restarted after 2.1 s · job Running · training survived"
    )


def test_another_failure_restarts_the_hold_time() -> None:
    timeline = new_timeline()
    timeline.update_pod(pod("worker-1", GOING, restarts=1, last=ended(137)), 101.0)
    assert timeline.exit_code(101.0) is None
    timeline.update_pod(pod("worker-0", ended(1), phase="Failed"), 103.0)
    assert timeline.exit_code(101.0 + HOLD) is None
    timeline.update_pod(pod("worker-0", GOING, uid="new"), 107.0)
    assert timeline.exit_code(107.0) is None
    assert timeline.exit_code(107.0 + HOLD) == SUCCEEDED
    assert "worker-0 restarted too" in summary(timeline.outcome(SUCCEEDED, 112.0))


def test_a_container_in_back_off_has_ended_and_not_restarted() -> None:
    timeline = new_timeline()
    waiting = {"waiting": {"reason": "CrashLoopBackOff"}}
    timeline.update_pod(pod("worker-1", waiting, last=ended(137, "OOMKilled")), 101.0)
    assert timeline.drain_lines() == ["  1.0 s  worker-1 ended: OOMKilled, exit 137"]
    assert timeline.exit_code(200.0) is None
    assert summary(timeline.outcome(UNFINISHED, 160.0)).endswith("not restarted · job Running · not clear after 60 s")


def test_a_process_that_was_never_seen_running_has_ended_too() -> None:
    timeline = new_timeline("port")
    last, state = ended(137), ended(1)
    timeline.update_pod(
        pod("worker-1", state, restarts=1, last=last, phase="Failed", reason="PortClash"), 101.0, deleted=True
    )
    assert timeline.outcome(SUCCEEDED, 102.0).ends == {"worker-1": ["exit 137", "PortClash, exit 1"]}


def test_a_replaced_pod_has_restarted_once_the_new_one_runs() -> None:
    timeline = new_timeline("disk")
    timeline.update_pod(pod("worker-1", ended(143), phase="Failed", reason="Evicted"), 101.0)
    timeline.update_pod(pod("worker-1", ended(143), phase="Failed", reason="Evicted"), 101.5, deleted=True)
    assert timeline.exit_code(150.0) is None
    timeline.update_pod(pod("worker-1", {}, uid="new", phase="Pending"), 151.0)
    timeline.update_pod(pod("worker-1", GOING, uid="new"), 152.0)
    assert timeline.exit_code(152.0) is None
    assert timeline.exit_code(152.0 + HOLD) == SUCCEEDED
    assert "worker-1 out of disk (Evicted, exit 143) · restarted after 52.0 s" in summary(timeline.outcome(0, 157.0))


def test_a_finished_job_decides_the_verdict() -> None:
    timeline = new_timeline()
    timeline.update_job(body("Failed", firstFailure={"replica": "worker-1", "exitCode": 137, "signal": 9}), 101.0)
    assert timeline.exit_code(101.0) == FAILED
    assert summary(timeline.outcome(FAILED, 101.0)) == (
        "worker-1 killed (killed by signal 9) · not restarted · job Failed · training did not survive"
    )
    timeline = new_timeline()
    timeline.update_job(body("Succeeded"), 101.0)
    assert timeline.exit_code(101.0) == SUCCEEDED
    timeline = new_timeline()
    timeline.update_job(body(), 101.0, deleted=True)
    assert timeline.exit_code(101.0) == CANCELLED


@pytest.mark.parametrize(("step", "words"), [(3, "began again at step 3"), (130, "went on at step 130")])
def test_the_step_at_which_a_training_resumes_is_reported(step: int, words: str) -> None:
    pods = [*TEAM[:2], pod("worker-1", step=100)]
    timeline = new_timeline(pods=pods)
    # Its last report arrives together with its end.
    timeline.update_pod(pod("worker-1", ended(137), step=120), 101.0)
    timeline.update_pod(pod("worker-1", GOING, restarts=1, last=ended(137), step=120), 102.0)
    assert timeline.exit_code(102.0) is None
    assert timeline.exit_code(102.0 + HOLD) is None, "it reported before, so its next report is waited for"
    timeline.update_pod(pod("worker-1", GOING, restarts=1, last=ended(137), step=step), 103.0 + HOLD)
    assert timeline.exit_code(103.0 + HOLD) == SUCCEEDED
    assert f"{words} (it was at 120)" in summary(timeline.outcome(SUCCEEDED, 110.0))


def test_the_wait_for_a_report_is_bounded() -> None:
    timeline = new_timeline(pods=[*TEAM[:2], pod("worker-1", step=100)])
    timeline.update_pod(pod("worker-1", GOING, restarts=1, last=ended(137), step=100), 102.0)
    assert timeline.exit_code(102.0) is None
    assert timeline.exit_code(102.0 + 2 * HOLD) == SUCCEEDED


def test_a_slowed_replica_need_not_restart() -> None:
    timeline = new_timeline("slow", lasts=10.0)
    assert timeline.exit_code(105.0) is None
    assert timeline.exit_code(110.0) is None
    assert timeline.exit_code(110.0 + HOLD) == SUCCEEDED
    assert summary(timeline.outcome(SUCCEEDED, 115.0)) == (
        "worker-1 slowed down (for 10 s) · job Running · training survived"
    )


def test_the_json_report_has_the_same_outcome() -> None:
    timeline = new_timeline()
    timeline.update_pod(pod("worker-1", GOING, restarts=1, last=ended(137)), 102.0)
    found: Mapping[str, object] = json_report(timeline.outcome(SUCCEEDED, 107.0))
    assert found == {
        "job": "toy",
        "fault": "kill",
        "replicas": ["worker-1"],
        "verdict": "survived",
        "state": "Running",
        "ends": {"worker-1": ["exit 137"]},
        "restartedAfter": {"worker-1": 2.0},
        "seconds": 7.0,
        "message": summary(timeline.outcome(SUCCEEDED, 107.0)),
    }


def test_the_end_of_another_attempt_is_ignored() -> None:
    old = container_attempt(pod("worker-1"))
    assert end_text(pod("worker-1", ended(1), uid="new"), old) == ""
    assert end_text(pod("worker-1"), old) == ""


# Which server


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def published(folder: Path, name: str, *jobs: str) -> Path:
    state = folder / f"gangline-{name}"
    state.mkdir()
    plane = PlaneAccess("https://127.0.0.1:1", "secret")
    live_runs.publish_kubeconfig(state, plane, [Key("default", job) for job in jobs])
    return state / live_runs.KUBECONFIG_NAME


async def test_a_run_is_found_by_the_names_of_its_jobs(there: Path) -> None:
    published(there, "one", "linear")
    file = published(there, "two", "toy", "other")
    assert file.stat().st_mode & 0o077 == 0
    assert live_runs.find_run_kubeconfig("default", "toy") == file
    assert live_runs.find_run_kubeconfig("elsewhere", "toy") is None
    assert server_for_job(ServerOptions(), "pytorchjob/toy").kubeconfig == str(file)
    assert server_for_job(ServerOptions(context="prod"), "toy") == ServerOptions(context="prod")
    assert server_for_job(ServerOptions(), "nobody") == ServerOptions()


async def test_folders_that_are_no_run_of_this_user_are_ignored(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = published(there, "one", "toy")
    (there / "gangline-two").mkdir()
    (there / "gangline-two" / live_runs.KUBECONFIG_NAME).write_text("{}")
    assert [run.kubeconfig for run in live_runs.live_runs()] == [file]
    monkeypatch.setattr(os, "getuid", lambda: -1)
    assert list(live_runs.live_runs()) == []
