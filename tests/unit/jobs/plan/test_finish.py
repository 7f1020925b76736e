"""The objects that remain of a finished job are the same, whatever happens to the operator while it finishes."""

from datetime import timedelta
from typing import Any

import pytest

from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.api.kubeflow.training import ConditionType, JobStatus
from gangline.api.meta import JSON, Condition
from gangline.frameworks.mpi import Mpi
from gangline.frameworks.pytorch import PyTorch
from gangline.frameworks.tensorflow import TensorFlow
from gangline.frameworks.xgboost import XGBoost
from gangline.jobs.plan.actions import DeleteJob
from gangline.testing.builders import make_job
from gangline.testing.faults import Fault
from gangline.testing.happenings import EDITS, STORY_FAULTS
from gangline.testing.world.invariants import Invariants
from gangline.testing.world.kubelet import Kubelet
from gangline.testing.world.world import World
from support.builders.observed_jobs import OBSERVED_AT, job_plan, plan_actions, with_status
from support.property.job_histories import job_manifest

BOTH, ONE = "#!/bin/sh\necho job-worker-0:1\necho job-worker-1:1", "#!/bin/sh\necho job-worker-0:1"


async def running(policy: JSON, restart: str = "Never") -> World:
    """A job of a launcher and two workers, all running."""
    replicas: dict[str, Any] = {
        "Launcher": {"replicas": 1, "restartPolicy": restart},
        "Worker": {"replicas": 2, "restartPolicy": restart},
    }
    world = World(Mpi(), job_manifest(Mpi(), replicas, policy), judge=Invariants().judge)
    await world.settle()
    for pod in world.pods():
        Kubelet(world).start(pod)
    await world.settle()
    assert hosts(world) == BOTH
    return world


def hosts(world: World) -> str:
    body = world.server.find("configmaps", "job-config")
    assert body is not None
    told: str = body["data"]["discover_hosts.sh"]
    return told


def evict_a_worker(world: World) -> None:
    body = world.server.find("pods", "job-worker-1")
    assert body is not None
    Kubelet(world).evict(body)


async def lose_a_worker(world: World) -> None:
    evict_a_worker(world)
    await world.settle()


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
@pytest.mark.parametrize("call", range(6))
@pytest.mark.parametrize("wrong", sorted(set(STORY_FAULTS), key=str))
async def test_the_host_list_shows_what_the_verdict_was_based_on_whatever_goes_wrong(
    wrong: int | str, call: int, policy: str
) -> None:
    """v1 updates the host list before it writes the verdict, and never after."""
    world = await running({"cleanPodPolicy": policy})
    world.faults.add(Fault(call, wrong))
    await lose_a_worker(world)
    assert world.job.status.holds(ConditionType.FAILED)
    assert hosts(world) == ONE


async def test_an_operator_with_an_old_view_of_a_job_that_has_ended_leaves_its_host_list_alone() -> None:
    """It crashed after pods were deleted because of the verdict; the next one sees them gone, but not yet the verdict."""
    world = await running({"cleanPodPolicy": "Running"})
    evict_a_worker(world)
    world.deliver()
    world.faults.add(Fault(1, "dies after", "DELETE"))
    await world.look()
    world.deliver("pods")
    observed = world.views["mpijobs"].cache.get(world.key)
    assert observed is not None
    assert (world.job.status.finished, observed.status.finished) == (True, False)
    await world.look()
    assert hosts(world) == ONE


async def test_a_limit_ends_a_job_with_its_host_list_as_it_was() -> None:
    """v1 checks the limits before everything else."""
    world = await running({"backoffLimit": 0}, restart="OnFailure")
    await lose_a_worker(world)
    assert "backoff limit" in world.job.status.condition(ConditionType.FAILED).message
    assert hosts(world) == BOTH


@pytest.mark.parametrize("wrong", [403, 422, 500])
async def test_a_host_list_that_cannot_be_changed_does_not_keep_the_verdict_away(wrong: int) -> None:
    """The ConfigMap may be immutable, or a webhook down."""
    world = await running({})
    world.faults.add(*(Fault(number, wrong, "PATCH", "configmaps") for number in range(30)))
    await lose_a_worker(world)
    assert world.job.status.holds(ConditionType.FAILED)
    assert hosts(world) == BOTH


async def test_the_host_list_of_an_ended_job_is_left_to_whoever_edits_it() -> None:
    world = await running({})
    await lose_a_worker(world)
    EDITS["edit config map"](world, 0)
    writes = world.writes
    await world.settle()
    body = world.server.find("configmaps", "job-config")
    assert body is not None
    assert (body["data"]["hostfile"], world.writes) == ("mine", writes)


def test_a_failure_whose_time_v1_forgot_lives_as_long_as_others_after_its_verdict() -> None:
    """D4: the Kubeflow operator never deletes such jobs."""
    framework = PyTorch()
    job = make_job(PYTORCHJOB, master=1, policy={"ttlSecondsAfterFinished": 60})
    failed = Condition(
        type="Failed",
        status="True",
        reason="PyTorchJobFailed",
        last_transition_time=OBSERVED_AT,
        last_update_time=OBSERVED_AT,
    )
    training_job = with_status(job, JobStatus(conditions=(failed,)))
    early = job_plan(framework, training_job, after=timedelta(seconds=60))
    assert (early.status.completion_time, early.requeue_after) == (OBSERVED_AT, timedelta(seconds=1))
    assert DeleteJob() not in plan_actions(early)
    assert DeleteJob() in plan_actions(job_plan(framework, training_job, after=timedelta(seconds=61)))


@pytest.mark.parametrize("policy", ["None", "Running", "All"])
@pytest.mark.parametrize("call", range(6))
@pytest.mark.parametrize("wrong", sorted(set(STORY_FAULTS), key=str))
async def test_a_worker_that_an_edit_made_superfluous_goes_although_the_edit_ended_the_job(
    wrong: int | str, call: int, policy: str
) -> None:
    """The two remaining workers have succeeded. Without clean-up the third would run for ever."""
    framework = TensorFlow()
    body = job_manifest(
        framework, {"Worker": {"replicas": 3}}, {"cleanPodPolicy": policy}, {"successPolicy": "AllWorkers"}
    )
    world = World(framework, body, judge=Invariants().judge)
    await world.settle()
    for pod in world.pods():
        Kubelet(world).start(pod)
    for pod in world.pods()[:2]:
        Kubelet(world).succeed(pod)
    await world.settle()
    world.faults.add(Fault(call, wrong))
    world.server.patch("tfjobs", "job", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 2}}}})
    await world.settle()
    assert world.job.status.holds(ConditionType.SUCCEEDED)
    assert world.server.find("services", "job-worker-2") is None
    left = {pod["metadata"]["name"] for pod in world.pods() if "deletionTimestamp" not in pod["metadata"]}
    assert left == (set() if policy == "All" else {"job-worker-0", "job-worker-1"})
    assert world.job.status.replica_statuses["Worker"].succeeded == 2


async def test_an_ended_job_keeps_its_pods_however_few_it_asks_for_then() -> None:
    world = await running({})
    Kubelet(world).succeed(next(pod for pod in world.pods() if pod["metadata"]["name"] == "job-launcher"))
    await world.settle()
    world.server.patch("mpijobs", "job", {"spec": {"mpiReplicaSpecs": {"Worker": {"replicas": 1}}}})
    await world.settle()
    assert len(world.pods()) == 3


@pytest.mark.parametrize(
    ("restart", "code", "told"),
    [
        ("Never", 0, ["Created", "Running", "Succeeded"]),
        ("Never", 1, ["Created", "Running", "Failed"]),
        ("ExitCode", 0, ["Created", "Running", "Succeeded"]),
        ("ExitCode", 1, ["Created", "Failed"]),
    ],
)
async def test_an_xgboost_job_that_ended_at_once_is_said_to_have_run(restart: str, code: int, told: list[str]) -> None:
    """As in v1, for this kind alone, and not if an exit code ended the job, which v1 checks first."""
    framework = XGBoost()
    replicas = {
        "Master": {"replicas": 1, "restartPolicy": restart},
        "Worker": {"replicas": 1, "restartPolicy": restart},
    }
    world = World(framework, job_manifest(framework, replicas, {}), judge=Invariants().judge)
    await world.settle()
    kubelet = Kubelet(world)
    kubelet.start(_master(world))
    if code:
        kubelet.fail(_master(world), code)
    else:
        kubelet.succeed(_master(world))
    await world.settle()
    assert [condition.type for condition in world.job.status.conditions] == told
    assert not world.job.status.holds(ConditionType.RUNNING)


def _master(world: World) -> JSON:
    body = world.server.find("pods", "job-master-0")
    assert body is not None
    return body
