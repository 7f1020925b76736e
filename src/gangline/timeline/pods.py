"""The lives of pods: all that the recorded versions of a pod say about when it was placed, ran and ended."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from gangline.api.meta import JSON
from gangline.timeline.facts import (
    Replica,
    child,
    children,
    condition,
    container_status,
    integer,
    moment,
    pod_replica,
    text,
    unix_time,
)

LOST_REASONS = ("NodeLost", "NodeShutdown", "Terminated", "DeletionByTaintManager")
EVICTION_REASONS = ("Evicted", "Preempting", "Preempted", "PreemptionByScheduler", "EvictionByEvictionAPI")
STOPPED_REASON = "Stopped"
"""The reason of a container that ended with the run of its job, in the record of that run."""
DISRUPTION = "DisruptionTarget"


class Interval(NamedTuple):
    """A time; without an end it lasts."""

    start: float
    end: float | None = None


class ProcessRun(NamedTuple):
    """One process of the training container."""

    started: float
    ended: float | None = None
    exit_code: int | None = None
    reason: str = ""


class PodLife(NamedTuple):
    """A pod from its creation to its deletion."""

    replica: Replica
    uid: str
    created: float
    # When it got its node.
    bound: float | None = None
    node: str = ""
    runs: tuple[ProcessRun, ...] = ()
    not_ready: tuple[Interval, ...] = ()
    # When its phase became Succeeded or Failed, and which.
    ended: float | None = None
    phase: str = ""
    # Why it failed or was disrupted, if something else than its processes did it; and why it waits.
    reason: str = ""
    waiting_reason: str = ""
    # When its deletion was requested, when its node stopped answering, and when it was gone.
    deleted: float | None = None
    lost: float | None = None
    gone: float | None = None


class _Sighting:
    """The first sight of something, and its own date."""

    def __init__(self) -> None:
        self.stamp: float | None = None
        self.seen_at: float | None = None

    def add(self, stamp: float | None, at: float) -> None:
        if self.seen_at is None:
            self.seen_at, self.stamp = at, stamp
        elif self.stamp is None:
            self.stamp = stamp

    @property
    def moment(self) -> float | None:
        return None if self.seen_at is None else moment(self.stamp, self.seen_at)


class _RunRecord:
    """What is known so far of one process."""

    def __init__(self) -> None:
        self.start, self.end = _Sighting(), _Sighting()
        self.exit_code: int | None = None
        self.reason = ""

    def add_start(self, state: JSON, at: float) -> None:
        self.start.add(unix_time(state.get("startedAt")), at)

    def add_end(self, terminated: JSON, at: float) -> None:
        self.add_start(terminated, at)
        self.end.add(unix_time(terminated.get("finishedAt")), at)
        # Zero may be left out, as any default.
        self.exit_code, self.reason = integer(terminated, "exitCode") or 0, text(terminated, "reason")


def pod_life(versions: Sequence[tuple[float, JSON]], gone: float | None, job: str) -> PodLife:
    """The life of one pod from its versions, oldest first, and the time when it was gone."""
    first_at, newest = versions[0][0], versions[-1][1]
    metadata, status = child(newest, "metadata"), child(newest, "status")
    created = moment(unix_time(metadata.get("creationTimestamp")), first_at)
    bound, ended, deleted, lost = _Sighting(), _Sighting(), _Sighting(), _Sighting()
    for at, pod in versions:
        scheduled = condition(pod, "PodScheduled")
        if text(child(pod, "spec"), "nodeName"):
            bound.add(_transition(scheduled) if text(scheduled, "status") == "True" else None, at)
        if text(child(pod, "status"), "phase") in ("Succeeded", "Failed"):
            ended.add(_end_stamp(pod), at)
        if child(pod, "metadata").get("deletionTimestamp"):
            deleted.add(_deletion_request(pod), at)
        if is_lost(pod):
            lost.add(_transition(condition(pod, DISRUPTION)), at)
    phase, runs = text(status, "phase"), _runs(versions)
    # What came before something with an earlier date was only seen late.
    placed = min((time for time in (bound.moment, runs[0].started if runs else None) if time is not None), default=None)
    created = created if placed is None else min(created, placed)
    return PodLife(
        pod_replica(newest, job),
        text(metadata, "uid"),
        created,
        placed,
        text(child(newest, "spec"), "nodeName"),
        tuple(runs),
        tuple(_not_ready_intervals(versions)),
        ended.moment,
        phase if phase in ("Succeeded", "Failed") else "",
        outside_reason(newest),
        waiting_reason(newest),
        deleted.moment,
        lost.moment,
        gone,
    )


def _runs(versions: Iterable[tuple[float, JSON]]) -> list[ProcessRun]:
    records: dict[int, _RunRecord] = {}
    for at, pod in versions:
        status = container_status(pod)
        count, state, last = integer(status, "restartCount") or 0, child(status, "state"), child(status, "lastState")
        if child(last, "terminated"):
            # A container in back-off has ended, but is not counted as restarted yet.
            number = count if "waiting" in state else count - 1
            records.setdefault(number, _RunRecord()).add_end(child(last, "terminated"), at)
        if child(state, "terminated"):
            records.setdefault(count, _RunRecord()).add_end(child(state, "terminated"), at)
        elif isinstance(state.get("running"), dict):
            records.setdefault(count, _RunRecord()).add_start(child(state, "running"), at)
    runs: list[ProcessRun] = []
    earliest = float("-inf")
    for _, record in sorted(records.items()):
        # Dates of whole seconds and sights of milliseconds may be a second out of order.
        started = max(earliest, _known(record.start.moment))
        ended = None if record.end.moment is None else max(started, record.end.moment)
        earliest = started if ended is None else ended
        runs.append(ProcessRun(started, ended, record.exit_code, record.reason))
    return runs


def _known(time: float | None) -> float:
    return float("-inf") if time is None else time


def _not_ready_intervals(versions: Iterable[tuple[float, JSON]]) -> list[Interval]:
    """When the process ran and was not ready, after it had been."""
    intervals: list[Interval] = []
    was_ready, since = False, None
    for at, pod in versions:
        status = container_status(pod)
        running = isinstance(child(status, "state").get("running"), dict)
        ready = status.get("ready") is True
        if running and was_ready and not ready and since is None:
            since = moment(_transition(condition(pod, "ContainersReady")), at)
        elif since is not None and (ready or not running):
            intervals.append(Interval(since, max(since, at)))
            since = None
        was_ready = running and (was_ready or ready)
    return [*intervals, *([Interval(since)] if since is not None else [])]


def outside_reason(pod: JSON) -> str:
    """Why something else than its own processes ended the pod: `Evicted`, `NodeLost` ...; empty if nothing did."""
    disruption = condition(pod, DISRUPTION)
    if text(disruption, "status") == "True" and text(disruption, "reason"):
        return text(disruption, "reason")
    return text(child(pod, "status"), "reason")


def waiting_reason(pod: JSON) -> str:
    """Why the pod is not placed or its container does not run; empty if neither is so."""
    scheduled = condition(pod, "PodScheduled")
    if text(scheduled, "status") == "False":
        return text(scheduled, "message") or text(scheduled, "reason")
    for field in ("initContainerStatuses", "containerStatuses"):
        for status in children(pod, "status", field):
            if text(child(status, "state", "waiting"), "reason"):
                return text(child(status, "state", "waiting"), "reason")
    return ""


def is_lost(pod: JSON) -> bool:
    """Whether the node of a pod does not answer."""
    return text(child(pod, "status"), "phase") == "Unknown" or outside_reason(pod) in LOST_REASONS


def _transition(found: JSON) -> float | None:
    return unix_time(found.get("lastTransitionTime"))


def _end_stamp(pod: JSON) -> float | None:
    """When the last container of an ended pod finished."""
    ends = [
        unix_time(child(status, "state", "terminated").get("finishedAt"))
        for status in children(pod, "status", "containerStatuses")
    ]
    return max((end for end in ends if end is not None), default=_transition(condition(pod, DISRUPTION)))


def _deletion_request(pod: JSON) -> float | None:
    """A deletion timestamp is when the grace period ends."""
    metadata = child(pod, "metadata")
    due = unix_time(metadata.get("deletionTimestamp"))
    return None if due is None else due - (integer(metadata, "deletionGracePeriodSeconds") or 0)
