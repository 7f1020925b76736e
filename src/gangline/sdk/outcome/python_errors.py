"""The exception that ended a Python program, read from the end of its output. Pure."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from gangline.api.kubeflow.training import Failure
from gangline.progress.line import parse_progress
from gangline.sdk.outcome.results import is_result_line

LAST_LINES = 5
"""Log lines that are shown before a traceback."""
_LAUNCHER_PREFIX = re.compile(r"^(?:\[(?:rank|default)\d+\]:\s?)+")
"""Put before every line by torch and torchrun."""
_GROUP_PREFIX = re.compile(r"^[ |+-]*\| |^ *\+ (?=Exception Group)")
"""Put before every line of an exception group."""
_HEADER = re.compile(r"^(?:Exception Group )?Traceback \(most recent call last\):")
_FRAME = re.compile(r'^ +File ".*", line \d+')
_ERROR = re.compile(r"^(?P<type>[A-Za-z_][\w.]*)(?:: (?P<message>.*))?$")
_CHAIN = re.compile(r"^(?:During handling of the above|The above exception was the direct cause)")


class PythonError(NamedTuple):
    """An exception: its type, its message, and its traceback as text."""

    type: str = ""
    message: str = ""
    traceback: str = ""
    # The log lines before the traceback.
    log: tuple[str, ...] = ()


def job_error(failure: Failure) -> PythonError:
    """The exception behind a failure. The termination message is the program's own word, so it comes before the log."""
    in_log = python_error(failure.log)
    in_message = python_error(failure.message.splitlines())
    if not in_message.type:
        return in_log
    if in_log.type.rpartition(".")[2] != in_message.type.rpartition(".")[2]:
        # The log goes on after the error, or it was cut off.
        return in_message._replace(log=_log_lines(failure.log))
    return in_message._replace(traceback=in_log.traceback, log=in_log.log)


def python_error(lines: Sequence[str]) -> PythonError:
    """The last exception in the output of a program, with the exceptions that led to it; empty if there is none."""
    plain = [_GROUP_PREFIX.sub("", _LAUNCHER_PREFIX.sub("", line)) for line in lines]
    frames = [number for number, line in enumerate(plain) if _FRAME.match(line)]
    if not frames:
        return _error_without_traceback(lines)
    after = (number for number in range(frames[-1] + 1, len(plain)) if plain[number][:1].strip())
    at = next(after, None)
    found = _ERROR.match(plain[at]) if at is not None else None
    if at is None or found is None:
        return PythonError(log=_log_lines(lines))
    start = _traceback_start(plain, frames[-1])
    return PythonError(
        type=found["type"],
        message=found["message"] or "",
        traceback="\n".join(_LAUNCHER_PREFIX.sub("", line) for line in lines[start : at + 1]),
        log=_log_lines(lines[:start]),
    )


def _error_without_traceback(lines: Sequence[str]) -> PythonError:
    """Of a termination message that is just `SystemExit: no data`."""
    found = _ERROR.match(lines[0]) if len(lines) == 1 else None
    if found is not None and found["type"] == "SystemExit":
        return PythonError(found["type"], found["message"] or "", log=())
    return PythonError(log=_log_lines(lines))


def _traceback_start(plain: Sequence[str], last_frame: int) -> int:
    """Where the traceback begins, with the tracebacks of its causes."""
    start = last_frame
    while start and (_FRAME.match(plain[start]) or not plain[start][:1].strip() or not _HEADER.match(plain[start])):
        if plain[start - 1][:1].strip() and not _HEADER.match(plain[start - 1]):
            # A syntax error has no header.
            break
        start -= 1
    before = [line for line in plain[max(0, start - 3) : start] if line.strip()]
    if before and _CHAIN.match(before[-1]):
        causes = [number for number in range(start) if _FRAME.match(plain[number])]
        if causes:
            return _traceback_start(plain, causes[-1])
    return start


def _log_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """The last lines that a person would read."""
    kept = [line for line in lines if line.strip() and not is_result_line(line) and parse_progress(line) is None]
    return tuple(kept[-LAST_LINES:])
