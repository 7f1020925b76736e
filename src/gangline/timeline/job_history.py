"""The recorded versions of a team's objects, sorted: the job, the lives of its pods, its gang, its events."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gangline.api.meta import JSON
from gangline.timeline.facts import child, children, condition, moment, text, unix_time
from gangline.timeline.model import RecordedVersion
from gangline.timeline.pods import Interval, PodLife, pod_life

FINISHED = ("Succeeded", "Failed", "Stopped")
"""The conditions that end a job. `Stopped` is that of a job whose plane was stopped, in its record."""


class Versions(NamedTuple):
    """One object, by its uid: its versions by ascending time, and when it was gone."""

    bodies: tuple[tuple[float, JSON], ...]
    gone: float | None = None


class JobHistory(NamedTuple):
    """All that is recorded of a team."""

    job: Versions
    pods: tuple[PodLife, ...]
    pod_group: Versions
    events: tuple[tuple[float, JSON], ...]
    nodes: Mapping[str, Versions]


def job_history(versions: Iterable[RecordedVersion]) -> JobHistory | None:
    """Sort the versions of one job and its objects; None if the job is not among them.

    Of several jobs of one name that followed each other the last one counts.
    """
    objects = _by_object(versions)
    jobs = [found for plural, found in objects if _is_job(plural, found)]
    if not jobs:
        return None
    job = max(jobs, key=lambda found: found.bodies[0][0])
    name, uid = text(child(job.bodies[-1][1], "metadata"), "name"), text(child(job.bodies[-1][1], "metadata"), "uid")
    pods = [
        pod_life(found.bodies, found.gone, name) for plural, found in objects if plural == "pods" and _owns(found, uid)
    ]
    groups = [found for plural, found in objects if plural == "podgroups" and _owns(found, uid)]
    events = [found.bodies[-1] for plural, found in objects if plural == "events"]
    return JobHistory(
        job,
        tuple(sorted(pods, key=lambda pod: (pod.created, pod.uid))),
        max(groups, key=lambda found: found.bodies[0][0], default=Versions(())),
        tuple(events),
        {text(child(found.bodies[-1][1], "metadata"), "name"): found for plural, found in objects if plural == "nodes"},
    )


def _by_object(versions: Iterable[RecordedVersion]) -> list[tuple[str, Versions]]:
    """The plural and the versions of every object. One that was deleted and created again is two objects."""
    bodies: dict[tuple[str, str], list[tuple[float, JSON]]] = {}
    gone: dict[tuple[str, str], float] = {}
    current: dict[str, tuple[str, str]] = {}
    for version in sorted(versions, key=lambda version: version.at):
        if version.body is None:
            key = current.pop(version.path, None)
            if key is not None:
                gone[key] = version.at
            continue
        key = (version.path, text(child(version.body, "metadata"), "uid"))
        before = current.get(version.path)
        if before is not None and before != key:
            gone.setdefault(before, version.at)
        if key in gone and before is None:
            # A repeated version of an object that is gone.
            continue
        current[version.path] = key
        seen = bodies.setdefault(key, [])
        if not seen or seen[-1][1] != version.body:
            seen.append((version.at, version.body))
    return [(_plural(path), Versions(tuple(seen), gone.get((path, uid)))) for (path, uid), seen in bodies.items()]


def _plural(path: str) -> str:
    parts = path.split("/")
    return parts[-3] if len(parts) > 2 else ""


def _is_job(plural: str, versions: Versions) -> bool:
    return plural not in ("pods", "services", "events", "podgroups", "nodes") and bool(
        replica_counts(versions.bodies[-1][1])
    )


def _owns(found: Versions, uid: str) -> bool:
    owners = children(found.bodies[-1][1], "metadata", "ownerReferences")
    return not owners or not uid or any(text(owner, "uid") == uid for owner in owners) or _is_launcher(owners)


def _is_launcher(owners: Sequence[JSON]) -> bool:
    # The pod of an MPI launcher may belong to a Job of Kubernetes.
    return any(text(owner, "kind") == "Job" and text(owner, "name").endswith("-launcher") for owner in owners)


def replica_counts(job: JSON) -> dict[str, int]:
    """The number of replicas that a job asks for, by replica type in lower case, in the order of its spec."""
    for field, specs in child(job, "spec").items():
        if field.endswith("ReplicaSpecs") and isinstance(specs, dict):
            return {kind.lower(): _count(spec) for kind, spec in specs.items() if isinstance(spec, dict)}
    return {}


def _count(spec: JSON) -> int:
    count = spec.get("replicas")
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= 100_000 else 1


def job_created(job: Versions) -> float:
    at, body = job.bodies[0]
    return moment(unix_time(child(body, "metadata").get("creationTimestamp")), at)


def job_ended(job: Versions) -> float | None:
    """When the job finished or was deleted; None while it is active."""
    for at, body in job.bodies:
        for kind in FINISHED:
            found = condition(body, kind)
            if text(found, "status") == "True":
                stamp = unix_time(child(body, "status").get("completionTime")) or unix_time(
                    found.get("lastTransitionTime")
                )
                return max(moment(stamp, at), job_created(job))
    return job.gone


def job_failed(job: Versions) -> float | None:
    """When the job failed; None if it did not."""
    return job_ended(job) if text(condition(job.bodies[-1][1], "Failed"), "status") == "True" else None


def node_outages(history: JobHistory) -> dict[str, tuple[Interval, ...]]:
    """When the nodes of the team did not answer, by their name."""
    used = {pod.node for pod in history.pods}
    return {name: tuple(_outages(node)) for name, node in history.nodes.items() if name in used}


def _outages(node: Versions) -> Iterator[Interval]:
    since: float | None = None
    for at, body in node.bodies:
        ready = condition(body, "Ready")
        changed = moment(unix_time(ready.get("lastTransitionTime")), at)
        # A node that says itself that it is not ready still answers.
        if text(ready, "status") == "Unknown" and since is None:
            since = changed
        elif text(ready, "status") != "Unknown" and since is not None:
            yield Interval(since, max(since, changed))
            since = None
    if since is not None:
        yield Interval(since, node.gone)


def stalls(job: Versions) -> Iterator[tuple[float, str]]:
    """When the job stopped making progress, and what its operator said of it."""
    was_stalled = False
    for at, body in job.bodies:
        found = condition(body, "Stalled")
        is_stalled = text(found, "status") == "True"
        if is_stalled and not was_stalled:
            yield moment(unix_time(found.get("lastTransitionTime")), at), text(found, "message")
        was_stalled = is_stalled


def suspensions(job: Versions) -> Iterator[Interval]:
    """When the job was suspended."""
    since: float | None = None
    for at, body in job.bodies:
        found = condition(body, "Suspended")
        is_suspended = text(found, "status") == "True" or (
            not found and child(body, "spec", "runPolicy").get("suspend") is True
        )
        if is_suspended and since is None:
            since = moment(unix_time(found.get("lastTransitionTime")), at)
        elif not is_suspended and since is not None:
            yield Interval(since, max(since, moment(unix_time(found.get("lastTransitionTime")), at)))
            since = None
    if since is not None:
        yield Interval(since)
