"""Equal parts of cached objects, kept once.

What people write repeats: the pods of a gang have the same containers, tolerations and owners, and label values
come from a small set. What machines report does not, but for the words they report it in. On 10,000 training pods
this more than halves a cache, at a few microseconds per object; docs/runtime/informer.md has the numbers.
"""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

MAX_PARTS, MAX_SPECS = 65_536, 4_096
"""Parts remembered, and specs. When there are more, remembering starts anew: sharing is a saving, not a promise."""

SHARED_METADATA_FIELDS = ("namespace", "owner_references", "finalizers")
INTERNED_STATUS_FIELDS = ("phase", "type", "status", "reason", "name")
"""Fields of a status, and of what is listed in it, whose values are few."""

_set_field = msgspec.structs.force_setattr


class ObjectInterner:
    """A `trim` for structs: gives the object it gets, its parts replaced by equal ones seen before.

    Give each informer one of its own. The object must be fresh from the decoder: it is changed in place, to an
    equal value. JSON objects come back as they are.
    """

    def __init__(self) -> None:
        # By their encoding, because lists and dictionaries have no hash.
        self._parts: dict[bytes, Any] = {}
        # Specs that are equal altogether, as those of a gang's pods: one look instead of one for each field.
        self._specs: dict[tuple[type, bytes], msgspec.Struct] = {}
        self._words: dict[str, str] = {}
        self._encode = msgspec.msgpack.Encoder().encode

    def __call__(self, found: T) -> T:
        if isinstance(found, msgspec.Struct):
            for name in found.__struct_fields__:
                part = getattr(found, name)
                if isinstance(part, msgspec.Struct):
                    shared = self._interned_field(name, part)
                    if shared is not part:
                        _set_field(found, name, shared)
                elif name in ("kind", "api_version"):
                    _set_field(found, name, self._interned_word(part))
        return found

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
        known = self._specs.get(key)
        if known is None:
            if len(self._specs) >= MAX_SPECS:
                self._specs.clear()
            self._intern_fields(part, part.__struct_fields__)
            known = self._specs[key] = part
        return known

    def _intern_fields(self, part: msgspec.Struct, fields: tuple[str, ...]) -> None:
        if len(self._parts) > MAX_PARTS:
            self._parts.clear()
        for field in fields:
            value = getattr(part, field, None)
            if value and type(value) in (str, tuple, dict):
                known = self._parts.setdefault(self._encode(value), value)
                if known is not value:
                    _set_field(part, field, known)

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
