"""Builds the timeline of a team from the recorded versions of its objects, or from its current objects alone."""

from collections.abc import Iterable, Iterator

from gangline.api.meta import JSON
from gangline.timeline.facts import Replica, child, text
from gangline.timeline.job_history import (
    JobHistory,
    Versions,
    job_created,
    job_ended,
    job_failed,
    job_history,
    node_outages,
    replica_counts,
    suspensions,
)
from gangline.timeline.marks import failure_links, timeline_marks
from gangline.timeline.model import RecordedVersion, ReplicaRow, TeamTimeline, TimedVersion
from gangline.timeline.phases import gang_phases, job_phases
from gangline.timeline.pods import Interval, PodLife
from gangline.timeline.rows import JobTimes, replica_spans


def team_timeline(versions: Iterable[RecordedVersion], now: float) -> TeamTimeline:
    """The timeline of one job. Its versions may be in any order and repeated; an empty one without a job."""
    history = job_history(versions)
    if history is None:
        return TeamTimeline(now, now)
    created = job_created(history.job)
    times = JobTimes(created, job_ended(history.job), tuple(suspensions(history.job)), node_outages(history))
    marks = timeline_marks(history, times)
    return TeamTimeline(
        created,
        _end(history, times, now),
        tuple(row for row in _rows(history, times) if row.spans),
        marks,
        failure_links(marks, job_failed(history.job)),
        job_phases(history),
        gang_phases(history.pod_group),
        finished=times.ended is not None,
    )


def current_versions(
    at: float, job: JSON, pods: Iterable[JSON] = (), events: Iterable[JSON] = ()
) -> list[TimedVersion]:
    """The current objects of a job as versions, for a timeline without recorded ones."""
    named = [("pods", pod) for pod in pods] + [("events", event) for event in events]
    return [
        TimedVersion(at, f"jobs/{_name(job)}", job),
        *(TimedVersion(at, f"{plural}/{_name(body)}", body) for plural, body in named),
    ]


def _name(body: JSON) -> str:
    metadata = child(body, "metadata")
    return f"{text(metadata, 'namespace')}/{text(metadata, 'name')}"


def _rows(history: JobHistory, times: JobTimes) -> Iterator[ReplicaRow]:
    """A row for every replica that the job asked for or that had a pod: by replica type, then by index."""
    wanted = _wanted_replicas(history.job, times)
    replicas = {replica.name: replica for replica in wanted}
    lives: dict[str, list[PodLife]] = {}
    for life in history.pods:
        replicas.setdefault(life.replica.name, life.replica)
        lives.setdefault(life.replica.name, []).append(life)
    types = list(dict.fromkeys(replica.type for replica in replicas.values()))
    for replica in sorted(replicas.values(), key=lambda one: (types.index(one.type), one.number, one.name)):
        own = lives.get(replica.name, [])
        asked = wanted.get(replica) or Interval(own[0].created, own[0].created)
        start = min(asked.start, own[0].created) if own else asked.start
        spans = replica_spans(own, Interval(start, asked.end), times)
        yield ReplicaRow(replica.name, replica.type, replica.number, spans)


def _wanted_replicas(job: Versions, times: JobTimes) -> dict[Replica, Interval]:
    """From when to when the job asked for each replica."""
    wanted: dict[Replica, Interval] = {}
    for number, (at, body) in enumerate(job.bodies):
        since = times.created if number == 0 else at
        asked = {
            Replica(kind, index, kind if kind == "launcher" else f"{kind}-{index}")
            for kind, count in replica_counts(body).items()
            for index in range(count)
        }
        for replica in sorted(asked, key=lambda one: one.number):
            before = wanted.get(replica)
            if before is None:
                wanted[replica] = Interval(since)
            elif before.end is not None:
                wanted[replica] = Interval(before.start)
        for replica, interval in wanted.items():
            if replica not in asked and interval.end is None:
                wanted[replica] = Interval(interval.start, max(interval.start, at))
    order = {kind: number for number, kind in enumerate(replica_counts(job.bodies[-1][1]))}
    return dict(sorted(wanted.items(), key=lambda item: (order.get(item[0].type, len(order)), item[0].number)))


def _end(history: JobHistory, times: JobTimes, now: float) -> float:
    """When the last thing of a finished job happened; now while it is active."""
    if times.ended is None:
        return max(now, times.created)
    ends = [run.ended or run.started for life in history.pods for run in life.runs]
    return max([times.ended, *ends])
