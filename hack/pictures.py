"""Draws docs/images/*.svg from the text beside them. The same text gives the same bytes.

    python hack/pictures.py          draw everything again
    python hack/pictures.py --demo   film `gangline demo` first, into docs/images/demo.txt

A diagram is a text file with one element per line; what follows " : " is for people, "|" starts a new line:

    title : T                                   desc : D, for those who cannot see it
    size W H                                    group X Y W H : label
    box ID X Y W H TONE : name | more           note X Y : text, dim, at its left end
    arrow ID.side@N ID.side@N [TONE] [dashed] [mid=N] [at=X,Y] : label

An arrow leaves and enters at a side's middle, or at coordinate N along it, and bends at `mid`. The layers of the
package map come from the import contract in pyproject.toml; the text only says what lives in each package.
"""

import argparse
import codecs
import json
import lzma
import re
import sys
import tempfile
import time
import tomllib
from itertools import groupby, pairwise
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


# The recorded session


FRAME_SECONDS, HOLD_SECONDS = 0.5, 5.0
"""The least time between two frames, and how long the last one stays before the session begins again."""
SCREEN = (36, 92)
GLYPH_CLASSES = {"green": "▆●✔━", "amber": "░↻◐", "red": "✖×"}


class Frame(NamedTuple):
    """The lines of the screen from a time on."""

    at: float
    lines: list[str]


def read_session(source: str) -> list[Frame]:
    """The frames of a recording: `@ SECONDS`, then `ROW<tab>TEXT` for every row that differs from the frame before."""
    frames: list[Frame] = []
    for line in source.splitlines():
        if line.startswith("@ "):
            frames.append(Frame(float(line[2:]), list(frames[-1].lines) if frames else []))
            continue
        row, _, content = line.partition("\t")
        lines = frames[-1].lines
        lines += [""] * (int(row) + 1 - len(lines))
        lines[int(row)] = content
    return frames


def write_session(frames: list[Frame]) -> str:
    """The recording that `read_session` reads."""
    written: list[str] = []
    before: list[str] = []
    for frame in frames:
        written.append(f"@ {frame.at:.2f}")
        for row in range(max(len(before), len(frame.lines))):
            old = before[row] if row < len(before) else ""
            new = frame.lines[row] if row < len(frame.lines) else ""
            written += [f"{row}\t{new}"] if new != old else []
        before = frame.lines
    return "\n".join(written) + "\n"


def session(source: str) -> str:
    """The recorded session as a film of its screen. Where nothing moves, the last screen is seen."""
    frames = read_session(source)
    rows = max(len(frame.lines) for frame in frames)
    length = frames[-1].at + HOLD_SECONDS
    columns = max(len(line) for frame in frames for line in frame.lines)
    width, height = max(640.0, 40 + 7.85 * columns), 58 + 17.0 * rows + 12
    bar = f"M.5 36V12.5a12 12 0 0 1 12-12H{num(width - 12.5)}a12 12 0 0 1 12 12V36Z"
    lamps = [f'<circle class="plain" cx="{22 + 20 * i}" cy="18" r="6"/>' for i in range(3)]
    body = [f'<path class="bar" d="{bar}"/>', *lamps, text(Point(width / 2, 23), "gangline demo", "dim", "middle")]
    times = [frame.at for frame in frames]
    spans: dict[tuple[int, int], str] = {}
    for row in range(rows):
        for first, last, line in segments([frame.lines[row] if row < len(frame.lines) else "" for frame in frames]):
            if line:
                name = spans.setdefault((first, last), f"s{len(spans)}")
                body.append(film_line(Point(20, 64 + 17 * row), line, name))
    style = "".join(film_rule(name, first, last, times, length) for (first, last), name in spans.items())
    end = frames[-1].lines
    desc = f"A terminal, filmed: a worker is killed and restarted, with the timeline of the team. It ends: {end[-1]}"
    drawn = svg(width, height, "gangline demo: one parameter server and three workers", desc, body)
    still = "@media (prefers-reduced-motion:reduce){text{animation:none!important}}"
    return drawn.replace(
        "</style>", f".green{{fill:#2da44e}}.amber{{fill:#bf8700}}.red{{fill:#cf222e}}{style}{still}</style>", 1
    )


def segments(lines: list[str]) -> list[tuple[int, int, str]]:
    """First frame, last frame and text of every run of equal lines in one row."""
    found: list[tuple[int, int, str]] = []
    for frame, line in enumerate(lines):
        if found and found[-1][2] == line:
            found[-1] = (found[-1][0], frame, line)
        else:
            found.append((frame, frame, line))
    return found


def film_rule(name: str, first: int, last: int, times: list[float], length: float) -> str:
    """The style of lines that are seen from one frame to another."""
    stays = last == len(times) - 1
    if first == 0 and stays:
        return ""

    def share(frame: int) -> str:
        return f"{times[frame] / length * 100:.1f}".removesuffix(".0") + "%"

    start = [] if first == 0 else ["0%{visibility:hidden}"]
    seen = f"{'0%' if first == 0 else share(first)}{{visibility:visible}}"
    end = [] if stays else [f"{share(last + 1)}{{visibility:hidden}}"]
    base = "" if stays else "visibility:hidden;"
    keys = "".join([*start, seen, *end])
    return f"@keyframes {name}{{{keys}}}.{name}{{{base}animation:{name} {length:.1f}s step-end infinite}}"


def film_line(at: Point, line: str, name: str) -> str:
    """A line of the screen; the signs of states and marks in their colours, a row of a metric in one."""
    if line.startswith("$ "):
        content = f'<tspan class="prompt bold">$</tspan><tspan class="bold">{escape(line[1:])}</tspan>'
    elif "▁" in line or "█" in line:
        content = escape(line)
    else:
        content = tinted(line)
    # The attribute for older renderers, white-space in the style for browsers: both keep the indent.
    place = f'x="{num(at.x)}" y="{num(at.y)}"'
    # Signs that come from another font have another width: every column stays where it is all the same.
    length = f'textLength="{num(7.8 * len(line))}" lengthAdjust="spacingAndGlyphs"'
    return f'<text xml:space="preserve" class="mono {name}" {place} {length}>{content}</text>'


def tinted(line: str) -> str:
    """The line with runs of coloured signs as spans; the part of a progress bar that is still to come is dim."""
    start = line.find("╺")
    end = start + len(line[start:]) - len(line[start:].lstrip("╺━")) if start >= 0 else -1

    def tone(place: int) -> str:
        if start <= place < end:
            return "dim"
        return next((name for name, signs in GLYPH_CLASSES.items() if line[place] in signs), "")

    parts = []
    for name, places in groupby(range(len(line)), tone):
        content = escape("".join(line[place] for place in places))
        parts.append(f'<tspan class="{name}">{content}</tspan>' if name else content)
    return "".join(parts)


def record() -> str:
    """Run the demo on a terminal, and record its screen."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support.terminal import PtyTerminal, TerminalScreen

    pieces: list[tuple[float, bytes]] = []

    class Recorder(PtyTerminal):
        def _read(self, patience: float) -> bool:
            length = len(self.raw)
            more = super()._read(patience)
            pieces.append((time.monotonic(), self.raw[length:]))
            return more

    with (
        tempfile.TemporaryDirectory() as folder,
        Recorder([sys.executable, "-m", "gangline", "demo"], cwd=Path(folder), size=SCREEN) as terminal,
    ):
        if terminal.wait_for_exit() != 0:
            raise SystemExit(terminal.screen.text)
        note = str(Path(folder).resolve())
    screen, decoder = TerminalScreen(), codecs.getincrementaldecoder("utf-8")()
    frames = [Frame(0.0, ["$ gangline demo"])]
    started = pieces[0][0]
    for number, (at, data) in enumerate(pieces):
        screen.write(decoder.decode(data))
        is_last = number == len(pieces) - 1
        # A redraw that is not complete is no frame.
        if is_last or (pieces[number + 1][0] - at > 0.03 and at - started - frames[-1].at >= FRAME_SECONDS):
            lines = ["$ gangline demo", *screen.text.replace(note, ".").replace(f"{ROOT}/", "").split("\n")]
            frames.append(Frame(round(at - started, 2), lines[-SCREEN[0] :]))
    return write_session(frames)


def recorded_team(source: str) -> str:
    """The timeline of a recorded run (hack/timelines.py), as gangline draws it for notebooks, on a card."""
    from gangline.timeline.build import team_timeline
    from gangline.timeline.model import TimedVersion
    from gangline.timeline.svg import timeline_svg

    words = {line.verb: line.text for line in read(source)}
    recording = json.loads(lzma.decompress((ROOT / words["recording"]).read_bytes()))
    versions = [TimedVersion(line["at"], line["path"], line["body"]) for line in recording]
    drawn = timeline_svg(team_timeline(versions, versions[-1].at), 800)
    inner = re.sub(r'^<svg xmlns="[^"]*"', '<svg x="12" y="52" class="inner"', drawn)
    height = float(drawn.partition('height="')[2].partition('"')[0])
    body = [text(Point(24, 34), words["heading"], "name"), inner]
    dark = f"@media (prefers-color-scheme:dark){{.inner{{color:{INK[1]}}}}}"
    whole = svg(824, height + 64, words["title"], words["desc"], body)
    return whole.replace("</style>", f".inner{{color:{INK[0]}}}.inner text[stroke]{{stroke:#fff}}{dark}</style>", 1)


def drawings() -> dict[str, str]:
    """Every picture by its file name, from the text as it is now."""
    styles = {"package-map": package_map, "demo": session, "healed-team": recorded_team}
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
