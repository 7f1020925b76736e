"""Errors about input that does not fit its type, and how a place in a document is written for people."""

import re

import msgspec

from gangline.base.errors import InputError

FieldPath = tuple[str | int, ...]
"""Keys and indexes from the root of a document down to a value."""

_SIMPLE_KEY = r"[A-Za-z_$][A-Za-z0-9_$-]*"
_MAX_TEXT_LENGTH = 60


class DecodeError(InputError):
    """JSON or YAML that does not fit its type: where it is, what was found and what was expected.

    `path` is written as people write it (`spec.containers[0].name`), and empty for the whole document. `found`
    and
    `expected` are empty where nothing can be compared, such as a syntax error or a missing field.
    """

    def __init__(
        self,
        problem: str,
        *,
        path: str = "",
        line: int | None = None,
        file: str | None = None,
        found: str = "",
        expected: str = "",
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = path
        self.line = line
        self.file = file
        self.actual = found
        self.expected = expected

    def __str__(self) -> str:
        what = f"{self.path}: {self.problem}" if self.path else self.problem
        if self.file is not None:
            return f"{self.file}:{self.line}: {what}" if self.line else f"{self.file}: {what}"
        return f"{what} (line {self.line})" if self.line else what


def path_text(path: FieldPath) -> str:
    """A path as people write it: `spec.containers[0].name`, `metadata.labels["a.b/c"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif re.fullmatch(_SIMPLE_KEY, step):
            text += f".{step}" if text else step
        else:
            text += f"[{value_text(step)}]"
    return text


def value_text(value: object) -> str:
    """A JSON value inside a sentence: a scalar as it is written, anything else by its kind."""
    match value:
        case dict():
            return "object"
        case list() | tuple():
            return "array"
        case str():
            # YAML text can hold characters that JSON cannot encode, so they are replaced first.
            text = msgspec.json.encode(value.encode(errors="replace").decode()).decode()
            return text if len(text) <= _MAX_TEXT_LENGTH else f'{text[: _MAX_TEXT_LENGTH - 2]}…"'
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
        case _:
            return msgspec.json.encode(value).decode()
