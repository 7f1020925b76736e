"""`create_job` from arguments."""

from typing import Any

import pytest

from gangline.sdk.build.from_arguments import job_from_arguments
from gangline.sdk.job import job_kind_named

NOTHING = {
    "name": None,
    "job_kind": None,
    "base_image": None,
    "train_func": None,
    "parameters": None,
    "num_workers": 1,
    "num_procs_per_worker": None,
    "resources_per_worker": None,
    "num_chief_replicas": None,
    "num_ps_replicas": None,
    "packages_to_install": None,
    "pip_index_url": None,
    "env_vars": None,
}


def work() -> None:
    print("work")


def made(given: Any = None, usual: str = "PyTorchJob", **asked: Any) -> Any:
    return job_from_arguments(given, {**NOTHING, **asked}, job_kind_named(usual))


def test_one_worker_is_a_master_alone_and_runs_python() -> None:
    spec = made(name="j", train_func=work)["spec"]["pytorchReplicaSpecs"]
    assert list(spec) == ["Master"]
    (container,) = spec["Master"]["template"]["spec"]["containers"]
    assert (container["name"], container["command"][:2]) == ("pytorch", ["python", "-c"])
    assert '"launcher": []' in container["command"][3]


def test_several_workers_are_started_by_torchrun() -> None:
    body = made(name="j", train_func=work, num_workers=3, num_procs_per_worker=2, env_vars={"A": "b"})
    spec = body["spec"]["pytorchReplicaSpecs"]
    assert (spec["Master"]["replicas"], spec["Worker"]["replicas"]) == (1, 2)
    assert body["spec"]["nprocPerNode"] == "2"
    (container,) = spec["Worker"]["template"]["spec"]["containers"]
    assert '"launcher": ["torchrun"]' in container["command"][3]
    assert container["env"] == [{"name": "A", "value": "b"}]


def test_a_tfjob_has_chiefs_and_servers_when_asked() -> None:
    body = made(name="j", job_kind="TFJob", train_func=work, num_workers=2, num_chief_replicas=1, num_ps_replicas=1)
    assert {kind: each["replicas"] for kind, each in body["spec"]["tfReplicaSpecs"].items()} == {
        "Chief": 1,
        "PS": 1,
        "Worker": 2,
    }


def test_an_image_alone_runs_what_is_in_it() -> None:
    body = made(name="j", base_image="mine", job_kind="JAXJob", num_workers=2)
    (container,) = body["spec"]["jaxReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    assert container == {"name": "jax", "image": "mine"}


def test_a_job_without_kind_is_of_the_clients_kind() -> None:
    assert made({"metadata": {"name": "j"}}, usual="TFJob")["kind"] == "TFJob"


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"given": {"kind": "TFJob"}, "name": "x"}, "name: has no effect together with job"),
        ({"train_func": work}, "name: is missing"),
        ({"name": "j"}, "write a job, a train_func, or a base_image"),
        ({"name": "j", "train_func": work, "job_kind": "JAXJob"}, "base_image: is missing"),
        ({"name": "j", "base_image": "x", "num_ps_replicas": 1}, "num_ps_replicas: is for TFJob"),
        (
            {"name": "j", "base_image": "x", "job_kind": "TFJob", "num_procs_per_worker": 2},
            "num_procs_per_worker: is for PyTorchJob",
        ),
        (
            {"name": "j", "base_image": "x", "packages_to_install": ["a"]},
            "packages_to_install: is for a train_func",
        ),
        ({"name": "j", "base_image": "x", "job_kind": "Nothing"}, "job_kind: is 'Nothing'"),
        ({"name": "j", "base_image": "x", "num_workers": 0}, "0 members; write 1 or more"),
    ],
)
def test_mistakes_say_what_to_write(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        made(**asked)
