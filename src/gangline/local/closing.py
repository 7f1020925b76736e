"""The objects of a run when it is over: what is worth keeping, and how it looks now that nothing runs any more. Pure.

A record holds objects as they were at the end. Only whoever reads them sees them closed: what ran then was stopped with
the run, and a job that had not ended has failed.
"""

from collections.abc import Container, Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from gangline.api.meta import JSON
from gangline.api.training import RUN_ENDED
from gangline.local.node.records import Exit
from gangline.local.store.paths import split_path
from gangline.local.store.records import Record

Objects = dict[str, JSON]
"""By where a store keeps them."""
Exits = Mapping[str, Exit]
"""How runs of containers ended, by their identity."""

UNTOLD = ("apiregistration.k8s.io", "coordination.k8s.io", "scheduling.k8s.io")
"""Groups of objects that every server has, or that matter only while it lives."""
MOST_EVENTS = 1000
STOPPED = "RunStopped"
"""The reason of a condition: the run ended before the job did."""
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
    over = any(each["type"] in ("Succeeded", "Failed") and each["status"] == "True" for each in conditions)
    text = stamp(now) if over else f"{stamp(now)} {how}"
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
    return {
        path: _settled(closed_pod(body, exits, found.at) if path.startswith("//pods/") else closed_job(body))
        for path, body in objects.items()
    }


def closed_job(body: JSON) -> JSON:
    """One that had not ended has failed, and says how its run ended. Everything else as it is."""
    found = ended(body)
    if found is None or not found.how:
        return body
    status, at = body.get("status") or {}, stamp(found.at)
    over = ("Running", "Restarting", "Blocked")
    before = [
        {**each, "status": "False", "lastUpdateTime": at, "lastTransitionTime": at}
        if each["type"] in over
        else each
        for each in status.get("conditions") or ()
    ]
    times = {"lastUpdateTime": at, "lastTransitionTime": at}
    failed = {"type": "Failed", "status": "True", "reason": STOPPED, "message": found.how, **times}
    counters = {kind: {**each, "active": 0} for kind, each in (status.get("replicaStatuses") or {}).items()}
    fresh = {"conditions": [*before, failed], "replicaStatuses": counters, "completionTime": at}
    return {**body, "status": {**status, **fresh, "phase": "Failed", "state": "Failed"}}


def closed_pod(pod: JSON, exits: Exits, now: datetime) -> JSON:
    """One that ran was stopped with the run."""
    status = pod.get("status") or {}
    statuses = [each for part in _PARTS for each in status.get(part) or ()]
    if not any("running" in (each.get("state") or {}) for each in statuses):
        return pod
    stopped = {
        part: [_stopped(each, exits, now) for each in status[part]] for part in _PARTS if part in status
    }
    return {**pod, "status": {**status, **stopped, "phase": "Failed"}}


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


def _settled(body: JSON) -> JSON:
    """What was being deleted, or was, is no more on its way."""
    metadata = {name: value for name, value in body["metadata"].items() if name not in _LEAVING}
    return {**body, "metadata": metadata}


def stamp(moment: datetime) -> str:
    """A time as Kubernetes writes it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
