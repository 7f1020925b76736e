"""A job as HTML: its state, its replicas as lights, its conditions on a line of time. Pure; nothing is fetched."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from html import escape

from gangline.api.meta import Condition
from gangline.sdk.job import Job

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
MAX_LIGHTS = 64
"""Lights of one type that are drawn; beyond that they are counted."""


def job_html(job: Job) -> str:
    """A fragment that stands by itself in any page, light or dark."""
    parts = [
        _title_html(job),
        _replicas_html(job),
        _progress_html(job),
        timeline_svg(job.status.conditions),
        _conditions_html(job),
    ]
    style = "font-family: system-ui, sans-serif; font-size: 13px; line-height: 1.5"
    return f'<div class="gangline-job" style="{style}">{"".join(parts)}</div>'


def _title_html(job: Job) -> str:
    where = f"{job.metadata.namespace}/" if job.metadata.namespace else ""
    restarts = f" · {job.status.restarts} restarts" if job.status.restarts else ""
    return (
        f"<div><b>{escape(job.kind)}</b> {escape(where + job.metadata.name)} "
        f'<span style="color: {_state_colour(job.state)}; font-weight: 600">{escape(job.state)}</span>{restarts}</div>'
    )


def _replicas_html(job: Job) -> str:
    rows = []
    for kind, count in job.replicas.items():
        states = dict(job.status.replica_statuses[kind].states) if kind in job.status.replica_statuses else {}
        counted = [state for state, number in states.items() for _ in range(number)][:count]
        lights = [*counted, *["Pending"] * (count - len(counted))]
        dots = "".join(
            f'<span title="{state}" style="color: {_state_colour(state)}">●</span>' for state in lights[:MAX_LIGHTS]
        )
        more = f" … {count} in all" if count > MAX_LIGHTS else ""
        rows.append(f"<div>{escape(kind.lower())} {dots}{more}</div>")
    return "".join(rows)


def _progress_html(job: Job) -> str:
    found = job.status.progress
    if found is None:
        return ""
    numbers = " ".join(f"{escape(name)}={value:.4g}" for name, value in found.metrics.items())
    if not found.total:
        return f"<div>step {found.step:g} {numbers}</div>"
    return (
        f'<div><progress max="{found.total}" value="{found.step}"></progress> '
        f"{found.step:g}/{found.total:g} {numbers}</div>"
    )


def timeline_svg(conditions: Sequence[Condition]) -> str:
    """From the first condition to the last, as SVG: a bar from when each was told to when the next was."""
    marks = [(found.type, found.last_transition_time) for found in conditions if found.last_transition_time]
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
    whole = (end - begin).total_seconds() or 1.0
    ordered = sorted((at, kind) for kind, at in marks if at is not None)
    for number, (at, kind) in enumerate(ordered):
        after = ordered[number + 1][0] if number + 1 < len(ordered) else end
        left = (at - begin).total_seconds() / whole * (TIMELINE_WIDTH - 4)
        width = max((after - at).total_seconds() / whole * (TIMELINE_WIDTH - 4), 4.0)
        yield (
            f'<rect x="{left:.1f}" y="4" width="{width:.1f}" height="{BAR_HEIGHT - 8}" rx="2" fill="{_state_colour(kind)}">'
            f"<title>{escape(kind)} at {at:%H:%M:%S}</title></rect>"
        )


def _conditions_html(job: Job) -> str:
    rows = "".join(
        f"<tr><td>{found.last_transition_time:%H:%M:%S}</td><td>{escape(found.type)}</td>"
        f"<td>{escape(found.status)}</td><td>{escape(found.message)}</td></tr>"
        for found in job.status.conditions
        if found.last_transition_time is not None
    )
    return f"<details><summary>conditions</summary><table>{rows}</table></details>" if rows else ""


def _state_colour(state: str) -> str:
    return STATE_COLOURS.get(state, STATE_COLOURS["Unknown"])
