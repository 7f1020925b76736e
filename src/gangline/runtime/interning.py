"""Equal parts of cached objects are stored once.

Specs repeat: the pods of a gang have the same containers, tolerations and owners, and label values come from a small set.
Statuses do not, except for the words in them. With 10,000 training pods this more than halves the size of the cache, at a
few microseconds per object; docs/runtime/informer.md has the measurements.
"""

import sys
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

MIN_PARTS, MAX_PARTS, MAX_SPECS = 1024, 65_536, 4_096
"""The most parts and specs that are remembered. Beyond that all are forgotten: sharing is an optimization only."""

SHARED_METADATA_FIELDS = ("namespace", "owner_references", "finalizers")
INTERNED_STATUS_FIELDS = ("phase", "type", "status", "reason", "name")
"""Fields of a status, and of the items of its lists, that have few different values."""

_set_field = msgspec.structs.force_setattr


class InternTable(dict[K, V], Generic[K, V]):
    """Shared values by key. Those that nobody else uses any more are dropped when the table has doubled.

    Otherwise it would keep parts of objects that are long gone until it is full.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self._capacity, self._limit = capacity, MIN_PARTS

    def make_room(self) -> None:
        """Drop unused values if the table has grown. Call it before adding."""
        if len(self) < self._limit:
            return
        for key, count in _reference_counts(self):
            if count <= (_UNUSED_WORD if type(key) is str else _UNUSED):
                del self[key]
        if len(self) >= self._capacity:
            self.clear()
        self._limit = min(max(2 * len(self), MIN_PARTS), self._capacity)


def _reference_counts(table: dict[K, V]) -> list[tuple[K, int]]:
    return [(key, sys.getrefcount(value)) for key, value in table.items()]


def _count_of_unused(table: dict[Any, Any]) -> int:
    ((_, count),) = _reference_counts(table)
    return count


# How many references a value has that only its table uses: it depends on the version of Python. A word is its own key.
_UNUSED = _count_of_unused({b"key": object()})
_UNUSED_WORD = _count_of_unused({word: word for word in ["".join(("a", " word"))]})


class ObjectInterner:
    """A `trim` for structs: returns the object with parts replaced by equal ones of earlier objects.

    Each informer needs its own. The object must come directly from the decoder, because it is changed in place, to an
    equal value. JSON objects are returned unchanged.
    """

    def __init__(self) -> None:
        # By their encoding, because lists and dictionaries cannot be hashed.
        self._parts: InternTable[bytes, Any] = InternTable(MAX_PARTS)
        # Whole specs, such as those of a gang's pods: one lookup instead of one for each field.
        self._specs: InternTable[tuple[type, bytes], msgspec.Struct] = InternTable(MAX_SPECS)
        self._words: InternTable[str, str] = InternTable(MAX_PARTS)
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
            self._specs.make_room()
            self._intern_fields(part, part.__struct_fields__)
            shared = self._specs[key] = part
        return shared

    def _intern_fields(self, part: msgspec.Struct, fields: tuple[str, ...]) -> None:
        self._parts.make_room()
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
        self._words.make_room()
        return self._words.setdefault(value, value)
