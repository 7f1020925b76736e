"""Equal parts of cached objects, kept once.

What people write repeats: the pods of a gang have the same containers, tolerations and owners, and label values
come from a small set. What machines report does not, but for the words they report it in. On 10,000 training pods
this more than halves a cache, at a few microseconds per object; docs/runtime/informer.md has the numbers.
"""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

MOST, MOST_WHOLE = 65_536, 4_096
"""Parts remembered, and specs. When there are more, remembering starts anew: sharing is a saving, not a promise."""

METADATA = ("namespace", "owner_references", "finalizers")
WORDS = ("phase", "type", "status", "reason", "name")
"""Fields of a status, and of what is listed in it, whose values are few."""

_set = msgspec.structs.force_setattr


class Sharing:
    """A `trim` for structs: gives the object it gets, its parts replaced by equal ones seen before.

    Give each informer one of its own. The object must be fresh from the decoder: it is changed in place, to an
    equal value. JSON objects come back as they are.
    """

    def __init__(self) -> None:
        # By their encoding, because lists and dictionaries have no hash.
        self._parts: dict[bytes, Any] = {}
        # Specs that are equal altogether, as those of a gang's pods: one look instead of one for each field.
        self._whole: dict[tuple[type, bytes], msgspec.Struct] = {}
        self._words: dict[str, str] = {}
        self._encode = msgspec.msgpack.Encoder().encode

    def __call__(self, found: T) -> T:
        if isinstance(found, msgspec.Struct):
            for name in found.__struct_fields__:
                part = getattr(found, name)
                if isinstance(part, msgspec.Struct):
                    shared = self._visit(name, part)
                    if shared is not part:
                        _set(found, name, shared)
                elif name in ("kind", "api_version"):
                    _set(found, name, self._word(part))
        return found

    def _visit(self, name: str, part: msgspec.Struct) -> msgspec.Struct:
        match name:
            case "metadata":
                self._share(part, METADATA)
                labels = getattr(part, "labels", None)
                if labels:
                    word = self._word
                    _set(part, "labels", {word(key): word(value) for key, value in labels.items()})
            case "status":
                self._words_of(part)
                for field in part.__struct_fields__:
                    listed = getattr(part, field)
                    if type(listed) is tuple:
                        for element in listed:
                            self._words_of(element)
            case _:
                return self._shared(part)
        return part

    def _shared(self, part: msgspec.Struct) -> msgspec.Struct:
        key = type(part), self._encode(part)
        known = self._whole.get(key)
        if known is None:
            if len(self._whole) >= MOST_WHOLE:
                self._whole.clear()
            self._share(part, part.__struct_fields__)
            known = self._whole[key] = part
        return known

    def _share(self, part: msgspec.Struct, fields: tuple[str, ...]) -> None:
        if len(self._parts) > MOST:
            self._parts.clear()
        for field in fields:
            value = getattr(part, field, None)
            if value and type(value) in (str, tuple, dict):
                known = self._parts.setdefault(self._encode(value), value)
                if known is not value:
                    _set(part, field, known)

    def _words_of(self, part: object) -> None:
        if isinstance(part, msgspec.Struct):
            for field in WORDS:
                value = getattr(part, field, None)
                if type(value) is str and value:
                    _set(part, field, self._word(value))

    def _word(self, value: str) -> str:
        if len(self._words) > MOST:
            self._words.clear()
        return self._words.setdefault(value, value)
