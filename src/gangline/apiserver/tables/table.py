"""The Table form of objects, which `kubectl get` prints.

A `TablePrinter` has the columns of a kind and makes the row of an object. Built-in kinds have their own printers
(`gangline.apiserver.tables.builtin_rows`); the printer of custom resources comes from their CRD.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

import msgspec

from gangline.api.durations import human_age
from gangline.api.jsonpath import JSONPath, printed_value
from gangline.api.meta import JSON
from gangline.apiserver.tables.columns import CREATED_AT_COLUMN, CUSTOM_AGE_COLUMN, NAME_COLUMN, TableColumn

CellsFunc: TypeAlias = Callable[[JSON, datetime], list[Any]]
"""Makes one cell per column from an object at a time. Fields may be missing, as in bookmarks."""
ConditionsFunc: TypeAlias = Callable[[JSON], list[JSON]]


class IncludeObject(StrEnum):
    """How much of its object a row has (`includeObject`)."""

    NONE = "None"
    METADATA = "Metadata"
    OBJECT = "Object"


class TablePrinter:
    """The columns of a kind, and the cells of its rows. Immutable; made once per kind."""

    __slots__ = ("_cells", "_conditions", "column_definitions", "columns")

    def __init__(
        self, columns: Iterable[TableColumn], cells: CellsFunc, conditions: ConditionsFunc | None = None
    ) -> None:
        self.columns = tuple(columns)
        self.column_definitions = msgspec.Raw(msgspec.json.encode(self.columns))
        """The column definitions, encoded."""
        self._cells, self._conditions = cells, conditions

    def row(self, obj: JSON, now: datetime) -> JSON:
        """The row of an object without the object itself: cells, and conditions if the kind has them."""
        row: JSON = {"cells": self._cells(obj, now)}
        if self._conditions is not None and (conditions := self._conditions(obj)):
            row["conditions"] = conditions
        return row


_NO_HEADER = msgspec.Raw(b"null")


def encode_table(api_version: str, metadata: JSON, printer: TablePrinter | None, rows: Sequence[JSON]) -> bytes:
    """An encoded Table. Without a printer it has no column definitions, as in a watch after the first event.

    As in kube-apiserver, no rows are null where a kind has no columns of its own.
    """
    value = {
        "kind": "Table",
        "apiVersion": api_version,
        "metadata": metadata,
        "columnDefinitions": _NO_HEADER if printer is None else printer.column_definitions,
        "rows": rows or (None if printer is GENERIC_PRINTER else []),
    }
    return msgspec.json.encode(value)


def object_name(obj: JSON) -> str:
    name: str = obj.get("metadata", {}).get("name", "")
    return name


def age_cell(obj: JSON, now: datetime) -> str:
    """The time since creation."""
    return human_age(obj.get("metadata", {}).get("creationTimestamp"), now)


def _creation_cells(obj: JSON, now: datetime) -> list[Any]:
    return [object_name(obj), obj.get("metadata", {}).get("creationTimestamp") or "0001-01-01T00:00:00Z"]


GENERIC_PRINTER = TablePrinter((NAME_COLUMN, CREATED_AT_COLUMN), _creation_cells)
"""The printer of built-in kinds that have none of their own."""


def custom_printer(columns: Sequence[JSON]) -> TablePrinter:
    """The printer for `additionalPrinterColumns` of a version; without columns it shows the age.

    Raises `JSONPathError` for an invalid path.
    """
    if not columns:
        return TablePrinter(
            (NAME_COLUMN, CUSTOM_AGE_COLUMN), lambda obj, now: [object_name(obj), _custom_age_cell(obj, now)]
        )
    readers = [(JSONPath(f"{{{column.get('jsonPath', '')}}}"), str(column.get("type", ""))) for column in columns]

    def cells(obj: JSON, now: datetime) -> list[Any]:
        return [object_name(obj), *(_custom_cell(path, kind, obj, now) for path, kind in readers)]

    return TablePrinter((NAME_COLUMN, *map(_custom_column, columns)), cells)


def _custom_column(column: JSON) -> TableColumn:
    path = column.get("jsonPath", "")
    return TableColumn(
        column.get("name", ""),
        column.get("description") or f"Custom resource definition column (in JSONPath format): {path}",
        type=column.get("type", ""),
        format=column.get("format", ""),
        priority=column.get("priority", 0),
    )


def _custom_age_cell(obj: JSON, now: datetime) -> str | None:
    created = obj.get("metadata", {}).get("creationTimestamp")
    return human_age(created, now) if created is not None else None


_MISSING: Any = object()


def _custom_cell(path: JSONPath, kind: str, obj: JSON, now: datetime) -> Any:
    """The first match, in the column's type; None if there is no match or it has another type."""
    value = path.first_value(obj, _MISSING)
    if value is _MISSING:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    match kind:
        case "string":
            return "<no value>" if value is None else printed_value(value)
        case "integer":
            return int(value) if is_number else None
        case "number":
            return value if is_number else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "date":
            return human_age(value, now) if isinstance(value, str) else None
        case _:
            return None
