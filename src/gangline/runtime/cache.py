"""The latest objects of one kind, with indexes. Plain data: no I/O, no locks."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from gangline.api.meta import Key

T = TypeVar("T")
IndexFunc = Callable[[T], Iterable[Hashable]]
"""Under which values an object is found: none, one or several. Pure: the same object gives the same values."""


def key_of(found: Any) -> Key:
    """The key of an object, struct or JSON."""
    if isinstance(found, dict):
        metadata = found["metadata"]
        return Key(metadata.get("namespace", ""), metadata["name"])
    key: Key = found.metadata.key
    return key


class Cache(Generic[T]):
    """Objects by key, and by whatever the indexes say.

    Reads are O(1) in the number of objects and hand out the objects themselves: do not change them. An object keeps
    its place, here and in every index, while it is updated. An index that raises leaves the cache as it was.
    """

    def __init__(self, indexes: Mapping[str, IndexFunc[T]] | None = None) -> None:
        self._objects: dict[Key, T] = {}
        # Index and value -> keys, oldest first; no empty ones are kept. What an object is filed under is not kept
        # but computed again from the object, which is why an index must be pure.
        self._indexes: dict[str, tuple[IndexFunc[T], dict[Hashable, dict[Key, None]]]] = {
            name: (index, {}) for name, index in (indexes or {}).items()
        }

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        """The objects there are now; the cache may change meanwhile."""
        return iter(tuple(self._objects.values()))

    def __contains__(self, key: Key) -> bool:
        return key in self._objects

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def keys(self) -> tuple[Key, ...]:
        return tuple(self._objects)

    def by_index(self, index: str, value: Hashable) -> tuple[T, ...]:
        """All objects that the index files under a value, in the order in which they came to it."""
        _, entries = self._indexes[index]
        return tuple([self._objects[key] for key in entries.get(value, ())])

    def put(self, found: T) -> T | None:
        """Take the newest of an object; gives what it replaces."""
        key = key_of(found)
        before = self._objects.get(key)
        if self._indexes:
            self._reindex(key, before, found)
        self._objects[key] = found
        return before

    def drop(self, key: Key) -> T | None:
        """Forget an object; gives what was there."""
        before = self._objects.get(key)
        if before is not None:
            if self._indexes:
                self._reindex(key, before, None)
            del self._objects[key]
        return before

    def add_index(self, name: str, index: IndexFunc[T]) -> None:
        """One more index, over what is there too. Adding the same again does nothing; another raises ValueError."""
        known = self._indexes.get(name)
        if known is not None and known[0] is not index:
            raise ValueError(f"there is another index {name!r}")
        if known is None:
            entries: dict[Hashable, dict[Key, None]] = {}
            for key, found in self._objects.items():
                for value in _index_values(index, found):
                    entries.setdefault(value, {})[key] = None
            self._indexes[name] = (index, entries)

    def _reindex(self, key: Key, before: T | None, after: T | None) -> None:
        # All values first: an index that raises, or gives what cannot be hashed, must not leave half a change.
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


def _index_values(index: IndexFunc[T], found: T | None) -> dict[Hashable, None]:
    return {} if found is None else dict.fromkeys(index(found))
