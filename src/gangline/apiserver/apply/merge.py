"""The two operations of apply on values: merging an applied value into the live one, and removing fields.

Both return new values that may share parts with the arguments, and change no argument.
"""

from collections.abc import Sequence
from typing import Any

from gangline.apiserver.apply.fieldset import FieldSet, is_member
from gangline.apiserver.apply.walker import ListWalker, MapWalker, Walker


def merged_value(live: Any, applied: Any, walker: Walker) -> Any:
    """The live value with the applied one merged into it. Null or empty does not replace a granular map or list."""
    if isinstance(walker, MapWalker):
        if isinstance(live, dict) and live and (applied is None or isinstance(applied, dict)):
            return _merged_map(live, applied or {}, walker)
    elif isinstance(walker, ListWalker) and isinstance(live, list) and live and not (applied or applied == 0):
        return live
    elif isinstance(walker, ListWalker) and isinstance(live, list) and live and isinstance(applied, list):
        return _merged_list(live, applied, walker)
    return applied


def _merged_map(live: dict[str, Any], applied: dict[str, Any], walker: MapWalker) -> dict[str, Any]:
    result = dict(live)
    for name, value in applied.items():
        result[name] = merged_value(live[name], value, walker.field(name)[1]) if name in live else value
    return result


def _merged_list(live: Sequence[Any], applied: Sequence[Any], walker: ListWalker) -> list[Any]:
    """The elements in the applied order. Elements that only the live list has keep their neighbours where possible."""
    applied_items = {walker.label(item): item for item in applied}
    labels = walker.labels(live)
    live_items: dict[str, Any] = {}
    for label, item in zip(labels, live, strict=True):
        live_items[label] = None if label in live_items else item  # duplicates are not merged
    shared = [label for label in applied_items if label in live_items]
    return [
        _merged_element(label, item, live_items, applied_items, walker)
        for label, item in _interleaved(list(zip(labels, live, strict=True)), list(applied_items.items()), shared)
    ]


def _merged_element(
    label: str, item: Any, live_items: dict[str, Any], applied_items: dict[str, Any], walker: ListWalker
) -> Any:
    if label not in applied_items:
        return item
    current = live_items.get(label)
    return applied_items[label] if current is None else merged_value(current, applied_items[label], walker.element)


_LabelledItems = list[tuple[str, Any]]


def _interleaved(live: _LabelledItems, applied: _LabelledItems, shared: list[str]) -> _LabelledItems:
    """Both lists as one, each element once.

    `shared` are the labels in both lists in the applied order: the anchors. Elements that only the live list has
    are taken in order. A shared live element that is not the next anchor is skipped; it is taken from the applied
    list later.
    """
    names = {label for label, _ in applied}
    merged: set[str] = set()
    result: _LabelledItems = []
    anchors = iter(shared)
    anchor = next(anchors, None)
    left = right = 0
    while left < len(live) or right < len(applied):
        label = live[left][0] if left < len(live) else None
        if label is not None and right < len(applied):
            if label == applied[right][0]:
                result.append(applied[right])
                merged.add(label)
                left, right = left + 1, right + 1
                anchor = next(anchors, None)
                continue
            if label in names and anchor is not None and anchor != label:
                left += 1
                continue
        if label is not None:
            if label not in names:
                result.append(live[left])
                left += 1
                continue
            if label in merged:
                left += 1
        if right < len(applied):
            result.append(applied[right])
            merged.add(applied[right][0])
            if anchor == applied[right][0]:
                anchor = next(anchors, None)
            right += 1
    return result


def value_without_fields(value: Any, fields: FieldSet, walker: Walker) -> Any:
    """The value without these fields; None if nothing is left of a map or list."""
    if isinstance(walker, MapWalker):
        return _map_without_fields(value, fields, walker) if isinstance(value, dict) else None
    if isinstance(walker, ListWalker):
        return _list_without_fields(value, fields, walker) if isinstance(value, list) else None
    return value if not isinstance(value, dict | list) else None


def _map_without_fields(value: dict[str, Any], fields: FieldSet, walker: MapWalker) -> dict[str, Any] | None:
    result = {}
    for name, item in value.items():
        label, below = walker.field(name)
        node = fields.get(label)
        if node is None:
            result[name] = item
        elif not is_member(node):
            result[name] = value_without_fields(item, node, below)
    return result or None


def _list_without_fields(value: Sequence[Any], fields: FieldSet, walker: ListWalker) -> list[Any] | None:
    result = []
    for label, item in zip(walker.labels(value), value, strict=True):
        node = fields.get(label)
        if node is None:
            result.append(item)
        elif not is_member(node):
            result.append(value_without_fields(item, node, walker.element))
    return result or None
