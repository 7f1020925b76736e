"""Curves: as lines of text for a terminal, and as SVG. Pure."""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gangline.cli.output.text import number_text


class Point(NamedTuple):
    """A metric's value at a training step."""

    step: float
    value: float


SPARKLINE_BLOCKS = "▁▂▃▄▅▆▇█"
AXIS_MARKS = {"restart": "↻", "suspended": "‖", "resumed": "▶", "scaled": "↕"}
"""The signs of marks below a curve; any other one is a failure."""


class AxisMark(NamedTuple):
    """What happened at a step: its kind, and a text for the line below the curve."""

    step: float
    kind: str
    text: str = ""


def curve_lines(
    points: Sequence[Point],
    width: int = 60,
    height: int = 8,
    *,
    marks: Sequence[AxisMark] = (),
    log: bool = False,
) -> list[str]:
    """The curve as text with its scale on the left; each column is the mean of its points. Empty without points.

    With `log` the axis is logarithmic; all values must be positive then. Marks are in a line of their own below it.
    """
    if not points:
        return []
    values = axis_values([point.value for point in points], log=log)
    columns = column_means([Point(point.step, value) for point, value in zip(points, values, strict=True)], width)
    low, high = (min(columns), max(columns)) if log else value_range(columns)
    high = high if high > low else low + 1.0
    lines = _box_drawing([round((high - value) / (high - low) * (height - 1)) for value in columns], height)
    levels = [high - (high - low) * row / (height - 1) for row in range(height)]
    labels = [number_text(10**level if log else round(level, 9) + 0.0) for level in levels]
    margin = max(map(len, labels))
    drawn = [f"{label:>{margin}} ┤{line}".rstrip() for label, line in zip(labels, lines, strict=True)]
    return [*drawn, *_mark_lines(points, marks, width, margin)]


def axis_values(values: Sequence[float], *, log: bool) -> list[float]:
    """The values as they lie on an axis. On a logarithmic one all must be positive."""
    return [math.log10(value) for value in values] if log else list(values)


def _mark_lines(points: Sequence[Point], marks: Sequence[AxisMark], width: int, margin: int) -> list[str]:
    """The signs of the marks below their steps; nothing without marks."""
    first, last = points[0].step, max(point.step for point in points)
    cells = [" "] * width
    column = -1
    for mark in sorted(marks):
        share = (mark.step - first) / ((last - first) or 1.0)
        # Two marks at one step are both seen.
        column = max(column + 1, min(width - 1, max(0, int(share * (width - 1)))))
        if column < width:
            cells[column] = AXIS_MARKS.get(mark.kind, "✖")
    return [f"{'':{margin}}  {''.join(cells)}".rstrip()] if marks else []


def column_means(points: Sequence[Point], width: int) -> list[float]:
    """One value per column: the mean of the points in it, or without any the value of the column before it."""
    first, last = points[0].step, max(point.step for point in points)
    span = (last - first) or 1.0
    columns: list[list[float]] = [[] for _ in range(width)]
    for point in points:
        index = int((point.step - first) / span * (width - 1))
        columns[min(width - 1, max(0, index))].append(point.value)
    means: list[float] = []
    for values in columns:
        means.append(sum(values) / len(values) if values else means[-1])
    return means


def value_range(values: Sequence[float]) -> tuple[float, float]:
    """Minimum and maximum of an axis: from zero if no value is negative, and never an empty range."""
    low, high = min(values), max(values)
    if low >= 0:
        low = 0.0
    return (low, high) if high > low else (low, low + 1.0)


def _box_drawing(rows: Sequence[int], height: int) -> list[str]:
    """A curve of horizontal and vertical strokes with round corners; `rows` has the row of each column."""
    cells = [[" "] * len(rows) for _ in range(height)]
    before = rows[0]
    for column, row in enumerate(rows):
        if before == row:
            cells[row][column] = "─"
        else:
            down = row > before
            cells[before][column], cells[row][column] = ("╮", "╰") if down else ("╯", "╭")
            for between in range(min(before, row) + 1, max(before, row)):
                cells[between][column] = "│"
        before = row
    return ["".join(row) for row in cells]


SVG_SIZE = (640, 320)
SVG_PADDING = (56, 24, 40, 20)  # left, top, bottom, right
LINE_COLOURS = ("#218bff", "#2da44e", "#bf8700", "#a475f9", "#cf222e", "#0a7ea4", "#bc4c00", "#d63384")
MUTED_COLOUR = "#d1d9e0"
SVG_FONT = 'font-family="system-ui, sans-serif" font-size="12" fill="#59636e"'


class Stroke(NamedTuple):
    """A curve of a chart; without a label it is not in the legend."""

    points: Sequence[Point]
    colour: str
    label: str = ""


def curve_svg(
    lines: Mapping[str, Sequence[Point]],
    title: str,
    metric: str = "loss",
    *,
    marks: Sequence[AxisMark] = (),
    log: bool = False,
) -> str:
    """An SVG with one curve per name, its axes and a legend. The same points give the same bytes.

    With `log` its axis is logarithmic, and all values must be positive; failures and restarts are upright lines.
    """
    return chart_svg(
        [
            Stroke(points, LINE_COLOURS[at % len(LINE_COLOURS)], f"{metric} of {name}")
            for at, (name, points) in enumerate(lines.items())
        ],
        title,
        marks=marks,
        log=log,
    )


def comparison_svg(
    best: Mapping[str, Sequence[Point]], others: Iterable[Sequence[Point]], title: str, *, rises: bool = False
) -> str:
    """An SVG in which the best curves have colours and names, and the others are grey behind them.

    Unless `rises` (higher is better), curves are cut off at twice the highest start value, so that a diverging curve
    does not flatten the others.
    """
    named = [
        Stroke(points, LINE_COLOURS[at % len(LINE_COLOURS)], name) for at, (name, points) in enumerate(best.items())
    ]
    strokes = [*(Stroke(points, MUTED_COLOUR) for points in others), *named]
    starts = [stroke.points[0].value for stroke in strokes if stroke.points]
    limit = 2 * max(starts, default=0.0)
    if not rises and limit > 0:
        strokes = [stroke._replace(points=_clamped_points(stroke.points, limit)) for stroke in strokes]
    return chart_svg(strokes, title, below=rises)


def _clamped_points(points: Sequence[Point], limit: float) -> list[Point]:
    return [Point(point.step, min(point.value, limit)) for point in points]


def chart_svg(
    strokes: Sequence[Stroke],
    title: str,
    *,
    below: bool = False,
    unit: str = "step",
    marks: Sequence[AxisMark] = (),
    log: bool = False,
) -> str:
    """An SVG of several curves. Its legend is at the top, or with `below` at the bottom, where rising curves are not."""
    points = [point for stroke in strokes for point in stroke.points]
    values = axis_values([point.value for point in points], log=log) or [0.0]
    low, high = (min(values), max(values)) if log and min(values) < max(values) else value_range(values)
    first = min((point.step for point in points), default=0.0)
    last = max((point.step for point in points), default=1.0)
    width, height = SVG_SIZE
    left, top, bottom, right = SVG_PADDING

    def position(point: Point) -> tuple[float, float]:
        x = left + (point.step - first) / ((last - first) or 1.0) * (width - left - right)
        [value] = axis_values([point.value], log=log)
        return x, top + (high - value) / (high - low) * (height - top - bottom)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" {SVG_FONT}>',
        f"<title>{html.escape(title, quote=False)}</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff" stroke="#d1d9e0"/>',
    ]
    for fraction in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = top + fraction * (height - top - bottom)
        level = high - fraction * (high - low)
        label = number_text(10**level if log else round(level, 9))
        parts.append(f'<path d="M{left} {y:.1f}H{width - right}" stroke="#eaeef2"/>')
        parts.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{label}</text>')
    ends = [f"{round(step, _axis_digits(last - first)):g}" for step in (first, last)]
    for anchor, x, label in (("start", left, ends[0]), ("end", width - right, f"{unit} {ends[1]}")):
        parts.append(f'<text x="{x}" y="{height - bottom + 18}" text-anchor="{anchor}">{label}</text>')
    for mark in marks:
        place, _ = position(Point(mark.step, points[0].value if points else 1.0))
        colour = "#bf8700" if mark.kind in AXIS_MARKS else "#cf222e"
        what = f"<title>{html.escape(mark.text or mark.kind)}</title>"
        line = f'd="M{place:.1f} {top}V{height - bottom}" stroke="{colour}" stroke-dasharray="4 3"'
        parts.append(f"<path {line}>{what}</path>")
    named = [stroke for stroke in strokes if stroke.label]
    above = height - bottom - 4 - 16 * len(named) if below else top
    for stroke in strokes:
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in map(position, stroke.points))
        if path:
            parts.append(f'<path d="M{path}" fill="none" stroke="{stroke.colour}" stroke-width="1.5"/>')
    for row, stroke in enumerate(named):
        spot = f'x="{width - right - 8}" y="{above + 16 + 16 * row}" text-anchor="end"'
        # A white outline keeps the text readable over curves.
        halo = 'stroke="#ffffff" stroke-width="4" paint-order="stroke"'
        label = html.escape(stroke.label, quote=False)
        parts.append(f'<text {spot} fill="{stroke.colour}" {halo}>{label}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _axis_digits(length: float) -> int:
    """The fractional digits for the ends of an axis, so that they are exact to about a hundredth of its length."""
    return max(0, 2 - math.floor(math.log10(length))) if length > 0 else 4


def change_text(points: Sequence[Point]) -> str:
    """The first and the last value of a curve: `1.92 → 0.004`; empty for fewer than two points."""
    return f"{number_text(points[0].value)} → {number_text(points[-1].value)}" if len(points) > 1 else ""
