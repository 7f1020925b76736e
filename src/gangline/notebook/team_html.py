"""A team as HTML: a row per rank, the end of the log, the outcome. Pure; no outside styles or scripts."""

from html import escape

from gangline.notebook.team_view import RankRow, TeamFrame
from gangline.sdk.job_html import STATE_COLOURS
from gangline.timeline.svg import timeline_svg

TAIL_LINES = 10
"""Log lines that are always shown."""
MAX_ROWS = 32
"""Ranks that get a row of their own; those that need attention come first."""
MIN_TIMELINE_SECONDS = 1.0
_CELL = "padding: 0 12px 0 0; text-align: left; white-space: nowrap"
_LOG = "margin: 4px 0; padding: 4px 8px; background: rgba(127, 127, 127, 0.12); white-space: pre-wrap; font-size: 12px"


def team_html(frame: TeamFrame) -> str:
    """The HTML of one moment."""
    rows = _visible_rows(frame.rows)
    more = len(frame.rows) - len(rows)
    parts = [
        _title_html(frame),
        f'<table style="border: none">{"".join(map(_row_html, rows))}</table>',
        f"<div>… and {more} more</div>" if more else "",
        _timeline_html(frame),
        _log_html(frame.lines),
        _outcome_html(frame),
    ]
    style = "font-family: system-ui, sans-serif; font-size: 13px; line-height: 1.5"
    return f'<div class="gangline-team" style="{style}">{"".join(parts)}</div>'


def team_text(frame: TeamFrame) -> str:
    """One line, for front ends without HTML."""
    return f"{frame.kind.lower()}/{frame.name} {frame.state} {elapsed(frame.seconds)}"


def elapsed(seconds: float) -> str:
    """`00:07`, `62:30`."""
    return f"{int(seconds) // 60:02}:{int(seconds) % 60:02}"


def _title_html(frame: TeamFrame) -> str:
    return (
        f"<div><b>{escape(frame.kind)}</b> {escape(frame.name)} "
        f'<span style="color: {_colour(frame.state)}; font-weight: 600">{escape(frame.state)}</span> '
        f"{elapsed(frame.seconds)}</div>"
    )


def _visible_rows(rows: tuple[RankRow, ...]) -> tuple[RankRow, ...]:
    if len(rows) <= MAX_ROWS:
        return rows
    order = {"Failed": 0, "Restarting": 1, "Pending": 2}
    return tuple(sorted(rows, key=lambda row: order.get(row.state, 3))[:MAX_ROWS])


def _row_html(row: RankRow) -> str:
    restarts = f"{row.restarts} restart{'s' if row.restarts > 1 else ''}" if row.restarts else ""
    cells = [
        f'<span style="color: {_colour(row.state)}">●</span> {escape(_shown_name(row))}',
        escape(row.state.lower()),
        restarts,
        _progress_html(row),
    ]
    columns = "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells)
    return f"<tr>{columns}</tr>"


def _progress_html(row: RankRow) -> str:
    progress = row.progress
    if progress is None:
        return ""
    metrics = " ".join(f"{escape(name)} {value:.4g}" for name, value in progress.metrics.items())
    if not progress.total:
        return f"step {progress.step:g} {metrics}"
    bar = f'<progress max="{progress.total:g}" value="{progress.step:g}"></progress>'
    return f"{bar} {progress.step:g}/{progress.total:g} {metrics}"


def _timeline_html(frame: TeamFrame) -> str:
    """The timeline of a team, or of a single rank to which something happened."""
    timeline = frame.timeline
    if timeline is None or timeline.end - timeline.start < MIN_TIMELINE_SECONDS:
        return ""
    if len(timeline.rows) < 2 and not timeline.marks:
        return ""
    return timeline_svg(timeline, names={row.replica: _shown_name(row) for row in frame.rows})


def _shown_name(row: RankRow) -> str:
    return f"{row.replica} (rank {row.rank})" if row.rank is not None else row.replica


def _log_html(lines: tuple[tuple[str, str], ...]) -> str:
    tail, earlier = lines[-TAIL_LINES:], lines[:-TAIL_LINES]
    before = ""
    if earlier:
        summary = f"<summary>{len(earlier)} earlier line{'s' if len(earlier) > 1 else ''}</summary>"
        before = f"<details>{summary}{_lines_html(earlier)}</details>"
    return before + (_lines_html(tail) if tail else "")


def _lines_html(lines: tuple[tuple[str, str], ...]) -> str:
    text = "\n".join(f"{label}│ {line}" for label, line in lines)
    return f'<pre style="{_LOG}">{escape(text)}</pre>'


def _outcome_html(frame: TeamFrame) -> str:
    if not frame.outcome:
        return ""
    return f'<div style="color: {_colour(frame.state)}">{escape(frame.outcome)}</div>'


def _colour(state: str) -> str:
    return STATE_COLOURS.get(state, STATE_COLOURS["Unknown"])
