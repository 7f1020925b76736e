"""Decodes the server's objects into facts. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from gangline.api.codec.codec import Document, decode_document
from gangline.api.codec.errors import DecodeError
from gangline.api.core import Pod
from gangline.api.kubeflow.training import RUN_COMMAND_ANNOTATION, RUN_ENDED_ANNOTATION, JobStatus, RunPolicy
from gangline.api.meta import JSON, Condition
from gangline.api.scheduling import GROUP as SCHEDULING
from gangline.frameworks.ranks import ranks_per_replica
from gangline.jobs.defaults import problems
from gangline.jobs.framework import Framework
from gangline.jobs.plan.conditions import current_condition
from gangline.why.diagnosis.case import (
    ClaimFact,
    EventFact,
    JobFacts,
    MountFact,
    PodGroupFacts,
    ReplicaFacts,
    VolumeFact,
)
from gangline.why.diagnosis.failures import clipped_line, last_traceback_index
from gangline.why.kinds import NATIVE_GROUP, WorkloadKind, json_value

_STATE_BY_CONDITION = {
    "Complete": "Succeeded",
    "Completed": "Succeeded",
    "Failed": "Failed",
    "Suspended": "Suspended",
}
_STATE_BY_PHASE = {"Completed": "Succeeded", "Aborted": "Failed", "Terminated": "Failed", "Failed": "Failed"}
KUEUE_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def parse_time(text: object) -> datetime | None:
    """The time of an RFC 3339 text; None if there is none or it cannot be parsed."""
    with suppress(ValueError, TypeError):
        return datetime.fromisoformat(str(text))
    return None


# Jobs


def job_facts(owner: WorkloadKind, body: JSON, framework: Framework[Any] | None) -> JobFacts:
    """The facts of a job of any kind."""
    metadata: Mapping[str, Any] = body.get("metadata") or {}
    common: dict[str, Any] = {
        "kind": owner.resource.kind,
        "namespace": str(metadata.get("namespace", "")),
        "name": str(metadata.get("name", "")),
        "uid": str(metadata.get("uid", "")),
        "created_at": parse_time(metadata.get("creationTimestamp")),
        "queue": str((metadata.get("labels") or {}).get(KUEUE_QUEUE_LABEL, "")),
    }
    annotations: Mapping[str, Any] = metadata.get("annotations") or {}
    ended_at, stopped = run_end(body)
    common["run_command"] = str(annotations.get(RUN_COMMAND_ANNOTATION, ""))
    facts = (
        _training_job_fields(owner, body, framework) if owner.job_kind is not None else _foreign_job_fields(owner, body)
    )
    return JobFacts(**common, **facts, run_ended_at=parse_time(ended_at), run_end_reason=stopped)


def run_end(body: JSON) -> tuple[str, str]:
    """When the run of an archived job ended and, if the job had not finished, why; empty for a job of a server."""
    annotations = json_value(body, "metadata", "annotations") or {}
    ended_at, _, reason = str(annotations.get(RUN_ENDED_ANNOTATION, "")).partition(" ")
    return ended_at, reason


def _training_job_fields(owner: WorkloadKind, body: JSON, framework: Framework[Any] | None) -> dict[str, Any]:
    kind_facts = owner.job_kind
    assert kind_facts is not None
    spec = body.get("spec") or {}
    policy = _decode_or_none(spec.get("runPolicy"), RunPolicy) or RunPolicy()
    status = _decode_or_none(body.get("status"), JobStatus) or JobStatus()
    spelled = {kind.lower(): kind for kind in kind_facts.types}
    written: Mapping[str, Any] = spec.get(kind_facts.replicas) or {}
    replicas = {spelled.get(kind.lower(), kind): entry for kind, entry in written.items() if isinstance(entry, Mapping)}
    return {
        "state": current_condition(status),
        "started_at": status.start_time,
        "has_status": bool(status.conditions),
        "conditions": status.conditions,
        "suspended": policy.suspend,
        "suspend_field": "spec.runPolicy.suspend",
        "managed_by": policy.managed_by or "",
        "problems": _spec_problems(framework, body),
        "desired_replicas": {
            kind: _int_or(entry.get("replicas"), kind_facts.default_replicas.get(kind, 1))
            for kind, entry in replicas.items()
        },
        "restart_policies": {
            kind: entry.get("restartPolicy") or kind_facts.restart_policy.value for kind, entry in replicas.items()
        },
        "ranks_per_replica": ranks_per_replica(
            spec.get("elasticPolicy"), spec.get("nprocPerNode") or spec.get("slotsPerWorker")
        ),
        "template_paths": {kind: owner.template_path.format(type=kind) for kind in replicas},
        "deadline": policy.active_deadline_seconds,
        "backoff_limit": policy.backoff_limit,
        "limits_field": "spec.runPolicy",
        "restarts": status.restarts,
        "restart_streak": status.ledger.streak,
        "last_restart_at": status.ledger.not_before,
        "first_failure": status.first_failure,
        "recovery": status.recovery,
        "container": kind_facts.container,
    }


def _spec_problems(framework: Framework[Any] | None, body: JSON) -> tuple[str, ...]:
    """Why the spec is invalid, by the operator's own rules."""
    if framework is None:
        return ()
    try:
        decoded = decode_document(Document(body, {}), framework.facts.model)
    except DecodeError as error:
        return (str(error),)
    return tuple(map(str, problems(framework, framework.default(decoded))))


def _foreign_job_fields(owner: WorkloadKind, body: JSON) -> dict[str, Any]:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    conditions = tuple(filter(None, (_decode_or_none(one, Condition) for one in status.get("conditions") or ())))
    return {
        "state": _foreign_job_state(status, conditions),
        "started_at": parse_time(status.get("startTime")),
        "has_status": bool(status),
        "conditions": conditions,
        "suspended": bool(spec.get("suspend")),
        "managed_by": "",
        "desired_replicas": _desired_replicas(owner, spec),
        "deadline": spec.get("activeDeadlineSeconds"),
        "backoff_limit": spec.get("backoffLimit", spec.get("maxRetry")),
        "restarts": _int_or(status.get("restarts") or status.get("retryCount"), 0),
        "is_training_job": False,
    }


def _foreign_job_state(status: Mapping[str, Any], conditions: Iterable[Condition]) -> str:
    """The state of a job of a foreign kind, in the words of training jobs."""
    for condition in conditions:
        if condition.status == "True" and condition.type in _STATE_BY_CONDITION:
            return _STATE_BY_CONDITION[condition.type]
    phase = json_value(status, "state", "phase")
    if phase:
        return _STATE_BY_PHASE.get(phase, str(phase))
    jobs = json_value(status, "replicatedJobsStatus") or json_value(status, "jobsStatus") or ()
    active = status.get("active") or any(_int_or(condition.get("active"), 0) for condition in jobs)
    return "Running" if active else "Pending"


def _desired_replicas(owner: WorkloadKind, spec: Mapping[str, Any]) -> dict[str, int]:
    match owner.resource.kind:
        case "TrainJob":
            return {"node": _int_or(json_value(spec, "trainer", "numNodes"), 1)}
        case "JobSet":
            return {
                entry.get("name", ""): _int_or(entry.get("replicas"), 1)
                * _int_or(json_value(entry, "template", "spec", "parallelism"), 1)
                for entry in spec.get("replicatedJobs") or ()
            }
    if "tasks" in spec:
        return {entry.get("name", ""): _int_or(entry.get("replicas"), 1) for entry in spec["tasks"]}
    return {"": min(_int_or(spec.get("parallelism"), 1), _int_or(spec.get("completions"), 1_000_000))}


def _int_or(value: object, default: int) -> int:
    return value if isinstance(value, int) else default


def _decode_or_none(body: object, model: type[Any]) -> Any:
    """The decoded value; None if the body does not fit the type."""
    try:
        return decode_document(Document(body, {}), model) if isinstance(body, dict) else None
    except DecodeError:
        return None


# Pods


def replica_facts(owner: WorkloadKind, job_name: str, body: JSON) -> ReplicaFacts | None:
    """The facts of a pod of the job; None if the pod cannot be decoded."""
    pod = _decode_or_none(body, Pod)
    if pod is None:
        return None
    labels = {**pod.metadata.annotations, **pod.metadata.labels}
    kind = labels.get(owner.type_label, "")
    if owner.job_kind is not None:
        kind = next((one for one in owner.job_kind.types if one.lower() == kind), kind)
        name = pod.metadata.name.removeprefix(f"{job_name}-")
    else:
        name = pod.metadata.name
    spec = body.get("spec") or {}
    return ReplicaFacts(
        name=name,
        type=kind,
        pod=pod,
        template_path=owner.template_path.format(type=kind),
        volumes=tuple(_volume_fact(one) for one in spec.get("volumes") or ()),
        mounts=tuple(_mount_facts(spec)),
        commands={
            one.get("name", ""): (*(one.get("command") or ()), *(one.get("args") or ()))
            for one in spec.get("containers") or ()
        },
        variables={one.get("name", ""): _plain_variables(one) for one in spec.get("containers") or ()},
    )


def _plain_variables(container: Mapping[str, Any]) -> dict[str, str]:
    return {one.get("name", ""): one["value"] for one in container.get("env") or () if "value" in one}


def _volume_fact(body: Mapping[str, Any]) -> VolumeFact:
    source = next((name for name in body if name != "name"), "")
    return VolumeFact(
        name=body.get("name", ""),
        source=source,
        claim=json_value(body, "persistentVolumeClaim", "claimName") or "",
        size_limit=str(json_value(body, "emptyDir", "sizeLimit") or ""),
        object_name=json_value(body, "configMap", "name") or json_value(body, "secret", "secretName") or "",
    )


def _mount_facts(spec: Mapping[str, Any]) -> Iterable[MountFact]:
    fixed = {
        one.get("name")
        for one in spec.get("volumes") or ()
        if json_value(one, "persistentVolumeClaim", "readOnly") or "configMap" in one or "secret" in one
    }
    for container in spec.get("containers") or ():
        for one in container.get("volumeMounts") or ():
            volume = one.get("name", "")
            read_only = bool(one.get("readOnly")) or volume in fixed
            yield MountFact(container.get("name", ""), volume, one.get("mountPath", ""), read_only)


# Events, claims, groups


def event_fact(body: JSON) -> EventFact:
    """The facts of an event, from either API group."""
    at = (
        json_value(body, "series", "lastObservedTime")
        or body.get("deprecatedLastTimestamp")
        or body.get("eventTime")
        or json_value(body, "metadata", "creationTimestamp")
    )
    first = body.get("deprecatedFirstTimestamp") or body.get("eventTime") or at
    return EventFact(
        reason=body.get("reason", ""),
        message=body.get("note", ""),
        warning=body.get("type") == "Warning",
        time=parse_time(at),
        first_seen=parse_time(first),
        count=json_value(body, "series", "count") or body.get("deprecatedCount") or 1,
        source=body.get("reportingController") or json_value(body, "deprecatedSource", "component") or "",
    )


def claim_fact(name: str, body: JSON | None) -> ClaimFact:
    """The facts of a claim; `body` is None for a claim that does not exist."""
    if body is None:
        return ClaimFact(name, exists=False)
    return ClaimFact(
        name,
        phase=json_value(body, "status", "phase") or "",
        storage_class=json_value(body, "spec", "storageClassName") or "",
        requested_storage=json_value(body, "spec", "resources", "requests", "storage") or "",
    )


def pod_group_facts(body: JSON) -> PodGroupFacts:
    """The facts of a PodGroup of any scheduler."""
    group = str(body.get("apiVersion", "")).partition("/")[0]
    state = json_value(body, "status", "state") or {}
    # Kubernetes' own condition says that a group is placed, or why not; other schedulers have a condition for what is
    # wrong.
    telling = "False" if group == NATIVE_GROUP else "True"
    messages = [
        one
        for one in json_value(body, "status", "conditions") or ()
        if one.get("status") == telling and one.get("message")
    ]
    least = json_value(body, "spec", "minMember") or json_value(body, "spec", "schedulingPolicy", "gang", "minCount")
    return PodGroupFacts(
        name=json_value(body, "metadata", "name") or "",
        phase=str(state.get("phase") or json_value(body, "status", "phase") or "Pending"),
        min_member=_int_or(least, 0),
        scheduled=_int_or(json_value(body, "status", "scheduled"), 0)
        or _int_or(json_value(body, "status", "running"), 0),
        message=str(state.get("message") or (messages[-1]["message"] if messages else "")),
        queue=str(json_value(body, "spec", "queue") or ""),
        resource=f"podgroups.{group}" if group else "podgroup",
        is_gangline=group == SCHEDULING,
        reason=str(state.get("reason") or ""),
        attempt_message=str(state.get("message") or "").partition("; ")[2],
    )


def with_logs(
    replica: ReplicaFacts,
    logs: Mapping[str, Sequence[tuple[datetime | None, str]]],
    earlier: Mapping[str, tuple[str, ...]],
) -> ReplicaFacts:
    """The replica with the last lines of its logs, which come with their times."""
    lines = {name: tuple(clipped_line(text) for _, text in stamped) for name, stamped in logs.items()}
    moments = [at for stamped in logs.values() for at, _ in stamped if at is not None]
    return msgspec.structs.replace(
        replica,
        logs=lines,
        previous_logs={name: tuple(map(clipped_line, texts)) for name, texts in earlier.items()},
        last_log_at=max(moments, default=None),
        error_times={name: _error_times(stamped) for name, stamped in logs.items()},
    )


def _error_times(stamped: Sequence[tuple[datetime | None, str]]) -> tuple[datetime | None, datetime | None]:
    start = last_traceback_index([text for _, text in stamped])
    return (stamped[start][0] if start is not None else None, stamped[-1][0] if stamped else None)
