"""The summary of a finished job."""

import msgspec

from gangline.api.kubeflow.kinds import TFJOB
from gangline.api.kubeflow.training import Failure, TrainingJob
from gangline.api.meta import Condition
from gangline.cli.follow.outcome import RunOutcome, live_summary, plain_summary
from gangline.cli.output.curve import Point
from gangline.cli.output.text import StyledLine, plain_text
from gangline.testing.builders import make_job
from gangline.why.diagnosis.wording import exit_code_meaning


def job(end: str, *, failure: Failure | None = None, restarts: int = 0) -> TrainingJob:
    made: TrainingJob = make_job(TFJOB, "linear", worker=2)
    conditions = (Condition(type=end, status="True", message="as it was."),)
    status = msgspec.structs.replace(made.status, conditions=conditions, first_failure=failure, restarts=restarts)
    return msgspec.structs.replace(made, status=status)


def said(lines: list[StyledLine]) -> list[str]:
    return [plain_text(line) for line in lines]


def test_the_summary_of_a_success_has_duration_restarts_and_metric() -> None:
    curves = {"worker-0": [Point(1, 1.92), Point(9, 0.004)]}
    outcome = RunOutcome(job("Succeeded", restarts=1), 14.2, curves=curves, metric="loss")
    assert said(live_summary(outcome)) == ["✔ Succeeded in 14 s · 1 restart · loss 1.92 → 0.004"]
    assert said(plain_summary(outcome)) == ["Succeeded in 14.2 s: as it was."]


def test_the_summary_of_a_failure_has_the_first_failed_replica_and_its_last_lines() -> None:
    failure = Failure(replica="worker-1", exit_code=137, reason="Error")
    report = '{"progress": {"step": 1}}'
    outcome = RunOutcome(job("Failed", failure=failure), 2.0, {"worker-1": ["one", report, "", "two"]})
    expected = [
        f"first to fail: worker-1 with exit code 137 (Error): {exit_code_meaning(137)}",
        "  worker-1| one",
        "  worker-1| two",
    ]
    assert said(live_summary(outcome)) == ["✖ Failed in 2.0 s · as it was.", *expected]
    assert said(plain_summary(outcome)) == ["Failed in 2.0 s: as it was.", *expected]


def test_last_lines_are_few_and_those_of_the_status_are_preferred() -> None:
    failure = Failure(replica="worker-1", log=tuple(str(at) for at in range(20)))
    lines = said(plain_summary(RunOutcome(job("Failed", failure=failure), 2.0, {"worker-1": ["other"]})))
    assert lines[1:] == ["first to fail: worker-1", *(f"  worker-1| {at}" for at in range(15, 20))]


def test_a_failure_without_a_first_replica_has_the_message_of_the_job() -> None:
    assert said(plain_summary(RunOutcome(job("Failed"), 2.0))) == ["Failed in 2.0 s: as it was."]


def test_a_success_with_failed_replicas_has_a_note() -> None:
    outcome = RunOutcome(job("Succeeded"), 1.0, failed_replicas={"worker-0": 1, "worker-1": None})
    note = "note: the job succeeded although these failed: worker-0 (exit 1), worker-1"
    assert said(plain_summary(outcome))[1:] == [note]
    assert said(live_summary(outcome))[1:] == [note]


def test_an_oom_kill_is_explained() -> None:
    failure = Failure(replica="worker-1", exit_code=137, reason="OOMKilled")
    lines = said(plain_summary(RunOutcome(job("Failed", failure=failure), 2.0)))
    assert lines[1] == "first to fail: worker-1 with exit code 137 (OOMKilled): it used more memory than it may"


def test_names_have_their_ranks() -> None:
    failure, names = Failure(replica="worker-1"), {"worker-1": "worker-1 (rank 2)"}
    outcome = RunOutcome(job("Failed", failure=failure), 2.0, ranked_names=names)
    assert said(plain_summary(outcome))[1] == "first to fail: worker-1 (rank 2)"
    outcome = RunOutcome(job("Succeeded"), 2.0, failed_replicas={"worker-1": 1}, ranked_names=names)
    assert said(plain_summary(outcome))[1].endswith("although these failed: worker-1 (rank 2) (exit 1)")


def test_a_mistake_in_the_program_is_the_whole_summary() -> None:
    failure = Failure(replica="worker-1", exit_code=1, log=("Traceback",))
    outcome = RunOutcome(job("Failed", failure=failure), 2.0, mistake="torch is not installed")
    assert said(live_summary(outcome)) == ["✖ Failed in 2.0 s · torch is not installed"]
    assert said(plain_summary(outcome)) == ["Failed in 2.0 s: torch is not installed"]
