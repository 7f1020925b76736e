"""The phases of a job and of its gang, as spans."""

from collections.abc import Iterable, Iterator

from gangline.timeline.facts import child, children, moment, text, unix_time
from gangline.timeline.job_history import JobHistory, Versions, job_created, job_ended
from gangline.timeline.model import StateSpan

PENDING = "Pending"


def job_phases(history: JobHistory) -> tuple[StateSpan, ...]:
    """The conditions that were the newest true one, one after the other."""
    starts: dict[tuple[str, float | None], tuple[float, str]] = {}
    for at, body in history.job.bodies:
        for found in children(body, "status", "conditions"):
            stamp = unix_time(found.get("lastTransitionTime"))
            if text(found, "status") == "True":
                starts.setdefault((text(found, "type"), stamp), (moment(stamp, at), text(found, "message")))
    phases = [(job_created(history.job), PENDING, "")]
    phases += [(start, state, message) for (state, _), (start, message) in starts.items()]
    if not any(state == "Running" for _, state, _ in phases):
        # A finished job does not say since when it ran.
        ended = job_ended(history.job)
        runs = [run.started for pod in history.pods for run in pod.runs if ended is None or run.started < ended]
        phases[1:1] = [(min(runs), "Running", "")] if runs else []
    return tuple(_spans(phases, history.job.gone))


def gang_phases(group: Versions) -> tuple[StateSpan, ...]:
    """The phases of a PodGroup of gangline, or of another scheduler, whose status has the phase itself."""
    phases = []
    for at, body in group.bodies:
        status = child(body, "status")
        state = child(status, "state") or status
        stamp = unix_time(state.get("lastTransitionTime"))
        phases.append((moment(stamp, at), text(state, "phase") or PENDING, text(state, "reason")))
    return tuple(_spans(phases, group.gone))


def _spans(phases: Iterable[tuple[float, str, str]], end: float | None) -> Iterator[StateSpan]:
    """A span per state in a row; states that last no time are left out."""
    kept: list[tuple[float, str, str]] = []
    for phase in sorted(phases, key=lambda phase: phase[0]):
        if kept and kept[-1][0] == phase[0]:
            kept.pop()
        if not kept or kept[-1][1] != phase[1]:
            kept.append(phase)
    for number, (start, state, message) in enumerate(kept):
        stop = kept[number + 1][0] if number + 1 < len(kept) else end
        yield StateSpan(state, start, None if stop is None else max(start, stop), text=message)
