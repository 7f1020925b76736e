"""Objects without what no row needs. A board of 2,000 jobs and 16,000 pods fits into some tens of megabytes that way. Pure.

Lists and watches decode only the fields of `JobFields` and `PodFields`, which is three times as fast as to decode all; what
stays in a cache is less. The functions of `gangline.summary` say the same of a trimmed object as of the whole one.
"""

import sys
from collections.abc import Iterable
from typing import Any, TypedDict

import msgspec

from gangline.api.meta import JSON
from gangline.api.scheme import Resource
from gangline.dashboard.rows.sweeps import TRIAL_ANNOTATION
from gangline.history.selection import SWEEP_LABEL
from gangline.summary.job_rows import QUEUE_LABEL
from gangline.summary.replicas import JOB_NAME, REPLICA_INDEX, REPLICA_TYPE

_META = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
_LABELS = (JOB_NAME, REPLICA_TYPE, REPLICA_INDEX, QUEUE_LABEL, SWEEP_LABEL)
_CONTAINER_SPEC = ("name", "readinessProbe", "startupProbe")
_JOB_STATUS = (
    "conditions",
    "replicaStatuses",
    "restarts",
    "phase",
    "progress",
    "startTime",
    "completionTime",
    "firstFailure",
)
_READY = ({"type": "Ready", "status": "True"},)
_RUNS: JSON = {"phase": "Running", "conditions": _READY}
"""The status of every pod that runs and is ready; one object for all of them."""
_ENDED: dict[str, JSON] = {phase: {"phase": phase} for phase in ("Succeeded", "Failed")}


class MetadataFields(TypedDict, total=False):
    """What is decoded of any metadata."""

    name: str
    namespace: str
    uid: str
    resourceVersion: str
    creationTimestamp: str | None
    deletionTimestamp: str | None
    labels: dict[str, str] | None
    annotations: dict[str, str] | None
    ownerReferences: list[dict[str, Any]] | None


class ContainerFields(TypedDict, total=False):
    """What is decoded of a container's spec."""

    name: str
    readinessProbe: Any
    startupProbe: Any


class PodSpecFields(TypedDict, total=False):
    """What is decoded of the spec of a pod."""

    nodeName: str
    containers: list[ContainerFields] | None


class PodFields(TypedDict, total=False):
    """What is decoded of a pod."""

    metadata: MetadataFields
    spec: PodSpecFields
    status: dict[str, Any] | None


class TemplateFields(TypedDict, total=False):
    """What is decoded of the template of a replica."""

    spec: PodSpecFields | None


class ReplicaFields(TypedDict, total=False):
    """What is decoded of the spec of a replica type."""

    replicas: Any
    restartPolicy: Any
    template: TemplateFields | None


Replicas = dict[str, ReplicaFields | None] | None


class JobSpecFields(TypedDict, total=False):
    """What is decoded of the spec of a job of any kind."""

    runPolicy: Any
    tfReplicaSpecs: Replicas
    pytorchReplicaSpecs: Replicas
    xgbReplicaSpecs: Replicas
    mpiReplicaSpecs: Replicas
    paddleReplicaSpecs: Replicas
    jaxReplicaSpecs: Replicas


class JobFields(TypedDict, total=False):
    """What is decoded of a job."""

    metadata: MetadataFields
    spec: JobSpecFields | None
    status: dict[str, Any] | None


def with_fields(resource: Resource[JSON], fields: Any) -> Resource[JSON]:
    """A resource of which only some fields are decoded."""
    return msgspec.structs.replace(resource, model=fields)


def trimmed_job(body: JSON) -> JSON:
    """A job for its row."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    policy = spec.get("runPolicy") or {}
    kept: JSON = {"runPolicy": _chosen(policy, ("suspend", "schedulingPolicy"))} if policy else {}
    for name, replicas in spec.items():
        if name.endswith("ReplicaSpecs") and isinstance(replicas, dict):
            kept[sys.intern(name)] = {sys.intern(role): _trimmed_replicas(item) for role, item in replicas.items()}
    return {"metadata": _trimmed_metadata(body["metadata"]), "spec": kept, "status": _chosen(status, _JOB_STATUS)}


def trimmed_pod(body: JSON) -> JSON:
    """A pod for the row of its job, and for the load of its node."""
    metadata = _trimmed_metadata(body["metadata"])
    metadata["ownerReferences"] = [
        _chosen(owner, ("uid", "kind", "name")) for owner in body["metadata"].get("ownerReferences") or ()
    ]
    spec, status = body.get("spec") or {}, body.get("status") or {}
    kept: JSON = {"nodeName": sys.intern(spec.get("nodeName") or "")}
    if status.get("phase") == "Running" and _is_ready(status.get("conditions") or ()):
        return {"metadata": metadata, "spec": kept, "status": _RUNS}
    if status.get("phase") in _ENDED:
        return {"metadata": metadata, "spec": kept, "status": _ENDED[status["phase"]]}
    kept["containers"] = [_chosen(item, _CONTAINER_SPEC) for item in spec.get("containers") or ()]
    states: JSON = _chosen(status, ("phase", "initContainerStatuses", "containerStatuses"))
    states["conditions"] = [item for item in status.get("conditions") or () if item.get("status") != "True"]
    return {"metadata": metadata, "spec": kept, "status": states}


def trimmed_event(body: JSON) -> JSON:
    """An event for the reason of a job that waits."""
    involved = body.get("involvedObject") or {}
    return {
        "metadata": _chosen(body["metadata"], ("name", "namespace", "uid", "resourceVersion")),
        "involvedObject": _chosen(involved, ("kind", "name", "uid")),
        **_chosen(body, ("reason", "message", "lastTimestamp", "eventTime", "type")),
    }


def trimmed_group(body: JSON) -> JSON:
    """A PodGroup for the rows of its job and its queue."""
    return {"metadata": _trimmed_metadata(body["metadata"]), **_chosen(body, ("spec", "status"))}


def trimmed_workload(body: JSON) -> JSON:
    """A Workload of Kueue for the reason of its job."""
    metadata = _trimmed_metadata(body["metadata"])
    metadata["ownerReferences"] = [
        _chosen(owner, ("uid", "kind", "name")) for owner in body["metadata"].get("ownerReferences") or ()
    ]
    return {"metadata": metadata, "status": _chosen(body.get("status") or {}, ("conditions",))}


def _trimmed_metadata(metadata: JSON) -> JSON:
    kept = _chosen(metadata, _META)
    kept["namespace"] = sys.intern(kept.get("namespace") or "")
    annotations = metadata.get("annotations")
    if annotations and TRIAL_ANNOTATION in annotations:
        kept["annotations"] = {TRIAL_ANNOTATION: annotations[TRIAL_ANNOTATION]}
    labels = metadata.get("labels")
    if labels:
        kept["labels"] = {name: sys.intern(str(labels[name])) for name in _LABELS if name in labels}
    return kept


def _trimmed_replicas(spec: Any) -> JSON:
    """The number of replicas, and what tells whether they can run without being ready."""
    spec = spec or {}
    containers = (((spec.get("template") or {}).get("spec")) or {}).get("containers") or ()
    probes = [_chosen(container, _CONTAINER_SPEC[1:]) for container in containers]
    return {**_chosen(spec, ("replicas", "restartPolicy")), "template": {"spec": {"containers": probes}}}


def _is_ready(conditions: Iterable[JSON]) -> bool:
    return any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)


def _chosen(mapping: JSON, names: Iterable[str]) -> JSON:
    return {name: mapping[name] for name in names if name in mapping}
