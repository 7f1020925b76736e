"""The row of a replica: the lives of its pods, one after the other, as spans without gaps."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gangline.timeline.facts import end_text
from gangline.timeline.model import SpanState, StateSpan
from gangline.timeline.pods import STOPPED_REASON, Interval, PodLife, ProcessRun

END = float("inf")
SIGTERM_CODE = 143


class JobTimes(NamedTuple):
    """The times that rows depend on besides those of their pods."""

    created: float
    # When the job finished or was deleted; None while it is active.
    ended: float | None = None
    suspensions: tuple[Interval, ...] = ()
    # When nodes did not answer, by their name.
    outages: Mapping[str, tuple[Interval, ...]] = {}


class _Draft(NamedTuple):
    """A span whose end is where the next one starts."""

    start: float
    state: SpanState
    attempt: int = 0
    node: str = ""
    text: str = ""


def replica_spans(lives: Sequence[PodLife], wanted: Interval, job: JobTimes) -> tuple[StateSpan, ...]:
    """The spans of one replica from when the job wants it. `lives` are in the order of their creation."""
    first, attempt = lives[0].created if lives else END, 0
    drafts = [draft for draft in _absence(wanted.start, 0, job) if draft.start <= first]
    for number, life in enumerate(lives):
        drafts += _pod_drafts(life, attempt, job.outages.get(life.node, ()))
        attempt += len(life.runs)
        successor = lives[number + 1].created if number + 1 < len(lives) else END
        if life.gone is not None and life.gone < successor:
            drafts += [draft for draft in _absence(life.gone, attempt, job) if draft.start < successor]
    return tuple(_joined_spans(drafts, _row_end(lives, wanted, job)))


def end_or_never(interval: Interval) -> float:
    return END if interval.end is None else interval.end


def _row_end(lives: Sequence[PodLife], wanted: Interval, job: JobTimes) -> float | None:
    """When the replica was neither wanted nor there any more; None if it still is."""
    unwanted = min(end_or_never(wanted), END if job.ended is None else job.ended)
    if unwanted == END or (lives and lives[-1].gone is None):
        return None
    gone = lives[-1].gone if lives else None
    return unwanted if gone is None else max(unwanted, gone)


def _absence(at: float, attempt: int, job: JobTimes) -> Iterator[_Draft]:
    """The replica has no pod from then on: it waits for one, except while the job is suspended."""
    yield _Draft(at, SpanState.WAITING, attempt, text="no pod")
    for interval in job.suspensions:
        if end_or_never(interval) > at:
            yield _Draft(max(at, interval.start), SpanState.STOPPED, attempt, text="suspended")
            if interval.end is not None:
                yield _Draft(interval.end, SpanState.WAITING, attempt, text="no pod")


def _pod_drafts(life: PodLife, attempt: int, outages: Iterable[Interval]) -> Iterator[_Draft]:
    yield _Draft(life.created, SpanState.WAITING, attempt, "", "" if life.bound is not None else life.waiting_reason)
    if life.bound is not None:
        yield _Draft(life.bound, SpanState.STARTING, attempt, life.node, "" if life.runs else life.waiting_reason)
    overlays = [(interval, SpanState.NOT_READY) for interval in life.not_ready]
    overlays += [(interval, SpanState.LOST) for interval in outages]
    for number, run in enumerate(life.runs):
        running = _Draft(run.started, SpanState.RUNNING, attempt + number, life.node)
        yield running
        yield from _run_overlays(running, Interval(run.started, run.ended), overlays)
        if run.ended is not None and number < len(life.runs) - 1:
            text = end_text(run.exit_code, run.reason)
            yield _Draft(run.ended, SpanState.WAITING, attempt + number + 1, life.node, text)
    yield from _end_drafts(life, attempt + max(0, len(life.runs) - 1))


def _run_overlays(running: _Draft, run: Interval, overlays: Iterable[tuple[Interval, SpanState]]) -> Iterator[_Draft]:
    """The parts of a run in which its process was not ready, or its node did not answer."""
    for interval, state in sorted(overlays):
        start, end = max(interval.start, run.start), end_or_never(interval)
        if start < end_or_never(run) and end > start:
            yield running._replace(start=start, state=state)
            if end < end_or_never(run):
                yield running._replace(start=end)


def _end_drafts(life: PodLife, attempt: int) -> Iterator[_Draft]:
    """How the pod ended: by itself, stopped from outside, or lost with its node."""
    run = life.runs[-1] if life.runs else None
    run_end = run.ended if run is not None else None
    exit_text = end_text(run.exit_code, life.reason or run.reason) if run is not None and run_end is not None else ""
    ended = _Draft(0.0, SpanState.STOPPED, attempt, life.node, exit_text or life.reason)
    if life.lost is not None and (run_end is None or run_end >= life.lost):
        yield ended._replace(start=life.lost, state=SpanState.LOST, text=life.reason)
    elif ended_by_itself(life):
        state = SpanState.SUCCEEDED if life.phase == "Succeeded" else SpanState.FAILED
        yield ended._replace(start=run_end if run_end is not None else life.ended or life.created, state=state)
    elif run is not None and run_end is not None and run.reason == STOPPED_REASON:
        yield ended._replace(start=run_end)
    elif run is not None and run_end is not None and (life.deleted is None or run_end < life.deleted):
        if life.gone is None or life.deleted is not None:
            yield _Draft(run_end, SpanState.WAITING, attempt + 1, life.node, _back_off_text(life, run))
        stop = life.deleted if life.deleted is not None else (run_end if life.gone is not None else None)
        if stop is not None:
            yield ended._replace(start=stop)
    elif run_end is not None:
        yield ended._replace(start=run_end)
    elif life.gone is not None:
        yield ended._replace(start=life.gone if life.deleted is None else life.deleted)


def ended_by_itself(life: PodLife) -> bool:
    """Whether the pod ended before anyone asked for its end."""
    if life.ended is None or STOPPED_REASON in (life.reason, life.runs[-1].reason if life.runs else ""):
        return False
    if life.deleted is None or life.ended < life.deleted:
        return True
    # Dates of whole seconds cannot tell which was first.
    terminated = bool(life.runs) and life.runs[-1].exit_code == SIGTERM_CODE
    return life.ended == life.deleted and not terminated


def _back_off_text(life: PodLife, run: ProcessRun) -> str:
    return ", ".join(part for part in (end_text(run.exit_code, run.reason), life.waiting_reason) if part)


def _joined_spans(drafts: Iterable[_Draft], end: float | None) -> Iterator[StateSpan]:
    """Spans in order and without gaps: each ends where the next starts; those that last no time are left out."""
    ordered: list[_Draft] = []
    for draft in drafts:
        start = draft.start if not ordered else max(draft.start, ordered[-1].start)
        if ordered and ordered[-1].start == start:
            ordered.pop()
        if not ordered or ordered[-1]._replace(start=start) != draft._replace(start=start):
            ordered.append(draft._replace(start=start))
    if end is not None:
        ordered = [draft for draft in ordered if draft.start < end] or ordered[:1]
    for number, draft in enumerate(ordered):
        stop = ordered[number + 1].start if number + 1 < len(ordered) else end
        stop = None if stop is None else max(stop, draft.start)
        yield StateSpan(draft.state, draft.start, stop, draft.attempt, draft.node, draft.text)
