"""The many ways to say what to run become one body. Pure."""

from collections.abc import Mapping
from typing import Any

from gangline.api.kubeflow.kinds import PYTORCHJOB, TFJOB
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.sdk.build.bodies import job_body
from gangline.sdk.build.function_source import function_program, program_command
from gangline.sdk.build.jobs import Replica, build_job, replica_counts
from gangline.sdk.job import job_kind_named

DEFAULT_IMAGES = {
    "TFJob": "tensorflow/tensorflow:2.9.1",
    "PyTorchJob": "pytorch/pytorch:2.1.2-cuda11.8-cudnn8-runtime",
}
"""What the Kubeflow client takes when no image is named."""
_ARGUMENT_DEFAULTS = {"num_workers": 1}


def job_from_arguments(given: Any, asked: Mapping[str, Any], usual: JobKind) -> JSON:
    """The body of a job: as given, or made of arguments. Raises `ValueError`."""
    written = {name: value for name, value in asked.items() if value != _ARGUMENT_DEFAULTS.get(name)}
    if given is not None:
        if written:
            raise ValueError(f"{', '.join(written)}: has no effect together with job; write it into the job")
        body = job_body(given)
        if "kind" not in body:
            body = {"apiVersion": usual.model.API_VERSION, "kind": usual.kind, **body}
        return body
    return _job_body(asked, job_kind_named(asked["job_kind"]) if asked["job_kind"] is not None else usual)


def _job_body(asked: Mapping[str, Any], facts: JobKind) -> JSON:
    name, function, image = asked["name"], asked["train_func"], asked["base_image"]
    if not name:
        raise ValueError("name: is missing; a job made of arguments needs one")
    if function is None and image is None:
        raise ValueError("write a job, a train_func, or a base_image that runs by itself")
    if asked["num_procs_per_worker"] is not None and facts is not PYTORCHJOB:
        raise ValueError(f"num_procs_per_worker: is for PyTorchJob, not for {facts.kind}")
    for count in ("num_chief_replicas", "num_ps_replicas"):
        if asked[count] is not None and facts is not TFJOB:
            raise ValueError(f"{count}: is for TFJob, not for {facts.kind}")
    if image is None and facts.kind not in DEFAULT_IMAGES:
        raise ValueError(f"base_image: is missing; there is no usual one for {facts.kind}")
    replica = _replica_factory(asked, facts, image or DEFAULT_IMAGES[facts.kind])
    sizes = replica_counts(facts, asked["num_workers"])
    if facts is TFJOB:
        sizes = {"Chief": asked["num_chief_replicas"] or 0, "PS": asked["num_ps_replicas"] or 0, **sizes}
    replicas = {kind: replica(count) for kind, count in sizes.items()}
    extra: JSON = {}
    if asked["num_procs_per_worker"] is not None:
        extra["nprocPerNode"] = str(asked["num_procs_per_worker"])
    return build_job(facts, name, replicas, **extra).to_dict()


def _replica_factory(asked: Mapping[str, Any], facts: JobKind, image: str) -> Any:
    command: list[str] = []
    if asked["train_func"] is not None:
        several = asked["num_workers"] > 1 or asked["num_procs_per_worker"] is not None
        command = program_command(
            function_program(asked["train_func"], asked["parameters"]),
            packages=asked["packages_to_install"] or (),
            index=asked["pip_index_url"],
            launcher=("torchrun",) if facts is PYTORCHJOB and several else (),
        )
    elif asked["packages_to_install"]:
        raise ValueError("packages_to_install: is for a train_func; an image has what it needs")

    def replica(count: int) -> Replica:
        return Replica(
            image,
            command,
            replicas=count,
            resources=asked["resources_per_worker"],
            env=asked["env_vars"],
        )

    return replica
