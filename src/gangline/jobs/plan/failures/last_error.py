"""The error with which a program ended, read from the end of its log."""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from gangline.progress.line import parse_progress

_STAMP = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d) ")
_LAUNCHER_PREFIX = re.compile(r"^(?:\[(?:rank|default|worker|\d+,)\s*\d+\](?:<\w+>)?:\s?)+")
"""Put before every line by torch, torchrun and mpirun."""
_HEADER = re.compile(r"^(?:[ |+]*)(?:Exception Group )?Traceback \(most recent call last\):")
_FRAME = re.compile(r'^ +(?:\| +)?File "(?P<file>[^"]*)", line \d+(?:, in (?P<function>.*))?')
_EXCEPTION = re.compile(r"^(?P<name>[A-Za-z_][\w.]*)(?::\s?(?P<message>.*))?$")
_CHAIN = re.compile(r"During handling of the above exception|the direct cause of the following exception")
_EXCEPTION_NAME = re.compile(
    r"^(?:[\w.]*\.)?[A-Z_]\w*(?:Error|Exception|Exit|Interrupt|Warning|Timeout|Failure|Lost)\b"
)
# Errors that only say that another process of the same replica failed: that process wrote its error before.
_WRAPPERS = ("ChildFailedError", "CalledProcessError", "ProcessExitedException", "SystemExit")
_GROUP_MARGIN = re.compile(r"^ {2,}[|+] ?(?:[-+]+(?: \d+ -+)?$)?")
"""Put before every line of an exception group."""
_CRASH = re.compile(
    r"^(?:terminate called after|panic: |fatal error: |thread '.*' (?:\(\d+\) )?panicked|Fatal Python error: "
    r"|Exception in thread |ERROR: LoadError: |Uncaught )|: Assertion [`'].+' failed"
)
_STACK_HEADER = re.compile(
    r'^(?:Exception in thread "[^"]*" |Uncaught )?(?P<name>(?:[\w$]+\.)*[\w$]*(?:Exception|Error))(?:: .*)?$'
)
"""The first line of what Java and JavaScript write, before the frames of the stack."""
_STACK_FRAME = re.compile(r"^\s+at \S")
MAX_LINES_AFTER = 12
"""A program that writes more lines after a traceback than this has survived it."""
MAX_SECONDS_BEFORE_END = timedelta(seconds=120)
LAST_WORDS = 3


class LogLine(NamedTuple):
    """One line of a log, and when it was written, if that is known."""

    text: str
    at: datetime | None = None


class Frame(NamedTuple):
    """One frame of a Python traceback."""

    file: str
    function: str
    source: str = ""


class LastError(msgspec.Struct, frozen=True):
    """The error with which a program ended. Without an exception: its last words, which need not be an error."""

    # The name of the exception as Python writes it; empty if there is no traceback.
    exception: str = ""
    text: str = ""
    # Of the first exception of the chain, the innermost frame last.
    frames: tuple[Frame, ...] = ()
    # When the error was written; None if that is unknown, or if these are just the last lines.
    at: datetime | None = None
    last_line_at: datetime | None = None


class _Traceback(NamedTuple):
    start: int
    end: int
    exception: str
    frames: tuple[Frame, ...]


def log_line(raw: str) -> LogLine:
    """A line as the API returns it, with or without the time that `timestamps=true` puts before it."""
    match = _STAMP.match(raw)
    if match is None:
        return LogLine(raw)
    fraction = (match[2] or "").ljust(6, "0")[:6]
    zone = "+00:00" if match[3] == "Z" else match[3]
    try:
        at = datetime.fromisoformat(f"{match[1]}.{fraction}{zone}").astimezone(UTC)
    except ValueError:
        return LogLine(raw)
    return LogLine(raw[match.end() :], at)


def plain_lines(raw: Iterable[str]) -> tuple[str, ...]:
    """Log lines without their times."""
    return tuple(log_line(line).text for line in raw)


def last_error(raw: Sequence[str], message: str = "", ended_at: datetime | None = None) -> LastError:
    """The error at the end of a log. `message` is the termination message, which the program or its node wrote."""
    lines = [line for line in map(log_line, raw) if line.text.strip() and parse_progress(line.text) is None]
    last_line_at = next((line.at for line in reversed(lines) if line.at is not None), None)
    texts = [_GROUP_MARGIN.sub("", _LAUNCHER_PREFIX.sub("", line.text)) for line in lines]
    found = _last_traceback(texts)
    if found is not None and not _is_stale(lines, found, ended_at):
        start = found[0].start
        at = next((line.at for line in lines[start:] if line.at is not None), None)
        text = "\n".join(texts[start : found[-1].end + 1])
        return LastError(found[0].exception, text, found[0].frames, at, last_line_at)
    crash = next((n for n in range(len(texts) - 1, -1, -1) if _starts_crash(texts, n)), None)
    if crash is not None and _lines_after_crash(texts, crash) <= MAX_LINES_AFTER:
        header = _STACK_HEADER.match(texts[crash])
        return LastError(header["name"] if header else "", "\n".join(texts[crash:]), (), lines[crash].at, last_line_at)
    words = [*texts[-LAST_WORDS:], *message.splitlines()]
    named = next((match[0] for word in reversed(words) if (match := _EXCEPTION_NAME.match(word))), "")
    return LastError(named, "\n".join(words), (), None, last_line_at)


def _starts_crash(texts: Sequence[str], number: int) -> bool:
    """Whether a line begins what a program of another language writes when it gives up."""
    if _CRASH.search(texts[number]):
        return True
    after = texts[number + 1] if number + 1 < len(texts) else ""
    return bool(_STACK_HEADER.match(texts[number]) and _STACK_FRAME.match(after))


def _lines_after_crash(texts: Sequence[str], start: int) -> int:
    """How many lines follow the beginning of a crash, without the frames of its stack."""
    return sum(not _STACK_FRAME.match(text) for text in texts[start:])


def _is_stale(lines: Sequence[LogLine], found: Sequence[_Traceback], ended_at: datetime | None) -> bool:
    """Whether the program went on after its last traceback."""
    if len(lines) - found[-1].end > MAX_LINES_AFTER:
        return True
    written_at = lines[found[-1].end].at
    return written_at is not None and ended_at is not None and ended_at - written_at > MAX_SECONDS_BEFORE_END


def _last_traceback(texts: Sequence[str]) -> list[_Traceback] | None:
    """The last traceback with those that led to it, first one first. An error of a launcher is not the program's."""
    blocks = _tracebacks(texts)
    while len(blocks) > 1 and blocks[-1].exception.rpartition(".")[2] in _WRAPPERS:
        blocks.pop()
    if not blocks:
        return None
    chain = [blocks.pop()]
    while blocks and any(_CHAIN.search(text) for text in texts[blocks[-1].end : chain[0].start]):
        chain.insert(0, blocks.pop())
    return chain


def _tracebacks(texts: Sequence[str]) -> list[_Traceback]:
    blocks: list[_Traceback] = []
    starts = [number for number, text in enumerate(texts) if _HEADER.match(text)]
    if not starts and any(_FRAME.match(text) for text in texts):
        # The log begins in the middle of it, or it is a syntax error, which has no header.
        starts = [next(number for number, text in enumerate(texts) if _FRAME.match(text))]
    for place, start in enumerate(starts):
        stop = starts[place + 1] if place + 1 < len(starts) else len(texts)
        frames: list[Frame] = []
        end, name = start, ""
        for number in range(start, stop):
            frame = _FRAME.match(texts[number])
            if frame is not None:
                frames.append(Frame(frame["file"], frame["function"] or ""))
            elif frames and texts[number].startswith("    ") and not frames[-1].source:
                frames[-1] = frames[-1]._replace(source=texts[number].strip())
            elif frames and texts[number][:1].strip() and (match := _EXCEPTION.match(texts[number])):
                end, name = number, match["name"]
                break
        if name:
            blocks.append(_Traceback(start, end, name, tuple(frames)))
    return blocks
