"""Condition Stalled in the plan: only what the watcher says, and nothing for a job that never stalled."""

from typing import Any

import msgspec
import pytest

from gangline.api.kubeflow.kinds import MPIJOB, PYTORCHJOB, TFJOB
from gangline.api.kubeflow.training import ConditionType, JobStatus
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.jobs.plan.actions import JobPlan
from gangline.jobs.plan.conditions import current_condition
from gangline.jobs.plan.plan import reconcile_plan
from gangline.jobs.plan.stall import Stall
from gangline.operator.metrics import transitions
from gangline.testing.builders import make_job, make_member
from support.builders.observed_jobs import OBSERVED_AT, condition_pairs, job_plan, observed_job, with_status

STALL = Stall(OBSERVED_AT, "AllRanksWait", "no progress for 80 s: both ranks wait in all_reduce", ("worker-0",))
TEAMS: dict[str, tuple[Any, Any, tuple[str, str]]] = {
    "TFJob": (TensorFlow(), make_job(TFJOB, chief=1, worker=1), ("Chief", "Worker")),
    "PyTorchJob": (PyTorch(), make_job(PYTORCHJOB, master=1, worker=1), ("Master", "Worker")),
    "MPIJob": (Mpi(), make_job(MPIJOB, launcher=1, worker=1), ("Launcher", "Worker")),
}


def team(kind: str) -> tuple[Any, Any, list[Any]]:
    framework, job, types = TEAMS[kind]
    job = with_status(job, running(framework, job, types))
    return framework, job, [make_member(types[0], 0), make_member(types[1], 0)]


def running(framework: Any, job: Any, types: tuple[str, str]) -> JobStatus:
    """The status of the job when all of its pods run."""
    return job_plan(framework, job, *(make_member(one, 0) for one in types)).status


def plan_of(framework: Any, job: Any, pods: list[Any], **verdict: Any) -> JobPlan:
    return reconcile_plan(framework, msgspec.structs.replace(observed_job(framework, job, *pods), **verdict))


@pytest.mark.parametrize("kind", TEAMS)
def test_a_stalled_job_has_the_condition_an_event_and_a_count(kind: str) -> None:
    framework, job, pods = team(kind)
    plan = plan_of(framework, job, pods, stall=STALL)
    condition = plan.status.condition(ConditionType.STALLED)
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == ("True", STALL.reason, STALL.message)
    assert current_condition(plan.status) == "Stalled"
    assert plan.status.holds(ConditionType.RUNNING)
    assert [(event.reason, event.warning) for event in plan.events] == [("JobStalled", True)]
    assert transitions(job.status, plan.status) == {"stalled": 1}


@pytest.mark.parametrize("kind", TEAMS)
def test_a_job_that_never_stalled_is_as_before(kind: str) -> None:
    framework, job, pods = team(kind)
    without = plan_of(framework, job, pods)
    assert without.status.condition(ConditionType.STALLED) is None
    # That it moves is news only of a job that had stalled.
    assert plan_of(framework, job, pods, stall_end="it reports progress again") == without


@pytest.mark.parametrize("kind", TEAMS)
def test_the_condition_stays_until_the_watcher_has_an_opinion(kind: str) -> None:
    framework, job, pods = team(kind)
    stalled = with_status(job, plan_of(framework, job, pods, stall=STALL).status)
    assert plan_of(framework, stalled, pods).status == stalled.status
    again = plan_of(framework, stalled, pods, stall=STALL)
    assert (again.status, again.events) == (stalled.status, ())
    ended = plan_of(framework, stalled, pods, stall_end="it reports progress again")
    condition = ended.status.condition(ConditionType.STALLED)
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "JobMovesAgain")
    assert condition.message.endswith("is not stalled any more: it reports progress again")
    assert current_condition(ended.status) == "Running"
    assert [(event.reason, event.warning) for event in ended.events] == [("JobMovesAgain", False)]


def test_a_restart_ends_the_stall() -> None:
    framework, job, pods = team("TFJob")
    job = msgspec.structs.replace(job, spec=make_job(TFJOB, chief=1, worker=1, restart="OnFailure").spec)
    stalled = with_status(job, plan_of(framework, job, pods, stall=STALL).status)
    plan = plan_of(framework, stalled, [pods[0], make_member("Worker", 0, phase="Failed")], stall=STALL)
    assert dict(condition_pairs(plan.status))["Stalled"] == "False"
    assert current_condition(plan.status) == "Restarting"


def test_the_end_of_the_job_ends_the_stall() -> None:
    framework, job, pods = team("TFJob")
    stalled = with_status(job, plan_of(framework, job, pods, stall=STALL).status)
    plan = plan_of(framework, stalled, [make_member("Chief", 0, phase="Succeeded"), pods[1]], stall=STALL)
    assert dict(condition_pairs(plan.status)) == {
        "Created": "True",
        "Running": "False",
        "Stalled": "False",
        "Succeeded": "True",
    }


def test_a_job_that_does_not_run_cannot_stall() -> None:
    framework, job, _ = team("TFJob")
    pending = with_status(job, JobStatus())
    plan = plan_of(framework, pending, [make_member("Chief", 0, phase="Pending")], stall=STALL)
    assert plan.status.condition(ConditionType.STALLED) is None
