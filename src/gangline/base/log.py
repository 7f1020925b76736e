"""Log lines a machine can search: a constant event, and fields.

Code logs with the standard library: ``log.warning("list failed, will retry", extra={"error": str(error)})``. What is
true of everything that happens in a block (which controller, which object) is bound once with `log_context` and appears on
every line logged inside it, by whomever. `configure_logging` decides how lines look.

Values are flattened to text: a mapping or a struct is shown by its type only, so that no whole object, and no secret
in one, ends up in a log.
"""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TextIO

MAX_VALUE_LENGTH = 2000
"""Characters of one value; an error message may quote a whole answer of a server."""

_context_fields: ContextVar[Mapping[str, object]] = ContextVar("gangline_log_fields", default=MappingProxyType({}))

# What every LogRecord has. All else came in through `extra`.
_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LogFormat(StrEnum):
    """How lines look: for machines, for people, or as the stream suggests."""

    JSON = "json"
    TEXT = "text"
    AUTO = "auto"


@contextmanager
def log_context(**fields: object) -> Iterator[None]:
    """Add fields to every line logged inside the block, tasks started there included."""
    token = _context_fields.set({**_context_fields.get(), **fields})
    try:
        yield
    finally:
        _context_fields.reset(token)


def configure_logging(
    level: int | str = logging.INFO, form: LogFormat = LogFormat.AUTO, stream: TextIO | None = None
) -> None:
    """Send all logging to one stream (standard error), replacing what was set up before."""
    target = stream or sys.stderr
    if form is LogFormat.AUTO:
        form = LogFormat.TEXT if target.isatty() else LogFormat.JSON
    handler = logging.StreamHandler(target)
    handler.setFormatter(JsonFormatter() if form is LogFormat.JSON else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: `ts`, `level`, `logger`, `msg`, then the bound fields, then the line's own."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": _record_time(record).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
            **record_fields(record),
        }
        if record.exc_info:
            line["stacktrace"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """For a terminal: local time, level, event, and `name=value` pairs."""

    def format(self, record: logging.LogRecord) -> str:
        time = _record_time(record).astimezone().strftime("%H:%M:%S")
        pairs = "".join(f" {name}={_quoted_value(value)}" for name, value in record_fields(record).items())
        line = f"{time} {record.levelname:<7} {record.getMessage()}{pairs}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def record_fields(record: logging.LogRecord) -> dict[str, str | int | float | bool | None]:
    """Bound fields and the line's own, which win, as plain values."""
    own = {name: value for name, value in vars(record).items() if name not in _STANDARD_ATTRIBUTES}
    return {name: _flat_value(value) for name, value in {**_context_fields.get(), **own}.items()}


def _flat_value(value: Any) -> str | int | float | bool | None:
    match value:
        case None | bool() | int() | float():
            return value
        case timedelta():
            return value.total_seconds()
        case Mapping():
            return f"<{type(value).__name__}>"
        case _ if hasattr(value, "__struct_fields__"):
            return f"<{type(value).__name__}>"
        case _:
            text = str(value)
            return text if len(text) <= MAX_VALUE_LENGTH else f"{text[:MAX_VALUE_LENGTH]}…"


def _record_time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _quoted_value(value: object) -> str:
    text = str(value)
    plain = text and not any(character.isspace() or character in '"=' for character in text)
    return text if plain else json.dumps(text, ensure_ascii=False)
