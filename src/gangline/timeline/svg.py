"""The timeline of a team as SVG: for notebooks and kept runs. No scripts, no outside styles; readable without colour."""

from collections.abc import Iterator, Mapping
from html import escape

from gangline.timeline.model import MarkKind, SpanState, StateSpan, TeamTimeline, TimelineMark

LABEL_WIDTH, ROW_HEIGHT, BAR_HEIGHT, TOP, RIGHT = 132, 22, 14, 40, 16
MAX_ROWS = 64
"""Replicas that get a row; those to which something happened come first."""
STATE_COLOURS: Mapping[str, str] = {
    SpanState.WAITING: "#d0d7de",
    SpanState.STARTING: "#bf8700",
    SpanState.RUNNING: "#2f81b7",
    SpanState.NOT_READY: "#8250df",
    SpanState.SUCCEEDED: "#1a7f37",
    SpanState.FAILED: "#cf222e",
    SpanState.STOPPED: "#8c959f",
    SpanState.LOST: "#953800",
}
_THIN_STATES = (SpanState.WAITING, SpanState.SUCCEEDED, SpanState.STOPPED)
"""States in which no process runs are thin, so that they differ without colour, too."""
_FAILURES = (MarkKind.FIRST_FAILURE, MarkKind.FAILURE, MarkKind.OOM, MarkKind.EVICTION, MarkKind.NODE_LOST)
_LETTERS: Mapping[str, str] = {
    MarkKind.RESTART: "↻",
    MarkKind.SUSPENDED: "‖",
    MarkKind.RESUMED: "▶",
    MarkKind.SCALED: "↕",
    MarkKind.CHECKPOINT: "◆",
    MarkKind.STALLED: "!",
}


def timeline_svg(timeline: TeamTimeline, width: int = 720, names: Mapping[str, str] | None = None) -> str:
    """The picture of a timeline; empty if nothing has happened yet. `names` are those to show, by the row's name."""
    rows = _visible_rows(timeline)
    if not rows or timeline.end <= timeline.start:
        return ""
    picture = _Picture(timeline, rows, width, names or {})
    height = TOP + ROW_HEIGHT * len(rows) + 8
    title = f"timeline of {len(timeline.rows)} replicas over {duration_text(timeline.end - timeline.start)}"
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    font = 'font-family="system-ui, sans-serif" font-size="12" fill="currentColor"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" {font}>',
            f"<title>{escape(title)}</title>",
            *picture.axis(),
            *picture.bars(),
            *picture.links(),
            *picture.marks(),
            "</svg>",
        ]
    )


def duration_text(seconds: float) -> str:
    """`5.2 s`, `2 min 5 s`, `3 h 20 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {int(seconds) % 60} s"


def _visible_rows(timeline: TeamTimeline) -> list[str]:
    rows = [row.name for row in timeline.rows]
    marked = {mark.row for mark in timeline.marks}
    kept = set(sorted(rows, key=lambda name: name not in marked)[:MAX_ROWS])
    return [name for name in rows if name in kept]


class _Picture:
    """The parts of one picture."""

    def __init__(self, timeline: TeamTimeline, rows: list[str], width: int, names: Mapping[str, str]) -> None:
        self._timeline, self._rows, self._names = timeline, rows, names
        self._scale = (width - LABEL_WIDTH - RIGHT) / (timeline.end - timeline.start)
        self._right = width - RIGHT

    def _x(self, at: float) -> float:
        return min(self._right, max(LABEL_WIDTH, LABEL_WIDTH + (at - self._timeline.start) * self._scale))

    def _y(self, row: str | None) -> float:
        """The middle of a row; the axis for a mark of the job."""
        return TOP + ROW_HEIGHT * (self._rows.index(row) + 0.5) if row in self._rows else TOP - 12

    def axis(self) -> Iterator[str]:
        bottom = TOP + ROW_HEIGHT * len(self._rows)
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            x = LABEL_WIDTH + share * (self._right - LABEL_WIDTH)
            anchor = {0.0: "start", 1.0: "end"}.get(share, "middle")
            text = duration_text(share * (self._timeline.end - self._timeline.start)) if share else "0"
            yield f'<path d="M{x:.1f} 18V{bottom}" stroke="currentColor" stroke-opacity="0.15"/>'
            yield f'<text x="{x:.1f}" y="14" text-anchor="{anchor}" fill-opacity="0.7">{text}</text>'

    def bars(self) -> Iterator[str]:
        for row in self._timeline.rows:
            if row.name in self._rows:
                y = self._y(row.name)
                label = escape(self._names.get(row.name, row.name))
                yield f'<text x="{LABEL_WIDTH - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
                for span in row.spans:
                    yield self._bar(row.name, span, y)

    def _bar(self, row: str, span: StateSpan, y: float) -> str:
        start, end = self._x(span.start), self._x(self._timeline.end if span.end is None else span.end)
        height = 4 if span.state in _THIN_STATES else BAR_HEIGHT
        # Nobody knows what a lost replica does: its bar is hollow, which is seen without colour, too.
        outline = ' fill-opacity="0.25" stroke="#953800"' if span.state == SpanState.LOST else ""
        length = (self._timeline.end if span.end is None else span.end) - span.start
        parts = (f"{row}: {span.state}", span.text, duration_text(max(0.0, length)), span.node)
        return (
            f'<rect x="{start:.1f}" y="{y - height / 2:.1f}" width="{max(0.5, end - start):.1f}" height="{height}" '
            f'fill="{STATE_COLOURS.get(span.state, "#8c959f")}"{outline}>'
            f"<title>{escape(' · '.join(part for part in parts if part))}</title></rect>"
        )

    def links(self) -> Iterator[str]:
        """From each first failure to what followed from it."""
        marks = self._timeline.marks
        for link in self._timeline.links:
            cause = marks[link.cause_mark]
            for number in link.consequence_marks:
                end = marks[number]
                x, y = self._x(cause.at), self._y(cause.row)
                if end.row in self._rows and (cause.row in self._rows) and end.row != cause.row:
                    path = f"M{x:.1f} {y:.1f}V{self._y(end.row):.1f}H{self._x(end.at):.1f}"
                    yield f'<path d="{path}" fill="none" stroke="#ffffff" stroke-width="3"/>'
                    yield f'<path d="{path}" fill="none" stroke="#cf222e" stroke-dasharray="4 2"/>'

    def marks(self) -> Iterator[str]:
        for mark in self._timeline.marks:
            if mark.row is None or mark.row in self._rows:
                yield from self._mark(mark)

    def _mark(self, mark: TimelineMark) -> Iterator[str]:
        x, y = self._x(mark.at), self._y(mark.row)
        title = f"<title>{escape(': '.join(part for part in (mark.row or '', mark.text or mark.kind) if part))}</title>"
        if mark.kind in _FAILURES:
            size = 6 if mark.cause else 4
            path = f"M{x - size:.1f} {y - size:.1f}l{2 * size} {2 * size}m0 {-2 * size}l{-2 * size} {2 * size}"
            # A white outline keeps it readable over its bar.
            yield f'<path d="{path}" stroke="#ffffff" stroke-width="5"/>'
            yield f'<path d="{path}" stroke="#cf222e" stroke-width="2.5">{title}</path>'
        elif mark.kind in _LETTERS:
            halo = 'stroke="#ffffff" stroke-width="3" paint-order="stroke" fill="#1f2328"'
            yield f'<text x="{x:.1f}" y="{y + 4:.1f}" text-anchor="middle" {halo}>{_LETTERS[mark.kind]}{title}</text>'
