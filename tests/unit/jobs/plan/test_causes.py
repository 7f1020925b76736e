"""The cause of a failure: the peer that failed before, even if it was replaced since."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.core import ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus, Pod
from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.api.kubeflow.training import JobStatus
from gangline.frameworks.pytorch import PyTorch
from gangline.jobs.plan.causes import FailedRun, is_consequence
from gangline.testing.builders import make_job, make_member
from support.builders.observed_jobs import OBSERVED_AT, job_plan, with_status

TORCH = PyTorch()
PEER = "RuntimeError: Connection closed by peer"


def at(seconds: float) -> datetime:
    return OBSERVED_AT + timedelta(seconds=seconds)


MINUTE = 60.0
# What the later run did, when it started and ended, and whether the failure of worker-0 at 0 s is its cause.
TABLE: dict[str, tuple[dict[str, Any], float, float, bool]] = {
    "complains half a second later, in whatever words": ({"exit_code": 1}, -9, 0.5, True),
    "complains five seconds later": ({"exit_code": 1}, -9, 5, True),
    "aborts within a minute": ({"exit_code": 134}, -9, 59, True),
    "fails in the same second": ({"exit_code": 1}, -9, 0, True),
    "fails with an error of its own ten minutes later": ({"exit_code": 1}, -9, 10 * MINUTE, False),
    "blames a peer ten minutes later": ({"exit_code": 1, "blames_peer": True}, -9, 10 * MINUTE, True),
    "blames a peer an hour later": ({"exit_code": 1, "blames_peer": True}, -9, 60 * MINUTE, False),
    "fails soon after the replacement has started": ({"exit_code": 1, "replaced": 200}, -9, 205, True),
    "fails long after the replacement has started": ({"exit_code": 1, "replaced": 200}, -9, 200 + 2 * MINUTE, False),
    "had failed before": ({"exit_code": 1}, -9, -1, False),
    "started only then": ({"exit_code": 1}, 1, 5, False),
    "is the same replica": ({"exit_code": 1, "replica": "worker-0"}, -9, 5, False),
    "is killed": ({"exit_code": 137}, -9, 5, False),
    "is out of memory": ({"exit_code": 1, "reason": "OOMKilled"}, -9, 5, False),
    "is evicted": ({"exit_code": None, "reason": "Evicted"}, -9, 5, False),
}


@pytest.mark.parametrize(("run", "start", "end", "follows"), TABLE.values(), ids=TABLE.keys())
def test_which_failures_follow_from_another(run: dict[str, Any], start: float, end: float, follows: bool) -> None:
    fields = {"replica": "master-0", **run}
    replaced = fields.pop("replaced", None)
    later = FailedRun(started_at=at(start), ended_at=at(end), **fields)
    assert is_consequence(later, "worker-0", at(0), at(replaced) if replaced is not None else None) is follows


def test_without_times_nothing_follows() -> None:
    run = FailedRun("master-0", at(-9), at(5), 1)
    assert not is_consequence(run, "worker-0", None)
    assert not is_consequence(msgspec.structs.replace(run, started_at=None), "worker-0", at(0))


def state(code: int | None, start: float, end: float = 0, **more: Any) -> ContainerState:
    if code is None:
        return ContainerState(running=ContainerStateRunning(started_at=at(start)))
    return ContainerState(terminated=ContainerStateTerminated(code, started_at=at(start), finished_at=at(end), **more))


def pod(
    kind: str, index: int, now: ContainerState, last: ContainerState | None = None, restarts: int = 0, **more: Any
) -> Pod:
    """The pod of a replica with these states of its container."""
    phase = "Failed" if now.terminated is not None else "Running"
    made = make_member(kind, index, of=PYTORCHJOB, phase=phase, **more)
    status = ContainerStatus("pytorch", state=now, last_state=last or ContainerState(), restart_count=restarts)
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, container_statuses=(status,)))


def job(policy: Any = None, restart: str = "ExitCode") -> Any:
    return make_job(PYTORCHJOB, master=1, worker=2, restart=restart, policy=policy or {})


def running(start: float = -9) -> ContainerState:
    return state(None, start)


def replaced_worker(training_job: Any, code: int = 137, index: int = 0, **logs: Any) -> JobStatus:
    """The status after a worker failed at 0 s and was replaced."""
    pods = [pod("Master", 0, running()), pod("Worker", 1 - index, running())]
    plan = job_plan(TORCH, training_job, pod("Worker", index, state(code, -9, 0), uid="old"), *pods, **logs)
    assert plan.status.first_failure is not None
    assert plan.status.first_failure.replica == f"worker-{index}"
    return plan.status


def after_replacement(
    training_job: Any, status: JobStatus, master: ContainerState, *, seconds: float, **more: Any
) -> JobStatus:
    """The status when the master ended in that way, and the first worker runs again."""
    pods = [pod("Master", 0, master), pod("Worker", 0, running(1), uid="new"), pod("Worker", 1, running())]
    return job_plan(TORCH, with_status(training_job, status), *pods, after=timedelta(seconds=seconds), **more).status


@pytest.mark.parametrize("seconds", [0.5, 5])
def test_a_replica_that_was_replaced_stays_the_cause(seconds: float) -> None:
    status = after_replacement(job(), replaced_worker(job()), state(1, -9, int(seconds)), seconds=seconds + 1)
    assert status.finished
    assert status.first_failure is not None
    assert (status.first_failure.replica, status.first_failure.exit_code) == ("worker-0", 137)


def test_a_replica_that_is_about_to_be_replaced_is_the_cause() -> None:
    pods = [pod("Master", 0, state(1, -9, 1)), pod("Worker", 0, state(137, -9, 1)), pod("Worker", 1, running())]
    status = job_plan(TORCH, job(), *pods, after=timedelta(seconds=1)).status
    assert status.finished
    assert status.first_failure is not None
    assert status.first_failure.replica == "worker-0"


def test_of_failures_in_the_same_second_the_one_that_blames_nobody_stays_the_cause() -> None:
    pods = [pod("Master", 0, state(1, -9, 1)), pod("Worker", 0, state(1, -9, 1)), pod("Worker", 1, running())]
    logs = {"uid-job-master-0": (PEER,)}
    status = job_plan(TORCH, job(), *pods, after=timedelta(seconds=1), log_tails=logs).status
    assert status.first_failure is not None
    assert status.first_failure.replica == "worker-0"


def test_an_error_of_its_own_much_later_is_its_own_cause() -> None:
    status = after_replacement(job(), replaced_worker(job()), state(1, -9, 600), seconds=601)
    assert status.first_failure is not None
    assert status.first_failure.replica == "master-0"
    blames = after_replacement(
        job(), replaced_worker(job()), state(1, -9, 600), seconds=601, log_tails={"uid-job-master-0": (PEER,)}
    )
    assert blames.first_failure is not None
    assert blames.first_failure.replica == "worker-0"


def test_the_cause_stays_when_the_limit_ends_the_job() -> None:
    limited = job({"backoffLimit": 1})
    # 134: the watchdog of a collective library aborts the program, and that may be restarted.
    status = after_replacement(limited, replaced_worker(limited), state(134, -9, 5), seconds=6)
    assert status.finished
    assert "backoff limit" in status.conditions[-1].message
    assert status.first_failure is not None
    assert status.first_failure.replica == "worker-0"


def test_a_consequence_that_is_replaced_too_does_not_become_the_cause() -> None:
    status = after_replacement(job(), replaced_worker(job()), state(134, -9, 5), seconds=6)
    assert not status.finished
    assert status.first_failure is not None
    assert status.first_failure.replica == "worker-0"
    assert status.restarts == 2


def test_of_several_replaced_replicas_the_last_that_was_killed_before_the_complaint_is_the_cause() -> None:
    status = replaced_worker(job())
    pods = [pod("Master", 0, running()), pod("Worker", 0, running(1), uid="new")]
    second = job_plan(
        TORCH,
        with_status(job(), status),
        *pods,
        pod("Worker", 1, state(137, -9, 30), uid="old-1"),
        after=timedelta(seconds=31),
    ).status
    assert second.first_failure is not None
    assert second.first_failure.replica == "worker-1"
    end = [pod("Master", 0, state(1, -9, 35)), pod("Worker", 0, running(1), uid="new"), pod("Worker", 1, running(32))]
    last = job_plan(TORCH, with_status(job(), second), *end, after=timedelta(seconds=36)).status
    assert last.finished
    assert last.first_failure is not None
    assert last.first_failure.replica == "worker-1"


def test_a_run_that_its_kubelet_restarted_is_the_cause_of_a_peer_that_fails_for_good() -> None:
    mixed = job(restart="OnFailure")
    specs = mixed.spec.pytorch_replica_specs
    never = {**specs, "Master": msgspec.structs.replace(specs["Master"], restart_policy="Never")}
    mixed = msgspec.structs.replace(mixed, spec=msgspec.structs.replace(mixed.spec, pytorch_replica_specs=never))
    pods = [
        pod("Master", 0, state(1, -9, 5)),
        pod("Worker", 0, running(1), state(137, -9, 0, reason="OOMKilled"), restarts=1),
        pod("Worker", 1, running()),
    ]
    status = job_plan(TORCH, mixed, *pods, after=timedelta(seconds=6)).status
    assert status.finished
    assert status.first_failure is not None
    assert (status.first_failure.replica, status.first_failure.reason) == ("worker-0", "OOMKilled")


def test_kubelets_that_use_up_the_limit_do_not_hide_the_cause() -> None:
    limited = job({"backoffLimit": 2}, restart="OnFailure")
    pods = [
        pod("Master", 0, running(6), state(1, -9, 5), restarts=1),
        pod("Worker", 0, running(1), state(137, -9, 0), restarts=1),
        pod("Worker", 1, running()),
    ]
    status = job_plan(TORCH, limited, *pods, after=timedelta(seconds=7)).status
    assert status.finished
    assert status.first_failure is not None
    assert status.first_failure.replica == "worker-0"


def test_a_new_round_has_causes_of_its_own() -> None:
    together = job({"restartScope": "Job"})
    status = replaced_worker(together)
    assert status.ledger.round == 1
    assert status.ledger.failed_round == 0
    # All within one second: the new round starts in the second in which the old one failed.
    pods = [
        pod("Master", 0, state(1, 0, 1), number=1),
        *(pod("Worker", index, running(0), number=1) for index in range(2)),
    ]
    last = job_plan(TORCH, with_status(together, status), *pods, after=timedelta(seconds=5)).status
    assert last.finished
    assert last.first_failure is not None
    assert last.first_failure.replica == "master-0"
