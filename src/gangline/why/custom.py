"""Job kinds of custom operators. They follow the contract of training jobs, so they are read like the built-in kinds."""

from typing import ClassVar

from gangline.api.kubeflow.training import (
    JOB_NAME,
    REPLICA_TYPE,
    TRAINING_JOBS_CATEGORY,
    JobKind,
    TrainingJob,
)
from gangline.api.meta import JSON
from gangline.api.scheme import Resource
from gangline.kube.client import Client
from gangline.kube.discovery import server_resources
from gangline.kube.errors import ApiError
from gangline.why.kinds import WORKLOAD_KINDS, WorkloadKind, json_value

_REPLICA_SPECS_SUFFIX = "ReplicaSpecs"


class _CustomJob(TrainingJob, frozen=True):
    """A job of a custom kind, with the fields that all training jobs share."""

    KIND: ClassVar[str] = "Job"


async def custom_kinds(client: Client, word: str = "") -> list[Resource[JSON]]:
    """The custom training-job kinds of a server; with a word, only the kinds that match it."""
    known_names = {owner.resource.name for owner in WORKLOAD_KINDS}
    resources: dict[str, Resource[JSON]] = {}
    try:
        served = await server_resources(client)
    except ApiError:
        # Without permission, or on a server without categories, only the six built-in kinds are known.
        return []
    for kind in served:
        called = not word or word.lower() in kind.names
        if TRAINING_JOBS_CATEGORY in kind.categories and called and kind.resource.name not in known_names:
            # Discovery lists the preferred version first.
            resources.setdefault(kind.resource.name, kind.resource)
    return list(resources.values())


def custom_workload_kind(resource: Resource[JSON], body: JSON) -> WorkloadKind:
    """The workload kind of a custom resource, derived from one of its jobs."""
    spec = body.get("spec") or {}
    replicas = next((name for name in spec if name.endswith(_REPLICA_SPECS_SUFFIX)), "replicaSpecs")
    types = tuple(spec.get(replicas) or ())
    first = json_value(spec, replicas, types[0], "template", "spec", "containers") if types else None
    facts = JobKind(
        model=_CustomJob,
        plural=resource.plural,
        replicas=replicas,
        attribute="",
        types=types,
        container=str(first[0].get("name", "")) if first else "",
        port=None,
    )
    return WorkloadKind(
        resource,
        (JOB_NAME,),
        type_label=REPLICA_TYPE,
        template_path=f"spec.{replicas}.{{type}}.template.spec",
        job_kind=facts,
    )
