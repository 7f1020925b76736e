"""Sources of keys: map changes of objects to the keys to reconcile."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import msgspec

from gangline.api.meta import Key, OwnerReference
from gangline.runtime.cache import key_of
from gangline.runtime.informer import Delta, Informer

T = TypeVar("T")
KeyMapFunc = Callable[[T], Iterable[Key]]
"""The keys to reconcile when an object changes. Must not raise, whatever the object contains."""


class KeySource(Protocol):
    """Adds keys to a queue while attached."""

    def attach(self, add: Callable[[Key], None]) -> AbstractContextManager[None]:
        """Add the keys of all existing objects, then those of every change, until the block ends."""
        ...

    async def wait_for_sync(self) -> None:
        """Wait until the keys of all existing objects have been added."""
        ...


class InformerSource:
    """Maps every change of an informer's objects to keys.

    Both the old and the new object are mapped: when a pod gets another owner, both owners are reconciled. A key is added
    once per change.
    """

    def __init__(self, informer: Informer[T], keys: KeyMapFunc[T]) -> None:
        self._informer: Informer[Any] = informer
        self._map_keys: KeyMapFunc[Any] = keys

    def attach(self, add: Callable[[Key], None]) -> AbstractContextManager[None]:
        def on_change(delta: Delta[Any]) -> None:
            before, after = delta.before, delta.after
            if before is None or after is None or before is after:
                keys = self._map_keys(delta.newest)
            else:
                keys = dict.fromkeys((*self._map_keys(before), *self._map_keys(after)))
            for key in keys:
                add(key)

        return self._informer.subscribe(on_change)

    async def wait_for_sync(self) -> None:
        await self._informer.wait_for_sync()


def own_key(item: Any) -> Iterable[Key]:
    """The object's own key."""
    return (key_of(item),)


def owner_key(kind: str, api_version: str = "", *, namespaced: bool = True) -> KeyMapFunc[Any]:
    """Maps to the key of the controlling owner, if it is of this kind and, if given, this version."""

    def keys(item: Any) -> Iterable[Key]:
        reference = _controller_reference(item)
        if reference is None or reference.kind != kind or (api_version and reference.api_version != api_version):
            return ()
        # An owner is in the namespace of its dependents, or cluster-scoped.
        return (Key(key_of(item).namespace if namespaced else "", reference.name),)

    return keys


def _controller_reference(item: Any) -> OwnerReference | None:
    if isinstance(item, dict):
        references = msgspec.convert(item["metadata"].get("ownerReferences") or (), tuple[OwnerReference, ...])
        return next((reference for reference in references if reference.controller), None)
    reference: OwnerReference | None = item.metadata.controller
    return reference
