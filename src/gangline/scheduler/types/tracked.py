"""Watched objects with a version that grows only with changes that scheduling depends on."""

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from gangline.api.meta import Key, Object

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Object)
F = TypeVar("F")


class TrackedObjects(Generic[K, T, F]):
    """The latest object of each key, and the fields of it that scheduling reads."""

    def __init__(self, key: Callable[[T], K], fields: Callable[[T], F], *, absent: F | None = None) -> None:
        """`absent`: fields that mean the same as no object at all."""
        self._key, self._fields_of, self._absent = key, fields, absent
        self.objects: dict[K, T] = {}
        self.fields: dict[K, F] = {}
        self.version = 0

    def put(self, value: T) -> None:
        """Add the object, or replace the one with the same key."""
        key, fields = self._key(value), self._fields_of(value)
        self.version += self.fields.get(key, self._absent) != fields
        self.objects[key], self.fields[key] = value, fields

    def drop(self, value: T) -> None:
        """Remove the object with this key, if there is one."""
        key = self._key(value)
        self.objects.pop(key, None)
        self.version += self.fields.pop(key, self._absent) != self._absent


def key_of(value: Object) -> Key:
    """Namespace and name of an object."""
    return value.metadata.key


def name_of(value: Object) -> str:
    """The name of a cluster-scoped object."""
    return value.metadata.name
