"""Objects of which nothing runs any more: what of a run is worth keeping, and how all of it looks then. Pure.

A record of a run holds objects as they were at the end, and so does the store of a plane. Only whoever reads them sees
them closed: what ran then was stopped with the run or the plane. Of a run, a job that had not ended has failed. Of a
plane it is stopped: what becomes of it is decided when the plane comes back.
"""

from collections.abc import Collection, Container, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from gangline.api.kubeflow.training import RUN_ENDED
from gangline.api.meta import JSON
from gangline.apiserver.store.paths import split_path
from gangline.apiserver.store.records import Record
from gangline.node.checkpoint import Exit

Objects = dict[str, JSON]
"""By where a store keeps them."""
Exits = Mapping[str, Exit]
"""How runs of containers ended, by their identity."""

UNTOLD = ("apiregistration.k8s.io", "coordination.k8s.io", "scheduling.k8s.io")
"""Groups of objects that every server has, or that matter only while it lives."""
MOST_EVENTS = 1000
STOPPED = "RunStopped"
"""The reason of a condition: the run ended before the job did."""
PLANE_STOPPED = "PlaneStopped"
"""The reason of the condition `Stopped`: the plane ended before the job did."""
PLANE_ENDED = "the plane was stopped before the job had ended"
_GOING = ("Running", "Restarting", "Blocked")
_READY = ("Ready", "ContainersReady")
_LEAVING = ("deletionTimestamp", "deletionGracePeriodSeconds")
_PARTS = ("initContainerStatuses", "containerStatuses")


class Ended(NamedTuple):
    """How a run ended, as its job says."""

    at: datetime
    # Empty: the job had ended by itself.
    how: str = ""


# To be written


def told(records: Iterable[Record], known: Container[str] = ()) -> Objects:
    """The objects worth keeping; without secrets, and of events the last so many.

    What is `known`, by its path, to whoever will read them is left out.
    """
    kept = [each for each in records if split_path(each.path).group not in UNTOLD and each.path not in known]
    events = [record for record in kept if split_path(record.path).plural == "events"]
    dropped = {record.path for record in sorted(events, key=lambda each: each.revision)[:-MOST_EVENTS]}
    objects = {each.path: msgspec.json.decode(each.data) for each in kept if each.path not in dropped}
    return {path: _discreet(path, body) for path, body in objects.items()}


def _discreet(path: str, body: JSON) -> JSON:
    if path.startswith("//secrets/"):
        return {name: value for name, value in body.items() if name not in ("data", "stringData")}
    return body


def ended_job(body: JSON, now: datetime, how: str) -> JSON:
    """A job that says when its run ended, and how, unless the job had ended itself."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    text = stamp(now) if _holds(conditions, "Succeeded", "Failed") else f"{stamp(now)} {how}"
    metadata = body["metadata"]
    annotations = {**(metadata.get("annotations") or {}), RUN_ENDED: text}
    return {**body, "metadata": {**metadata, "annotations": annotations}}


# To be read


def ended(body: JSON) -> Ended | None:
    """How the run of a job ended; None for one that is not from a record."""
    text = (body["metadata"].get("annotations") or {}).get(RUN_ENDED, "")
    time, _, how = text.partition(" ")
    return Ended(datetime.fromisoformat(time), how) if time else None


def closed(objects: Mapping[str, JSON], exits: Exits) -> Objects:
    """All objects of a run, now that it is over."""
    found = next(filter(None, map(ended, objects.values())), None)
    if found is None:
        return dict(objects)
    return {path: _settled(_closed(path, body, exits, found.at)) for path, body in objects.items()}


def _closed(path: str, body: JSON, exits: Exits, at: datetime) -> JSON:
    if path.startswith("//pods/"):
        return closed_pod(body, exits, at)
    return closed_node(body, at) if path.startswith("//nodes/") else closed_job(body)


def closed_job(body: JSON) -> JSON:
    """One that had not ended has failed, and says how its run ended. Everything else as it is."""
    found = ended(body)
    if found is None or not found.how:
        return body
    status = _halted(body, found, "Failed", STOPPED)
    return {**body, "status": {**status, "completionTime": stamp(found.at)}}


def _halted(body: JSON, end: Ended, state: str, reason: str) -> JSON:
    """The status of a job of which nothing runs any more, with one more condition that says so."""
    status, at = body.get("status") or {}, stamp(end.at)
    times = {"lastUpdateTime": at, "lastTransitionTime": at}
    before = [
        {**each, "status": "False", **times} if each["type"] in _GOING else each
        for each in status.get("conditions") or ()
    ]
    newest = {"type": state, "status": "True", "reason": reason, "message": end.how, **times}
    counters = {kind: {**each, "active": 0} for kind, each in (status.get("replicaStatuses") or {}).items()}
    fresh = {"conditions": [*before, newest], "replicaStatuses": counters}
    return {**status, **fresh, "phase": state, "state": state}


def closed_pod(pod: JSON, exits: Exits, now: datetime) -> JSON:
    """One that ran was stopped with the run."""
    status = pod.get("status") or {}
    if not _runs(pod):
        return pod
    stopped = {
        part: [_stopped(each, exits, now) for each in status[part]] for part in _PARTS if part in status
    }
    conditions = [
        {**each, "status": "False", "lastTransitionTime": stamp(now)} if each["type"] in _READY else each
        for each in status.get("conditions") or ()
    ]
    told = {"conditions": conditions} if conditions else {}
    return {**pod, "status": {**status, **stopped, **told, "phase": "Failed"}}


def closed_node(node: JSON, now: datetime) -> JSON:
    """Nobody hears of it any more."""
    status = node.get("status") or {}
    unheard = {"status": "Unknown", "reason": "NodeStatusUnknown", "message": "no plane is running"}
    conditions = [
        {**each, **unheard, "lastTransitionTime": stamp(now)} if each["type"] == "Ready" else each
        for each in status.get("conditions") or ()
    ]
    return {**node, "status": {**status, "conditions": conditions}}


def _stopped(container: JSON, exits: Exits, now: datetime) -> JSON:
    running = (container.get("state") or {}).get("running")
    if running is None:
        return container
    identity = str(container.get("containerID", ""))
    found = exits.get(identity.rpartition("//")[2], Exit(now.timestamp(), -9))
    terminated = {
        "exitCode": found.code if found.code >= 0 else 128 - found.code,
        "reason": "Stopped",
        "startedAt": running.get("startedAt"),
        "finishedAt": stamp(found.moment),
        "containerID": identity,
    }
    return {**container, "ready": False, "started": False, "state": {"terminated": terminated}}


# Of a plane


def halted(objects: Mapping[str, JSON], over: Collection[str], at: datetime) -> Objects:
    """The objects of a plane that was stopped, where jobs that had not ended say so; otherwise as they were.

    `over` are the uids of pods of which nothing runs any more. A plane that was killed leaves processes, and a job with
    such a pod goes on.
    """
    pods = [body for path, body in objects.items() if path.startswith("//pods/")]
    alive = {
        owner["uid"]
        for pod in pods
        if _runs(pod) and pod["metadata"]["uid"] not in over
        for owner in _owners(pod)
    }
    return {
        path: ended_job(body, at, PLANE_ENDED)
        if _is_job(body) and body["metadata"]["uid"] not in alive
        else body
        for path, body in objects.items()
    }


def closed_plane(objects: Mapping[str, JSON], exits: Exits, over: Collection[str], at: datetime) -> Objects:
    """What `halted` gave, now that nothing runs any more."""
    return {path: _closed_in_plane(path, body, exits, over, at) for path, body in objects.items()}


def _closed_in_plane(path: str, body: JSON, exits: Exits, over: Collection[str], at: datetime) -> JSON:
    if path.startswith("//pods/"):
        return closed_pod(body, exits, at) if body["metadata"]["uid"] in over else body
    if path.startswith("//nodes/"):
        return closed_node(body, at)
    found = ended(body)
    suspended = _holds((body.get("status") or {}).get("conditions") or (), "Suspended")
    if found is None or not found.how or suspended:
        return body
    return {**body, "status": _halted(body, found, "Stopped", PLANE_STOPPED)}


def _is_job(body: JSON) -> bool:
    """Whatever its kind is called: it has replicas by type."""
    spec = body.get("spec")
    return isinstance(spec, dict) and any(name.endswith("ReplicaSpecs") for name in spec)


def _owners(body: JSON) -> list[JSON]:
    return list(body["metadata"].get("ownerReferences") or ())


def _runs(pod: JSON) -> bool:
    status = pod.get("status") or {}
    return any("running" in (each.get("state") or {}) for part in _PARTS for each in status.get(part) or ())


def _holds(conditions: Iterable[JSON], *kinds: str) -> bool:
    return any(each["type"] in kinds and each["status"] == "True" for each in conditions)


# Both


def _settled(body: JSON) -> JSON:
    """What was being deleted, or was, is no more on its way."""
    metadata = {name: value for name, value in body["metadata"].items() if name not in _LEAVING}
    return {**body, "metadata": metadata}


def stamp(moment: datetime) -> str:
    """A time as Kubernetes writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
