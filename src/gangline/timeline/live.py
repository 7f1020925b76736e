"""The timeline of a job that is being watched: versions as they arrive, of which only those that matter are kept."""

import msgspec

from gangline.api.meta import JSON
from gangline.timeline.build import team_timeline
from gangline.timeline.facts import DEFAULT_CONTAINER_ANNOTATION, child, children
from gangline.timeline.model import TeamTimeline, TimedVersion

_METADATA = (
    "name",
    "namespace",
    "uid",
    "labels",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
)
_JOB_STATUS = ("conditions", "completionTime", "firstFailure")
_POD_STATUS = ("phase", "reason", "conditions")
_GROUP_STATE = ("phase", "reason", "lastTransitionTime")
_CONDITION = ("type", "status", "reason", "lastTransitionTime")
VERSIONS_PER_SECOND = 2000
"""A timeline of so many versions is built at most once a second."""
_CONTAINER_STATUS = ("name", "restartCount", "state", "lastState", "ready")


class LiveTimeline:
    """Collects versions of one job's objects. A report of progress alone adds nothing, so that memory stays small."""

    def __init__(self) -> None:
        self._versions: list[TimedVersion] = []
        self._newest: dict[str, JSON | None] = {}
        # Where the versions of events are, by their path.
        self._event_places: dict[str, int] = {}
        self._built: TeamTimeline | None = None
        self._built_at, self._changed = 0.0, False

    @property
    def versions(self) -> list[TimedVersion]:
        """The versions that matter, in the order in which they came."""
        return self._versions

    def add(self, at: float, path: str, body: JSON | None) -> None:
        """Take in a version of an object; None: it was deleted."""
        trimmed = None if body is None else trimmed_body(path, body)
        if path in self._newest and self._newest[path] == trimmed:
            return
        self._newest[path] = trimmed
        self._changed = True
        version = TimedVersion(at, path, trimmed)
        if path in self._event_places:
            # Of an event that is repeated for days only the last version counts.
            self._versions[self._event_places[path]] = version
            return
        if "/events/" in path:
            self._event_places[path] = len(self._versions)
        self._versions.append(version)

    def timeline(self, now: float, *, fresh: bool = False) -> TeamTimeline:
        """The timeline as of now, built again only if something has changed.

        That of a very large team takes its time: unless it must be `fresh`, it may be some seconds old.
        """
        patience = 0.0 if fresh else len(self._versions) / VERSIONS_PER_SECOND
        if self._built is None or (self._changed and now - self._built_at >= patience):
            self._built, self._built_at, self._changed = team_timeline(self._versions, now), now, False
        if self._built.finished:
            return self._built
        return msgspec.structs.replace(self._built, end=max(now, self._built.start))


def trimmed_body(path: str, body: JSON) -> JSON:
    """The fields of an object that a timeline depends on."""
    plural = path.split("/")[-3] if path.count("/") > 1 else ""
    metadata = _picked(child(body, "metadata"), _METADATA)
    if plural == "pods":
        annotations = _picked(child(body, "metadata", "annotations"), (DEFAULT_CONTAINER_ANNOTATION,))
        statuses = {
            field: [_picked(status, _CONTAINER_STATUS) for status in children(body, "status", field)]
            for field in ("initContainerStatuses", "containerStatuses")
        }
        spec = {
            **_picked(child(body, "spec"), ("nodeName",)),
            "containers": [_picked(container, ("name",)) for container in children(body, "spec", "containers")],
        }
        status = {**_picked(child(body, "status"), _POD_STATUS), **statuses}
        return {"metadata": {**metadata, "annotations": annotations}, "spec": spec, "status": status}
    if plural == "nodes":
        ready = [found for found in children(body, "status", "conditions") if found.get("type") == "Ready"]
        return {"metadata": metadata, "status": {"conditions": [_picked(one, _CONDITION) for one in ready]}}
    if plural == "podgroups":
        status = child(body, "status")
        return {"metadata": metadata, "status": _picked(child(status, "state") or status, _GROUP_STATE)}
    if plural == "events":
        return {field: value for field, value in body.items() if field != "metadata"} | {"metadata": metadata}
    return {
        "metadata": metadata,
        "spec": _job_spec(child(body, "spec")),
        "status": _picked(child(body, "status"), _JOB_STATUS),
    }


def _job_spec(spec: JSON) -> JSON:
    """Replica counts and whether the job is suspended."""
    replicas = {
        field: {kind: _picked(child(specs, kind), ("replicas",)) for kind in specs}
        for field, specs in spec.items()
        if field.endswith("ReplicaSpecs") and isinstance(specs, dict)
    }
    return {**replicas, "runPolicy": _picked(child(spec, "runPolicy"), ("suspend",))}


def _picked(body: JSON, fields: tuple[str, ...]) -> JSON:
    return {field: body[field] for field in fields if field in body}
