"""Objects of a run or plane that has ended: which objects are archived, and how they are closed when read. Pure.

An archived run holds objects as they were at the end, and so does the store of a stopped plane. They are closed when
they are read: pods that ran were stopped with the run or plane. A job of a run that had not ended has failed. A job of
a plane is stopped: it continues when the plane starts again.
"""

from collections.abc import Collection, Container, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from gangline.api.kubeflow.training import RUN_COMMAND_ANNOTATION, RUN_ENDED_ANNOTATION
from gangline.api.meta import JSON, timestamp
from gangline.apiserver.store.paths import split_path
from gangline.apiserver.store.records import StoreRecord
from gangline.node.checkpoint import ExitRecord

StoredObjects = dict[str, JSON]
"""Objects by store path."""
ExitRecords = Mapping[str, ExitRecord]
"""How runs of containers ended, by run id."""

EXCLUDED_GROUPS = ("apiregistration.k8s.io", "coordination.k8s.io", "scheduling.k8s.io")
"""API groups whose objects every server has, or that matter only while it runs."""
MAX_EVENTS = 1000
RUN_STOPPED = "RunStopped"
"""The reason of a condition: the run ended before the job did."""
PLANE_STOPPED = "PlaneStopped"
"""The reason of the condition `Stopped`: the plane ended before the job did."""
PLANE_STOPPED_MESSAGE = "the plane was stopped before the job had ended"
_ACTIVE_CONDITIONS = ("Running", "Restarting", "Blocked")
_READY_CONDITIONS = ("Ready", "ContainersReady")
_DELETION_FIELDS = ("deletionTimestamp", "deletionGracePeriodSeconds")
_CONTAINER_STATUS_FIELDS = ("initContainerStatuses", "containerStatuses")


class RunEnd(NamedTuple):
    """How a run ended, from the annotation of its job."""

    ended_at: datetime
    # Empty if the job had ended by itself.
    message: str = ""


# Writing


def archived_objects(records: Iterable[StoreRecord], known: Container[str] = ()) -> StoredObjects:
    """The objects to archive: without the data of Secrets, and with the last events only.

    Objects whose path is in `known` are left out: the reader has them already.
    """
    selected = [
        record
        for record in records
        if split_path(record.path).group not in EXCLUDED_GROUPS and record.path not in known
    ]
    events = [record for record in selected if split_path(record.path).plural == "events"]
    dropped = {record.path for record in sorted(events, key=lambda event: event.revision)[:-MAX_EVENTS]}
    objects = {record.path: msgspec.json.decode(record.data) for record in selected if record.path not in dropped}
    return {path: _without_secret_data(path, body) for path, body in objects.items()}


def _without_secret_data(path: str, body: JSON) -> JSON:
    if path.startswith("//secrets/"):
        return {name: value for name, value in body.items() if name not in ("data", "stringData")}
    return body


def job_with_run_end(body: JSON, now: datetime, message: str, command: str = "") -> JSON:
    """The job with an annotation that says when its run ended, and why, unless the job had ended by itself.

    `command` is what a person typed to run it.
    """
    conditions = (body.get("status") or {}).get("conditions") or ()
    text = timestamp(now) if _has_condition(conditions, "Succeeded", "Failed") else f"{timestamp(now)} {message}"
    metadata = body["metadata"]
    annotations = {**(metadata.get("annotations") or {}), RUN_ENDED_ANNOTATION: text}
    if command:
        annotations[RUN_COMMAND_ANNOTATION] = command
    return {**body, "metadata": {**metadata, "annotations": annotations}}


# Reading: runs


def run_end(body: JSON) -> RunEnd | None:
    """How the run of a job ended; None for an object without that annotation."""
    text = (body["metadata"].get("annotations") or {}).get(RUN_ENDED_ANNOTATION, "")
    time, _, message = text.partition(" ")
    return RunEnd(datetime.fromisoformat(time), message) if time else None


def closed_run(objects: Mapping[str, JSON], exits: ExitRecords) -> StoredObjects:
    """The objects of a run that has ended."""
    end = next(filter(None, map(run_end, objects.values())), None)
    if end is None:
        return dict(objects)
    return {
        path: _without_deletion(_closed_run_object(path, body, exits, end.ended_at)) for path, body in objects.items()
    }


def _closed_run_object(path: str, body: JSON, exits: ExitRecords, at: datetime) -> JSON:
    if path.startswith("//pods/"):
        return closed_pod(body, exits, at)
    return closed_node(body, at) if path.startswith("//nodes/") else closed_job(body)


def closed_job(body: JSON) -> JSON:
    """A job that had not ended, failed with the message of its run's end. Other objects are returned unchanged."""
    end = run_end(body)
    if end is None or not end.message:
        return body
    status = _stopped_job_status(body, end, "Failed", RUN_STOPPED)
    return {**body, "status": {**status, "completionTime": timestamp(end.ended_at)}}


def _stopped_job_status(body: JSON, end: RunEnd, state: str, reason: str) -> JSON:
    """The status of a job without running replicas, with one more condition: `state` for this reason."""
    status, at = body.get("status") or {}, timestamp(end.ended_at)
    times = {"lastUpdateTime": at, "lastTransitionTime": at}
    before = [
        {**condition, "status": "False", **times} if condition["type"] in _ACTIVE_CONDITIONS else condition
        for condition in status.get("conditions") or ()
    ]
    newest = {"type": state, "status": "True", "reason": reason, "message": end.message, **times}
    replicas = (status.get("replicaStatuses") or {}).items()
    counters = {replica_type: {**counts, "active": 0} for replica_type, counts in replicas}
    return {**status, "conditions": [*before, newest], "replicaStatuses": counters, "phase": state, "state": state}


def closed_pod(pod: JSON, exits: ExitRecords, now: datetime) -> JSON:
    """The pod with its running containers stopped, and failed if it had any."""
    status = pod.get("status") or {}
    if not _is_running(pod):
        return pod
    stopped = {
        part: [_stopped_container_status(container, exits, now) for container in status[part]]
        for part in _CONTAINER_STATUS_FIELDS
        if part in status
    }
    not_ready = {"status": "False", "lastTransitionTime": timestamp(now)}
    conditions = _changed_conditions(status, _READY_CONDITIONS, not_ready)
    if conditions:
        stopped["conditions"] = conditions
    return {**pod, "status": {**status, **stopped, "phase": "Failed"}}


def closed_node(node: JSON, now: datetime) -> JSON:
    """The node without heartbeat."""
    status = node.get("status") or {}
    unknown = {"status": "Unknown", "reason": "NodeStatusUnknown", "message": "no plane is running"}
    conditions = _changed_conditions(status, ("Ready",), {**unknown, "lastTransitionTime": timestamp(now)})
    return {**node, "status": {**status, "conditions": conditions}}


def _changed_conditions(status: JSON, types: Container[str], change: JSON) -> list[JSON]:
    """The conditions of a status, with the change applied to those of these types."""
    conditions = status.get("conditions") or ()
    return [{**condition, **change} if condition["type"] in types else condition for condition in conditions]


def _stopped_container_status(container: JSON, exits: ExitRecords, now: datetime) -> JSON:
    running = (container.get("state") or {}).get("running")
    if running is None:
        return container
    container_id = str(container.get("containerID", ""))
    exit_ = exits.get(container_id.rpartition("//")[2], ExitRecord(now.timestamp(), -9))
    terminated = {
        "exitCode": exit_.code if exit_.code >= 0 else 128 - exit_.code,
        "reason": "Stopped",
        "startedAt": running.get("startedAt"),
        "finishedAt": timestamp(exit_.finished_at),
        "containerID": container_id,
    }
    return {**container, "ready": False, "started": False, "state": {"terminated": terminated}}


# Reading: planes


def objects_with_run_end(objects: Mapping[str, JSON], ended_pods: Collection[str], at: datetime) -> StoredObjects:
    """The objects of a stopped plane, with `job_with_run_end` applied to jobs without running pods.

    `ended_pods` are the uids of pods without processes. A killed plane leaves processes, so a job may still run.
    """
    pods = [body for path, body in objects.items() if path.startswith("//pods/")]
    running_owners = {
        owner["uid"]
        for pod in pods
        if _is_running(pod) and pod["metadata"]["uid"] not in ended_pods
        for owner in _owner_references(pod)
    }
    return {
        path: job_with_run_end(body, at, PLANE_STOPPED_MESSAGE)
        if _is_job(body) and body["metadata"]["uid"] not in running_owners
        else body
        for path, body in objects.items()
    }


def closed_plane(
    objects: Mapping[str, JSON], exits: ExitRecords, ended_pods: Collection[str], at: datetime
) -> StoredObjects:
    """The result of `objects_with_run_end`, closed: its pods without processes are stopped, its unfinished jobs too."""
    return {path: _closed_plane_object(path, body, exits, ended_pods, at) for path, body in objects.items()}


def _closed_plane_object(path: str, body: JSON, exits: ExitRecords, ended_pods: Collection[str], at: datetime) -> JSON:
    if path.startswith("//pods/"):
        return closed_pod(body, exits, at) if body["metadata"]["uid"] in ended_pods else body
    if path.startswith("//nodes/"):
        return closed_node(body, at)
    end = run_end(body)
    suspended = _has_condition((body.get("status") or {}).get("conditions") or (), "Suspended")
    if end is None or not end.message or suspended:
        return body
    return {**body, "status": _stopped_job_status(body, end, "Stopped", PLANE_STOPPED)}


def _is_job(body: JSON) -> bool:
    """Whether the object is a job of any kind: it has replicas by type."""
    spec = body.get("spec")
    return isinstance(spec, dict) and any(name.endswith("ReplicaSpecs") for name in spec)


def _owner_references(body: JSON) -> list[JSON]:
    return list(body["metadata"].get("ownerReferences") or ())


def _is_running(pod: JSON) -> bool:
    status = pod.get("status") or {}
    return any(
        "running" in (container.get("state") or {})
        for part in _CONTAINER_STATUS_FIELDS
        for container in status.get(part) or ()
    )


def _has_condition(conditions: Iterable[JSON], *types: str) -> bool:
    return any(condition["type"] in types and condition["status"] == "True" for condition in conditions)


def _without_deletion(body: JSON) -> JSON:
    """The object without the marks of a deletion: it is not going on any more."""
    metadata = {name: value for name, value in body["metadata"].items() if name not in _DELETION_FIELDS}
    return {**body, "metadata": metadata}
