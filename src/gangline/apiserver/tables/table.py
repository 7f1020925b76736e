"""The Table form: what `kubectl get` prints, made by the server.

A `Printer` has the columns of a kind and makes a row of an object. Built-in kinds have printers of their own
(`gangline.apiserver.tables.rows`); custom resources get one from the columns of their definition.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from gangline.api.durations import since
from gangline.api.jsonpath import JSONPath, text_of
from gangline.api.meta import JSON
from gangline.apiserver.tables.columns import AGE_OF_CUSTOM, CREATED_AT, NAME, Column

Cells: TypeAlias = Callable[[JSON, datetime], list[Any]]
"""One cell per column, of an object at a moment. Missing fields are no error: bookmarks have none."""
Conditions: TypeAlias = Callable[[JSON], list[JSON]]


class Include(StrEnum):
    """How much of its object a row carries (`includeObject`)."""

    NONE = "None"
    METADATA = "Metadata"
    OBJECT = "Object"


class Printer:
    """Columns, and rows to go with them. Immutable; made once per kind."""

    __slots__ = ("_cells", "_conditions", "columns", "header")

    def __init__(self, columns: Iterable[Column], cells: Cells, conditions: Conditions | None = None) -> None:
        self.columns = tuple(columns)
        self.header = msgspec.Raw(msgspec.json.encode(self.columns))
        """The column definitions, encoded."""
        self._cells, self._conditions = cells, conditions

    def row(self, obj: JSON, now: datetime) -> JSON:
        """A row without its object: cells, and conditions where the object is done."""
        row: JSON = {"cells": self._cells(obj, now)}
        if self._conditions is not None and (conditions := self._conditions(obj)):
            row["conditions"] = conditions
        return row


_NO_HEADER = msgspec.Raw(b"null")


def table(api_version: str, metadata: JSON, printer: Printer | None, rows: Sequence[JSON]) -> bytes:
    """A Table, encoded; without a printer it has no header, as in a watch after the first event."""
    value = {
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": metadata,
        "columnDefinitions": _NO_HEADER if printer is None else printer.header,
        "rows": rows,
    }
    return msgspec.json.encode(value)


def name_of(obj: JSON) -> str:
    name: str = obj.get("metadata", {}).get("name", "")
    return name


def age(obj: JSON, now: datetime) -> str:
    """Time since creation."""
    return since(obj.get("metadata", {}).get("creationTimestamp"), now)


def _created(obj: JSON, now: datetime) -> list[Any]:
    return [name_of(obj), obj.get("metadata", {}).get("creationTimestamp") or "0001-01-01T00:00:00Z"]


GENERIC = Printer((NAME, CREATED_AT), _created)
"""For built-in kinds that have no printer of their own."""


def custom(columns: Sequence[JSON]) -> Printer:
    """A printer from a version's `additionalPrinterColumns`; none of them means that the age is shown.

    Raises `JSONPathError` for a path that cannot be read.
    """
    if not columns:
        return Printer((NAME, AGE_OF_CUSTOM), lambda obj, now: [name_of(obj), _custom_age(obj, now)])
    readers = [
        (JSONPath(f"{{{column.get('jsonPath', '')}}}"), str(column.get("type", ""))) for column in columns
    ]

    def cells(obj: JSON, now: datetime) -> list[Any]:
        return [name_of(obj), *(_cell(path, kind, obj, now) for path, kind in readers)]

    return Printer((NAME, *map(_column, columns)), cells)


def _column(column: JSON) -> Column:
    path = column.get("jsonPath", "")
    return Column(
        column.get("name", ""),
        column.get("description") or f"Custom resource definition column (in JSONPath format): {path}",
        type=column.get("type", ""),
        format=column.get("format", ""),
        priority=column.get("priority", 0),
    )


def _custom_age(obj: JSON, now: datetime) -> str | None:
    created = obj.get("metadata", {}).get("creationTimestamp")
    return since(created, now) if created is not None else None


_MISSING: Any = object()


def _cell(path: JSONPath, kind: str, obj: JSON, now: datetime) -> Any:
    """The first match in the column's type; null where there is none, or where it is of another type."""
    found = path.first(obj, _MISSING)
    if found is _MISSING:
        return None
    number = isinstance(found, int | float) and not isinstance(found, bool)
    match kind:
        case "string":
            return "<no value>" if found is None else text_of(found)
        case "integer":
            return int(found) if number else None
        case "number":
            return found if number else None
        case "boolean":
            return found if isinstance(found, bool) else None
        case "date":
            return since(found, now) if isinstance(found, str) else None
        case _:
            return None
