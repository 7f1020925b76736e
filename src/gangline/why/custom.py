"""Kinds of job that somebody else made with our library: they follow the contract, so they are read like our own."""

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
    """Of a kind of which we know no more than that it is one."""

    KIND: ClassVar[str] = "Job"


async def custom_kinds(client: Client, word: str = "") -> list[Resource[JSON]]:
    """The kinds of training job that a server has beside the six; with a word, those that people call so."""
    known = {owner.resource.name for owner in WORKLOAD_KINDS}
    found: dict[str, Resource[JSON]] = {}
    try:
        served = await server_resources(client)
    except ApiError:
        # Whoever may not look, or a server that cannot tell: then there are the six.
        return []
    for kind in served:
        called = not word or word.lower() in kind.names
        if TRAINING_JOBS_CATEGORY in kind.categories and called and kind.resource.name not in known:
            # The preferred version comes first.
            found.setdefault(kind.resource.name, kind.resource)
    return list(found.values())


def custom_workload_kind(resource: Resource[JSON], body: JSON) -> WorkloadKind:
    """What can be told of such a kind from one of its jobs."""
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
