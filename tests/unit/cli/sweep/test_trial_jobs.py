"""The job of one trial."""

from pathlib import Path
from typing import Any

import pytest

from gangline.base.errors import InputError
from gangline.cli.sweep.request import SweepSource
from gangline.cli.sweep.trial_jobs import trial_job, trial_jobs

FILE = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: small
  namespace: elsewhere
spec:
  tfReplicaSpecs:
    PS:
      template: &replica
        spec:
          initContainers:
            - {name: fetch, image: none}
          containers:
            - name: tensorflow
              image: none
              command: [train, $(lr)]
              env: [{name: MORE, value: "$(lr)0"}, {name: lr, value: "0.5"}]
    Worker:
      replicas: 2
      template: *replica
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(FILE)
    return path


def environment(container: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["name"], each["value"]) for each in container["env"]]


def test_a_parameter_becomes_a_variable_of_every_container_before_others(file: Path) -> None:
    _, body = trial_job(SweepSource(file), {"lr": "0.1"}, 3)
    for replica in body["spec"]["tfReplicaSpecs"].values():
        spec = replica["template"]["spec"]
        (container,) = spec["containers"]
        assert environment(container) == [("lr", "0.1"), ("GANGLINE_TRIAL", "3"), ("MORE", "$(lr)0")]
        assert environment(spec["initContainers"][0]) == [("lr", "0.1"), ("GANGLINE_TRIAL", "3")]


def test_a_value_is_not_expanded(file: Path) -> None:
    _, body = trial_job(SweepSource(file), {"lr": "$(HOME)$"}, 1)
    container = body["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]["containers"][0]
    assert environment(container)[0] == ("lr", "$$(HOME)$$")


def test_a_path_changes_the_job_and_sets_no_variable(file: Path) -> None:
    _, body = trial_job(SweepSource(file), {"spec.tfReplicaSpecs.Worker.replicas": "5"}, 1)
    assert body["spec"]["tfReplicaSpecs"]["Worker"]["replicas"] == 5
    container = body["spec"]["tfReplicaSpecs"]["PS"]["template"]["spec"]["containers"][0]
    assert [name for name, _ in environment(container)] == ["GANGLINE_TRIAL", "MORE", "lr"]


def test_trials_have_one_name_and_namespaces_of_their_own(file: Path) -> None:
    kind, bodies = trial_jobs(SweepSource(file), [{"lr": "1"}, {"lr": "2"}])
    assert kind.kind == "TFJob"
    assert [(body["metadata"]["namespace"], body["metadata"]["name"]) for body in bodies] == [
        ("trial-1", "small"),
        ("trial-2", "small"),
    ]


def test_only_placeholders_of_parameters_are_replaced_in_a_command() -> None:
    source = SweepSource(command=("python", "train.py", "--lr={lr}", "{other}", "$HOME"), nproc="2", kind="PyTorchJob")
    _, body = trial_job(source, {"lr": "0.1"}, 1)
    replicas = body["spec"]["pytorchReplicaSpecs"]
    assert {name: each["replicas"] for name, each in replicas.items()} == {"Master": 1, "Worker": 1}
    container = replicas["Worker"]["template"]["spec"]["containers"][0]
    assert container["command"] == ["python", "train.py", "--lr=0.1", "{other}", "$$HOME"]
    assert environment(container)[:2] == [("lr", "0.1"), ("GANGLINE_TRIAL", "1")]


def test_a_job_is_not_named_after_a_value() -> None:
    source = SweepSource(command=("{script}",), nproc="1", kind="PyTorchJob")
    _, bodies = trial_jobs(source, [{"script": "a.py"}, {"script": "b.py"}])
    assert {body["metadata"]["name"] for body in bodies} == {"script"}


def test_a_value_of_the_wrong_type_is_an_error_with_its_path(file: Path) -> None:
    with pytest.raises(InputError, match=r'Worker\.replicas: expected int, got "many"'):
        trial_jobs(SweepSource(file), [{"spec.tfReplicaSpecs.Worker.replicas": each} for each in ("1", "many")])


@pytest.mark.parametrize("path", ["metadata.name", "kind.x"])
def test_name_and_kind_cannot_be_parameters(file: Path, path: str) -> None:
    with pytest.raises(InputError, match="--set"):
        trial_jobs(SweepSource(file), [{path: "a"}, {path: "b"}])
