"""Records of failures: what a late report changes, whose restarts used up a limit, and what a pod says of its end."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.core import ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus, Pod
from gangline.api.kubeflow.kinds import MPIJOB, PYTORCHJOB, TFJOB
from gangline.api.kubeflow.training import ENDED_AT_ANNOTATION, Failure, JobStatus
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.jobs.plan.failures.records import (
    REVISION_TIME,
    exact_end,
    first_failed,
    last_restarted_failure,
    supersedes,
)
from gangline.jobs.pods.replicas import Member
from gangline.testing.builders import make_job, make_member
from support.builders.observed_jobs import OBSERVED_AT, job_plan, observed_job, with_status

TORCH = PyTorch()
BUG = ("Traceback (most recent call last):", '  File "train.py", line 3, in main', "    step()", "KeyError: 'label'")
COMPLAINT = ("RuntimeError: Connection closed by peer",)


def at(seconds: float) -> datetime:
    return OBSERVED_AT + timedelta(seconds=seconds)


def failed(index: int, seconds: float = 0, code: int = 1, **more: Any) -> Pod:
    return make_member("Worker", index, of=PYTORCHJOB, phase="Failed", exit_code=code, finished_at=at(seconds), **more)


def status_of(job: Any, *pods: Any, after: float, **logs: tuple[str, ...]) -> JobStatus:
    tails = {f"uid-job-{name.replace('_', '-')}": lines for name, lines in logs.items()}
    return job_plan(TORCH, job, *pods, after=timedelta(seconds=after), log_tails=tails).status


def first_of(status: JobStatus) -> Failure:
    assert status.first_failure is not None
    return status.first_failure


def test_a_failure_that_a_node_reports_after_the_end_of_the_job_corrects_the_first_one() -> None:
    job = make_job(PYTORCHJOB, master=1, worker=2, restart="Never")
    master, running = make_member("Master", of=PYTORCHJOB), make_member("Worker", 1, of=PYTORCHJOB)
    status = status_of(job, master, failed(0), running, after=1, worker_0=COMPLAINT)
    assert status.finished
    assert (first_of(status).replica, first_of(status).rank) == ("worker-0", 1)
    ended = with_status(job, status)
    late = status_of(ended, master, failed(0), failed(1), after=5, worker_0=COMPLAINT, worker_1=BUG)
    assert (first_of(late).replica, first_of(late).rank, first_of(late).log) == ("worker-1", 2, BUG)
    assert late.conditions == status.conditions, "the verdict stays"
    again = status_of(with_status(job, late), master, failed(0), failed(1), after=6, worker_0=COMPLAINT, worker_1=BUG)
    assert again.first_failure == late.first_failure
    too_late = REVISION_TIME.total_seconds() + 3
    stays = status_of(ended, master, failed(0), failed(1), after=too_late, worker_0=COMPLAINT, worker_1=BUG)
    assert first_of(stays).replica == "worker-0"


def test_a_program_that_was_failing_when_the_clean_up_stopped_it_is_the_first_one() -> None:
    job = make_job(PYTORCHJOB, master=1, worker=2, restart="Never")
    master, running = make_member("Master", of=PYTORCHJOB), make_member("Worker", 1, of=PYTORCHJOB)
    ended = with_status(job, status_of(job, master, failed(0), running, after=1, worker_0=COMPLAINT))
    stopped = failed(1, 1, 143)
    stopped = msgspec.structs.replace(
        stopped, metadata=msgspec.structs.replace(stopped.metadata, deletion_timestamp=at(1))
    )
    assert first_of(status_of(ended, master, failed(0), stopped, after=2, worker_0=COMPLAINT)).replica == "worker-0"
    found = status_of(ended, master, failed(0), stopped, after=2, worker_0=COMPLAINT, worker_1=BUG)
    assert first_of(found).replica == "worker-1"


def deleted(pod: Pod) -> Pod:
    """The pod as the last event of a watch has it: its kubelet has just removed it."""
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp=at(9)))


def exiting(index: int, seconds: float, code: int, reason: str = "Error") -> Pod:
    """A pod as a kubelet reports it first: its container has ended, and its phase is Running for a moment more."""
    pod = failed(index, seconds, code, reason=reason)
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase="Running"))


def test_a_container_that_ended_counts_before_its_kubelet_reports_that_the_pod_failed() -> None:
    job = make_job(PYTORCHJOB, master=1, worker=2, restart="Never", policy={"cleanPodPolicy": "Running"})
    master = make_member("Master", of=PYTORCHJOB)
    status = status_of(job, master, failed(0), exiting(1, 0, 137, "OOMKilled"), after=2)
    assert status.finished
    assert (first_of(status).replica, first_of(status).reason) == ("worker-1", "OOMKilled")


@pytest.mark.parametrize(
    ("code", "seconds", "is_first"),
    [
        pytest.param(139, 0, True, id="crashed"),
        pytest.param(137, 0, True, id="killed before the clean-up began"),
        pytest.param(143, 0, True, id="terminated before the clean-up began"),
        pytest.param(137, 4, False, id="killed by the clean-up"),
        pytest.param(143, 3, False, id="terminated by the clean-up, in the second of the verdict"),
        pytest.param(1, 5, False, id="ended with an exit code of its own after the clean-up began"),
    ],
)
def test_the_last_state_of_a_pod_that_the_clean_up_deleted_tells_whether_it_failed_first(
    code: int, seconds: float, is_first: bool
) -> None:
    job = make_job(PYTORCHJOB, master=1, worker=2, restart="Never", policy={"cleanPodPolicy": "Running"})
    master, running = make_member("Master", of=PYTORCHJOB), make_member("Worker", 1, of=PYTORCHJOB)
    first = status_of(job, master, failed(0, 1), running, after=3)
    assert first_of(first).replica == "worker-0"
    gone = deleted(failed(1, seconds, code))
    plan = job_plan(TORCH, with_status(job, first), failed(0, 1), after=timedelta(seconds=10), departed=(gone,))
    assert first_of(plan.status).replica == ("worker-1" if is_first else "worker-0")
    assert not first_of(plan.status).order_unknown


def test_what_a_program_raises_when_it_is_stopped_is_not_its_failure() -> None:
    job = make_job(PYTORCHJOB, master=1, worker=2, restart="Never", policy={"cleanPodPolicy": "Running"})
    running = make_member("Worker", 1, of=PYTORCHJOB)
    ended = with_status(job, status_of(job, failed(0), running, after=1, worker_0=COMPLAINT))
    words = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 7 got signal: 15"
    gone = deleted(failed(1, 4, 1))
    plan = job_plan(
        TORCH,
        ended,
        failed(0),
        after=timedelta(seconds=9),
        departed=(gone,),
        log_tails={"uid-job-worker-0": COMPLAINT, "uid-job-worker-1": (*BUG[:-1], words)},
    )
    assert first_of(plan.status).replica == "worker-0"


def test_without_logs_an_end_in_the_same_second_leaves_the_order_unknown() -> None:
    job = make_job(PYTORCHJOB, master=1, worker=2, restart="Never")
    running = make_member("Worker", 1, of=PYTORCHJOB)
    status = status_of(job, failed(0), running, after=1)
    assert not first_of(status).order_unknown
    late = status_of(with_status(job, status), failed(0), failed(1), after=4)
    assert first_of(late).order_unknown


def test_a_complaint_that_restarted_a_replica_is_corrected_by_the_failure_behind_it() -> None:
    job = make_job(PYTORCHJOB, master=1, worker=2, restart="ExitCode")
    master, running = make_member("Master", of=PYTORCHJOB), make_member("Worker", 1, of=PYTORCHJOB)
    aborted = failed(0, 0, 134)
    status = status_of(job, master, aborted, running, after=1, worker_0=COMPLAINT)
    assert (status.restarts, first_of(status).replica) == (1, "worker-0")
    killed = failed(1, 1, 137)
    second = status_of(with_status(job, status), master, aborted, killed, after=2, worker_0=COMPLAINT)
    assert (second.restarts, first_of(second).replica) == (2, "worker-1")


def test_an_earlier_failure_is_not_replaced_by_a_later_one() -> None:
    bug = Failure("worker-0", exit_code=1, time=at(0), log=BUG)
    other = Failure("worker-1", exit_code=1, time=at(5), log=BUG)
    assert not supersedes(other, bug)
    assert not supersedes(msgspec.structs.replace(bug, log=COMPLAINT), other)
    assert supersedes(bug, msgspec.structs.replace(other, log=COMPLAINT))


def restarted(index: int, restarts: int, code: int, seconds: float, reason: str = "Error") -> Pod:
    pod = make_member("Worker", index, of=PYTORCHJOB)
    end = ContainerStateTerminated(exit_code=code, reason=reason, started_at=at(-9), finished_at=at(seconds))
    status = ContainerStatus(
        name="pytorch",
        restart_count=restarts,
        state=ContainerState(running=ContainerStateRunning(started_at=at(seconds + 1))),
        last_state=ContainerState(terminated=end),
    )
    return msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, container_statuses=(status,)))


def test_of_replicas_that_failed_together_again_and_again_the_first_of_the_last_time_is_named() -> None:
    job = make_job(PYTORCHJOB, worker=3, restart="OnFailure")
    pods = (restarted(0, 3, 1, 2), restarted(1, 3, 137, 1, "OOMKilled"), restarted(2, 3, 1, 2))
    failure = last_restarted_failure(observed_job(TORCH, job, *pods).gang, "pytorch", {})
    assert failure is not None
    assert (failure.replica, failure.reason) == ("worker-1", "OOMKilled")


def test_a_container_that_was_restarted_is_the_first_failure_of_a_job_that_exceeds_its_deadline() -> None:
    job = make_job(PYTORCHJOB, worker=2, restart="OnFailure", policy={"activeDeadlineSeconds": 60})
    running = make_member("Worker", 0, of=PYTORCHJOB)
    begun = with_status(job, status_of(job, running, restarted(1, 2, 3, 9), after=10))
    assert begun.status.first_failure is None
    status = status_of(begun, running, restarted(1, 2, 3, 9), after=90, worker_1=BUG)
    assert status.finished
    assert (first_of(status).replica, first_of(status).exit_code, first_of(status).log) == ("worker-1", 3, BUG)


def test_the_exact_end_is_that_of_this_run() -> None:
    pod = failed(0)
    annotated = msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(
            pod.metadata, annotations={ENDED_AT_ANNOTATION: '{"process://b": "2026-11-18T07:00:00.250000Z"}'}
        ),
    )
    end = ContainerStateTerminated(exit_code=1, container_id="process://b")
    found = exact_end(annotated, end)
    assert found is not None
    assert found.microsecond == 250_000
    assert exact_end(annotated, msgspec.structs.replace(end, container_id="process://a")) is None
    assert exact_end(pod, end) is None


def test_a_worker_of_mpi_that_failed_comes_before_its_launcher() -> None:
    """mpirun ends with an error of its own when a rank has failed."""
    launcher = make_member("Launcher", of=MPIJOB, phase="Failed", exit_code=1, finished_at=at(1), uid="l")
    worker = make_member("Worker", 1, of=MPIJOB, phase="Failed", exit_code=139, finished_at=at(1), uid="w")
    first = first_failed({Member("Launcher", 0): launcher, Member("Worker", 1): worker}, Mpi.facts.container, {})
    assert first is not None
    assert first.member == Member("Worker", 1)


def test_parameter_servers_have_no_rank() -> None:
    tensorflow = TensorFlow()
    job = make_job(TFJOB, ps=1, worker=2)
    assert tensorflow.rank(job, Member("PS", 0)) is None
    pytorch = make_job(PYTORCHJOB, master=1, worker=2)
    assert TORCH.rank(pytorch, Member("Worker", 1)) == 2
