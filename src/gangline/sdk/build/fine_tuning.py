"""The job and the claim of `TrainingClient.train`: fine-tuning of a language model as `kubeflow-training` does it. Pure.

The claim has the model and the data set; an init container of the master fills it; all replicas run Kubeflow's trainer.
The parameter objects are those of `kubeflow.storage_initializer`, or any objects with the same attributes.
"""

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.api.meta import JSON
from gangline.sdk.build.bodies import env_entries, plain_json, resource_requirements, volume_claim_spec
from gangline.sdk.build.jobs import NO_SIDECAR_ANNOTATIONS

INITIALIZER = "storage-initializer"
MOUNT_PATH = "/workspace"
DEFAULT_STORAGE: Mapping[str, Any] = {
    "size": "10Gi",
    "storage_class": None,
    "access_modes": ["ReadWriteOnce", "ReadOnlyMany"],
}


class FineTuneRequest(NamedTuple):
    """The arguments of `TrainingClient.train`."""

    name: str
    workers: int
    processes: int
    resources: Any
    model: Any
    dataset: Any
    trainer: Any
    init_env: Any
    env: Any
    storage: Mapping[str, Any]


def validate(request: FineTuneRequest) -> None:
    """Raise `ValueError` for missing or wrong arguments."""
    required = {
        "name": request.name,
        "model_provider_parameters": request.model,
        "dataset_provider_parameters": request.dataset,
        "trainer_parameters": request.trainer,
    }
    for field, value in required.items():
        if not value:
            raise ValueError(f"{field}: is missing")
    if not hasattr(request.model, "model_uri"):
        raise ValueError("model_provider_parameters: has no model_uri; write HuggingFaceModelParams")
    if not (hasattr(request.dataset, "bucket_name") or hasattr(request.dataset, "repo_id")):
        raise ValueError("dataset_provider_parameters: is neither S3DatasetParams nor HuggingFaceDatasetParams")
    if request.workers < 1:
        raise ValueError(f"num_workers: is {request.workers}; write 1 or more")


def storage_claim(request: FineTuneRequest) -> JSON:
    """The claim for the model and the data set."""
    storage = {**DEFAULT_STORAGE, **request.storage}
    spec = volume_claim_spec(storage["access_modes"], storage["size"], storage["storage_class"])
    return {"metadata": {"name": request.name}, "spec": spec}


def fine_tune_job(request: FineTuneRequest, environ: Mapping[str, str] = os.environ) -> JSON:
    """The PyTorchJob."""
    worker = _pod_template(request, environ)
    master = _pod_template(request, environ, _initializer_container(request, environ))
    replicas: JSON = {"Master": {"replicas": 1, "template": master}}
    if request.workers > 1:
        replicas["Worker"] = {"replicas": request.workers - 1, "template": worker}
    return {
        "apiVersion": PYTORCHJOB.model.API_VERSION,
        "kind": PYTORCHJOB.kind,
        "metadata": {"name": request.name},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "None"},
            "nprocPerNode": str(request.processes),
            PYTORCHJOB.replicas: replicas,
        },
    }


def _pod_template(request: FineTuneRequest, environ: Mapping[str, str], *first: JSON) -> JSON:
    volume = {"name": INITIALIZER, "persistentVolumeClaim": {"claimName": request.name}}
    spec: JSON = {"containers": [_trainer_container(request, environ)], "volumes": [volume]}
    if first:
        spec["initContainers"] = list(first)
    return {"metadata": {"annotations": dict(NO_SIDECAR_ANNOTATIONS)}, "spec": spec}


def _trainer_container(request: FineTuneRequest, environ: Mapping[str, str]) -> JSON:
    model, trainer = request.model, request.trainer
    arguments = {
        "model_uri": model.model_uri,
        "transformer_type": getattr(model.transformer_type, "__name__", str(model.transformer_type)),
        "num_labels": str(model.num_labels),
        "model_dir": f"{MOUNT_PATH}/model",
        "dataset_dir": f"{MOUNT_PATH}/dataset",
        "lora_config": _json_text(vars(trainer.lora_config)),
        "training_parameters": _json_text(_training_arguments(trainer.training_parameters)),
    }
    return {
        "name": PYTORCHJOB.container,
        "image": environ.get("TRAINER_TRANSFORMER_IMAGE", "kubeflow/trainer-huggingface"),
        "args": [word for name, value in arguments.items() for word in (f"--{name}", value)],
        "env": env_entries(request.env),
        "resources": resource_requirements(request.resources) or {},
        "volumeMounts": [_VOLUME_MOUNT],
    }


def _initializer_container(request: FineTuneRequest, environ: Mapping[str, str]) -> JSON:
    source = "s3" if hasattr(request.dataset, "bucket_name") else "hf"
    arguments = {
        "model_provider": "hf",
        "model_provider_parameters": _json_text(vars(request.model)),
        "dataset_provider": source,
        "dataset_provider_parameters": _json_text(vars(request.dataset)),
    }
    return {
        "name": INITIALIZER,
        "image": environ.get("STORAGE_INITIALIZER_IMAGE", "kubeflow/storage-initializer"),
        "args": [word for name, value in arguments.items() for word in (f"--{name}", value)],
        "env": env_entries(request.init_env),
        "volumeMounts": [_VOLUME_MOUNT],
    }


_VOLUME_MOUNT: JSON = {"name": INITIALIZER, "mountPath": MOUNT_PATH}


def _training_arguments(arguments: Any) -> Any:
    """The fields of `TrainingArguments`, which have `to_dict`, or of another object."""
    return arguments.to_dict() if hasattr(arguments, "to_dict") else plain_json(vars(arguments))


def _json_text(value: Any) -> str:
    def to_json_value(other: Any) -> Any:
        if isinstance(other, set | frozenset):
            return sorted(other)
        return other.__name__ if isinstance(other, type) else str(other)

    return json.dumps(value, default=to_json_value)
