"""Problems in one call each, with the details Kubernetes gives them."""

from collections.abc import Iterable
from typing import Any

from gangline.schema.problems import NO_VALUE, FieldProblem, ProblemKind, formatted_value


def required(path: str, detail: str = "") -> FieldProblem:
    return FieldProblem(ProblemKind.REQUIRED, path, NO_VALUE, detail)


def invalid(path: str, value: Any, detail: str) -> FieldProblem:
    return FieldProblem(ProblemKind.INVALID, path, value, detail)


def forbidden(path: str, detail: str) -> FieldProblem:
    return FieldProblem(ProblemKind.FORBIDDEN, path, NO_VALUE, detail)


def duplicate(path: str, value: Any) -> FieldProblem:
    return FieldProblem(ProblemKind.DUPLICATE, path, value)


def not_found(path: str, value: Any, detail: str = "") -> FieldProblem:
    return FieldProblem(ProblemKind.NOT_FOUND, path, value, detail)


def unsupported(path: str, value: Any, supported: Iterable[str]) -> FieldProblem:
    """The supported values are told in the order given."""
    told = ", ".join(formatted_value(one) for one in supported)
    return FieldProblem(ProblemKind.NOT_SUPPORTED, path, value, f"supported values: {told}" if told else "")


def too_long(path: str, most: int) -> FieldProblem:
    return FieldProblem(ProblemKind.TOO_LONG, path, NO_VALUE, f"may not be more than {most} bytes")


def too_many(path: str, found: int, most: int) -> FieldProblem:
    return FieldProblem(ProblemKind.TOO_MANY, path, found, f"must have at most {most} items")


def invalid_each(path: str, value: Any, messages: Iterable[str]) -> list[FieldProblem]:
    """One `Invalid value` per message about the same value."""
    return [FieldProblem(ProblemKind.INVALID, path, value, message) for message in messages]


def validate_non_negative(path: str, value: int) -> list[FieldProblem]:
    return [invalid(path, value, "must be greater than or equal to 0")] if value < 0 else []
