"""Where keys come from: a change of one object says *look at that one*, never what to do."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import msgspec

from gangline.api.meta import Key, OwnerReference
from gangline.runtime.cache import key_of
from gangline.runtime.informer import Delta, Informer

T = TypeVar("T")
KeyMapFunc = Callable[[T], Iterable[Key]]
"""Which keys an object concerns. Total: it must not raise, whatever people wrote into the object."""


class KeySource(Protocol):
    """Feeds a queue while attached."""

    def attach(self, add: Callable[[Key], None]) -> AbstractContextManager[None]:
        """Add what is there already, then what changes, until the block ends."""
        ...

    async def wait_for_sync(self) -> None:
        """Wait until everything there was at the start has been added."""
        ...


class InformerSource:
    """Every change of an informer's objects, mapped to keys.

    Both the old and the new object are asked: when a pod changes hands, both owners must look. A key is added once
    per change.
    """

    def __init__(self, informer: Informer[T], keys: KeyMapFunc[T]) -> None:
        self._informer: Informer[Any] = informer
        self._map_keys: KeyMapFunc[Any] = keys

    def attach(self, add: Callable[[Key], None]) -> AbstractContextManager[None]:
        def tell(delta: Delta[Any]) -> None:
            before, after = delta.before, delta.after
            if before is None or after is None or before is after:
                concerned = self._map_keys(delta.newest)
            else:
                concerned = dict.fromkeys((*self._map_keys(before), *self._map_keys(after)))
            for key in concerned:
                add(key)

        return self._informer.subscribe(tell)

    async def wait_for_sync(self) -> None:
        await self._informer.wait_for_sync()


def own_key(found: Any) -> Iterable[Key]:
    """The object's own key."""
    return (key_of(found),)


def owner_key(kind: str, api_version: str = "", *, namespaced: bool = True) -> KeyMapFunc[Any]:
    """The key of the controlling owner, if it is of that kind; of any version unless one is given."""

    def keys(found: Any) -> Iterable[Key]:
        reference = _controller_reference(found)
        if reference is None or reference.kind != kind or (api_version and reference.api_version != api_version):
            return ()
        # An owner is in the namespace of what it owns, or in none.
        return (Key(key_of(found).namespace if namespaced else "", reference.name),)

    return keys


def _controller_reference(found: Any) -> OwnerReference | None:
    if isinstance(found, dict):
        written = found["metadata"].get("ownerReferences") or ()
        references = msgspec.convert(written, tuple[OwnerReference, ...])
        return next((reference for reference in references if reference.controller), None)
    reference: OwnerReference | None = found.metadata.controller
    return reference
