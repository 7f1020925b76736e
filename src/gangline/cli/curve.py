"""A curve from points: as lines of text for a terminal, and as an SVG. Pure."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from gangline.cli.view import number


class Point(NamedTuple):
    step: float
    value: float


def curve(points: Sequence[Point], width: int = 60, height: int = 8) -> list[str]:
    """The curve with its scale at the left; no lines for no points. Every column is the mean of what falls in it."""
    if not points:
        return []
    columns = resampled(points, width)
    low, high = scale(columns)
    drawn = _drawn([round((high - value) / (high - low) * (height - 1)) for value in columns], height)
    labels = [number(round(high - (high - low) * at / (height - 1), 9)) for at in range(height)]
    margin = max(map(len, labels))
    return [f"{label:>{margin}} ┤{line}".rstrip() for label, line in zip(labels, drawn, strict=True)]


def resampled(points: Sequence[Point], width: int) -> list[float]:
    """One value per column, over the whole width: the mean of the points there, else the one before it."""
    first, last = points[0].step, max(point.step for point in points)
    span = (last - first) or 1.0
    found: list[list[float]] = [[] for _ in range(width)]
    for point in points:
        at = int((point.step - first) / span * (width - 1))
        found[min(width - 1, max(0, at))].append(point.value)
    values: list[float] = []
    for column in found:
        values.append(sum(column) / len(column) if column else values[-1])
    return values


def scale(values: Sequence[float]) -> tuple[float, float]:
    """From where to where: down to zero when nothing is below it, and never empty."""
    low, high = min(values), max(values)
    if low >= 0:
        low = 0.0
    return (low, high) if high > low else (low, low + 1.0)


def _drawn(rows: Sequence[int], height: int) -> list[str]:
    """A line that goes level or upright, with round corners."""
    cells = [[" "] * len(rows) for _ in range(height)]
    before = rows[0]
    for at, row in enumerate(rows):
        if before == row:
            cells[row][at] = "─"
        else:
            down = row > before
            cells[before][at], cells[row][at] = ("╮", "╰") if down else ("╯", "╭")
            for between in range(min(before, row) + 1, max(before, row)):
                cells[between][at] = "│"
        before = row
    return ["".join(row) for row in cells]


SIZE = (640, 320)
PAD = (56, 24, 40, 20)  # left, top, bottom, right
COLOURS = ("#218bff", "#2da44e", "#bf8700", "#a475f9", "#cf222e", "#0a7ea4")


def picture(lines: Mapping[str, Sequence[Point]], title: str, metric: str = "loss") -> str:
    """An SVG with one line per name, its axes and a legend. The same points give the same bytes."""
    every = [point for points in lines.values() for point in points]
    low, high = scale([point.value for point in every] or [0.0])
    first = min((point.step for point in every), default=0.0)
    last = max((point.step for point in every), default=1.0)
    width, height = SIZE
    left, top, bottom, right = PAD

    def place(point: Point) -> tuple[float, float]:
        x = left + (point.step - first) / ((last - first) or 1.0) * (width - left - right)
        return x, top + (high - point.value) / (high - low) * (height - top - bottom)

    font = 'font-family="system-ui, sans-serif" font-size="12" fill="#59636e"'
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" {font}>',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff" stroke="#d1d9e0"/>',
    ]
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = top + part * (height - top - bottom)
        told = number(round(high - part * (high - low), 9))
        drawn.append(f'<path d="M{left} {y:.1f}H{width - right}" stroke="#eaeef2"/>')
        drawn.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{told}</text>')
    for anchor, x, told in (("start", left, f"{first:g}"), ("end", width - right, f"step {last:g}")):
        drawn.append(f'<text x="{x}" y="{height - bottom + 18}" text-anchor="{anchor}">{told}</text>')
    for at, (name, points) in enumerate(lines.items()):
        colour = COLOURS[at % len(COLOURS)]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in map(place, points))
        if path:
            drawn.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        spot = f'x="{width - right - 8}" y="{top + 16 + 16 * at}" text-anchor="end"'
        drawn.append(f'<text {spot} fill="{colour}">{escape(f"{metric} of {name}")}</text>')
    return "\n".join([*drawn, "</svg>\n"])


def fell(points: Sequence[Point]) -> str:
    """`1.92 → 0.004`; empty for fewer than two points."""
    return f"{number(points[0].value)} → {number(points[-1].value)}" if len(points) > 1 else ""
