"""Fine-tuning of a language model as `kubeflow-training` does it: what `TrainingClient.train` creates. Pure.

A claim holds model and data set; an init container of the master fills it; all members run Kubeflow's trainer. The
parameter objects are those of `kubeflow.storage_initializer`, or anything with the same attributes.
"""

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.api.meta import JSON
from gangline.sdk.build.bodies import env_entries, plain_json, resource_requirements
from gangline.sdk.build.jobs import NO_SIDECAR_ANNOTATIONS

INITIALIZER = "storage-initializer"
MOUNT_PATH = "/workspace"
DEFAULT_STORAGE: Mapping[str, Any] = {
    "size": "10Gi",
    "storage_class": None,
    "access_modes": ["ReadWriteOnce", "ReadOnlyMany"],
}


class FineTuneRequest(NamedTuple):
    """What is asked for."""

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


def validate(asked: FineTuneRequest) -> None:
    """Raises `ValueError` for what is missing."""
    needed = {
        "name": asked.name,
        "model_provider_parameters": asked.model,
        "dataset_provider_parameters": asked.dataset,
        "trainer_parameters": asked.trainer,
    }
    for field, value in needed.items():
        if not value:
            raise ValueError(f"{field}: is missing")
    if not hasattr(asked.model, "model_uri"):
        raise ValueError("model_provider_parameters: has no model_uri; write HuggingFaceModelParams")
    if not (hasattr(asked.dataset, "bucket_name") or hasattr(asked.dataset, "repo_id")):
        raise ValueError("dataset_provider_parameters: is neither S3DatasetParams nor HuggingFaceDatasetParams")
    if asked.workers < 1:
        raise ValueError(f"num_workers: is {asked.workers}; write 1 or more")


def storage_claim(asked: FineTuneRequest) -> JSON:
    """The claim that holds model and data set."""
    wanted = {**DEFAULT_STORAGE, **asked.storage}
    spec: JSON = {
        "accessModes": list(wanted["access_modes"]),
        "resources": {"requests": {"storage": wanted["size"]}},
    }
    if wanted["storage_class"]:
        spec["storageClassName"] = wanted["storage_class"]
    return {"metadata": {"name": asked.name}, "spec": spec}


def fine_tune_job(asked: FineTuneRequest, environ: Mapping[str, str] = os.environ) -> JSON:
    """The PyTorchJob."""
    worker = _pod_template(asked, environ)
    master = _pod_template(asked, environ, _initializer_container(asked, environ))
    replicas: JSON = {"Master": {"replicas": 1, "template": master}}
    if asked.workers > 1:
        replicas["Worker"] = {"replicas": asked.workers - 1, "template": worker}
    return {
        "apiVersion": PYTORCHJOB.model.API_VERSION,
        "kind": PYTORCHJOB.kind,
        "metadata": {"name": asked.name},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "None"},
            "nprocPerNode": str(asked.processes),
            PYTORCHJOB.replicas: replicas,
        },
    }


def _pod_template(asked: FineTuneRequest, environ: Mapping[str, str], *first: JSON) -> JSON:
    volume = {"name": INITIALIZER, "persistentVolumeClaim": {"claimName": asked.name}}
    spec: JSON = {"containers": [_trainer_container(asked, environ)], "volumes": [volume]}
    if first:
        spec["initContainers"] = list(first)
    return {"metadata": {"annotations": dict(NO_SIDECAR_ANNOTATIONS)}, "spec": spec}


def _trainer_container(asked: FineTuneRequest, environ: Mapping[str, str]) -> JSON:
    model, trainer = asked.model, asked.trainer
    words = {
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
        "args": [word for name, value in words.items() for word in (f"--{name}", value)],
        "env": env_entries(asked.env),
        "resources": resource_requirements(asked.resources) or {},
        "volumeMounts": [_VOLUME_MOUNT],
    }


def _initializer_container(asked: FineTuneRequest, environ: Mapping[str, str]) -> JSON:
    source = "s3" if hasattr(asked.dataset, "bucket_name") else "hf"
    words = {
        "model_provider": "hf",
        "model_provider_parameters": _json_text(vars(asked.model)),
        "dataset_provider": source,
        "dataset_provider_parameters": _json_text(vars(asked.dataset)),
    }
    return {
        "name": INITIALIZER,
        "image": environ.get("STORAGE_INITIALIZER_IMAGE", "kubeflow/storage-initializer"),
        "args": [word for name, value in words.items() for word in (f"--{name}", value)],
        "env": env_entries(asked.init_env),
        "volumeMounts": [_VOLUME_MOUNT],
    }


_VOLUME_MOUNT: JSON = {"name": INITIALIZER, "mountPath": MOUNT_PATH}


def _training_arguments(given: Any) -> Any:
    """TrainingArguments say by themselves what they hold."""
    return given.to_dict() if hasattr(given, "to_dict") else plain_json(vars(given))


def _json_text(value: Any) -> str:
    def other(found: Any) -> Any:
        if isinstance(found, set | frozenset):
            return sorted(found)
        return found.__name__ if isinstance(found, type) else str(found)

    return json.dumps(value, default=other)
