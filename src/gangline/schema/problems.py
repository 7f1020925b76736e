"""What is wrong with one field of an object, in Kubernetes' own words: its `field.Error`.

A problem has a kind, the path of the field, the wrong value and a detail. From these come the message that a person
reads and the cause that a program reads, both as kube-apiserver writes them. Below the class is one constructor for
each kind of problem (`field.Required`, `field.Invalid` ...).
"""

from collections.abc import Iterable
from enum import Enum
from typing import Any

import msgspec

from gangline.schema.go_text import value_text

NO_VALUE: Any = object()
"""The value of a problem whose message shows none."""


class ProblemKind(Enum):
    """The words that the message starts with, and the machine-readable reason."""

    REQUIRED = ("Required value", "FieldValueRequired")
    INVALID = ("Invalid value", "FieldValueInvalid")
    DUPLICATE = ("Duplicate value", "FieldValueDuplicate")
    NOT_SUPPORTED = ("Unsupported value", "FieldValueNotSupported")
    NOT_FOUND = ("Not found", "FieldValueNotFound")
    FORBIDDEN = ("Forbidden", "FieldValueForbidden")
    TOO_LONG = ("Too long", "FieldValueTooLong")
    TOO_MANY = ("Too many", "FieldValueTooMany")
    TYPE_INVALID = ("Invalid value", "FieldValueTypeInvalid")
    INTERNAL = ("Internal error", "InternalError")

    @property
    def sentence(self) -> str:
        return self.value[0]

    @property
    def reason(self) -> str:
        return self.value[1]


_KINDS_WITHOUT_VALUE = (ProblemKind.REQUIRED, ProblemKind.FORBIDDEN, ProblemKind.TOO_LONG, ProblemKind.INTERNAL)


class FieldProblem(msgspec.Struct, frozen=True):
    """One wrong field."""

    kind: ProblemKind
    field: str
    """`spec.containers[0].name`, as Kubernetes spells paths; empty or `<nil>` for the whole object."""
    value: Any = NO_VALUE
    detail: str = ""

    @property
    def message(self) -> str:
        """The message without the field: `Invalid value: "x": must be a number`."""
        text = self.kind.sentence
        if self.kind not in _KINDS_WITHOUT_VALUE and self.value is not NO_VALUE:
            text = f"{text}: {value_text(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def required(path: str, detail: str = "") -> FieldProblem:
    return FieldProblem(ProblemKind.REQUIRED, path, NO_VALUE, detail)


def invalid(path: str, value: Any, detail: str) -> FieldProblem:
    return FieldProblem(ProblemKind.INVALID, path, value, detail)


def invalid_each(path: str, value: Any, details: Iterable[str]) -> list[FieldProblem]:
    """One `Invalid value` per detail, all about the same value."""
    return [FieldProblem(ProblemKind.INVALID, path, value, detail) for detail in details]


def forbidden(path: str, detail: str) -> FieldProblem:
    return FieldProblem(ProblemKind.FORBIDDEN, path, NO_VALUE, detail)


def duplicate(path: str, value: Any) -> FieldProblem:
    return FieldProblem(ProblemKind.DUPLICATE, path, value)


def not_found(path: str, value: Any, detail: str = "") -> FieldProblem:
    return FieldProblem(ProblemKind.NOT_FOUND, path, value, detail)


def unsupported(path: str, value: Any, supported: Iterable[str]) -> FieldProblem:
    """The message lists the supported values in the order given."""
    listed = ", ".join(value_text(value) for value in supported)
    return FieldProblem(ProblemKind.NOT_SUPPORTED, path, value, f"supported values: {listed}" if listed else "")


def too_long(path: str, most: int) -> FieldProblem:
    return FieldProblem(ProblemKind.TOO_LONG, path, NO_VALUE, f"may not be more than {most} bytes")


def too_many(path: str, count: int, most: int) -> FieldProblem:
    return FieldProblem(ProblemKind.TOO_MANY, path, count, f"must have at most {most} items")


def summary(problems: Iterable[FieldProblem]) -> str:
    """All problems in one line: a single one as it is, several in brackets."""
    texts = [str(problem) for problem in problems]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
