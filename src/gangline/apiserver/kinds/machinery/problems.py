"""Problems in one call each, with the details Kubernetes gives them."""

from collections.abc import Iterable
from typing import Any

from gangline.schema.problems import NO_VALUE, Problem, ProblemKind, shown


def required(path: str, detail: str = "") -> Problem:
    return Problem(ProblemKind.REQUIRED, path, NO_VALUE, detail)


def invalid(path: str, value: Any, detail: str) -> Problem:
    return Problem(ProblemKind.INVALID, path, value, detail)


def forbidden(path: str, detail: str) -> Problem:
    return Problem(ProblemKind.FORBIDDEN, path, NO_VALUE, detail)


def duplicate(path: str, value: Any) -> Problem:
    return Problem(ProblemKind.DUPLICATE, path, value)


def not_found(path: str, value: Any, detail: str = "") -> Problem:
    return Problem(ProblemKind.NOT_FOUND, path, value, detail)


def unsupported(path: str, value: Any, supported: Iterable[str]) -> Problem:
    """The supported values are told in the order given."""
    told = ", ".join(shown(one) for one in supported)
    return Problem(ProblemKind.NOT_SUPPORTED, path, value, f"supported values: {told}" if told else "")


def too_long(path: str, most: int) -> Problem:
    return Problem(ProblemKind.TOO_LONG, path, NO_VALUE, f"may not be more than {most} bytes")


def too_many(path: str, found: int, most: int) -> Problem:
    return Problem(ProblemKind.TOO_MANY, path, found, f"must have at most {most} items")


def each(path: str, value: Any, messages: Iterable[str]) -> list[Problem]:
    """One `Invalid value` per message about the same value."""
    return [Problem(ProblemKind.INVALID, path, value, message) for message in messages]


def negative(path: str, value: int) -> list[Problem]:
    return [invalid(path, value, "must be greater than or equal to 0")] if value < 0 else []
