"""Which objects are recorded, and which parts of them. Pure.

Secrets and ConfigMaps are never recorded. A pod names the Secrets of its environment and volumes, and has no value of
them. Notes of clients and of the server about how an object was written are left out: `kubectl apply` puts all that was
applied into an annotation.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from gangline.api.kubeflow.kinds import TRAINING_KINDS
from gangline.api.meta import JSON
from gangline.apiserver.store.paths import split_path
from gangline.history.records import JobSummary

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
OMITTED_METADATA = frozenset({"managedFields", "resourceVersion"})
"""Every version has another resourceVersion, and a server of the past gives it one of its own."""
SWEEP_LABEL = "training.gangline.dev/sweep"
"""Label of the job of a trial: the name of its sweep."""
END_CONDITIONS = ("Succeeded", "Failed", "Complete")
"""Conditions of a job that has ended; the last is the one of a Job of Kubernetes."""
GANG_GROUPS = ("scheduling.gangline.dev", "scheduling.volcano.sh", "scheduling.x-k8s.io", "scheduling.k8s.io")

CORE_RECORDED = (
    ("", "events"),
    ("", "namespaces"),
    ("", "nodes"),
    ("", "persistentvolumeclaims"),
    ("", "pods"),
    ("", "services"),
)
JOBS_RECORDED = (
    ("batch", "jobs"),
    ("batch.volcano.sh", "jobs"),
    ("jobset.x-k8s.io", "jobsets"),
    ("trainer.kubeflow.org", "trainjobs"),
    *((kind.resource.group, kind.resource.plural) for kind in TRAINING_KINDS),
)
GANGS_RECORDED = (("scheduling.gangline.dev", "queues"), *((group, "podgroups") for group in GANG_GROUPS))
NO_JOBS = frozenset((*CORE_RECORDED, *GANGS_RECORDED))
RECORDED = frozenset((*CORE_RECORDED, *JOBS_RECORDED, *GANGS_RECORDED))
"""The recorded resources: group and plural."""


def recorded_prefixes(more: Iterable[tuple[str, str]] = ()) -> tuple[str, ...]:
    """The beginnings of the paths of recorded objects. `more` are job kinds of a custom operator."""
    return tuple(f"/{group}/{plural}/" for group, plural in sorted({*RECORDED, *more}))


def recorded_body(path: str, body: JSON) -> JSON:
    """The object as it is recorded. Shares its parts with `body`, which stays unchanged."""
    metadata = body["metadata"]
    annotations = metadata.get("annotations") or {}
    if LAST_APPLIED in annotations or not OMITTED_METADATA.isdisjoint(metadata):
        metadata = {name: value for name, value in metadata.items() if name not in OMITTED_METADATA}
        if LAST_APPLIED in annotations:
            metadata["annotations"] = {name: text for name, text in annotations.items() if name != LAST_APPLIED}
        body = {**body, "metadata": metadata}
    if path.startswith("//nodes/") and "images" in (body.get("status") or ()):
        status = {name: value for name, value in body["status"].items() if name != "images"}
        body = {**body, "status": status}
    return body


def subject_uid(body: JSON) -> str:
    """The uid of what an object belongs to: of its controller, or of the object that an event is about."""
    for owner in body["metadata"].get("ownerReferences") or ():
        if owner.get("controller"):
            return str(owner.get("uid", ""))
    about = body.get("involvedObject") or body.get("regarding")
    return str(about.get("uid", "")) if isinstance(about, dict) else ""


def may_be_job(path: str) -> bool:
    """Whether the object at a path can be a job, of a known kind or of one of a custom operator."""
    where = split_path(path)
    return (where.group, where.plural) not in NO_JOBS


def is_job(body: JSON) -> bool:
    """Whether an object is a training job of any kind: it has replicas by type."""
    spec = body.get("spec")
    return isinstance(spec, dict) and any(name.endswith("ReplicaSpecs") for name in spec)


def is_listed_job(path: str, body: JSON) -> bool:
    """Whether a list of jobs shows the object: a training job, or another job without a controller of its own."""
    where = split_path(path)
    if (where.group, where.plural) not in JOBS_RECORDED:
        return may_be_job(path) and is_job(body)
    return is_job(body) or not any(owner.get("controller") for owner in body["metadata"].get("ownerReferences") or ())


def true_conditions(body: JSON) -> list[JSON]:
    """The conditions that hold, in their order. A custom resource may have anything in their place."""
    status = body.get("status")
    conditions = status.get("conditions") if isinstance(status, dict) else None
    return [
        condition
        for condition in (conditions if isinstance(conditions, list) else ())
        if isinstance(condition, dict) and condition.get("status") == "True" and "type" in condition
    ]


def job_summary(path: str, body: JSON, at: float) -> JobSummary:
    """What a version of a job, from `at` on, says of it."""
    where, metadata, current = split_path(path), body["metadata"], true_conditions(body)
    ends = [_unix_seconds(each.get("lastTransitionTime")) for each in current if each["type"] in END_CONDITIONS]
    created = _unix_seconds(metadata.get("creationTimestamp"))
    return JobSummary(
        where.namespace,
        where.plural,
        where.name,
        str(metadata.get("uid", "")),
        str(body.get("kind", "")),
        str(current[-1]["type"]) if current else "",
        created if created is not None else at,
        at,
        ended=ends[0] if ends else None,
        sweep=str((metadata.get("labels") or {}).get(SWEEP_LABEL) or ""),
    )


def _unix_seconds(time: Any) -> float | None:
    try:
        return datetime.fromisoformat(str(time)).timestamp()
    except ValueError:
        return None
