"""Objects of which nothing runs any more: what of a run is worth keeping, and how all of it looks then. Pure.

A record of a run holds objects as they were at the end, and so does the store of a plane. Only whoever reads them sees
them closed: what ran then was stopped with the run or the plane. Of a run, a job that had not ended has failed. Of a
plane it is stopped: what becomes of it is decided when the plane comes back.
"""

from collections.abc import Collection, Container, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from gangline.api.kubeflow.training import RUN_ENDED_ANNOTATION
from gangline.api.meta import JSON
from gangline.apiserver.store.paths import split_path
from gangline.apiserver.store.records import StoreRecord
from gangline.node.checkpoint import ExitRecord

StoredObjects = dict[str, JSON]
"""By where a store keeps them."""
ExitRecords = Mapping[str, ExitRecord]
"""How runs of containers ended, by their identity."""

EXCLUDED_GROUPS = ("apiregistration.k8s.io", "coordination.k8s.io", "scheduling.k8s.io")
"""Groups of objects that every server has, or that matter only while it lives."""
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
    """How a run ended, as its job says."""

    ended_at: datetime
    # Empty: the job had ended by itself.
    message: str = ""


# To be written


def archived_objects(records: Iterable[StoreRecord], known: Container[str] = ()) -> StoredObjects:
    """The objects worth keeping; without secrets, and of events the last so many.

    What is `known`, by its path, to whoever will read them is left out.
    """
    kept = [each for each in records if split_path(each.path).group not in EXCLUDED_GROUPS and each.path not in known]
    events = [record for record in kept if split_path(record.path).plural == "events"]
    dropped = {record.path for record in sorted(events, key=lambda each: each.revision)[:-MAX_EVENTS]}
    objects = {each.path: msgspec.json.decode(each.data) for each in kept if each.path not in dropped}
    return {path: _without_secret_data(path, body) for path, body in objects.items()}


def _without_secret_data(path: str, body: JSON) -> JSON:
    if path.startswith("//secrets/"):
        return {name: value for name, value in body.items() if name not in ("data", "stringData")}
    return body


def job_with_run_end(body: JSON, now: datetime, how: str) -> JSON:
    """A job that says when its run ended, and how, unless the job had ended itself."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    text = timestamp(now) if _has_condition(conditions, "Succeeded", "Failed") else f"{timestamp(now)} {how}"
    metadata = body["metadata"]
    annotations = {**(metadata.get("annotations") or {}), RUN_ENDED_ANNOTATION: text}
    return {**body, "metadata": {**metadata, "annotations": annotations}}


# To be read


def run_end(body: JSON) -> RunEnd | None:
    """How the run of a job ended; None for one that is not from a record."""
    text = (body["metadata"].get("annotations") or {}).get(RUN_ENDED_ANNOTATION, "")
    time, _, how = text.partition(" ")
    return RunEnd(datetime.fromisoformat(time), how) if time else None


def closed_run(objects: Mapping[str, JSON], exits: ExitRecords) -> StoredObjects:
    """All objects of a run, now that it is over."""
    found = next(filter(None, map(run_end, objects.values())), None)
    if found is None:
        return dict(objects)
    return {
        path: _without_deletion(_closed_run_object(path, body, exits, found.ended_at)) for path, body in objects.items()
    }


def _closed_run_object(path: str, body: JSON, exits: ExitRecords, at: datetime) -> JSON:
    if path.startswith("//pods/"):
        return closed_pod(body, exits, at)
    return closed_node(body, at) if path.startswith("//nodes/") else closed_job(body)


def closed_job(body: JSON) -> JSON:
    """One that had not ended has failed, and says how its run ended. Everything else as it is."""
    found = run_end(body)
    if found is None or not found.message:
        return body
    status = _stopped_job_status(body, found, "Failed", RUN_STOPPED)
    return {**body, "status": {**status, "completionTime": timestamp(found.ended_at)}}


def _stopped_job_status(body: JSON, end: RunEnd, state: str, reason: str) -> JSON:
    """The status of a job of which nothing runs any more, with one more condition that says so."""
    status, at = body.get("status") or {}, timestamp(end.ended_at)
    times = {"lastUpdateTime": at, "lastTransitionTime": at}
    before = [
        {**each, "status": "False", **times} if each["type"] in _ACTIVE_CONDITIONS else each
        for each in status.get("conditions") or ()
    ]
    newest = {"type": state, "status": "True", "reason": reason, "message": end.message, **times}
    counters = {kind: {**each, "active": 0} for kind, each in (status.get("replicaStatuses") or {}).items()}
    fresh = {"conditions": [*before, newest], "replicaStatuses": counters}
    return {**status, **fresh, "phase": state, "state": state}


def closed_pod(pod: JSON, exits: ExitRecords, now: datetime) -> JSON:
    """One that ran was stopped with the run."""
    status = pod.get("status") or {}
    if not _is_running(pod):
        return pod
    stopped = {
        part: [_stopped_container_status(each, exits, now) for each in status[part]]
        for part in _CONTAINER_STATUS_FIELDS
        if part in status
    }
    conditions = [
        {**each, "status": "False", "lastTransitionTime": timestamp(now)} if each["type"] in _READY_CONDITIONS else each
        for each in status.get("conditions") or ()
    ]
    told = {"conditions": conditions} if conditions else {}
    return {**pod, "status": {**status, **stopped, **told, "phase": "Failed"}}


def closed_node(node: JSON, now: datetime) -> JSON:
    """Nobody hears of it any more."""
    status = node.get("status") or {}
    unheard = {"status": "Unknown", "reason": "NodeStatusUnknown", "message": "no plane is running"}
    conditions = [
        {**each, **unheard, "lastTransitionTime": timestamp(now)} if each["type"] == "Ready" else each
        for each in status.get("conditions") or ()
    ]
    return {**node, "status": {**status, "conditions": conditions}}


def _stopped_container_status(container: JSON, exits: ExitRecords, now: datetime) -> JSON:
    running = (container.get("state") or {}).get("running")
    if running is None:
        return container
    identity = str(container.get("containerID", ""))
    found = exits.get(identity.rpartition("//")[2], ExitRecord(now.timestamp(), -9))
    terminated = {
        "exitCode": found.code if found.code >= 0 else 128 - found.code,
        "reason": "Stopped",
        "startedAt": running.get("startedAt"),
        "finishedAt": timestamp(found.finished_at),
        "containerID": identity,
    }
    return {**container, "ready": False, "started": False, "state": {"terminated": terminated}}


# Of a plane


def objects_with_run_end(objects: Mapping[str, JSON], over: Collection[str], at: datetime) -> StoredObjects:
    """The objects of a plane that was stopped, where jobs that had not ended say so; otherwise as they were.

    `over` are the uids of pods of which nothing runs any more. A plane that was killed leaves processes, and a job with
    such a pod goes on.
    """
    pods = [body for path, body in objects.items() if path.startswith("//pods/")]
    alive = {
        owner["uid"]
        for pod in pods
        if _is_running(pod) and pod["metadata"]["uid"] not in over
        for owner in _owner_references(pod)
    }
    return {
        path: job_with_run_end(body, at, PLANE_STOPPED_MESSAGE)
        if _is_job(body) and body["metadata"]["uid"] not in alive
        else body
        for path, body in objects.items()
    }


def closed_plane(objects: Mapping[str, JSON], exits: ExitRecords, over: Collection[str], at: datetime) -> StoredObjects:
    """What `objects_with_run_end` gave, now that nothing runs any more."""
    return {path: _closed_plane_object(path, body, exits, over, at) for path, body in objects.items()}


def _closed_plane_object(path: str, body: JSON, exits: ExitRecords, over: Collection[str], at: datetime) -> JSON:
    if path.startswith("//pods/"):
        return closed_pod(body, exits, at) if body["metadata"]["uid"] in over else body
    if path.startswith("//nodes/"):
        return closed_node(body, at)
    found = run_end(body)
    suspended = _has_condition((body.get("status") or {}).get("conditions") or (), "Suspended")
    if found is None or not found.message or suspended:
        return body
    return {**body, "status": _stopped_job_status(body, found, "Stopped", PLANE_STOPPED)}


def _is_job(body: JSON) -> bool:
    """Whatever its kind is called: it has replicas by type."""
    spec = body.get("spec")
    return isinstance(spec, dict) and any(name.endswith("ReplicaSpecs") for name in spec)


def _owner_references(body: JSON) -> list[JSON]:
    return list(body["metadata"].get("ownerReferences") or ())


def _is_running(pod: JSON) -> bool:
    status = pod.get("status") or {}
    return any(
        "running" in (each.get("state") or {}) for part in _CONTAINER_STATUS_FIELDS for each in status.get(part) or ()
    )


def _has_condition(conditions: Iterable[JSON], *kinds: str) -> bool:
    return any(each["type"] in kinds and each["status"] == "True" for each in conditions)


# Both


def _without_deletion(body: JSON) -> JSON:
    """What was being deleted, or was, is no more on its way."""
    metadata = {name: value for name, value in body["metadata"].items() if name not in _DELETION_FIELDS}
    return {**body, "metadata": metadata}


def timestamp(moment: datetime) -> str:
    """A time as Kubernetes writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
