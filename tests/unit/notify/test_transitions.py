"""Which states a status shows, and what is said of them."""

from datetime import timedelta

import msgspec
import pytest

from gangline.api.kubeflow.training import Failure
from gangline.notify.plan.transitions import (
    MAX_TEXT,
    NotifiedState,
    failure_summary,
    marks,
    transition_of,
    transition_of_deleted,
    waits_since,
)
from support.builders.notified_jobs import NOW, JobHistory
from support.builders.observed_jobs import with_status

HOUR = timedelta(hours=1)
EPOCH = int(NOW.timestamp())


def mark_keys(history: JobHistory, waiting_after: timedelta = HOUR) -> list[str]:
    return [mark.key for mark in marks(history.job, history.now, waiting_after)]


def test_a_job_without_status_has_no_marks() -> None:
    assert mark_keys(JobHistory()) == []


def test_marks_are_in_order_of_time() -> None:
    assert mark_keys(JobHistory().create().run()) == [f"created-{EPOCH}", f"running-{EPOCH + 1}"]


def test_states_of_the_same_second_are_in_the_order_in_which_they_happen() -> None:
    history = JobHistory().create().wait(-1).run()
    assert [mark.state for mark in marks(history.job, history.now, HOUR)] == ["created", "running"]


def test_a_restart_is_known_by_its_count_also_when_the_job_runs_again() -> None:
    history = JobHistory().create().run().restart()
    assert mark_keys(history) == [f"created-{EPOCH}", "restarted-1"]
    assert mark_keys(history.run()) == [f"created-{EPOCH}", "restarted-1", f"running-{EPOCH + 3}"]
    assert "restarted-3" in mark_keys(history.restart(2))


def test_suspension_and_resumption() -> None:
    history = JobHistory().create().run().suspend()
    assert mark_keys(history) == [f"created-{EPOCH}", f"suspended-{EPOCH + 2}"]
    assert mark_keys(history.resume()) == [f"created-{EPOCH}", f"resumed-{EPOCH + 3}"]
    assert mark_keys(history.run())[-1] == f"running-{EPOCH + 4}"


def test_an_end_and_a_refused_object() -> None:
    assert mark_keys(JobHistory().create().run().succeed())[-1] == f"succeeded-{EPOCH + 2}"
    assert mark_keys(JobHistory().create().run().fail())[-1] == f"failed-{EPOCH + 2}"
    assert mark_keys(JobHistory().create().block())[-1] == f"blocked-{EPOCH + 1}"


def test_a_job_that_should_run_and_does_not_waits() -> None:
    history = JobHistory().create()
    assert mark_keys(history.wait(598), timedelta(minutes=10)) == [f"created-{EPOCH}"]
    assert mark_keys(history.wait(1), timedelta(minutes=10)) == [f"created-{EPOCH}", f"waiting-{EPOCH + 600}"]


@pytest.mark.parametrize("step", ["run", "suspend", "succeed", "fail"])
def test_a_job_that_runs_has_ended_or_is_suspended_does_not_wait(step: str) -> None:
    history = JobHistory().create()
    getattr(history, step)()
    assert waits_since(history.status) is None


def test_a_job_waits_again_after_a_restart_and_a_resumption() -> None:
    restarted = JobHistory().create().run().restart()
    assert waits_since(restarted.status) == NOW + timedelta(seconds=2)
    resumed = JobHistory().create().suspend().wait(100).resume()
    assert waits_since(resumed.status) == NOW + timedelta(seconds=102)


def test_a_failed_job_names_its_cause_the_end_of_the_log_and_the_command() -> None:
    history = JobHistory(team="vision").create().run().fail()
    transition = transition_of(history.job, mark_keys(history)[-1])
    assert transition.state is NotifiedState.FAILED
    assert transition.id == f"uid-of-bert_failed-{EPOCH + 2}"
    assert transition.mark_key == f"failed-{EPOCH + 2}"
    assert transition.time == NOW + timedelta(seconds=2)
    assert transition.labels == {"team": "vision"}
    assert transition.cause == "worker-1 exit 1: CUDA out of memory"
    assert transition.log == ("step 1", "RuntimeError: CUDA out of memory")
    assert transition.why == "gangline why bert -n team-a"
    assert (transition.kind, transition.api_version) == ("PyTorchJob", "kubeflow.org/v1")


def test_a_job_that_succeeded_after_a_restart_has_no_cause() -> None:
    history = JobHistory().create().run().restart().run().succeed()
    assert transition_of(history.job, mark_keys(history)[-1]).cause == ""
    assert transition_of(history.job, "restarted-1").cause.startswith("worker-1 exit 1")


def test_long_texts_are_cut() -> None:
    history = JobHistory().create().fail()
    long = Failure(replica="worker-0", exit_code=1, message="x" * 5000, log=("y" * 5000,) * 50)
    job = with_status(history.job, msgspec.structs.replace(history.status, first_failure=long))
    transition = transition_of(job, f"failed-{EPOCH + 1}")
    assert len(transition.cause) < MAX_TEXT + 50
    assert [len(line) for line in transition.log] == [MAX_TEXT] * 5


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        (Failure(replica="worker-3", exit_code=137, reason="OOMKilled"), "worker-3 OOMKilled"),
        (Failure(replica="worker-1", exit_code=2, reason="Error"), "worker-1 exit 2"),
        (Failure(replica="worker-0", exit_code=137, signal=9), "worker-0 killed by signal 9"),
        (Failure(replica="master-0", message="lost\nits node"), "master-0 failed: lost its node"),
    ],
)
def test_a_failure_is_summed_up_in_one_line(failure: Failure, text: str) -> None:
    assert failure_summary(failure) == text


def test_the_transition_of_a_deleted_job_has_what_was_remembered() -> None:
    transition = transition_of_deleted(("kubeflow.org/v1", "TFJob", "team-a", "mnist"), "u", f"failed-{EPOCH}")
    assert (transition.id, transition.state, transition.time) == (f"u_failed-{EPOCH}", NotifiedState.FAILED, NOW)
    assert (transition.kind, transition.namespace, transition.name) == ("TFJob", "team-a", "mnist")
    assert "deleted" in transition.message
