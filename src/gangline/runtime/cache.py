"""A cache of the objects of one kind, with indexes. No I/O, no locks."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from gangline.api.meta import Key

T = TypeVar("T")
IndexFunc = Callable[[T], Iterable[Hashable]]
"""The values under which an object is indexed: none, one or several. Must be pure."""


def key_of(item: Any) -> Key:
    """The key of an object, which is a struct or JSON."""
    if isinstance(item, dict):
        metadata = item["metadata"]
        return Key(metadata.get("namespace", ""), metadata["name"])
    key: Key = item.metadata.key
    return key


class Cache(Generic[T]):
    """Objects by key and by the values of indexes.

    Reads are O(1) in the number of objects and return the objects themselves, which must not be changed. An object keeps
    its position in the cache and its indexes when it is updated. If an index raises, the cache is unchanged.
    """

    def __init__(self, indexes: Mapping[str, IndexFunc[T]] | None = None) -> None:
        self._objects: dict[Key, T] = {}
        # Index and value -> keys, oldest first, never empty. The values of an object are not stored but computed again
        # from the object, so an index must be pure.
        self._indexes: dict[str, tuple[IndexFunc[T], dict[Hashable, dict[Key, None]]]] = {
            name: (index, {}) for name, index in (indexes or {}).items()
        }

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        """The objects in the cache now; the cache may change during the iteration."""
        return iter(tuple(self._objects.values()))

    def __contains__(self, key: Key) -> bool:
        return key in self._objects

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def keys(self) -> tuple[Key, ...]:
        return tuple(self._objects)

    def by_index(self, index: str, value: Hashable) -> tuple[T, ...]:
        """All objects that the index has under a value, in the order in which they were added to it."""
        _, entries = self._indexes[index]
        return tuple([self._objects[key] for key in entries.get(value, ())])

    def put(self, item: T) -> T | None:
        """Add or replace an object. Returns the replaced one."""
        key = key_of(item)
        before = self._objects.get(key)
        if self._indexes:
            self._reindex(key, before, item)
        self._objects[key] = item
        return before

    def drop(self, key: Key) -> T | None:
        """Remove an object. Returns the removed one."""
        before = self._objects.get(key)
        if before is not None:
            if self._indexes:
                self._reindex(key, before, None)
            del self._objects[key]
        return before

    def add_index(self, name: str, index: IndexFunc[T]) -> None:
        """Add an index and fill it. Adding it again does nothing; raises ValueError if the name has another function."""
        existing = self._indexes.get(name)
        if existing is not None and existing[0] is not index:
            raise ValueError(f"there is another index {name!r}")
        if existing is None:
            entries: dict[Hashable, dict[Key, None]] = {}
            for key, item in self._objects.items():
                for value in _index_values(index, item):
                    entries.setdefault(value, {})[key] = None
            self._indexes[name] = (index, entries)

    def _reindex(self, key: Key, before: T | None, after: T | None) -> None:
        # Compute all values first: an index that raises, or returns unhashable values, must not cause half a change.
        moves = [
            (entries, _index_values(index, before), _index_values(index, after))
            for index, entries in self._indexes.values()
        ]
        for entries, old, new in moves:
            if old == new:
                continue
            for value in old.keys() - new.keys():
                keys = entries[value]
                del keys[key]
                if not keys:
                    del entries[value]
            for value in new:
                entries.setdefault(value, {})[key] = None


def _index_values(index: IndexFunc[T], item: T | None) -> dict[Hashable, None]:
    return {} if item is None else dict.fromkeys(index(item))
