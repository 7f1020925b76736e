"""The job of `TrainingClient.create_job`, from its arguments. Pure."""

from collections.abc import Callable, Mapping
from typing import Any

from gangline.api.kubeflow.kinds import PYTORCHJOB, TFJOB
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import JSON
from gangline.sdk.build.bodies import job_body
from gangline.sdk.build.function_source import function_program, program_command
from gangline.sdk.build.jobs import Replica, build_job, replica_counts
from gangline.sdk.job import job_kind_named, type_meta

DEFAULT_IMAGES = {
    "TFJob": "tensorflow/tensorflow:2.9.1",
    "PyTorchJob": "pytorch/pytorch:2.1.2-cuda11.8-cudnn8-runtime",
}
"""The images of the Kubeflow client when none is given."""
_ARGUMENT_DEFAULTS = {"num_workers": 1}


def job_from_arguments(job: Any, arguments: Mapping[str, Any], default_kind: JobKind) -> JSON:
    """The manifest of `job`, or one built from the other arguments. Raises `ValueError`."""
    non_default = [name for name, value in arguments.items() if value != _ARGUMENT_DEFAULTS.get(name)]
    if job is not None:
        if non_default:
            raise ValueError(f"{', '.join(non_default)}: has no effect together with job; write it into the job")
        body = job_body(job)
        return body if "kind" in body else {**type_meta(default_kind), **body}
    kind = arguments["job_kind"]
    return _job_body(arguments, job_kind_named(kind) if kind is not None else default_kind)


def _job_body(arguments: Mapping[str, Any], kind: JobKind) -> JSON:
    name, function, image = arguments["name"], arguments["train_func"], arguments["base_image"]
    if not name:
        raise ValueError("name: is missing; a job made of arguments needs one")
    if function is None and image is None:
        raise ValueError("write a job, a train_func, or a base_image that runs by itself")
    if arguments["num_procs_per_worker"] is not None and kind is not PYTORCHJOB:
        raise ValueError(f"num_procs_per_worker: is for PyTorchJob, not for {kind.kind}")
    for argument in ("num_chief_replicas", "num_ps_replicas"):
        if arguments[argument] is not None and kind is not TFJOB:
            raise ValueError(f"{argument}: is for TFJob, not for {kind.kind}")
    if image is None and kind.kind not in DEFAULT_IMAGES:
        raise ValueError(f"base_image: is missing; there is no usual one for {kind.kind}")
    replica = _replica_factory(arguments, kind, image or DEFAULT_IMAGES[kind.kind])
    counts = replica_counts(kind, arguments["num_workers"])
    if kind is TFJOB:
        counts = {"Chief": arguments["num_chief_replicas"] or 0, "PS": arguments["num_ps_replicas"] or 0, **counts}
    replicas = {replica_type: replica(count) for replica_type, count in counts.items()}
    extra: JSON = {}
    if arguments["num_procs_per_worker"] is not None:
        extra["nprocPerNode"] = str(arguments["num_procs_per_worker"])
    return build_job(kind, name, replicas, **extra).to_dict()


def _replica_factory(arguments: Mapping[str, Any], kind: JobKind, image: str) -> Callable[[int], Replica]:
    command: list[str] = []
    if arguments["train_func"] is not None:
        several = arguments["num_workers"] > 1 or arguments["num_procs_per_worker"] is not None
        command = program_command(
            function_program(arguments["train_func"], arguments["parameters"]).text,
            packages=arguments["packages_to_install"] or (),
            index=arguments["pip_index_url"],
            launcher=("torchrun",) if kind is PYTORCHJOB and several else (),
        )
    elif arguments["packages_to_install"]:
        raise ValueError("packages_to_install: is for a train_func; an image has what it needs")

    def replica(count: int) -> Replica:
        return Replica(
            image,
            command,
            replicas=count,
            resources=arguments["resources_per_worker"],
            env=arguments["env_vars"],
        )

    return replica
