"""Decodes versions of objects, each with the parts that have not changed taken from the version before.

Most versions change a few fields of the status. The rest need not be decoded again, need not be compared, and is in
memory once.
"""

from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.history.selection import OMITTED_METADATA, recorded_body

_split = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_decode = msgspec.json.Decoder().decode
NESTED_PARTS: dict[str, frozenset[str]] = {"metadata": OMITTED_METADATA, "status": frozenset()}
"""Parts in which mostly a few fields change, with fields that are not recorded."""


class _Part:
    """A field of an object: its JSON and its value; if it is one of `NESTED_PARTS`, also its own fields."""

    __slots__ = ("fields", "raw", "value")

    def __init__(self, raw: msgspec.Raw, value: Any, fields: "dict[str, _Part] | None" = None) -> None:
        self.raw, self.value, self.fields = raw, value, fields


class ObjectDecoder:
    """Decodes the versions of objects, by path."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[str, _Part]] = {}

    def decode(self, path: str, data: bytes) -> JSON:
        """The object as it is recorded. The data must stay unchanged."""
        before = self._parts.get(path, {})
        parts = {name: _object_part(name, raw, before.get(name)) for name, raw in _split(data).items()}
        self._parts[path] = parts
        return recorded_body(path, {name: part.value for name, part in parts.items()})

    def forget(self, path: str) -> None:
        """The object at a path was deleted."""
        self._parts.pop(path, None)


def _object_part(name: str, raw: msgspec.Raw, old: _Part | None) -> _Part:
    if old is not None and old.raw == raw:
        # A slice of the newest data, so that older data can go.
        old.raw = raw
        return old
    omitted = NESTED_PARTS.get(name)
    if omitted is None or bytes(memoryview(raw)[:1]) != b"{":
        return _Part(raw, _decode(raw))
    before = (old.fields if old is not None else None) or {}
    fields = {field: _field(part, before.get(field)) for field, part in _split(raw).items() if field not in omitted}
    return _Part(raw, {field: part.value for field, part in fields.items()}, fields)


def _field(raw: msgspec.Raw, old: _Part | None) -> _Part:
    if old is not None and old.raw == raw:
        return old
    return _Part(raw.copy(), _decode(raw))
