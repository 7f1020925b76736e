"""Uniqueness of the elements of sets and of the keys of list maps."""

from collections.abc import Iterator
from typing import Any

from gangline.schema.go_text import json_text
from gangline.schema.nodes import SchemaNode
from gangline.schema.problems import FieldProblem, duplicate, invalid


def duplicate_problems(value: Any, node: SchemaNode | None, path: str = "") -> list[FieldProblem]:
    """Problems of duplicate elements and keys, at any depth."""
    return list(_duplicate_problems(value, node, path)) if node is not None else []


def _duplicate_problems(value: Any, node: SchemaNode, path: str) -> Iterator[FieldProblem]:
    if isinstance(value, dict):
        if node.additional_properties is not None:
            for name in sorted(value):
                yield from _duplicate_problems(value[name], node.additional_properties, f"{path}[{name}]")
        for name in sorted(value):
            if name in node.properties:
                yield from _duplicate_problems(value[name], node.properties[name], f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        if node.list_type == "set":
            for index in duplicate_indexes(value):
                yield duplicate(f"{path}[{index}]", value[index])
        elif node.list_type == "map":
            yield from _duplicate_key_problems(value, node, path)
        if node.items is not None:
            for index, part in enumerate(value):
                yield from _duplicate_problems(part, node.items, f"{path}[{index}]")


def _duplicate_key_problems(value: list[Any], node: SchemaNode, path: str) -> Iterator[FieldProblem]:
    for index, part in enumerate(value):
        if part is not None and not isinstance(part, dict):
            detail = "must be an object for an array of list-type map"
            yield invalid(f"{path}[{index}]", part, detail)
            return
    keys = [{name: part[name] for name in node.list_keys if name in part} if part else {} for part in value]
    for index in duplicate_indexes(keys):
        yield duplicate(f"{path}[{index}]", keys[index])


def duplicate_indexes(values: list[Any]) -> list[int]:
    """The indexes of second occurrences. 1, 1.0, true and "1" are four different values."""
    counts: dict[str, int] = {}
    indexes = []
    for index, value in enumerate(values):
        key = f"{value.__class__.__name__} {json_text(value)}"
        counts[key] = counts.get(key, 0) + 1
        if counts[key] == 2:
            indexes.append(index)
    return indexes
