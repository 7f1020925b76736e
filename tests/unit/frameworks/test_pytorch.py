from typing import Any

import pytest

from gangline.api.kubeflow.kinds import PyTorchJob
from gangline.api.kubeflow.training import JOB_ROLE
from gangline.frameworks.pytorch import PyTorch
from gangline.jobs.defaults import problems
from gangline.jobs.framework import ConditionText, EnvTarget, Framework, NeedsCompanions
from gangline.jobs.pods.replicas import Member
from support.builders.teams import env_text, local_addresses, make_framework_job, make_gang, member_pod_edits

PLAIN = PyTorch()
PT: Framework[PyTorchJob] = PLAIN
LED, ALONE = {"Master": 1, "Worker": 2}, {"Worker": 2}
CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization"}}}


# Variables


@pytest.mark.parametrize(("kind", "index", "rank"), [("Master", 0, 0), ("Worker", 0, 1), ("Worker", 1, 2)])
def test_everyone_knows_the_master_and_its_own_rank(kind: str, index: int, rank: int) -> None:
    edits = member_pod_edits(PT, make_framework_job(PT, LED, "ddp"), kind, index)
    assert env_text(edits) == (
        "PYTHONUNBUFFERED=1 MASTER_PORT=23456 PET_MASTER_PORT=23456 MASTER_ADDR=ddp-master-0 "
        f"PET_MASTER_ADDR=ddp-master-0 WORLD_SIZE=3 RANK={rank} PET_NODE_RANK={rank} "
        "PET_NPROC_PER_NODE=auto PET_NNODES=3"
    )
    assert edits.into is EnvTarget.EVERY


def test_workers_alone_are_told_no_ranks() -> None:
    assert env_text(member_pod_edits(PT, make_framework_job(PT, ALONE), "Worker", 1)) == (
        "PYTHONUNBUFFERED=1 PET_NPROC_PER_NODE=auto PET_NNODES=2"
    )


@pytest.mark.parametrize(("written", "size"), [("4", 8), ("auto", 2), ("gpu", 2), ("4 ", 2), ("٤", 2), ("+3", 6)])
def test_a_number_of_processes_multiplies_the_world(written: str, size: int) -> None:
    job = make_framework_job(PT, {"Master": 1, "Worker": 1}, nprocPerNode=written)
    env = env_text(member_pod_edits(PT, job, "Worker"))
    assert f" WORLD_SIZE={size} RANK=1 " in env
    assert env.endswith(f" PET_NPROC_PER_NODE={written} PET_NNODES=2")


def test_no_processes_are_told_if_the_job_says_nothing() -> None:
    assert (
        env_text(member_pod_edits(PT, make_framework_job(PT, ALONE, nprocPerNode=""), "Worker"))
        == "PYTHONUNBUFFERED=1 PET_NNODES=2"
    )


def test_the_masters_own_port_is_told() -> None:
    env = env_text(member_pod_edits(PT, make_framework_job(PT, LED), "Worker", master=1111, worker=2222))
    assert " MASTER_PORT=1111 PET_MASTER_PORT=1111 " in env


def test_on_one_machine_the_master_has_a_port_of_its_own() -> None:
    job = make_framework_job(PT, LED)
    edits = PT.wiring(job, Member("Worker", 1), local_addresses(PT, job))
    assert " MASTER_PORT=7000 PET_MASTER_PORT=7000 MASTER_ADDR=127.0.0.1 " in env_text(edits)


def test_elastic_workers_meet_at_worker_0() -> None:
    job = make_framework_job(PT, {"Worker": 3}, "a", elasticPolicy={"minReplicas": 1})
    assert env_text(member_pod_edits(PT, job, "Worker", 2)) == (
        "PYTHONUNBUFFERED=1 PET_NPROC_PER_NODE=auto PET_RDZV_ENDPOINT=a-worker-0:23456 "
        "PET_RDZV_BACKEND=c10d PET_NNODES=1:1"
    )


def test_everything_of_an_elastic_policy_is_told() -> None:
    policy = {
        "minReplicas": 1,
        "maxReplicas": 4,
        "rdzvBackend": "etcd",
        "rdzvHost": "store",
        "rdzvPort": 2379,
        "rdzvId": "seven",
        "rdzvConf": [{"key": "timeout", "value": "60"}, {"key": "a", "value": "b"}],
        "standalone": True,
        "nProcPerNode": 2,
        "maxRestarts": 3,
    }
    assert env_text(member_pod_edits(PT, make_framework_job(PT, ALONE, elasticPolicy=policy), "Worker")) == (
        "PYTHONUNBUFFERED=1 PET_RDZV_ENDPOINT=store:2379 PET_RDZV_BACKEND=etcd PET_NNODES=1:4 "
        "PET_MAX_RESTARTS=3 PET_NPROC_PER_NODE=2 PET_RDZV_ID=seven PET_RDZV_CONF=timeout=60,a=b PET_STANDALONE="
    )


def test_an_elastic_job_with_a_master_is_told_both() -> None:
    job = make_framework_job(PT, {"Master": 1, "Worker": 1}, elasticPolicy={"maxRestarts": 0})
    assert env_text(member_pod_edits(PT, job, "Master")) == (
        "PYTHONUNBUFFERED=1 MASTER_PORT=23456 PET_MASTER_PORT=23456 MASTER_ADDR=job-master-0 "
        "PET_MASTER_ADDR=job-master-0 WORLD_SIZE=2 RANK=0 PET_NODE_RANK=0 PET_NPROC_PER_NODE=auto "
        "PET_RDZV_ENDPOINT=job-worker-0:23456 PET_RDZV_BACKEND=c10d PET_NNODES=1:1 PET_MAX_RESTARTS=0"
    )


def test_a_master_whose_workers_were_scaled_away_meets_itself() -> None:
    job = make_framework_job(PT, {"Master": 1, "Worker": 0}, elasticPolicy={"maxReplicas": 2})
    assert " PET_RDZV_ENDPOINT=job-master-0:23456 " in env_text(member_pod_edits(PT, job, "Master"))


def test_on_one_machine_elastic_workers_meet_at_a_port_of_its_own() -> None:
    job = make_framework_job(PT, ALONE, elasticPolicy={})
    edits = PT.wiring(job, Member("Worker", 1), local_addresses(PT, job))
    assert " PET_RDZV_ENDPOINT=127.0.0.1:7000 " in env_text(edits)


# Roles and init containers


@pytest.mark.parametrize(
    ("replicas", "kind", "index", "marked"),
    [
        (LED, "Master", 0, True),
        (LED, "Worker", 0, False),
        (ALONE, "Worker", 0, True),
        (ALONE, "Worker", 1, False),
    ],
)
def test_the_master_or_worker_0_has_the_master_role(
    replicas: dict[str, int], kind: str, index: int, marked: bool
) -> None:
    edits = member_pod_edits(PT, make_framework_job(PT, replicas), kind, index)
    assert edits.labels == ({JOB_ROLE: "master"} if marked else {})


WAIT = (
    "err=1;for i in $(seq 100); do if nslookup ddp-master-0; then err=0 && break; fi;"
    "echo waiting for master; sleep 2; done; exit $err"
)


def test_no_helper_image_is_pulled() -> None:
    assert member_pod_edits(PT, make_framework_job(PT, LED), "Worker").init_containers == ()


def test_as_in_v1_a_worker_waits_for_its_masters_name() -> None:
    edits = member_pod_edits(PyTorch("alpine:3.10"), make_framework_job(PT, LED, "ddp"), "Worker", 1)
    assert edits.init_containers == (
        {
            "name": "init-pytorch",
            "image": "alpine:3.10",
            "imagePullPolicy": "IfNotPresent",
            "resources": {
                "limits": {"cpu": "100m", "memory": "20Mi"},
                "requests": {"cpu": "50m", "memory": "10Mi"},
            },
            "command": [
                "sh",
                "-c",
                WAIT,
            ],
        },
    )


@pytest.mark.parametrize(("replicas", "kind"), [(LED, "Master"), (ALONE, "Worker")])
def test_nobody_else_waits(replicas: dict[str, int], kind: str) -> None:
    assert member_pod_edits(PyTorch("alpine:3.10"), make_framework_job(PT, replicas), kind).init_containers == ()


def test_an_administrators_template_takes_its_place() -> None:
    framework = PyTorch("wait:2", 7, "- name: wait\n  image: {{.InitContainerImage}}\n  args: ['{{.MaxTries}}']\n")
    edits = member_pod_edits(framework, make_framework_job(framework, LED), "Worker")
    assert edits.init_containers == ({"name": "wait", "image": "wait:2", "args": ["7"]},)


# Autoscaler


def test_an_elastic_job_with_metrics_is_scaled() -> None:
    job = make_framework_job(PT, ALONE, "el", elasticPolicy={"maxReplicas": 4, "metrics": [CPU]})
    (scaler,) = PLAIN.companions(job, make_gang(PT, job))
    assert (scaler.resource, scaler.name, scaler.parts) == (
        "horizontalpodautoscalers.autoscaling",
        "el",
        ("spec",),
    )
    assert scaler.only_active
    assert not scaler.anyones
    assert scaler.body["apiVersion"] == "autoscaling/v2"
    assert scaler.body["spec"] == {
        "minReplicas": 4,
        "maxReplicas": 4,
        "metrics": [CPU],
        "scaleTargetRef": {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "el"},
    }


def test_an_elastic_job_with_an_empty_list_of_metrics_is_scaled_by_those_of_the_server() -> None:
    job = make_framework_job(PT, ALONE, "el", elasticPolicy={"maxReplicas": 4, "metrics": []})
    (scaler,) = PLAIN.companions(job, make_gang(PT, job))
    # Not an empty list: the server would fill it in, and we would empty it again for ever.
    assert "metrics" not in scaler.body["spec"]
    assert scaler.body["spec"]["maxReplicas"] == 4


@pytest.mark.parametrize("spec", [{}, {"elasticPolicy": {}}])
def test_other_jobs_are_not_scaled(spec: dict[str, Any]) -> None:
    job = make_framework_job(PT, ALONE, **spec)
    assert PLAIN.companions(job, make_gang(PT, job)) == ()
    assert isinstance(PLAIN, NeedsCompanions)


# Verdict

BY_NAME, IN_FULL = "PyTorchJob job is running.", "PyTorchJob ml/job is running."
DONE, DONE_IN_FULL = "PyTorchJob job is successfully completed.", "PyTorchJob ml/job successfully completed."


@pytest.mark.parametrize(
    ("replicas", "elastic", "phases", "told"),
    [
        (LED, False, {"worker_0": "Running"}, ""),
        (LED, False, {"master_0": "Running", "worker_0": "Failed"}, BY_NAME),
        (LED, False, {"master_0": "-Running"}, ""),
        (LED, False, {"master_0": "Succeeded", "worker_0": "Failed"}, DONE),
        (LED, True, {"master_0": "Running", "worker_0": "Succeeded"}, BY_NAME),
        (ALONE, False, {"worker_1": "Running"}, IN_FULL),
        (ALONE, False, {"worker_0": "Succeeded", "worker_1": "Running"}, IN_FULL),
        (ALONE, False, {"worker_0": "Succeeded", "worker_1": "Succeeded"}, DONE_IN_FULL),
        (ALONE, True, {"worker_0": "Running", "worker_1": "Succeeded"}, DONE_IN_FULL),
        (ALONE, True, {"worker_0": "Running", "worker_1": "Failed"}, IN_FULL),
    ],
)
def test_the_master_decides_or_workers(
    replicas: dict[str, int], elastic: bool, phases: dict[str, str], told: str
) -> None:
    spec: dict[str, Any] = {"elasticPolicy": {}} if elastic else {}
    job = make_framework_job(PT, replicas, **spec)
    assert PT.verdict(job, make_gang(PT, job, **phases)).message == told


def test_failure_is_told_by_name() -> None:
    job = make_framework_job(PT, LED)
    message = "PyTorchJob job is failed because 1 Worker replica(s) failed."
    assert PT.failure(job, "Worker", 1) == ConditionText("PyTorchJobFailed", message)
    assert not PT.tolerates(job, "Worker")


# Defaults and validation

TWICE = "is deprecated and stands beside spec.nprocPerNode; write the latter alone"


@pytest.mark.parametrize(
    ("written", "filled"),
    [
        ({}, (3, 3)),
        ({"minReplicas": 1}, (1, 1)),
        ({"maxReplicas": 5}, (5, 5)),
        ({"minReplicas": 1, "maxReplicas": 5}, (1, 5)),
    ],
)
def test_a_missing_bound_is_as_the_other(written: dict[str, int], filled: tuple[int, int]) -> None:
    elastic = make_framework_job(PT, {"Worker": 3}, elasticPolicy=written).spec.elastic_policy
    assert elastic is not None
    assert (elastic.min_replicas, elastic.max_replicas) == filled


@pytest.mark.parametrize(
    ("spec", "filled"),
    [
        ({}, "auto"),
        ({"nprocPerNode": "gpu"}, "gpu"),
        ({"nprocPerNode": ""}, ""),
        ({"elasticPolicy": {}}, "auto"),
        ({"elasticPolicy": {"nProcPerNode": 2}}, None),
    ],
)
def test_processes_per_node_are_left_to_torch(spec: dict[str, Any], filled: str | None) -> None:
    assert make_framework_job(PT, ALONE, **spec).spec.nproc_per_node == filled


def test_replicas_are_restarted_unless_the_job_says_otherwise() -> None:
    job = make_framework_job(PT, {"Master": None, "Worker": {"restartPolicy": "Never"}})
    filled = {kind: (spec.replicas, spec.restart_policy) for kind, spec in PT.replicas(job).items()}
    assert filled == {"Master": (1, "OnFailure"), "Worker": (1, "Never")}


@pytest.mark.parametrize(
    ("replicas", "spec", "told"),
    [
        ({"Master": None, "Worker": None}, {}, []),
        (
            {"Master": 2},
            {},
            ["spec.pytorchReplicaSpecs.Master.replicas: is 2; write 1, or leave the Master out"],
        ),
        (
            {"Master": 0, "Worker": 1},
            {},
            ["spec.pytorchReplicaSpecs.Master.replicas: is 0; write 1, or leave the Master out"],
        ),
        (
            {"Master": 1},
            {"elasticPolicy": {}},
            ["spec.pytorchReplicaSpecs: has no Worker, which elasticPolicy needs; write one"],
        ),
        ({"Worker": 1}, {"elasticPolicy": {"nProcPerNode": 2}}, []),
        (
            {"Worker": 1},
            {"elasticPolicy": {"nProcPerNode": 2}, "nprocPerNode": "2"},
            [f"spec.elasticPolicy.nProcPerNode: {TWICE}"],
        ),
    ],
)
def test_what_cannot_run_is_told(replicas: dict[str, int | None], spec: dict[str, Any], told: list[str]) -> None:
    assert [str(problem) for problem in problems(PT, make_framework_job(PT, replicas, **spec))] == told
