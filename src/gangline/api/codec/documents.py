"""YAML files as JSON documents that know their lines. Lists are taken apart into their objects."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gangline.api.codec.errors import DecodeError, FieldPath, path_text, value_text
from gangline.api.meta import JSON


class Document(msgspec.Struct, frozen=True):
    """One object of a file: its JSON, and the line of every value by path."""

    # A JSON object: `documents` has checked that.
    body: JSON
    lines: Mapping[FieldPath, int]
    file: str | None = None
    index: int = 1
    """Which document of the file, from 1. The items of a List share it."""

    def line(self, path: FieldPath = ()) -> int | None:
        """The line of the value at a path, or of the nearest enclosing value that has one."""
        for end in range(len(path), -1, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return None

    def error(self, problem: str, path: FieldPath = (), *, found: str = "", expected: str = "") -> DecodeError:
        """A `DecodeError` about the value at a path of this document."""
        return DecodeError(
            problem,
            path=path_text(path),
            line=self.line(path),
            file=self.file,
            found=found,
            expected=expected,
        )


def documents(text: str, *, file: str | None = None) -> list[Document]:
    """The objects of a YAML or JSON text, in order; empty documents are skipped and Lists taken apart.

    Raises `DecodeError` with the line for anything that is not an object, or not YAML.
    """
    text = text.removeprefix("\ufeff")
    if text.lstrip().startswith("{") and (document := _json_document(text, file)):
        return list(_objects(document))
    # Imported here, because PyYAML loads slowly, and those who only decode the JSON of a server do not need it.
    from gangline.api.codec.yaml_values import yaml_values

    objects: list[Document] = []
    for index, (body, lines) in enumerate(yaml_values(text, file), 1):
        if body is not None:
            objects.extend(_objects(Document(body, lines, file, index)))
    return objects


def _json_document(text: str, file: str | None) -> Document | None:
    """The document of a JSON text. YAML does not accept all of JSON, so only the lines come from YAML."""
    try:
        body = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    from gangline.api.codec.yaml_values import value_lines

    # A tab between JSON tokens is white space, and a JSON string cannot contain one.
    return Document(body, value_lines(text.replace("\t", " ")), file)


def _objects(document: Document) -> Iterator[Document]:
    body: Any = document.body
    if not isinstance(body, dict):
        kind = value_text(body)
        hint = "; put --- between objects instead" if isinstance(body, list) and body else ""
        raise document.error(
            f"expected an object with apiVersion and kind, got {kind}{hint}", found=kind, expected="object"
        )
    if not _is_list(body):
        yield document
        return
    items = body.get("items")
    if items is None:
        return
    if not isinstance(items, list):
        raise document.error(
            f"expected array, got {value_text(items)}", ("items",), found=value_text(items), expected="array"
        )
    lines, typed = _item_lines(document.lines), _item_type_fields(body)
    for number, item in enumerate(items):
        item = {**typed, **item} if isinstance(item, dict) else item
        yield from _objects(Document(item, lines.get(number, {}), document.file, document.index))


def _is_list(body: JSON) -> bool:
    """Whether the body is a `List`, or the list of one kind as a server returns it, such as a TFJobList."""
    kind = body.get("kind")
    if (body.get("apiVersion"), kind) == ("v1", "List"):
        return True
    return isinstance(kind, str) and kind.endswith("List") and "items" in body and "spec" not in body


def _item_type_fields(body: JSON) -> JSON:
    """The apiVersion and kind of a list's items: a server leaves them out of each item."""
    kind: str = body["kind"].removesuffix("List")
    return {"apiVersion": body.get("apiVersion"), "kind": kind} if kind else {}


def _item_lines(lines: Mapping[FieldPath, int]) -> dict[str | int, dict[FieldPath, int]]:
    split: dict[str | int, dict[FieldPath, int]] = {}
    for path, line in lines.items():
        if path[:1] == ("items",) and len(path) > 1:
            split.setdefault(path[1], {})[path[2:]] = line
    return split
