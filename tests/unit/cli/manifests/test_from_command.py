"""A job from a command."""

from typing import Any

import msgspec
import pytest

from gangline.api.kubeflow.training import RESTART_SCOPE_ANNOTATION, SUCCESS_POLICY_ANNOTATION, JobKind
from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.manifests.from_command import (
    SCRIPT_KINDS,
    CommandJob,
    job_from_command,
    job_name,
    limits_with_gpu,
    parse_limits,
    process_env,
)
from gangline.cli.manifests.processes import Machine, ProcessCount

TWO_GPUS = Machine(cores=8, gpus=("nvidia", "nvidia"))


def made(kind: str, command: list[str], nproc: int, **more: Any) -> tuple[JobKind, JSON]:
    return job_from_command(CommandJob(kind, tuple(command), ProcessCount(nproc, nproc), **more))


def elastic(command: list[str], kind: str = "PyTorchJob", **more: Any) -> JSON:
    return job_from_command(CommandJob(kind, tuple(command), ProcessCount(4, 2), **more))[1]


@pytest.mark.parametrize(
    ("kind", "counts"),
    [
        ("PyTorchJob", {"Master": 1, "Worker": 3}),
        ("XGBoostJob", {"Master": 1, "Worker": 3}),
        ("TFJob", {"Worker": 4}),
        ("JAXJob", {"Worker": 4}),
        ("paddlejob", {"Worker": 4}),
    ],
)
def test_every_kind_has_as_many_replicas_as_requested(kind: str, counts: dict[str, int]) -> None:
    facts, body = made(kind, ["python", "train.py"], 4)
    replicas = body["spec"][facts.replicas]
    assert {name: spec["replicas"] for name, spec in replicas.items()} == counts
    msgspec.convert(body, facts.model)


def test_all_replicas_run_the_command_in_the_training_container() -> None:
    for kind in SCRIPT_KINDS:
        facts, body = made(kind.kind, ["python", "train.py", "--lr", "0.1"], 2)
        for spec in body["spec"][facts.replicas].values():
            (container,) = spec["template"]["spec"]["containers"]
            assert container["name"] == facts.container
            assert container["command"] == ["python", "train.py", "--lr", "0.1"]


def test_one_process_needs_no_workers() -> None:
    facts, body = made("PyTorchJob", ["python", "train.py"], 1)
    assert list(body["spec"][facts.replicas]) == ["Master"]


def test_a_torchrun_in_a_replica_starts_one_process_or_one_for_each_of_its_gpus() -> None:
    _, body = made("PyTorchJob", ["torchrun", "train.py"], 2)
    assert body["spec"]["nprocPerNode"] == "1"
    request = CommandJob("PyTorchJob", ("torchrun", "train.py"), ProcessCount(2, 2), limits={"nvidia.com/gpu": "2"})
    assert "nprocPerNode" not in job_from_command(request)[1]["spec"]
    assert "nprocPerNode" not in made("TFJob", ["torchrun", "train.py"], 2)[1]["spec"]


def test_dollars_reach_the_program() -> None:
    facts, body = made("TFJob", ["sh", "-c", "echo $(HOME) $$"], 1)
    command = body["spec"][facts.replicas]["Worker"]["template"]["spec"]["containers"][0]["command"]
    assert command[2] == "echo $$(HOME) $$$$"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "train.py"], "train"),
        (["python", "-u", "src/My_Train v2.py", "other.py"], "my-train-v2"),
        (["python", "-m", "package.train"], "package"),
        (["./run.sh"], "run"),
        (["/usr/bin/true"], "true"),
        (["3d.py"], "job-3d"),
        (["---"], "job"),
        (["x" * 100 + ".py"], "x" * 40),
    ],
)
def test_a_job_is_named_after_its_command(command: list[str], name: str) -> None:
    assert job_name(command) == name


@pytest.mark.parametrize(
    ("kind", "command", "nproc", "message"),
    [
        ("MPIJob", ["x"], 2, "--kind MPIJob: a job from a script is one of PyTorchJob, TFJob"),
        ("TFJob", [], 2, "no command; write: gangline run --nproc 4 -- python train.py"),
    ],
)
def test_invalid_input_is_an_error_with_what_to_write(kind: str, command: list[str], nproc: int, message: str) -> None:
    with pytest.raises(InputError) as raised:
        made(kind, command, nproc)
    assert message in str(raised.value)


def test_a_team_that_may_restart_restarts_as_a_whole() -> None:
    _, body = made("PyTorchJob", ["python", "train.py"], 2, max_restarts=3)
    assert body["spec"]["runPolicy"] == {"backoffLimit": 3}
    assert body["metadata"]["annotations"] == {
        RESTART_SCOPE_ANNOTATION: "Job",
        SUCCESS_POLICY_ANNOTATION: "AllReplicas",
    }
    assert {spec["restartPolicy"] for spec in body["spec"]["pytorchReplicaSpecs"].values()} == {"OnFailure"}


@pytest.mark.parametrize("restarts", [None, 0])
def test_without_restarts_the_first_failure_is_final(restarts: int | None) -> None:
    _, body = made("PyTorchJob", ["python", "train.py"], 2, max_restarts=restarts)
    assert {spec["restartPolicy"] for spec in body["spec"]["pytorchReplicaSpecs"].values()} == {"Never"}
    assert "runPolicy" not in body["spec"]
    with pytest.raises(InputError, match="--max-restarts -1: expected 0 or more"):
        made("PyTorchJob", ["python", "train.py"], 2, max_restarts=-1)


def test_a_range_is_an_elastic_job_of_workers_under_torchrun() -> None:
    body = elastic(["python", "-u", "train.py", "--lr", "1"])
    (worker,) = body["spec"]["pytorchReplicaSpecs"].values()
    assert (worker["replicas"], worker["restartPolicy"]) == (4, "OnFailure")
    # If torchrun itself is lost, all meet anew.
    assert body["metadata"]["annotations"] == {RESTART_SCOPE_ANNOTATION: "Job"}
    assert body["spec"]["runPolicy"] == {"backoffLimit": 1}
    assert elastic(["python", "x.py"], max_restarts=2)["spec"]["runPolicy"] == {"backoffLimit": 2}
    command = worker["template"]["spec"]["containers"][0]["command"]
    assert command == ["python", "-m", "torch.distributed.run", "train.py", "--lr", "1"]
    policy = {"minReplicas": 2, "maxReplicas": 4, "maxRestarts": 3, "rdzvBackend": "c10d"}
    assert (body["spec"]["elasticPolicy"], body["spec"]["nprocPerNode"]) == (policy, "1")
    assert elastic(["torchrun", "x.py"], max_restarts=0)["spec"]["elasticPolicy"]["maxRestarts"] == 0


@pytest.mark.parametrize(
    ("command", "started"),
    [
        (["torchrun", "train.py"], ["torchrun", "train.py"]),
        (["python3.12", "-m", "package"], ["python3.12", "-m", "torch.distributed.run", "-m", "package"]),
        (["python", "-m", "torch.distributed.run", "x.py"], ["python", "-m", "torch.distributed.run", "x.py"]),
    ],
)
def test_torchrun_is_added_to_python_only(command: list[str], started: list[str]) -> None:
    container = elastic(command)["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    assert container["command"] == started


def test_a_range_that_cannot_be_elastic_says_what_to_write() -> None:
    with pytest.raises(InputError, match=r"--nproc 2:4: a range is for a PyTorchJob.*for a TFJob write --nproc 4"):
        elastic(["python", "train.py"], kind="TFJob")
    with pytest.raises(InputError, match=r"torchrun cannot pass -X to Python; write: -- torchrun train.py"):
        elastic(["python", "-X", "dev", "train.py"])


def test_gpu_is_the_resource_of_the_machines_vendor() -> None:
    assert parse_limits(["gpu=1", "cpu=2"], TWO_GPUS) == {"nvidia.com/gpu": "1", "cpu": "2"}
    assert parse_limits(["gpu=1"], Machine(gpus=("amd",))) == {"amd.com/gpu": "1"}
    assert parse_limits(["GPU=1"], Machine()) == {"nvidia.com/gpu": "1"}
    with pytest.raises(InputError, match="--limit gpu: expected NAME=AMOUNT; write: --limit gpu=1"):
        parse_limits(["gpu"], Machine())


@pytest.mark.parametrize(
    ("limits", "processes", "result"),
    [
        ({}, 2, {"nvidia.com/gpu": "1"}),
        ({"cpu": "1"}, 2, {"cpu": "1", "nvidia.com/gpu": "1"}),
        ({}, 1, {}),  # one process may use all of them
        ({}, 3, {}),  # not enough for all
        ({"nvidia.com/gpu": "0"}, 2, {"nvidia.com/gpu": "0"}),
    ],
)
def test_each_of_several_processes_has_a_gpu_if_there_are_enough(
    limits: dict[str, str], processes: int, result: dict[str, str]
) -> None:
    assert limits_with_gpu(limits, processes, TWO_GPUS) == result


def test_processes_share_the_cores_unless_the_user_says_otherwise() -> None:
    machine = Machine(cores=8)
    assert process_env(4, machine, {}) == {"OMP_NUM_THREADS": "2"}
    assert process_env(16, machine, {}) == {"OMP_NUM_THREADS": "1"}
    assert process_env(1, machine, {}) == {}
    assert process_env(4, machine, {"OMP_NUM_THREADS": "5"}) == {}
