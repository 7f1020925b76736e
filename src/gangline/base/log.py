"""Structured logging: a constant event and fields.

Code logs with the standard library: ``log.warning("list failed, will retry", extra={"error": str(error)})``. Fields that
apply to a whole block (the controller, the object) are set once with `log_context` and added to every line logged inside
it. `configure_logging` sets the format of lines.

Values are written as text. Of a mapping or a struct only the type is written, so that no object, and no secret in it,
appears in a log.
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
"""Longer values are cut: an error message may quote a whole response of a server."""

_context_fields: ContextVar[Mapping[str, object]] = ContextVar("gangline_log_fields", default=MappingProxyType({}))

# Attributes of every LogRecord. All others come from `extra`.
_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class LogFormat(StrEnum):
    """The format of lines: JSON, text, or text only on a terminal."""

    JSON = "json"
    TEXT = "text"
    AUTO = "auto"


@contextmanager
def log_context(**fields: object) -> Iterator[None]:
    """Add fields to every line logged inside the block, also by tasks started in it."""
    token = _context_fields.set({**_context_fields.get(), **fields})
    try:
        yield
    finally:
        _context_fields.reset(token)


def configure_logging(
    level: int | str = logging.INFO,
    form: LogFormat = LogFormat.AUTO,
    stream: TextIO | None = None,
    *,
    with_date: bool = False,
) -> None:
    """Log to one stream (standard error by default); replaces all handlers of the root logger.

    `with_date`: lines of text also have the date, for what runs for days.
    """
    target = stream or sys.stderr
    if form is LogFormat.AUTO:
        form = LogFormat.TEXT if target.isatty() else LogFormat.JSON
    handler = logging.StreamHandler(target)
    handler.setFormatter(JsonFormatter() if form is LogFormat.JSON else TextFormatter(with_date=with_date))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)


class JsonFormatter(logging.Formatter):
    """One JSON object per line: `ts`, `level`, `logger`, `msg`, the fields of `log_context`, then those of the line."""

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
    """Lines for a terminal: local time, level, event and `name=value` pairs."""

    def __init__(self, *, with_date: bool = False) -> None:
        super().__init__()
        self._time_format = "%Y-%m-%d %H:%M:%S" if with_date else "%H:%M:%S"

    def format(self, record: logging.LogRecord) -> str:
        time = _record_time(record).astimezone().strftime(self._time_format)
        pairs = "".join(f" {name}={_quoted_value(value)}" for name, value in record_fields(record).items())
        line = f"{time} {record.levelname:<7} {record.getMessage()}{pairs}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def record_fields(record: logging.LogRecord) -> dict[str, str | int | float | bool | None]:
    """The fields of `log_context` and of the record, as plain values; those of the record take precedence."""
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
