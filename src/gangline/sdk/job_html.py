"""A job as HTML: its state, one dot per replica, its conditions as a timeline. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from html import escape

from gangline.api.kubeflow.training import JobStatus, TrainingJob
from gangline.api.meta import Condition

STATE_COLOURS = {
    "Succeeded": "#2e7d32",
    "Running": "#1565c0",
    "Failed": "#c62828",
    "Restarting": "#ef6c00",
    "Suspended": "#757575",
    "Created": "#90a4ae",
    "Pending": "#90a4ae",
    "Unknown": "#b0bec5",
}
TIMELINE_WIDTH, BAR_HEIGHT = 480, 22
MAX_DOTS = 64
"""Dots drawn for one replica type; beyond that the number of replicas is written instead."""


def job_html(job: TrainingJob, state: str, replicas: Mapping[str, int]) -> str:
    """An HTML fragment without outside styles or scripts. `replicas` has the requested number by replica type."""
    parts = [
        _title_html(job, state),
        _replicas_html(job.status, replicas),
        _progress_html(job.status),
        timeline_svg(job.status.conditions),
        _conditions_html(job.status),
    ]
    style = "font-family: system-ui, sans-serif; font-size: 13px; line-height: 1.5"
    return f'<div class="gangline-job" style="{style}">{"".join(parts)}</div>'


def _title_html(job: TrainingJob, state: str) -> str:
    namespace = f"{job.metadata.namespace}/" if job.metadata.namespace else ""
    restarts = f" · {job.status.restarts} restarts" if job.status.restarts else ""
    return (
        f"<div><b>{escape(job.KIND)}</b> {escape(namespace + job.metadata.name)} "
        f'<span style="color: {_state_colour(state)}; font-weight: 600">{escape(state)}</span>{restarts}</div>'
    )


def _replicas_html(status: JobStatus, replicas: Mapping[str, int]) -> str:
    rows = []
    for kind, count in replicas.items():
        counts = dict(status.replica_statuses[kind].states) if kind in status.replica_statuses else {}
        reported = [state for state, number in counts.items() for _ in range(number)][:count]
        states = [*reported, *["Pending"] * (count - len(reported))]
        dots = "".join(
            f'<span title="{state}" style="color: {_state_colour(state)}">●</span>' for state in states[:MAX_DOTS]
        )
        more = f" … {count} in all" if count > MAX_DOTS else ""
        rows.append(f"<div>{escape(kind.lower())} {dots}{more}</div>")
    return "".join(rows)


def _progress_html(status: JobStatus) -> str:
    progress = status.progress
    if progress is None:
        return ""
    metrics = " ".join(f"{escape(name)}={value:.4g}" for name, value in progress.metrics.items())
    if not progress.total:
        return f"<div>step {progress.step:g} {metrics}</div>"
    return (
        f'<div><progress max="{progress.total}" value="{progress.step}"></progress> '
        f"{progress.step:g}/{progress.total:g} {metrics}</div>"
    )


def timeline_svg(conditions: Sequence[Condition]) -> str:
    """A timeline of the conditions as SVG: one bar per condition, from its transition to the next one."""
    marks = [
        (condition.type, condition.last_transition_time) for condition in conditions if condition.last_transition_time
    ]
    if not marks:
        return ""
    times = [at for _, at in marks if at is not None]
    begin, end = min(times), max(times)
    bars = "".join(_bars_svg(marks, begin, end))
    seconds = (end - begin).total_seconds()
    height = BAR_HEIGHT * 2
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{TIMELINE_WIDTH}" height="{height}" role="img" '
        f'aria-label="timeline of {seconds:g} seconds" style="display: block">{bars}'
        f'<text x="{TIMELINE_WIDTH}" y="{height - 6}" text-anchor="end" font-size="11" fill="currentColor">{seconds:g} s</text>'
        "</svg>"
    )


def _bars_svg(marks: Sequence[tuple[str, datetime | None]], begin: datetime, end: datetime) -> Iterator[str]:
    duration = (end - begin).total_seconds() or 1.0
    ordered = sorted((at, kind) for kind, at in marks if at is not None)
    for number, (at, kind) in enumerate(ordered):
        after = ordered[number + 1][0] if number + 1 < len(ordered) else end
        x = (at - begin).total_seconds() / duration * (TIMELINE_WIDTH - 4)
        width = max((after - at).total_seconds() / duration * (TIMELINE_WIDTH - 4), 4.0)
        yield (
            f'<rect x="{x:.1f}" y="4" width="{width:.1f}" height="{BAR_HEIGHT - 8}" rx="2" fill="{_state_colour(kind)}">'
            f"<title>{escape(kind)} at {at:%H:%M:%S}</title></rect>"
        )


def _conditions_html(status: JobStatus) -> str:
    rows = "".join(
        f"<tr><td>{condition.last_transition_time:%H:%M:%S}</td><td>{escape(condition.type)}</td>"
        f"<td>{escape(condition.status)}</td><td>{escape(condition.message)}</td></tr>"
        for condition in status.conditions
        if condition.last_transition_time is not None
    )
    return f"<details><summary>conditions</summary><table>{rows}</table></details>" if rows else ""


def _state_colour(state: str) -> str:
    return STATE_COLOURS.get(state, STATE_COLOURS["Unknown"])
