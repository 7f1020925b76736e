"""The row of a replica: the lives of its pods, one after the other, as spans without gaps."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from gangline.timeline.facts import end_text
from gangline.timeline.model import SpanState, StateSpan
from gangline.timeline.pods import Interval, PodLife, ProcessRun

END = float("inf")


class JobTimes(NamedTuple):
    """The times of a job that rows depend on."""

    created: float
    now: float
    # When it finished or was deleted; None while it is active.
    ended: float | None = None
    suspensions: tuple[Interval, ...] = ()


class _Draft(NamedTuple):
    """A span whose end is where the next one starts."""

    start: float
    state: SpanState
    attempt: int = 0
    node: str = ""
    text: str = ""


def replica_spans(lives: Sequence[PodLife], wanted: Interval, job: JobTimes) -> tuple[StateSpan, ...]:
    """The spans of one replica from when the job wants it. `lives` are in the order of their creation."""
    drafts, attempt = [_absence(wanted.start, 0, job)], 0
    for number, life in enumerate(lives):
        drafts += _pod_drafts(life, attempt)
        attempt += len(life.runs)
        successor = lives[number + 1].created if number + 1 < len(lives) else END
        if life.gone is not None and life.gone < successor:
            drafts.append(_absence(life.gone, attempt, job))
    return tuple(_joined_spans(drafts, _row_end(lives, wanted, job)))


def _row_end(lives: Sequence[PodLife], wanted: Interval, job: JobTimes) -> float | None:
    """When the replica was neither wanted nor there any more; None if it still is."""
    unwanted = min(END if wanted.end is None else wanted.end, END if job.ended is None else job.ended)
    if unwanted == END:
        return None
    if not lives:
        return unwanted
    gone = lives[-1].gone
    if gone is not None:
        return max(unwanted, gone) if wanted.end is not None else max(gone, lives[-1].created)
    return None


def _absence(at: float, attempt: int, job: JobTimes) -> _Draft:
    """The replica has no pod."""
    suspended = any(
        interval.start <= at < (END if interval.end is None else interval.end) for interval in job.suspensions
    )
    if suspended:
        return _Draft(at, SpanState.STOPPED, attempt, text="suspended")
    return _Draft(at, SpanState.WAITING, attempt, text="no pod")


def _pod_drafts(life: PodLife, attempt: int) -> Iterator[_Draft]:
    node = life.node
    ran = bool(life.runs)
    yield _Draft(life.created, SpanState.WAITING, attempt, "", "" if life.bound is not None else life.waiting_reason)
    if life.bound is not None:
        yield _Draft(life.bound, SpanState.STARTING, attempt, node, "" if ran else life.waiting_reason)
    for number, run in enumerate(life.runs):
        yield _Draft(run.started, SpanState.RUNNING, attempt + number, node)
        for interval in life.not_ready:
            if run.started <= interval.start and interval.start < (END if run.ended is None else run.ended):
                yield _Draft(interval.start, SpanState.NOT_READY, attempt + number, node)
                if interval.end is not None and interval.end < (END if run.ended is None else run.ended):
                    yield _Draft(interval.end, SpanState.RUNNING, attempt + number, node)
        if run.ended is not None:
            is_last = number == len(life.runs) - 1
            if not is_last:
                yield _Draft(
                    run.ended, SpanState.WAITING, attempt + number + 1, node, end_text(run.exit_code, run.reason)
                )
            elif life.ended is None and life.deleted is None:
                yield _Draft(run.ended, SpanState.WAITING, attempt + number + 1, node, _back_off_text(life, run))
    yield from _end_drafts(life, attempt + max(0, len(life.runs) - 1))


def _back_off_text(life: PodLife, run: ProcessRun) -> str:
    return ", ".join(part for part in (end_text(run.exit_code, run.reason), life.waiting_reason) if part)


def _end_drafts(life: PodLife, attempt: int) -> Iterator[_Draft]:
    run = life.runs[-1] if life.runs else None
    exit_text = end_text(run.exit_code, life.reason or run.reason) if run is not None and run.ended is not None else ""
    lost = life.lost
    if lost is not None and (run is None or run.ended is None or run.ended >= lost):
        yield _Draft(lost, SpanState.LOST, attempt, life.node, life.reason)
        return
    ended = run.ended if run is not None and run.ended is not None else life.ended
    if ended is None and life.gone is not None:
        ended = life.gone if life.deleted is None else life.deleted
    if ended is None or (life.ended is None and life.deleted is None and life.gone is None):
        return
    if (
        life.deleted is not None
        and life.deleted <= ended + 1
        and not (life.ended is not None and life.ended < life.deleted)
    ):
        yield _Draft(ended, SpanState.STOPPED, attempt, life.node, exit_text)
    elif life.phase == "Succeeded":
        yield _Draft(ended, SpanState.SUCCEEDED, attempt, life.node, exit_text)
    elif life.phase == "Failed":
        yield _Draft(ended, SpanState.FAILED, attempt, life.node, exit_text or life.reason)
    else:
        yield _Draft(ended, SpanState.STOPPED, attempt, life.node, exit_text)


def _joined_spans(drafts: Iterable[_Draft], end: float | None) -> Iterator[StateSpan]:
    """Spans in order and without gaps: each ends where the next starts; those that last no time are left out."""
    ordered: list[_Draft] = []
    for draft in drafts:
        start = draft.start if not ordered else max(draft.start, ordered[-1].start)
        if ordered and ordered[-1].start == start:
            ordered.pop()
        ordered.append(draft._replace(start=start))
    if end is not None:
        ordered = [draft for draft in ordered if draft.start < end] or ordered[:1]
    for number, draft in enumerate(ordered):
        stop = ordered[number + 1].start if number + 1 < len(ordered) else end
        if stop is not None:
            stop = max(stop, draft.start)
        yield StateSpan(draft.state, draft.start, stop, draft.attempt, draft.node, draft.text)
