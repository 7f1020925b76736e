"""Objects as the server has them become the values of a case. Pure."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

import msgspec

from gangline.api.codec.codec import Document, decode_document
from gangline.api.codec.errors import DecodeError
from gangline.api.core import Pod
from gangline.api.kubeflow.training import RUN_ENDED, JobStatus, RunPolicy
from gangline.api.meta import JSON, Condition
from gangline.api.scheduling import GROUP as SCHEDULING
from gangline.jobs.defaults import problems
from gangline.jobs.framework import Framework
from gangline.jobs.plan.status import newest
from gangline.why.kinds import NATIVE, Owner, value
from gangline.why.model.case import Claim, Gang, Job, Mount, Replica, Told, Volume

_ENDED = {"Complete": "Succeeded", "Completed": "Succeeded", "Failed": "Failed", "Suspended": "Suspended"}
_PHASES = {"Completed": "Succeeded", "Aborted": "Failed", "Terminated": "Failed", "Failed": "Failed"}
QUEUE = "kueue.x-k8s.io/queue-name"


def moment(text: object) -> datetime | None:
    """A time as the wire has it."""
    with suppress(ValueError, TypeError):
        return datetime.fromisoformat(str(text))
    return None


# Jobs


def job(owner: Owner, body: JSON, framework: Framework[Any] | None) -> Job:
    """The facts of a job of any kind."""
    metadata: Mapping[str, Any] = body.get("metadata") or {}
    common: dict[str, Any] = {
        "kind": owner.resource.kind,
        "namespace": str(metadata.get("namespace", "")),
        "name": str(metadata.get("name", "")),
        "uid": str(metadata.get("uid", "")),
        "created": moment(metadata.get("creationTimestamp")),
        "queue": str((metadata.get("labels") or {}).get(QUEUE, "")),
    }
    recorded, _, stopped = str((metadata.get("annotations") or {}).get(RUN_ENDED, "")).partition(" ")
    facts = _training(owner, body, framework) if owner.facts is not None else _other(owner, body)
    return Job(**common, **facts, recorded=moment(recorded), stopped=stopped)


def _training(owner: Owner, body: JSON, framework: Framework[Any] | None) -> dict[str, Any]:
    known = owner.facts
    assert known is not None
    spec = body.get("spec") or {}
    policy = _lenient(spec.get("runPolicy"), RunPolicy) or RunPolicy()
    status = _lenient(body.get("status"), JobStatus) or JobStatus()
    spelled = {kind.lower(): kind for kind in known.types}
    written: Mapping[str, Any] = spec.get(known.replicas) or {}
    replicas = {
        spelled.get(kind.lower(), kind): entry
        for kind, entry in written.items()
        if isinstance(entry, Mapping)
    }
    return {
        "state": newest(status),
        "started": status.start_time,
        "noticed": bool(status.conditions),
        "conditions": status.conditions,
        "suspended": policy.suspend,
        "suspend_field": "spec.runPolicy.suspend",
        "managed_by": policy.managed_by or "",
        "problems": _problems(framework, body),
        "wanted": {
            kind: _number(entry.get("replicas"), known.default_replicas.get(kind, 1))
            for kind, entry in replicas.items()
        },
        "policies": {
            kind: entry.get("restartPolicy") or known.restart_policy.value for kind, entry in replicas.items()
        },
        "templates": {kind: owner.template.format(type=kind) for kind in replicas},
        "deadline": policy.active_deadline_seconds,
        "backoff_limit": policy.backoff_limit,
        "limits_field": "spec.runPolicy",
        "restarts": status.restarts,
        "streak": status.ledger.streak,
        "restarted": status.ledger.not_before,
        "first_failure": status.first_failure,
        "container": known.container,
    }


def _problems(framework: Framework[Any] | None, body: JSON) -> tuple[str, ...]:
    """Why the spec cannot run, by the same rules as the operator's."""
    if framework is None:
        return ()
    try:
        decoded = decode_document(Document(body, {}), framework.facts.model)
    except DecodeError as error:
        return (str(error),)
    return tuple(map(str, problems(framework, framework.default(decoded))))


def _other(owner: Owner, body: JSON) -> dict[str, Any]:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    conditions = tuple(filter(None, (_lenient(one, Condition) for one in status.get("conditions") or ())))
    return {
        "state": _state(status, conditions),
        "started": moment(status.get("startTime")),
        "noticed": bool(status),
        "conditions": conditions,
        "suspended": bool(spec.get("suspend")),
        "managed_by": "",
        "wanted": _wanted(owner, spec),
        "deadline": spec.get("activeDeadlineSeconds"),
        "backoff_limit": spec.get("backoffLimit", spec.get("maxRetry")),
        "restarts": _number(status.get("restarts") or status.get("retryCount"), 0),
        "training": False,
    }


def _state(status: Mapping[str, Any], conditions: Iterable[Condition]) -> str:
    """In the words of training jobs."""
    for one in conditions:
        if one.status == "True" and one.type in _ENDED:
            return _ENDED[one.type]
    phase = value(status, "state", "phase")
    if phase:
        return _PHASES.get(phase, str(phase))
    jobs = value(status, "replicatedJobsStatus") or value(status, "jobsStatus") or ()
    active = status.get("active") or any(_number(one.get("active"), 0) for one in jobs)
    return "Running" if active else "Pending"


def _wanted(owner: Owner, spec: Mapping[str, Any]) -> dict[str, int]:
    match owner.resource.kind:
        case "TrainJob":
            return {"node": _number(value(spec, "trainer", "numNodes"), 1)}
        case "JobSet":
            return {
                one.get("name", ""): _number(one.get("replicas"), 1)
                * _number(value(one, "template", "spec", "parallelism"), 1)
                for one in spec.get("replicatedJobs") or ()
            }
    if "tasks" in spec:
        return {one.get("name", ""): _number(one.get("replicas"), 1) for one in spec["tasks"]}
    return {"": min(_number(spec.get("parallelism"), 1), _number(spec.get("completions"), 1_000_000))}


def _number(found: object, default: int) -> int:
    return found if isinstance(found, int) else default


def _lenient(body: object, model: type[Any]) -> Any:
    """What can be made of it; None where somebody else wrote what does not fit."""
    try:
        return decode_document(Document(body, {}), model) if isinstance(body, dict) else None
    except DecodeError:
        return None


# Pods


def replica(owner: Owner, job_name: str, body: JSON) -> Replica | None:
    """A pod of the job; None for one that does not decode."""
    pod = _lenient(body, Pod)
    if pod is None:
        return None
    labels = {**pod.metadata.annotations, **pod.metadata.labels}
    kind = labels.get(owner.type_label, "")
    if owner.facts is not None:
        kind = next((one for one in owner.facts.types if one.lower() == kind), kind)
        name = pod.metadata.name.removeprefix(f"{job_name}-")
    else:
        name = pod.metadata.name
    spec = body.get("spec") or {}
    return Replica(
        name=name,
        type=kind,
        pod=pod,
        template=owner.template.format(type=kind),
        volumes=tuple(_volume(one) for one in spec.get("volumes") or ()),
        mounts=tuple(_mounts(spec)),
    )


def _volume(body: Mapping[str, Any]) -> Volume:
    source = next((name for name in body if name != "name"), "")
    return Volume(
        name=body.get("name", ""),
        source=source,
        claim=value(body, "persistentVolumeClaim", "claimName") or "",
        size_limit=str(value(body, "emptyDir", "sizeLimit") or ""),
    )


def _mounts(spec: Mapping[str, Any]) -> Iterable[Mount]:
    fixed = {
        one.get("name")
        for one in spec.get("volumes") or ()
        if value(one, "persistentVolumeClaim", "readOnly") or "configMap" in one or "secret" in one
    }
    for container in spec.get("containers") or ():
        for one in container.get("volumeMounts") or ():
            volume = one.get("name", "")
            read_only = bool(one.get("readOnly")) or volume in fixed
            yield Mount(container.get("name", ""), volume, one.get("mountPath", ""), read_only)


# Events, claims, groups


def told(body: JSON) -> Told:
    """An event, whoever wrote it and in whichever API."""
    at = (
        value(body, "series", "lastObservedTime")
        or body.get("deprecatedLastTimestamp")
        or body.get("eventTime")
        or value(body, "metadata", "creationTimestamp")
    )
    return Told(
        reason=body.get("reason", ""),
        message=body.get("note", ""),
        warning=body.get("type") == "Warning",
        at=moment(at),
        count=value(body, "series", "count") or body.get("deprecatedCount") or 1,
        source=body.get("reportingController") or value(body, "deprecatedSource", "component") or "",
    )


def claim(name: str, body: JSON | None) -> Claim:
    """A claim; one that does not exist has no body."""
    if body is None:
        return Claim(name, exists=False)
    return Claim(
        name,
        phase=value(body, "status", "phase") or "",
        storage_class=value(body, "spec", "storageClassName") or "",
        wants=value(body, "spec", "resources", "requests", "storage") or "",
    )


def gang(body: JSON) -> Gang:
    """A PodGroup of any of the schedulers."""
    group = str(body.get("apiVersion", "")).partition("/")[0]
    state = value(body, "status", "state") or {}
    # Kubernetes' own says that a group is placed, or why not; others have a condition for what is wrong.
    telling = "False" if group == NATIVE else "True"
    said = [
        one
        for one in value(body, "status", "conditions") or ()
        if one.get("status") == telling and one.get("message")
    ]
    least = value(body, "spec", "minMember") or value(body, "spec", "schedulingPolicy", "gang", "minCount")
    return Gang(
        name=value(body, "metadata", "name") or "",
        phase=str(state.get("phase") or value(body, "status", "phase") or "Pending"),
        min_member=_number(least, 0),
        scheduled=_number(value(body, "status", "scheduled"), 0)
        or _number(value(body, "status", "running"), 0),
        message=str(state.get("message") or (said[-1]["message"] if said else "")),
        queue=str(value(body, "spec", "queue") or ""),
        resource=f"podgroups.{group}" if group else "podgroup",
        ours=group == SCHEDULING,
        reason=str(state.get("reason") or ""),
        attempt=str(state.get("message") or "").partition("; ")[2],
    )


def with_logs(
    one: Replica,
    logs: Mapping[str, tuple[str, ...]],
    earlier: Mapping[str, tuple[str, ...]],
    last: datetime | None,
) -> Replica:
    return msgspec.structs.replace(one, logs=dict(logs), earlier=dict(earlier), last_line=last)
