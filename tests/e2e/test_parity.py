"""Our TrainingClient has every call of Kubeflow's, as the real package declares them."""

import inspect
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gangline import AsyncTrainingClient, TrainingClient
from gangline.sdk import kubeflow
from support.cluster.clients import CLIENTS_FOLDER, find_kubeflow_python

OTHER_DEFAULTS = {
    # Theirs is fixed when the module is imported.
    ("__init__", "namespace"): "None",
    # Pip's own, as it is configured where the job runs.
    ("create_job", "pip_index_url"): "None",
    # The same one condition, in a set that nobody can change.
    ("wait_for_job_conditions", "expected_conditions"): "frozenset({'Succeeded'})",
}
"""What is meant to be different, and what it is here. docs/sdk.md says so."""

OTHER_CONSTANTS = {
    "DEFAULT_PIP_INDEX_URL",
    "ISTIO_SIDECAR_INJECTION",
    "DEFAULT_COMMAND",
    "INIT_CONTAINER_MOUNT_PATH",
    "STORAGE_INITIALIZER",
    "STORAGE_INITIALIZER_IMAGE",
    "TRAINER_TRANSFORMER_IMAGE",
    # Of a kind that is no more.
    "REPLICA_TYPE_SCHEDULER",
    "REPLICA_TYPE_SERVER",
}
OTHER_ENDINGS = ("_BASE_IMAGE", "_BASE_IMAGE_GPU", "_REPLICA_TYPES")
OTHER_BEGINNINGS = ("PVC_DEFAULT", "ENTRYPOINT")
"""What only the inside of their client needs."""

Calls = dict[str, list[tuple[str, str]]]


@pytest.fixture(scope="module")
def face() -> dict[str, Any]:
    environment = {**os.environ, "KUBECONFIG": "/nonexistent"}
    command = [find_kubeflow_python(), CLIENTS_FOLDER / "signatures.py"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def theirs(face: dict[str, Any]) -> Calls:
    """By name: the parameters in order, with the text of their defaults, empty for none."""
    return {name: [tuple(each) for each in parameters] for name, parameters in face["calls"].items()}


def positional(call: Any) -> list[tuple[str, str]]:
    return [
        (each.name, "" if each.default is each.empty else repr(each.default))
        for each in inspect.signature(call).parameters.values()
        if each.kind is each.POSITIONAL_OR_KEYWORD
    ]


def test_every_call_takes_the_same_in_the_same_order_with_the_same_defaults(theirs: Calls) -> None:
    expected = {
        name: [(each, OTHER_DEFAULTS.get((name, each), default)) for each, default in parameters]
        for name, parameters in theirs.items()
    }
    assert {name: positional(vars(TrainingClient)[name]) for name in theirs} == expected


def test_the_list_of_differences_has_nothing_that_is_the_same(theirs: Calls) -> None:
    for (name, parameter), ours in OTHER_DEFAULTS.items():
        assert dict(theirs[name])[parameter] != ours


def test_what_is_meant_to_be_different_is_on_the_page() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sdk.md").read_text()
    assert [parameter for _, parameter in OTHER_DEFAULTS if f"`{parameter}`" not in page] == []


def test_the_client_has_the_same_public_attributes_and_says_what_to_write_for_the_others(
    face: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GANGLINE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    official = {"core_api", "custom_api", "api_client"}
    assert set(face["attributes"]) == {"namespace", "job_kind", *official}
    for client in (TrainingClient(), AsyncTrainingClient()):
        assert (client.namespace, client.job_kind) == ("default", "PyTorchJob")
        client.namespace, client.job_kind = "team", "TFJob"
        assert (client.namespace, client.job_kind) == ("team", "TFJob")
        with pytest.raises(ValueError, match="PyTorchJob"):
            client.job_kind = "NoJob"
    for name in official:
        with pytest.raises(AttributeError, match=r"write kubernetes.client\.[A-Z]\w+\(\)"):
            getattr(TrainingClient(), name)


def test_constants_have_their_values(face: dict[str, Any]) -> None:
    for name, value in face["constants"].items():
        if name in OTHER_CONSTANTS or name.endswith(OTHER_ENDINGS) or name.startswith(OTHER_BEGINNINGS):
            assert not hasattr(kubeflow.constants, name), name
            continue
        ours = getattr(kubeflow.constants, name)
        if name == "JOB_PARAMETERS":
            value = {
                kind: {each: told for each, told in found.items() if each != "base_image"}
                for kind, found in value.items()
            }
        assert json.loads(json.dumps(sorted(ours) if isinstance(ours, set) else ours)) == value, name


def test_every_model_is_there_with_its_attributes_and_what_they_are_on_the_wire(face: dict[str, Any]) -> None:
    ours = {name: getattr(kubeflow, name).attribute_map for name in face["models"]}
    assert ours == face["models"]
    assert {name for name in kubeflow.__all__ if name.startswith("Kubeflow")} == set(ours)
