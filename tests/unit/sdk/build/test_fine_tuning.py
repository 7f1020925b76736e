"""The job and the claim of `TrainingClient.train`."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from gangline.cli.manifests.lint import check_text
from gangline.sdk.build.fine_tuning import (
    DEFAULT_STORAGE,
    FineTuneRequest,
    fine_tune_job,
    storage_claim,
    validate,
)
from gangline.sdk.job import Job


class Classifier:
    """Stands for a class of transformers."""


def asked(**changes: Any) -> FineTuneRequest:
    usual = FineTuneRequest(
        name="tune",
        workers=3,
        processes=2,
        resources={"gpu": 1},
        model=SimpleNamespace(model_uri="hf://m", transformer_type=Classifier, access_token=None, num_labels=5),
        dataset=SimpleNamespace(repo_id="d", access_token=None, split="train"),
        trainer=SimpleNamespace(
            lora_config=SimpleNamespace(r=8, target_modules={"b", "a"}),
            training_parameters=SimpleNamespace(to_dict=lambda: {"epochs": 1}),
        ),
        init_env={"HF_HOME": "/tmp"},
        env=None,
        storage=DEFAULT_STORAGE,
    )
    return usual._replace(**changes)


def words(container: Any) -> dict[str, str]:
    args = container["args"]
    return dict(zip(args[::2], args[1::2], strict=True))


def test_the_master_fetches_and_everybody_trains() -> None:
    body = fine_tune_job(asked(), {"TRAINER_TRANSFORMER_IMAGE": "mine"})
    assert check_text(Job(body).to_yaml(), "made").findings == ()
    assert Job(body).replicas == {"Master": 1, "Worker": 2}
    assert body["spec"]["nprocPerNode"] == "2"
    master = body["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    (first,), (trainer,) = master["initContainers"], master["containers"]
    assert (first["image"], trainer["image"]) == ("kubeflow/storage-initializer", "mine")
    assert words(first)["--dataset_provider"] == "hf"
    assert json.loads(words(first)["--model_provider_parameters"])["transformer_type"] == "Classifier"
    told = words(trainer)
    assert (told["--transformer_type"], told["--num_labels"]) == ("Classifier", "5")
    assert json.loads(told["--lora_config"]) == {"r": 8, "target_modules": ["a", "b"]}
    assert json.loads(told["--training_parameters"]) == {"epochs": 1}
    assert trainer["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    worker = body["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert "initContainers" not in worker
    assert worker["volumes"] == [{"name": "storage-initializer", "persistentVolumeClaim": {"claimName": "tune"}}]


def test_the_claim_is_as_asked_for() -> None:
    assert storage_claim(asked())["spec"] == {
        "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
        "resources": {"requests": {"storage": "10Gi"}},
    }
    own = storage_claim(asked(storage={"size": "1Gi", "storage_class": "fast"}))["spec"]
    assert (own["storageClassName"], own["resources"]["requests"]["storage"]) == ("fast", "1Gi")


def test_data_may_come_from_a_bucket() -> None:
    bucket = SimpleNamespace(bucket_name="b", endpoint_url="e", file_key="k")
    master = fine_tune_job(asked(dataset=bucket), {})["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    assert words(master["initContainers"][0])["--dataset_provider"] == "s3"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": ""}, "name: is missing"),
        ({"model": None}, "model_provider_parameters: is missing"),
        ({"model": object()}, "has no model_uri"),
        ({"dataset": object()}, "is neither S3DatasetParams nor HuggingFaceDatasetParams"),
        ({"trainer": None}, "trainer_parameters: is missing"),
        ({"workers": 0}, "num_workers: is 0"),
    ],
)
def test_what_is_missing_is_told(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        validate(asked(**changes))
