"""The timeline of a team as lines of text: a row per replica, time to the right, what happened below. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gangline.cli.output.curve import SPARKLINE_BLOCKS, Point, axis_values
from gangline.cli.output.text import (
    Span,
    StyledLine,
    clip_line,
    clip_text,
    column_count,
    elapsed_text,
    padded_text,
    seconds_text,
)
from gangline.timeline.curves import curves
from gangline.timeline.model import MarkKind, ProgressPoint, ReplicaRow, SpanState, TeamTimeline, TimelineMark

MIN_BAR_WIDTH, MIN_MARGIN = 10, 8
MAX_CURVES = 3
"""Metrics that get a row of their own unless others are asked for."""
MAX_MARKS = 12
"""Marks that are written out below a timeline."""


class Glyph(NamedTuple):
    """A sign of a timeline, its stand-in where only ASCII can be written, and its style."""

    sign: str
    ascii: str
    style: str = ""


STATE_GLYPHS: Mapping[str, Glyph] = {
    SpanState.WAITING: Glyph("·", ".", "dim"),
    SpanState.STARTING: Glyph("░", "-", "yellow"),
    SpanState.RUNNING: Glyph("▆", "=", "green"),
    SpanState.NOT_READY: Glyph("▒", "~", "yellow"),
    SpanState.SUCCEEDED: Glyph("─", "+", "green"),
    SpanState.FAILED: Glyph("×", "x", "red"),
    SpanState.STOPPED: Glyph("╌", "_", "dim"),
    SpanState.LOST: Glyph("?", "?", "magenta"),
}
_FAILURE = Glyph("✖", "X", "bold red")
MARK_GLYPHS: Mapping[str, Glyph] = {
    MarkKind.FIRST_FAILURE: _FAILURE,
    MarkKind.FAILURE: _FAILURE,
    MarkKind.OOM: _FAILURE,
    MarkKind.EVICTION: _FAILURE,
    MarkKind.NODE_LOST: _FAILURE,
    MarkKind.RESTART: Glyph("↻", "R", "bold yellow"),
    MarkKind.SUSPENDED: Glyph("‖", "S", "bold"),
    MarkKind.RESUMED: Glyph("▶", ">", "bold"),
    MarkKind.SCALED: Glyph("↕", "#", "bold"),
    MarkKind.CHECKPOINT: Glyph("◆", "c", "cyan"),
    MarkKind.STALLED: Glyph("!", "!", "bold yellow"),
}
"""The marks that are drawn. What operator and scheduler did is seen from the spans; the dashboard lists it."""
_MARK_WORDS: Mapping[str, str] = {
    MarkKind.OOM: "out of memory",
    MarkKind.EVICTION: "evicted",
    MarkKind.NODE_LOST: "node lost",
    MarkKind.FIRST_FAILURE: "failed first",
    MarkKind.FAILURE: "failed",
}


class TimelineStyle(NamedTuple):
    """How a timeline is drawn."""

    width: int = 100
    # The most rows of replicas; those with marks are preferred.
    rows: int = 40
    ascii: bool = False
    # The names of replicas with their ranks, by the plain name.
    names: Mapping[str, str] = {}


DEFAULT_STYLE = TimelineStyle()
_ASCII_TEXTS = str.maketrans({"→": "->", "…": "...", "└": "`", "─": "-"})


def is_eventful(timeline: TeamTimeline) -> bool:
    """Whether something happened that is worth telling: a failure, a restart, a suspension, another scale."""
    return any(mark.kind in MARK_GLYPHS for mark in timeline.marks)


def timeline_lines(
    timeline: TeamTimeline,
    style: TimelineStyle = DEFAULT_STYLE,
    points: Sequence[ProgressPoint] = (),
    metrics: Sequence[str] = (),
) -> list[StyledLine]:
    """The axis, a row per replica, a row per named metric. Empty if there is no room, or nothing to show."""
    shown = visible_rows(timeline, style.rows)
    curve_rows = _curve_values(timeline, points, metrics)
    labels = [style.names.get(row.name, row.name) for row in shown]
    # A name as long as the program likes must not take the place of the bars.
    curve_labels = [clip_text(label, max(MIN_MARGIN, style.width // 3)) for label in curve_rows]
    margin = max([MIN_MARGIN, *map(column_count, labels), *map(column_count, curve_labels)])
    columns = style.width - margin - 4
    if columns < MIN_BAR_WIDTH or not shown or timeline.end <= timeline.start:
        return []
    lines: list[StyledLine] = [_axis_line(timeline, margin, columns, style)]
    for label, row in zip(labels, shown, strict=True):
        lines.append((Span(f"  {padded_text(label, margin)}  "), *_bar(row, timeline, columns, style)))
    for label, values in zip(curve_labels, curve_rows.values(), strict=True):
        blocks = _blocks(values, columns, ascii_only=style.ascii)
        lines.append((Span(f"  {padded_text(label, margin)}  ", "dim"), Span(blocks, "cyan")))
    hidden = len(timeline.rows) - len(shown)
    lines += [(Span(f"  … and {hidden} more", "dim"),)] if hidden else []
    return [_readable(line, style) for line in lines]


def mark_lines(timeline: TeamTimeline, style: TimelineStyle = DEFAULT_STYLE) -> list[StyledLine]:
    """What happened, a line each: `  3.9 s  ✖ worker-1  failed first: exit 137 (SIGKILL)`."""
    marks = [(number, mark) for number, mark in enumerate(timeline.marks) if mark.kind in MARK_GLYPHS]
    followers = {number for link in timeline.links for number in link.consequence_marks}
    shown = marks if len(marks) <= MAX_MARKS else [*marks[: MAX_MARKS - 1], marks[-1]]
    names = [style.names.get(mark.row or "", mark.row or "job") for _, mark in shown]
    margin = max(map(len, names), default=0)
    lines: list[StyledLine] = []
    for (number, mark), name in zip(shown, names, strict=True):
        # What follows from a first failure is joined to it.
        branch = "└─" if number in followers else "  "
        line = (
            Span(f"{seconds_text(mark.at - timeline.start):>9}  {branch if followers else ''}", "dim"),
            _sign(MARK_GLYPHS[mark.kind], style),
            Span(f" {name:<{margin}}  {mark_text(mark)}"),
        )
        lines.append(line)
    if len(shown) < len(marks):
        lines.insert(-1, (Span(f"{'':9}  … and {len(marks) - len(shown)} more", "dim"),))
    return [clip_line(_readable(line, style), style.width) for line in lines]


def mark_text(mark: TimelineMark) -> str:
    """A mark in words: `failed first: exit 137 (SIGKILL)`."""
    word = _MARK_WORDS.get(mark.kind, "")
    if mark.cause and mark.kind not in (MarkKind.FIRST_FAILURE, MarkKind.FAILURE):
        word = f"{word}, the first failure"
    return ": ".join(part for part in (word, mark.text) if part)


def legend_lines(timeline: TeamTimeline, style: TimelineStyle = DEFAULT_STYLE) -> list[StyledLine]:
    """The signs that occur in this timeline, with their meaning."""
    states = {span.state for row in timeline.rows for span in row.spans}
    kinds = {mark.kind for mark in timeline.marks}
    glyphs = [(glyph, str(state)) for state, glyph in STATE_GLYPHS.items() if state in states]
    glyphs += [(_FAILURE, "failure")] if any(MARK_GLYPHS.get(kind) == _FAILURE for kind in kinds) else []
    glyphs += [(glyph, str(kind)) for kind, glyph in MARK_GLYPHS.items() if glyph != _FAILURE and kind in kinds]
    lines: list[list[Span]] = []
    room = 0
    for glyph, word in glyphs:
        if room < len(word) + 2:
            lines.append([Span("  ")])
            room = style.width - 2
        lines[-1] += [_sign(glyph, style), Span(f" {word}  ", "dim")]
        room -= len(word) + 4
    return [tuple(line) for line in lines]


def visible_rows(timeline: TeamTimeline, limit: int) -> list[ReplicaRow]:
    """At most `limit` rows, those to which something happened preferred, in their order."""
    if len(timeline.rows) <= limit:
        return list(timeline.rows)
    causes = {mark.row for mark in timeline.marks if mark.cause}
    marked = {mark.row for mark in timeline.marks if mark.kind in MARK_GLYPHS}
    ranked = sorted(timeline.rows, key=lambda row: (row.name not in causes, row.name not in marked))[: max(1, limit)]
    return [row for row in timeline.rows if row in ranked]


def _sign(glyph: Glyph, style: TimelineStyle) -> Span:
    return Span(glyph.ascii if style.ascii else glyph.sign, glyph.style)


def _readable(line: StyledLine, style: TimelineStyle) -> StyledLine:
    """The line in ASCII if nothing else can be written."""
    return tuple(Span(span.text.translate(_ASCII_TEXTS), span.style) for span in line) if style.ascii else line


def _axis_line(timeline: TeamTimeline, margin: int, columns: int, style: TimelineStyle) -> StyledLine:
    """The ends of the axis, and the marks of the job itself between them."""
    start, end = elapsed_text(0), elapsed_text(timeline.end - timeline.start)
    cells = [Span(character, "dim") for character in start.ljust(columns - len(end)) + end]
    free = len(start) + 1
    for mark in timeline.marks:
        glyph, column = MARK_GLYPHS.get(mark.kind), max(_column(mark.at, timeline, columns), free)
        if mark.row is None and glyph is not None and column < columns - len(end) - 1:
            cells[column], free = _sign(glyph, style), column + 1
    return _merged([Span(" " * (margin + 4), "dim"), *cells])


def _column(at: float, timeline: TeamTimeline, columns: int) -> int:
    share = (at - timeline.start) / (timeline.end - timeline.start)
    return min(columns - 1, max(0, int(share * columns)))


def _bar(row: ReplicaRow, timeline: TeamTimeline, columns: int, style: TimelineStyle) -> StyledLine:
    absent = Glyph(" ", " ")
    cells = [_sign(STATE_GLYPHS.get(state, absent), style) for state in _column_states(row, timeline, columns)]
    free = 0
    for mark in timeline.marks:
        glyph = MARK_GLYPHS.get(mark.kind)
        if mark.row == row.name and glyph is not None:
            # A restart right after a failure gets the next column, so that both are seen.
            column = max(_column(mark.at, timeline, columns), free)
            if column < columns:
                cells[column], free = _sign(glyph, style), column + 1
    return _merged(cells)


def _column_states(row: ReplicaRow, timeline: TeamTimeline, columns: int) -> list[str]:
    """The state of each column: the one that lasted longest in it; empty where the replica was not there."""
    scale = columns / (timeline.end - timeline.start)
    states, shares = [""] * columns, [0.0] * columns
    for span in row.spans:
        start = max(0.0, (span.start - timeline.start) * scale)
        end = min(float(columns), ((timeline.end if span.end is None else span.end) - timeline.start) * scale)
        for column in range(int(start), min(columns, int(end) + 1)):
            share = min(end, column + 1) - max(start, column)
            if share > shares[column]:
                states[column], shares[column] = span.state, share
    return states


def _merged(cells: Iterable[Span]) -> StyledLine:
    """The line with neighbours of one style joined."""
    merged: list[Span] = []
    for cell in cells:
        if merged and merged[-1].style == cell.style:
            merged[-1] = Span(merged[-1].text + cell.text, cell.style)
        else:
            merged.append(cell)
    return tuple(merged)


class _CurveRow(NamedTuple):
    """Values of a metric over the time of a timeline."""

    points: Sequence[Point]
    log: bool
    start: float
    end: float


def timeline_metrics(points: Sequence[ProgressPoint]) -> list[str]:
    """The metrics that get a row unless others are asked for: the loss first, then as they were reported."""
    # A number that never changes, such as a constant learning rate, is no curve.
    shown = curves(points, (), over="time").metrics
    names = [curve.name for curve in shown if len({value for _, value in curve.points}) > 1]
    return sorted(names, key=lambda name: name != "loss")[:MAX_CURVES]


def _curve_values(
    timeline: TeamTimeline, points: Sequence[ProgressPoint], metrics: Sequence[str]
) -> dict[str, _CurveRow]:
    """The curves to show by label: `loss`, or `loss (log)`."""
    found = {curve.name: curve for curve in curves(points, (), over="time").metrics if len(curve.points) > 1}
    return {
        f"{name} (log)" if found[name].prefers_log else name: _CurveRow(
            [Point(*point) for point in found[name].points], found[name].prefers_log, timeline.start, timeline.end
        )
        for name in metrics
        if name in found
    }


def _blocks(row: _CurveRow, columns: int, *, ascii_only: bool) -> str:
    """One line of blocks, as high as the values are; blank before the first report."""
    blocks = "_.-~^" if ascii_only else SPARKLINE_BLOCKS
    values = axis_values([point.value for point in row.points], log=row.log)
    low, high = min(values), max(values)
    step = (row.end - row.start) / columns
    text, at, current = "", 0, ""
    for column in range(columns):
        end = row.start + (column + 1) * step
        inside = []
        while at < len(row.points) and (row.points[at].step < end or column == columns - 1):
            inside.append(values[at])
            at += 1
        if inside:
            share = (sum(inside) / len(inside) - low) / ((high - low) or 1.0)
            current = blocks[round(share * (len(blocks) - 1))]
        text += current or " "
    return text.rstrip()
