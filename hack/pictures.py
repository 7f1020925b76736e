"""Draws docs/images/*.svg from the text beside them. Standard library only; the same text gives the same bytes.

    python hack/pictures.py          draw everything again
    python hack/pictures.py --demo   record `gangline demo` first, into docs/images/demo.txt

A diagram is a text file with one element per line; what follows " : " is for people, "|" starts a new line:

    title : T                                   desc : D, for those who cannot see it
    size W H                                    group X Y W H : label
    box ID X Y W H TONE : name | more           note X Y : text, dim, at its left end
    arrow ID.side@N ID.side@N [TONE] [dashed] [mid=N] [at=X,Y] : label

An arrow leaves and enters at a side's middle, or at coordinate N along it, and bends at `mid`. The layers of the
package map come from the import contract in pyproject.toml; the text only says what lives in each package.
"""

import argparse
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
SANS = "system-ui, -apple-system, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"
MONO = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"

# tone: light fill, light line, dark fill, dark line
TONES = {
    "card": ("#ffffff", "#d1d9e0", "#0d1117", "#30363d"),
    "plain": ("#f6f8fa", "#9aa4af", "#161b22", "#6e7681"),
    "blue": ("#ddf4ff", "#218bff", "#121d2f", "#388bfd"),
    "green": ("#dafbe1", "#2da44e", "#12261e", "#3fb950"),
    "amber": ("#fff8c5", "#bf8700", "#272115", "#d29922"),
    "violet": ("#fbefff", "#a475f9", "#211a30", "#a371f7"),
    "red": ("#ffebe9", "#cf222e", "#25171c", "#f85149"),
    "bar": ("#eaeef2", "#d1d9e0", "#161b22", "#30363d"),
}
INK, DIM = ("#1f2328", "#e6edf3"), ("#59636e", "#9198a1")


class Point(NamedTuple):
    x: float
    y: float


class Box(NamedTuple):
    x: float
    y: float
    w: float
    h: float

    def side(self, name: str, at: float | None) -> Point:
        """Where an arrow touches: the middle of a side, or the given coordinate along it."""
        across = Point(self.x + self.w / 2 if at is None else at, self.y + self.h / 2 if at is None else at)
        return {
            "left": Point(self.x, across.y),
            "right": Point(self.x + self.w, across.y),
            "top": Point(across.x, self.y),
            "bottom": Point(across.x, self.y + self.h),
        }[name]


class Line(NamedTuple):
    """One element of a diagram: its verb, plain words, options and text."""

    verb: str
    words: list[str]
    options: dict[str, str]
    text: str


def read(text: str) -> list[Line]:
    lines = []
    for raw in text.splitlines():
        if not raw.strip() or raw.startswith("#"):
            continue
        head, _, told = raw.partition(" : ")
        verb, *rest = head.split()
        options = dict(word.split("=", 1) for word in rest if "=" in word)
        lines.append(Line(verb, [word for word in rest if "=" not in word], options, told.strip()))
    return lines


# Shapes


def num(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def rect(box: Box, tone: str, radius: float = 8) -> str:
    x, y, w, h = map(num, box)
    return f'<rect class="{tone}" x="{x}" y="{y}" width="{w}" height="{h}" rx="{num(radius)}"/>'


def text(at: Point, told: str, style: str, anchor: str = "start") -> str:
    return f'<text class="{style}" x="{num(at.x)}" y="{num(at.y)}" text-anchor="{anchor}">{escape(told)}</text>'


def labelled(box: Box, tone: str, told: str) -> list[str]:
    """A box with a name and smaller lines under it, centred as a whole."""
    name, *more = (part.strip() for part in told.split("|"))
    middle, top = box.x + box.w / 2, box.y + box.h / 2 - 8.5 * len(more) + 5
    rows = [text(Point(middle, top + 18 * i + 17), line, "more", "middle") for i, line in enumerate(more)]
    return [rect(box, tone), text(Point(middle, top), name, "name", "middle"), *rows]


def bends(start: Point, start_side: str, end: Point, end_side: str, mid: float | None) -> list[Point]:
    """The corners of a path that leaves and enters at right angles."""
    across, into = start_side in ("left", "right"), end_side in ("left", "right")
    if across and into:
        x = (start.x + end.x) / 2 if mid is None else mid
        return [] if start.y == end.y else [Point(x, start.y), Point(x, end.y)]
    if not across and not into:
        y = (start.y + end.y) / 2 if mid is None else mid
        return [] if start.x == end.x else [Point(start.x, y), Point(end.x, y)]
    return [Point(end.x, start.y) if across else Point(start.x, end.y)]


def towards(start: Point, end: Point, length: float) -> Point:
    whole = abs(end.x - start.x) + abs(end.y - start.y)  # every piece is level or upright
    share = min(length, whole / 2) / whole if whole else 0
    return Point(start.x + (end.x - start.x) * share, start.y + (end.y - start.y) * share)


def rounded(points: list[Point]) -> str:
    path = f"M{num(points[0].x)} {num(points[0].y)}"
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        near, far = towards(corner, before, 9), towards(corner, after, 9)
        path += f"L{num(near.x)} {num(near.y)}Q{num(corner.x)} {num(corner.y)} {num(far.x)} {num(far.y)}"
    return f"{path}L{num(points[-1].x)} {num(points[-1].y)}"


def head(before: Point, tip: Point, tone: str) -> str:
    base = towards(tip, before, 9)
    dx, dy = (tip.y - base.y) * 0.5, (tip.x - base.x) * 0.5
    corners = (tip, Point(base.x + dx, base.y - dy), Point(base.x - dx, base.y + dy))
    return f'<path class="tip {tone}" d="M{"L".join(f"{num(x)} {num(y)}" for x, y in corners)}Z"/>'


def arrow(line: Line, boxes: dict[str, Box]) -> list[str]:
    start, start_side = touch(line.words[0], boxes)
    end, end_side = touch(line.words[1], boxes)
    tone = next((word for word in line.words[2:] if word in TONES), "plain")
    mid = float(line.options["mid"]) if "mid" in line.options else None
    points = [start, *bends(start, start_side, end, end_side, mid), end]
    dashed = " dashed" if "dashed" in line.words else ""
    path = rounded([*points[:-1], towards(end, points[-2], 6)])
    drawn = [f'<path class="arrow {tone}{dashed}" d="{path}"/>', head(points[-2], end, tone)]
    return drawn + (label(line, points) if line.text else [])


def touch(word: str, boxes: dict[str, Box]) -> tuple[Point, str]:
    name, _, place = word.partition(".")
    side, _, at = place.partition("@")
    return boxes[name].side(side, float(at) if at else None), side


def label(line: Line, points: list[Point]) -> list[str]:
    """Beside the longest piece of the path, or where the text says."""
    parts = [part.strip() for part in line.text.split("|")]
    a, b = max(pairwise(points), key=lambda piece: abs(piece[0].x - piece[1].x) + abs(piece[0].y - piece[1].y))
    level = a.y == b.y
    spot = Point((a.x + b.x) / 2 + (0 if level else 9), (a.y + b.y) / 2 + (-8 if level else 4))
    if "at" in line.options:
        x, y = line.options["at"].split(",")
        spot = Point(float(x), float(y))
    first = spot.y - 16 * (len(parts) - 1) if level else spot.y - 8 * (len(parts) - 1)
    anchor = "middle" if level else "start"
    return [text(Point(spot.x, first + 16 * i), part, "label", anchor) for i, part in enumerate(parts)]


# Pictures


def css() -> str:
    def side(index: int) -> str:
        tones = "".join(
            f".{tone}{{fill:{colours[2 * index]};stroke:{colours[2 * index + 1]}}}"
            f".tip.{tone}{{fill:{colours[2 * index + 1]}}}"
            for tone, colours in TONES.items()
        )
        return (
            f"{tones}.name,.mono{{fill:{INK[index]}}}.more,.label,.note,.group,.dim{{fill:{DIM[index]}}}"
            f".frame{{stroke:{TONES['plain'][2 * index + 1]}}}"
            f".label{{stroke:{TONES['card'][2 * index]}}}.prompt{{fill:{TONES['green'][2 * index + 1]}}}"
        )

    return (
        f"text{{font-family:{SANS};font-size:13px;stroke:none}}"
        ".name{font-size:15px;font-weight:600}.group{font-size:13px;font-weight:600}"
        f".mono{{font-family:{MONO};font-size:13px;white-space:pre}}.bold{{font-weight:700}}"
        ".arrow,.frame{fill:none!important;stroke-width:1.6}.tip{stroke:none!important}.dashed{stroke-dasharray:5 4}"
        ".frame{stroke-dasharray:2 4}"
        # A halo in the card's colour, so that a label may lie on a line.
        ".label{font-size:12.5px;stroke-width:4px!important;paint-order:stroke;stroke-linejoin:round}"
        f"{side(0)}@media (prefers-color-scheme:dark){{{side(1)}}}"
    )


def svg(width: float, height: float, title: str, desc: str, body: list[str]) -> str:
    w, h = num(width), num(height)
    size = f'width="{w}" height="{h}" viewBox="0 0 {w} {h}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title desc">',
            f'<title id="title">{escape(title)}</title>',
            f'<desc id="desc">{escape(desc)}</desc>',
            f"<style>{css()}</style>",
            rect(Box(0.5, 0.5, width - 1, height - 1), "card", 12),
            *body,
            "</svg>\n",
        ]
    )


def diagram(source: str) -> str:
    lines = read(source)
    told = {line.verb: line.text for line in lines if line.verb in ("title", "desc")}
    width, height = next(map(float, line.words) for line in lines if line.verb == "size")
    boxes = {line.words[0]: Box(*map(float, line.words[1:5])) for line in lines if line.verb == "box"}
    body: list[str] = []
    for line in lines:
        match line.verb:
            case "group":
                frame = Box(*map(float, line.words))
                body.append(rect(frame, "frame", 12))
                body.append(text(Point(frame.x + 14, frame.y + 22), line.text, "group"))
            case "box":
                body += labelled(boxes[line.words[0]], line.words[5], line.text)
            case "arrow":
                body += arrow(line, boxes)
            case "note":
                body.append(text(Point(*map(float, line.words)), line.text, "note"))
    return svg(width, height, told["title"], told["desc"], body)


def layers() -> list[list[str]]:
    """The packages from the top down, siblings together, as the import contract has them."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    contract = next(each for each in contracts if each["type"] == "layers")
    return [[name.strip(" ()") for name in layer.split("|")] for layer in contract["layers"]]


def package_map(source: str) -> str:
    """One row per layer. A package that the text does not explain is an error; one not yet there is dotted."""
    told = {line.verb: line for line in read(source)}
    rows, left, width, step = layers(), 64.0, 952.0, 62.0
    body = [
        text(Point(32, 44), told["heading"].text, "name"),
        '<path class="arrow plain" d="M40 66V' + num(58 + step * len(rows) - 16) + '"/>',
        head(Point(40, 66), Point(40, 58 + step * len(rows) - 10), "plain"),
    ]
    for row, packages in enumerate(rows):
        share = (width - left - 24 + 10) / len(packages)
        for column, name in enumerate(packages):
            box = Box(left + share * column, 62 + step * row, share - 10, step - 10)
            body += package(box, name, told[name], alone=len(packages) == 1)
    return svg(width, 62 + step * len(rows) + 14, told["title"].text, told["desc"].text, body)


def package(box: Box, name: str, line: Line, *, alone: bool) -> list[str]:
    source = ROOT / "src" / "gangline" / name
    there = source.with_suffix(".py").exists() or (source / "__init__.py").exists()
    told = line.text if there else f"{line.text} (planned)"
    shape = rect(box, line.words[0] if there else "frame")
    if alone:
        spots = (Point(box.x + 18, box.y + 31), Point(box.x + 150, box.y + 31))
    else:
        spots = (Point(box.x + 18, box.y + 22), Point(box.x + 18, box.y + 41))
    return [shape, text(spots[0], name, "mono bold"), text(spots[1], told, "more")]


def terminal(source: str) -> str:
    """The final screen of a recorded session."""
    lines = source.rstrip("\n").split("\n")
    width, height = max(640.0, 40 + 7.85 * max(map(len, lines))), 58 + 17.0 * len(lines) + 16
    bar = f"M.5 36V12.5a12 12 0 0 1 12-12H{num(width - 12.5)}a12 12 0 0 1 12 12V36Z"
    lamps = [f'<circle class="plain" cx="{22 + 20 * i}" cy="18" r="6"/>' for i in range(3)]
    body = [
        f'<path class="bar" d="{bar}"/>',
        *lamps,
        text(Point(width / 2, 23), "gangline demo", "dim", "middle"),
    ]
    for row, line in enumerate(lines):
        at = Point(20, 64 + 17 * row)
        if line.startswith("$ "):
            body.append(text(at, "$", "mono prompt bold"))
            body.append(text(Point(36, at.y), line[2:], "mono bold"))
        elif line:
            # The attribute for older renderers, white-space in the style for browsers: both keep the indent.
            body.append(text(at, line, "mono").replace("<text", '<text xml:space="preserve"', 1))
    desc = f"The last screen of a terminal, {len(lines)} lines; it ends: {lines[-1]}"
    return svg(width, height, "gangline demo: one parameter server and three workers", desc, body)


def record() -> str:
    """Run the demo on a terminal; what is on its screen at the end."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.terminal import PtyTerminal

    with PtyTerminal([sys.executable, "-m", "gangline", "demo"], cwd=ROOT, size=(40, 100)) as terminal:
        if terminal.wait_for_exit() != 0:
            raise SystemExit(terminal.screen.text)
    return f"$ gangline demo\n{terminal.screen.text}\n"


def drawings() -> dict[str, str]:
    """Every picture by its file name, from the text as it is now."""
    styles = {"package-map": package_map, "demo": terminal}
    return {
        f"{source.stem}.svg": styles.get(source.stem, diagram)(source.read_text(encoding="utf-8"))
        for source in sorted(IMAGES.glob("*.txt"))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw docs/images from their text.")
    parser.add_argument("--demo", action="store_true", help="record `gangline demo` first")
    if parser.parse_args().demo:
        (IMAGES / "demo.txt").write_text(record(), encoding="utf-8")
    for name, drawn in drawings().items():
        (IMAGES / name).write_text(drawn, encoding="utf-8")
        print(f"docs/images/{name}")


if __name__ == "__main__":
    main()
