import pytest

from gangline.api.kubeflow.kinds import XGBoostJob
from gangline.api.kubeflow.training import JOB_ROLE
from gangline.frameworks.xgboost import XGBoost
from gangline.jobs.defaults import problems
from gangline.jobs.framework import ConditionText, EnvTarget, Framework
from gangline.jobs.pods.replicas import Member
from support.builders.teams import env_text, local_addresses, make_framework_job, make_gang, member_pod_edits

XGB: Framework[XGBoostJob] = XGBoost()


@pytest.mark.parametrize(("kind", "index", "rank"), [("Master", 0, 0), ("Worker", 0, 1), ("Worker", 1, 2)])
def test_everyone_knows_the_master_and_the_workers(kind: str, index: int, rank: int) -> None:
    job = make_framework_job(XGB, {"Master": 1, "Worker": 2}, "iris")
    edits = member_pod_edits(XGB, job, kind, index)
    assert env_text(edits) == (
        f"MASTER_PORT=9999 MASTER_ADDR=iris-master-0 WORLD_SIZE=3 RANK={rank} PYTHONUNBUFFERED=1 "
        "WORKER_PORT=9999 WORKER_ADDRS=iris-worker-0,iris-worker-1"
    )
    assert edits.into is EnvTarget.EVERY
    assert edits.labels == ({JOB_ROLE: "master"} if kind == "Master" else {})


@pytest.mark.parametrize("replicas", [{"Master": 1}, {"Master": 1, "Worker": 0}])
def test_a_master_alone_is_told_of_no_workers(replicas: dict[str, int]) -> None:
    job = make_framework_job(XGB, replicas, "iris")
    assert env_text(member_pod_edits(XGB, job, "Master")) == (
        "MASTER_PORT=9999 MASTER_ADDR=iris-master-0 WORLD_SIZE=1 RANK=0 PYTHONUNBUFFERED=1"
    )


def test_master_and_workers_have_their_own_ports() -> None:
    job = make_framework_job(XGB, {"Master": 1, "Worker": 1})
    told = env_text(member_pod_edits(XGB, job, "Worker", master=1111, worker=2222))
    assert told.startswith("MASTER_PORT=1111 ")
    assert " WORKER_PORT=2222 " in told


@pytest.mark.parametrize(("kind", "index", "port"), [("Master", 0, 7001), ("Worker", 0, 7001), ("Worker", 1, 7002)])
def test_on_one_machine_a_worker_is_told_the_port_to_listen_on(kind: str, index: int, port: int) -> None:
    job = make_framework_job(XGB, {"Master": 1, "Worker": 2})
    told = env_text(XGB.wiring(job, Member(kind, index), local_addresses(XGB, job)))
    assert told.startswith("MASTER_PORT=7000 MASTER_ADDR=127.0.0.1 ")
    assert f" WORKER_PORT={port} " in told


@pytest.mark.parametrize(
    ("phases", "told"),
    [
        ({"master_0": "Pending", "worker_0": "Running"}, ""),
        # v1 calls a job running because something failed.
        ({"master_0": "Pending", "worker_0": "Failed"}, ""),
        ({"master_0": "Running", "worker_0": "Failed"}, "XGBoostJob job is running."),
        ({"master_0": "Running", "worker_0": "Succeeded"}, "XGBoostJob job is running."),
        ({"master_0": "Succeeded", "worker_0": "Failed"}, "XGBoostJob job is successfully completed."),
    ],
)
def test_the_master_decides(phases: dict[str, str], told: str) -> None:
    job = make_framework_job(XGB, {"Master": 1, "Worker": 2})
    assert XGB.verdict(job, make_gang(XGB, job, **phases)).message == told


def test_failure_and_defaults() -> None:
    job = make_framework_job(XGB, {"Master": None, "Worker": None})
    assert XGB.failure(job, "Worker", 2) == ConditionText(
        "XGBoostJobFailed", "XGBoostJob job is failed because 2 Worker replica(s) failed."
    )
    filled = {kind: (spec.replicas, spec.restart_policy) for kind, spec in XGB.replicas(job).items()}
    assert filled == {"Master": (1, "Never"), "Worker": (1, "Never")}
    assert XGB.run_policy(job).clean_pod_policy == "None"
    assert not XGB.tolerates(job, "Worker")


@pytest.mark.parametrize(
    ("replicas", "told"),
    [
        ({"Master": None}, []),
        ({"Worker": 1}, ["spec.xgbReplicaSpecs: has no Master; write one, with replicas: 1"]),
        ({"Master": 2, "Worker": 1}, ["spec.xgbReplicaSpecs.Master.replicas: is 2; write 1"]),
        ({"Master": 0, "Worker": 1}, ["spec.xgbReplicaSpecs.Master.replicas: is 0; write 1"]),
    ],
)
def test_there_is_one_master(replicas: dict[str, int | None], told: list[str]) -> None:
    assert [str(problem) for problem in problems(XGB, make_framework_job(XGB, replicas))] == told
