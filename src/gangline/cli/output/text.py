"""Styled lines of text for terminals, and short texts for numbers and durations. Pure."""

from typing import IO, NamedTuple


class Span(NamedTuple):
    """Text in one style: `green`, `bold`, `dim` ...; empty for plain."""

    text: str
    style: str = ""


StyledLine = tuple[Span, ...]


def plain_text(line: StyledLine) -> str:
    return "".join(span.text for span in line)


_ANSI_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "magenta": 35, "cyan": 36}


def ansi_text(line: StyledLine, *, colour: bool) -> str:
    """The line with ANSI codes for its styles; without colour, its plain text."""
    return "".join(_ansi_span(span) if colour else span.text for span in line)


def _ansi_span(span: Span) -> str:
    codes = ";".join(str(_ANSI_CODES[word]) for word in span.style.split() if word in _ANSI_CODES)
    return f"\x1b[{codes}m{span.text}\x1b[0m" if codes and span.text.strip() else span.text


def clip_line(line: StyledLine, width: int) -> StyledLine:
    """The line cut to `width` columns: a line that wraps would make a redrawn block jump."""
    spans: list[Span] = []
    room = width
    for span in line:
        spans.append(Span(clip_text(span.text, room), span.style))
        room -= column_count(span.text)
        if room <= 0:
            break
    return tuple(spans)


def clip_text(text: str, width: int) -> str:
    """The beginning of a text that fits into `width` columns."""
    if text.isascii():
        return text[: max(0, width)]
    room, end = width, 0
    for end, character in enumerate(text):
        room -= column_count(character)
        if room < 0:
            return text[:end]
    return text


def padded_text(text: str, width: int) -> str:
    """The text with spaces up to `width` columns."""
    return text + " " * (width - column_count(text))


def column_count(text: str) -> int:
    """How many columns a terminal needs for a text: two for a Chinese character, none for an accent of its own."""
    if text.isascii():
        return len(text)
    # Imported here: it is large, and most texts do not need it.
    from unicodedata import combining, east_asian_width

    return sum(0 if combining(each) else 2 if east_asian_width(each) in "WF" else 1 for each in text)


def can_draw(stream: IO[str]) -> bool:
    """Whether the encoding of a stream has the signs of bars and curves."""
    try:
        "▆░✖↻─".encode(getattr(stream, "encoding", None) or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def number_text(value: float) -> str:
    """Three significant digits: `0.113`, `0.0000452`, `1.92`, `12300`."""
    if (value and abs(value) < 1e-6) or abs(value) >= 1e9:
        return f"{value:.2e}"
    text = f"{value:.3g}"
    return f"{float(text):.10f}".rstrip("0").rstrip(".") if "e" in text else text


def elapsed_text(seconds: float) -> str:
    """`00:07`, `12:30`, `1:02:03`."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute:02}:{second:02}"


def duration_text(seconds: float) -> str:
    """`0.6 s`, `14 s`, `2 min 5 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def whole_seconds_text(seconds: float) -> str:
    """`6 s`, `2 min 5 s`: a text that changes once a second."""
    return f"{int(seconds)} s" if seconds < 10 else duration_text(seconds)


def seconds_text(seconds: float) -> str:
    """When something happened after the start: `3.9 s`, `2:05 min`, `1:02:03 h`."""
    if seconds < 60:
        return f"{max(0.0, seconds):.1f} s"
    return f"{int(seconds) // 60}:{int(seconds) % 60:02} min" if seconds < 3600 else f"{elapsed_text(seconds)} h"
