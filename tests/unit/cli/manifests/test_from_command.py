"""A job from a command."""

import msgspec
import pytest

from gangline.base.errors import InputError
from gangline.cli.manifests.from_command import SCRIPT_KINDS, job_from_command, job_name


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
    facts, body = job_from_command(kind, ["python", "train.py"], 4)
    replicas = body["spec"][facts.replicas]
    assert {name: spec["replicas"] for name, spec in replicas.items()} == counts
    msgspec.convert(body, facts.model)


def test_all_replicas_run_the_command_in_the_training_container() -> None:
    for kind in SCRIPT_KINDS:
        facts, body = job_from_command(kind.kind, ["python", "train.py", "--lr", "0.1"], 2)
        for spec in body["spec"][facts.replicas].values():
            (container,) = spec["template"]["spec"]["containers"]
            assert container["name"] == facts.container
            assert container["command"] == ["python", "train.py", "--lr", "0.1"]


def test_one_process_needs_no_workers() -> None:
    facts, body = job_from_command("PyTorchJob", ["python", "train.py"], 1)
    assert list(body["spec"][facts.replicas]) == ["Master"]


def test_dollars_reach_the_program() -> None:
    facts, body = job_from_command("TFJob", ["sh", "-c", "echo $(HOME) $$"], 1)
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
        ("TFJob", ["x"], 0, "--nproc 0: expected 1 or more"),
        ("TFJob", [], 2, "no command; write: gangline run --nproc 4 -- python train.py"),
    ],
)
def test_invalid_input_is_an_error_with_what_to_write(kind: str, command: list[str], nproc: int, message: str) -> None:
    with pytest.raises(InputError) as raised:
        job_from_command(kind, command, nproc)
    assert message in str(raised.value)
