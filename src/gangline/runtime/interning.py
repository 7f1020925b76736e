"""Equal parts of cached objects are stored once.

Specs repeat: the pods of a gang have the same containers, tolerations and owners, and label values come from a small set.
Statuses do not, except for the words in them. With 10,000 training pods this more than halves the size of the cache, at a
few microseconds per object; docs/runtime/informer.md has the measurements.
"""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

MAX_PARTS, MAX_SPECS = 65_536, 4_096
"""The most parts and specs that are remembered. Beyond that all are forgotten: sharing is an optimization only."""

SHARED_METADATA_FIELDS = ("namespace", "owner_references", "finalizers")
INTERNED_STATUS_FIELDS = ("phase", "type", "status", "reason", "name")
"""Fields of a status, and of the items of its lists, that have few different values."""

_set_field = msgspec.structs.force_setattr


class ObjectInterner:
    """A `trim` for structs: returns the object with parts replaced by equal ones of earlier objects.

    Each informer needs its own. The object must come directly from the decoder, because it is changed in place, to an
    equal value. JSON objects are returned unchanged.
    """

    def __init__(self) -> None:
        # By their encoding, because lists and dictionaries cannot be hashed.
        self._parts: dict[bytes, Any] = {}
        # Whole specs, such as those of a gang's pods: one lookup instead of one for each field.
        self._specs: dict[tuple[type, bytes], msgspec.Struct] = {}
        self._words: dict[str, str] = {}
        self._encode = msgspec.msgpack.Encoder().encode

    def __call__(self, item: T) -> T:
        if isinstance(item, msgspec.Struct):
            for name in item.__struct_fields__:
                part = getattr(item, name)
                if isinstance(part, msgspec.Struct):
                    shared = self._interned_field(name, part)
                    if shared is not part:
                        _set_field(item, name, shared)
                elif name in ("kind", "api_version"):
                    _set_field(item, name, self._interned_word(part))
        return item

    def _interned_field(self, name: str, part: msgspec.Struct) -> msgspec.Struct:
        match name:
            case "metadata":
                self._intern_fields(part, SHARED_METADATA_FIELDS)
                labels = getattr(part, "labels", None)
                if labels:
                    word = self._interned_word
                    _set_field(part, "labels", {word(key): word(value) for key, value in labels.items()})
            case "status":
                self._intern_status_words(part)
                for field in part.__struct_fields__:
                    listed = getattr(part, field)
                    if type(listed) is tuple:
                        for element in listed:
                            self._intern_status_words(element)
            case _:
                return self._interned_spec(part)
        return part

    def _interned_spec(self, part: msgspec.Struct) -> msgspec.Struct:
        key = type(part), self._encode(part)
        shared = self._specs.get(key)
        if shared is None:
            if len(self._specs) >= MAX_SPECS:
                self._specs.clear()
            self._intern_fields(part, part.__struct_fields__)
            shared = self._specs[key] = part
        return shared

    def _intern_fields(self, part: msgspec.Struct, fields: tuple[str, ...]) -> None:
        if len(self._parts) > MAX_PARTS:
            self._parts.clear()
        for field in fields:
            value = getattr(part, field, None)
            if value and type(value) in (str, tuple, dict):
                shared = self._parts.setdefault(self._encode(value), value)
                if shared is not value:
                    _set_field(part, field, shared)

    def _intern_status_words(self, part: object) -> None:
        if isinstance(part, msgspec.Struct):
            for field in INTERNED_STATUS_FIELDS:
                value = getattr(part, field, None)
                if type(value) is str and value:
                    _set_field(part, field, self._interned_word(value))

    def _interned_word(self, value: str) -> str:
        if len(self._words) > MAX_PARTS:
            self._words.clear()
        return self._words.setdefault(value, value)
