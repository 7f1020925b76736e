"""The marks of a timeline: failures, restarts, what operator and scheduler did; and which failure was the first."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gangline.api.in_place import IN_PLACE_REASONS
from gangline.api.meta import JSON
from gangline.timeline.facts import child, condition, end_text, integer, moment, text, unix_time
from gangline.timeline.job_history import JobHistory, job_failed, replica_counts, stalls
from gangline.timeline.model import FailureLink, MarkKind, TimelineMark
from gangline.timeline.pods import EVICTION_REASONS, LOST_REASONS, STOPPED_REASON, PodLife
from gangline.timeline.rows import END, JobTimes, end_or_never, ended_by_itself

FAILURE_KINDS = (MarkKind.FAILURE, MarkKind.FIRST_FAILURE, MarkKind.OOM, MarkKind.EVICTION, MarkKind.NODE_LOST)
SAME_FAILURE_SECONDS = 2.0
"""A failure in the status and one of a pod are the same if they are so close."""
CONSEQUENCE_SECONDS = 60.0
"""A failure so soon after the first one, or after the restart of the replica that failed first, follows from it."""
LONG_CONSEQUENCE_SECONDS = 1800.0
"""The same for the failure that ends a job: collective operations time out after up to 30 minutes."""
EARLY_CONSEQUENCE_SECONDS = 30.0
"""A failure so soon before a first failure follows from it, too: that replica took its time to end."""
GROUP_SECONDS = 2.0
"""Events of one reason so close to each other are one mark."""


class FirstFailure(NamedTuple):
    """A `firstFailure` of the job's status."""

    replica: str
    at: float
    exit_code: int | None
    reason: str


def timeline_marks(history: JobHistory, times: JobTimes) -> tuple[TimelineMark, ...]:
    """All marks in the order of time."""
    marks = [*_replica_marks(history.pods, times), *_job_marks(history, times), *_event_marks(history.events)]
    marks = _with_first_failures(marks, first_failures(history))
    # Times are whole seconds: within one, the first failure comes first.
    marks.sort(key=lambda mark: (mark.at, not mark.cause, mark.kind, mark.row or "", mark.text))
    return tuple(_with_inferred_causes(marks, job_failed(history.job)))


def failure_links(marks: Sequence[TimelineMark], failed_at: float | None = None) -> tuple[FailureLink, ...]:
    """Each first failure with what followed from it, up to the next first failure. `failed_at`: when the job failed."""
    causes = [number for number, mark in enumerate(marks) if mark.cause]
    links = []
    for place, cause in enumerate(causes):
        end = marks[causes[place + 1]].at if place + 1 < len(causes) else END
        restarts = [mark.at for mark in marks if mark.kind == MarkKind.RESTART and mark.row == marks[cause].row]
        reasons = [at for at in (marks[cause].at, *restarts) if marks[cause].at <= at < end]
        restarted: set[str | None] = set()
        followers = []
        for number, mark in enumerate(marks):
            if number == cause or mark.cause or not marks[cause].at <= mark.at < end:
                continue
            if mark.kind == MarkKind.RESTART and mark.row not in restarted:
                restarted.add(mark.row)
                followers.append(number)
            elif mark.kind in FAILURE_KINDS and mark.row != marks[cause].row:
                soon = any(0 <= mark.at - at <= CONSEQUENCE_SECONDS for at in reasons)
                # The status of a failed job still names the first failure: what failed last follows from it.
                final = failed_at is not None and mark.at <= failed_at <= marks[cause].at + LONG_CONSEQUENCE_SECONDS
                followers += [number] if soon or final else []
        links.append(FailureLink(cause, tuple(followers)))
    return tuple(links)


def first_failures(history: JobHistory) -> list[FirstFailure]:
    """The first failures that versions of the job's status report, each once."""
    failures: dict[tuple[str, str], FirstFailure] = {}
    corrected: tuple[str, str] | None = None
    for at, body in history.job.bodies:
        first = child(body, "status", "firstFailure")
        if text(first, "replica"):
            stamp = text(first, "time")
            if corrected is not None and corrected != (text(first, "replica"), stamp):
                # The operator corrects the first failure of a job that has failed: there was only one.
                failures.pop(corrected, None)
            corrected = (text(first, "replica"), stamp) if text(condition(body, "Failed"), "status") == "True" else None
            failure = FirstFailure(
                text(first, "replica"), moment(unix_time(stamp), at), integer(first, "exitCode"), text(first, "reason")
            )
            failures.setdefault((failure.replica, stamp), failure)
    return list(failures.values())


def failure_kind(reason: str) -> MarkKind:
    """The kind of mark of a failure by its reason."""
    if reason == "OOMKilled":
        return MarkKind.OOM
    if reason in EVICTION_REASONS:
        return MarkKind.EVICTION
    return MarkKind.NODE_LOST if reason in LOST_REASONS else MarkKind.FAILURE


def _replica_marks(pods: Iterable[PodLife], times: JobTimes) -> Iterator[TimelineMark]:
    attempts: dict[str, int] = {}
    ended: dict[str, float] = {}
    pods = tuple(pods)
    stops = [
        run.ended for life in pods for run in life.runs if run.reason in IN_PLACE_REASONS and run.ended is not None
    ]
    for life in pods:
        row = life.replica.name
        if any(one.start < life.created and ended.get(row, END) < end_or_never(one) for one in times.suspensions):
            # It begins anew after a suspension, which is no restart.
            attempts.pop(row, None)
        for number, run in enumerate(life.runs):
            if attempts.get(row, 0):
                before = life.runs[number - 1].ended if number else None
                in_place = before is not None and any(
                    before - GROUP_SECONDS <= stop <= run.started + GROUP_SECONDS for stop in stops
                )
                words = f"restart {attempts[row]}{' in place' if in_place else ''}"
                yield TimelineMark(MarkKind.RESTART, run.started, row, words)
            attempts[row] = attempts.get(row, 0) + 1
            is_last = number == len(life.runs) - 1
            if run.ended is None or run.reason in IN_PLACE_REASONS or (is_last and was_stopped(life, run.ended)):
                continue
            if run.exit_code != 0:
                reason = life.reason if life.reason and is_last else run.reason
                yield TimelineMark(failure_kind(reason), run.ended, row, end_text(run.exit_code, reason))
        ended[row] = min(time for time in (life.deleted, life.ended, life.gone, END) if time is not None)
        if life.reason not in ("", STOPPED_REASON) and (
            not life.runs or life.runs[-1].ended is None or was_stopped(life, life.runs[-1].ended)
        ):
            moments = (life.lost, life.deleted, life.ended, life.gone)
            at = next((time for time in moments if time is not None), None)
            if at is not None:
                yield TimelineMark(failure_kind(life.reason), at, row, life.reason)


def was_stopped(life: PodLife, run_end: float) -> bool:
    """Whether the last process of a pod was ended by the deletion of the pod, or with the run of its job."""
    if STOPPED_REASON in (life.reason, life.runs[-1].reason):
        return True
    return life.deleted is not None and life.deleted <= run_end and not ended_by_itself(life)


def _job_marks(history: JobHistory, times: JobTimes) -> Iterator[TimelineMark]:
    for node, outages in times.outages.items():
        for outage in outages:
            if any(_was_on(life, node, outage.start) for life in history.pods):
                yield TimelineMark(MarkKind.NODE_LOST, outage.start, text=f"node {node} does not answer")
    for interval in times.suspensions:
        yield TimelineMark(MarkKind.SUSPENDED, interval.start, text="suspended")
        if interval.end is not None:
            yield TimelineMark(MarkKind.RESUMED, interval.end, text="resumed")
    for at, message in stalls(history.job):
        yield TimelineMark(MarkKind.STALLED, at, text=f"stalled: {message}")
    before: dict[str, int] = {}
    for at, body in history.job.bodies:
        counts = replica_counts(body)
        changes = [
            f"{kind} {before[kind]} → {count}" for kind, count in counts.items() if before.get(kind, count) != count
        ]
        if changes:
            yield TimelineMark(MarkKind.SCALED, at, text=", ".join(changes))
        before = counts


def _was_on(life: PodLife, node: str, at: float) -> bool:
    """Whether a pod was on a node, and had not ended."""
    end = min(time for time in (life.ended, life.gone, END) if time is not None)
    return life.node == node and life.bound is not None and life.bound <= at < end


def _event_marks(events: Iterable[tuple[float, JSON]]) -> Iterator[TimelineMark]:
    """What operator and scheduler did; events of one reason at the same time are one mark."""
    groups: list[tuple[MarkKind, str, float, list[str]]] = []
    for at, kind, event in sorted(_actor_events(events), key=lambda item: (item[0], event_message(item[2]))):
        reason, message = text(event, "reason"), event_message(event)
        group = next((one for one in groups if one[:2] == (kind, reason) and at - one[2] <= GROUP_SECONDS), None)
        if group is None:
            groups.append((kind, reason, at, [message]))
        elif message not in group[3]:
            group[3].append(message)
    for kind, reason, at, messages in groups:
        more = f" (and {len(messages) - 1} more)" if len(messages) > 1 else ""
        yield TimelineMark(kind, at, text=f"{reason}: {messages[0]}{more}")


def _actor_events(events: Iterable[tuple[float, JSON]]) -> Iterator[tuple[float, MarkKind, JSON]]:
    for at, event in events:
        component = event_component(event)
        if "checkpoint" in text(event, "reason").lower():
            yield event_time(event, at), MarkKind.CHECKPOINT, event
        elif "scheduler" in component:
            yield event_time(event, at), MarkKind.SCHEDULER, event
        elif component.endswith(("-controller", "operator")):
            yield event_time(event, at), MarkKind.OPERATOR, event


def event_message(event: JSON) -> str:
    return " ".join((text(event, "message") or text(event, "note")).split())


def event_component(event: JSON) -> str:
    """Who recorded an event, be it of `v1` or of `events.k8s.io/v1`."""
    reporter = text(event, "reportingComponent") or text(event, "reportingController")
    return reporter or text(child(event, "source"), "component") or text(child(event, "deprecatedSource"), "component")


def event_time(event: JSON, seen_at: float) -> float:
    """When an event happened first."""
    fields = ("eventTime", "firstTimestamp", "deprecatedFirstTimestamp")
    stamps = (*(event.get(field) for field in fields), child(event, "metadata").get("creationTimestamp"))
    times = [time for time in map(unix_time, stamps) if time is not None]
    return moment(times[0], seen_at) if times else seen_at


def _with_inferred_causes(marks: Sequence[TimelineMark], failed_at: float | None) -> Iterator[TimelineMark]:
    """The marks, in which a failure that follows from no other is a cause, too: not every failure is in the status."""
    known = [mark.at for mark in marks if mark.cause]
    cause: TimelineMark | None = None
    window = 0.0
    for mark in marks:
        if mark.kind == MarkKind.RESTART and cause is not None and mark.row == cause.row:
            window = mark.at + CONSEQUENCE_SECONDS
        elif mark.kind in FAILURE_KINDS and mark.row is not None and (mark.cause or cause is None or mark.at > window):
            final = cause is not None and failed_at is not None and failed_at <= cause.at + LONG_CONSEQUENCE_SECONDS
            early = any(0 <= at - mark.at <= EARLY_CONSEQUENCE_SECONDS for at in known)
            if mark.cause or not (final or early):
                cause, window = mark, mark.at + CONSEQUENCE_SECONDS
                yield TimelineMark(mark.kind, mark.at, mark.row, mark.text, cause=True)
                continue
        yield mark


def _with_first_failures(marks: Sequence[TimelineMark], failures: Iterable[FirstFailure]) -> list[TimelineMark]:
    """The marks with the first failures marked as causes; one that no pod shows gets a mark of its own."""
    result = list(marks)
    for failure in failures:
        places = [
            number
            for number, mark in enumerate(result)
            if mark.row == failure.replica
            and mark.kind in FAILURE_KINDS
            and abs(mark.at - failure.at) <= SAME_FAILURE_SECONDS
        ]
        if places:
            nearest = min(places, key=lambda number: abs(result[number].at - failure.at))
            mark = result[nearest]
            kind = MarkKind.FIRST_FAILURE if mark.kind == MarkKind.FAILURE else mark.kind
            result[nearest] = TimelineMark(kind, mark.at, mark.row, mark.text, cause=True)
            continue
        kind = failure_kind(failure.reason)
        result.append(
            TimelineMark(
                MarkKind.FIRST_FAILURE if kind == MarkKind.FAILURE else kind,
                failure.at,
                failure.replica,
                end_text(failure.exit_code, failure.reason),
                cause=True,
            )
        )
    return result
