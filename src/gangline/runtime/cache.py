"""The latest objects of one kind, with indexes. Plain data: no I/O, no locks."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from gangline.api.meta import Key

T = TypeVar("T")
Index = Callable[[T], Iterable[Hashable]]
"""Under which values an object is found: none, one or several."""


def key_of(found: Any) -> Key:
    """The key of an object, struct or JSON."""
    if isinstance(found, dict):
        return Key(found["metadata"].get("namespace", ""), found["metadata"]["name"])
    key: Key = found.metadata.key
    return key


class Cache(Generic[T]):
    """Objects by key, and by whatever the indexes say. Reads are O(1) and hand out the objects themselves."""

    def __init__(self, indexes: Mapping[str, Index[T]] | None = None) -> None:
        self._objects: dict[Key, T] = {}
        self._indexes = dict(indexes or {})
        # index name -> value -> keys, in order of arrival; no empty sets are kept.
        self._entries: dict[str, dict[Hashable, dict[Key, None]]] = {name: {} for name in self._indexes}

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._objects.values()))

    def __contains__(self, key: Key) -> bool:
        return key in self._objects

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def keys(self) -> tuple[Key, ...]:
        return tuple(self._objects)

    def by(self, index: str, value: Hashable) -> tuple[T, ...]:
        """All objects that the index files under a value."""
        return tuple(self._objects[key] for key in self._entries[index].get(value, ()))

    def put(self, found: T) -> T | None:
        """Take the newest of an object; gives what it replaces."""
        key = key_of(found)
        before = self.drop(key)
        self._objects[key] = found
        for name, index in self._indexes.items():
            entries = self._entries[name]
            for value in index(found):
                entries.setdefault(value, {})[key] = None
        return before

    def drop(self, key: Key) -> T | None:
        """Forget an object; gives what was there."""
        before = self._objects.pop(key, None)
        if before is None:
            return None
        for name, index in self._indexes.items():
            entries = self._entries[name]
            for value in index(before):
                keys = entries.get(value)
                if keys is not None:
                    keys.pop(key, None)
                    if not keys:
                        del entries[value]
        return before
