"""The progress in a job's status."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.api.kubeflow.kinds import PYTORCHJOB, TFJOB
from gangline.api.kubeflow.training import PROGRESS_ANNOTATION, JobProgress, JobStatus, ReplicaSpec
from gangline.frameworks.pytorch import PyTorch
from gangline.jobs.plan.status import final_progress, training_progress
from gangline.jobs.pods.replicas import Gang
from gangline.testing.builders import make_job, make_member
from support.builders.observed_jobs import job_plan, with_status

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)
TORCH = PyTorch()


def reporting(pod: Pod, line: str) -> Pod:
    notes = {**pod.metadata.annotations, PROGRESS_ANNOTATION: line}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=notes))


def line(step: float, **more: Any) -> str:
    return msgspec.json.encode({"progress": {"step": step, **more}}).decode()


def team(*pods: Pod, **replicas: int) -> Gang:
    return Gang.of("job", {kind: ReplicaSpec(replicas=count) for kind, count in replicas.items()}, pods)


def member(kind: str, index: int = 0, text: str = "") -> Pod:
    pod = make_member(kind, index, of=TFJOB)
    return reporting(pod, text) if text else pod


def test_nobody_who_reports_is_nothing() -> None:
    assert training_progress(team(member("Worker"), Worker=1), None, NOW) is None


def test_a_report_is_written_down_with_who_and_when() -> None:
    gang = team(member("Worker", text=line(120, total=500, loss=0.12)), Worker=1)
    assert training_progress(gang, None, NOW) == JobProgress(
        step=120, total=500, metrics={"loss": 0.12}, replica="worker-0", updated=NOW
    )


@pytest.mark.parametrize(
    ("who", "replica"),
    [
        (["PS", "Worker", "Chief"], "chief-0"),
        (["PS", "Worker"], "worker-0"),
        (["PS", "Evaluator"], "ps-0"),
    ],
)
def test_the_lead_speaks_for_the_team(who: list[str], replica: str) -> None:
    pods = [member(kind, text=line(1)) for kind in who]
    progress = training_progress(team(*pods, PS=1, Worker=1, Evaluator=1, Chief=1), None, NOW)
    assert progress is not None
    assert progress.replica == replica


def test_where_the_first_is_silent_the_next_one_speaks() -> None:
    gang = team(member("Worker", 0), member("Worker", 1, line(7)), member("Worker", 2, line(9)), Worker=3)
    progress = training_progress(gang, None, NOW)
    assert progress is not None
    assert (progress.replica, progress.step) == ("worker-1", 7)


@pytest.mark.parametrize("text", ["", "nonsense", "{}", '{"progress": {"step": "x"}}', line(1) + "x" * 20_000])
def test_what_is_no_report_is_passed_over(text: str) -> None:
    gang = team(member("Worker", 0, text or " "), member("Worker", 1, line(2)), Worker=2)
    progress = training_progress(gang, None, NOW)
    assert progress is not None
    assert progress.replica == "worker-1"
    assert training_progress(team(member("Worker", 0, text or " "), Worker=1), None, NOW) is None


def test_the_same_report_stays_as_it_was_and_a_new_one_is_dated() -> None:
    gang = team(member("Worker", text=line(5)), Worker=1)
    before = training_progress(gang, None, NOW)
    assert training_progress(gang, before, LATER) is not None
    assert training_progress(gang, before, LATER) == before
    after = training_progress(team(member("Worker", text=line(6)), Worker=1), before, LATER)
    assert after == JobProgress(step=6, replica="worker-0", updated=LATER)


def test_when_pods_are_gone_the_last_report_stays() -> None:
    before = JobProgress(step=5, replica="worker-0", updated=NOW)
    assert training_progress(team(Worker=1), before, LATER) == before


def test_reports_are_kept_small() -> None:
    many = {f"m{number:03}": number for number in range(100)} | {"n" * 64: 1}
    progress = training_progress(team(member("Worker", text=line(2**60, **many)), Worker=1), None, NOW)
    assert progress is not None
    assert list(progress.metrics) == [f"m{number:03}" for number in range(16)]
    assert isinstance(progress.step, float)


def test_the_verdict_comes_with_the_last_report() -> None:
    job = with_status(make_job(PYTORCHJOB, master=1), JobStatus(progress=JobProgress(step=1, replica="master-0")))
    done = reporting(make_member("Master", of=PYTORCHJOB, phase="Succeeded"), line(500, total=500))
    status = job_plan(TORCH, job, done).status
    assert status.finished
    assert status.progress is not None
    assert status.progress.step == 500


def test_a_job_without_reports_has_nothing_more_in_its_status() -> None:
    pod = make_member("Master", of=PYTORCHJOB)
    status = job_plan(TORCH, make_job(PYTORCHJOB, master=1), pod).status
    assert b"progress" not in msgspec.json.encode(status)


def test_the_time_that_is_left_is_estimated_from_the_steps() -> None:
    def progress(step: int, before: JobProgress | None, seconds: int, **more: float) -> JobProgress:
        gang = team(member("Worker", text=line(step, total=100, **more)), Worker=1)
        found = training_progress(gang, before, NOW + timedelta(seconds=seconds))
        assert found is not None
        return found

    first = progress(10, None, 0)
    assert first.estimated_remaining_seconds is None
    second = progress(20, first, 5)
    assert second.estimated_remaining_seconds == 40
    # The same report does not age: nothing is written for it.
    assert progress(20, second, 10) == second
    assert progress(100, second, 15).estimated_remaining_seconds == 0
    # What a program says itself counts, and so does its change alone.
    said = progress(20, second, 10, remaining_seconds=7.4)
    assert (said.estimated_remaining_seconds, said.metrics) == (7, {})
    assert progress(20, said, 15, remaining_seconds=6).estimated_remaining_seconds == 6


def test_a_finished_job_has_its_last_report_and_no_time_left() -> None:
    before = JobProgress(step=90, total=100, estimated_remaining_seconds=9, replica="worker-0", updated=NOW)
    late = team(member("Worker", text=line(100, total=100, remaining_seconds=0)), Worker=1)
    final = final_progress(late, before, LATER)
    assert final == JobProgress(step=100, total=100, replica="worker-0", updated=LATER)
    # Written once.
    assert final_progress(late, final, LATER + timedelta(minutes=1)) == final
    assert final_progress(team(Worker=1), before, LATER) == msgspec.structs.replace(
        before, estimated_remaining_seconds=None
    )
    assert final_progress(team(Worker=1), None, LATER) is None
