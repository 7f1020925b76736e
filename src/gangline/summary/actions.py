"""What people do to a job: suspend, resume, restart and scale it. Thin: each is one patch, or a deletion of pods."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import NamedTuple

from gangline.api.meta import JSON, Key
from gangline.base.errors import InputError
from gangline.kube.client import Client
from gangline.kube.errors import Conflict, NotFound
from gangline.summary.job_state import is_finished, job_state, replica_counts, replica_specs
from gangline.summary.objects import PODS, ServerJob
from gangline.summary.replicas import ReplicaSelector, list_replicas, replica_name


class ScaleChange(NamedTuple):
    """How many replicas of a type there were, and how many there should be now."""

    type: str
    before: int
    after: int


def require_unfinished(job: ServerJob, remedy: str) -> ServerJob:
    """The job, if it has not finished. Raises `InputError` with the remedy."""
    if is_finished(job.body):
        raise InputError(f"{job.display_name} has ended ({job_state(job.body)}); {remedy}")
    return job


async def set_suspended(client: Client, job: ServerJob, *, suspended: bool) -> bool:
    """Suspend or resume a job. Returns whether that changed anything."""
    was_suspended = bool((job.body["spec"].get("runPolicy") or {}).get("suspend"))
    await client.patch(job.resource, job.key, {"spec": {"runPolicy": {"suspend": suspended}}})
    return was_suspended != suspended


async def restart_replicas(
    client: Client, job: ServerJob, selectors: Sequence[ReplicaSelector] = ()
) -> AsyncIterator[str]:
    """Delete the pods of replicas, so that the operator creates them again; yields the name of each. Raises `InputError`."""
    pods = await list_replicas(client, job, selectors)
    if not pods:
        raise InputError(f"{job.display_name} has no pods to restart")
    for pod in pods:
        metadata = pod["metadata"]
        try:
            await client.delete(PODS, Key(metadata["namespace"], metadata["name"]), uid=metadata["uid"])
        except (NotFound, Conflict):
            # The pod was already deleted or replaced.
            continue
        yield replica_name(job, pod)


async def scale_replicas(
    client: Client, job: ServerJob, count: int, kind: str = "", *, current: int | None = None
) -> ScaleChange:
    """Set the number of replicas of a type.

    Raises `InputError` for an unknown type, if there are not `current` now, or for more or fewer than the job allows.
    """
    name = replica_type(replica_specs(job.body), kind, job.display_name)
    before = replica_counts(job.body)[name]
    if current is not None and current != before:
        raise InputError(f"{job.display_name} has {before} of {name}, not {current}")
    if refusal := elastic_refusal(job.body["spec"], name, count):
        raise InputError(f"{job.display_name} {refusal}")
    field = next(key for key in job.body["spec"] if key.endswith("ReplicaSpecs"))
    patch = {"spec": {field: {name: {"replicas": count}}}}
    version = job.body["metadata"]["resourceVersion"] if current is not None else None
    await client.patch(job.resource, job.key, patch, resource_version=version)
    return ScaleChange(name, before, count)


def elastic_refusal(spec: JSON, name: str, count: int) -> str:
    """Why an elastic PyTorchJob may not have so many replicas of a type; empty if it may.

    torchrun trains with no more workers than it was told, and waits in vain with fewer. Other kinds ignore the policy.
    """
    policy = spec.get("elasticPolicy") or {}
    if "pytorchReplicaSpecs" not in spec or name != "Worker":
        return ""
    low, high = policy.get("minReplicas"), policy.get("maxReplicas")
    # As the operator takes them: a bound that is left out equals the other one.
    low, high = high if low is None else low, low if high is None else high
    if low is None or high is None or low <= count <= high:
        return ""
    field = "maxReplicas" if count > high else "minReplicas"
    allowed = f"{low} to {high}" if low != high else str(low)
    return f"may have {allowed} of {name}, not {count}; the bound is spec.elasticPolicy.{field}"


def replica_type(specs: Mapping[str, JSON], flag: str, job: str) -> str:
    """The replica type of --type in the job's own spelling; by default the only type, or worker. Raises `InputError`."""
    types = {name.lower(): name for name in specs}
    if not flag and len(types) == 1:
        return next(iter(types.values()))
    spelling = types.get((flag or "worker").lower())
    if spelling is None:
        raise InputError(f"--type: {job} has {', '.join(specs) or 'no replicas'}; write one of them")
    return spelling
