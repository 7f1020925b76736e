"""Lists that are sets or maps hold every element, or every key, once."""

from collections.abc import Iterator
from typing import Any

from gangline.schema.go_text import json_text
from gangline.schema.problems import Problem, ProblemKind
from gangline.schema.structural.nodes import Node


def validate_lists(value: Any, node: Node | None, path: str = "") -> list[Problem]:
    """Doubled elements anywhere below."""
    return list(_doubles(value, node, path)) if node is not None else []


def _doubles(value: Any, node: Node, path: str) -> Iterator[Problem]:
    if isinstance(value, dict):
        if node.additional is not None:
            for name in sorted(value):
                yield from _doubles(value[name], node.additional, f"{path}[{name}]")
        for name in sorted(value):
            if name in node.properties:
                yield from _doubles(value[name], node.properties[name], f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        if node.list_type == "set":
            for index in repeated(value):
                yield Problem(ProblemKind.DUPLICATE, f"{path}[{index}]", value[index])
        elif node.list_type == "map":
            yield from _doubled_keys(value, node, path)
        if node.items is not None:
            for index, part in enumerate(value):
                yield from _doubles(part, node.items, f"{path}[{index}]")


def _doubled_keys(value: list[Any], node: Node, path: str) -> Iterator[Problem]:
    for index, part in enumerate(value):
        if part is not None and not isinstance(part, dict):
            detail = "must be an object for an array of list-type map"
            yield Problem(ProblemKind.INVALID, f"{path}[{index}]", part, detail)
            return
    keys = [{name: part[name] for name in node.list_keys if name in part} if part else {} for part in value]
    for index in repeated(keys):
        yield Problem(ProblemKind.DUPLICATE, f"{path}[{index}]", keys[index])


def repeated(values: list[Any]) -> list[int]:
    """Where a value appears for the second time. 1, 1.0, true and "1" are four values."""
    seen: dict[str, int] = {}
    found = []
    for index, value in enumerate(values):
        key = f"{value.__class__.__name__} {json_text(value)}"
        seen[key] = seen.get(key, 0) + 1
        if seen[key] == 2:
            found.append(index)
    return found
