"""What is wrong with one field of an object, in Kubernetes' own words.

A problem knows its kind, the path of the field, the value found and a detail. From these come the sentence a person
reads and the cause a program reads, both as kube-apiserver writes them.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Any

import msgspec

from gangline.schema.go_text import value_text

NO_VALUE: Any = object()
"""For problems whose sentence shows no value."""


class ProblemKind(Enum):
    """The sentence it starts with, and its machine-readable reason."""

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


_KINDS_WITHOUT_VALUE = (
    ProblemKind.REQUIRED,
    ProblemKind.FORBIDDEN,
    ProblemKind.TOO_LONG,
    ProblemKind.INTERNAL,
)


class FieldProblem(msgspec.Struct, frozen=True):
    """One wrong field."""

    kind: ProblemKind
    field: str
    """`spec.containers[0].name`, as Kubernetes spells paths; empty or `<nil>` for the whole object."""
    value: Any = NO_VALUE
    detail: str = ""

    @property
    def message(self) -> str:
        """The sentence without the field: `Invalid value: "x": must be a number`."""
        text = self.kind.sentence
        if self.kind not in _KINDS_WITHOUT_VALUE and self.value is not NO_VALUE:
            text = f"{text}: {formatted_value(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def formatted_value(value: Any) -> str:
    """A value as Go prints it in such sentences: strings quoted, null as such, structures as JSON."""
    return value_text(value)


def summary(problems: Iterable[FieldProblem]) -> str:
    """All problems in one line: one as it is, several in brackets."""
    told = [str(problem) for problem in problems]
    return told[0] if len(told) == 1 else f"[{', '.join(told)}]"
