"""Where keys come from: a change of one object says *look at that one*, never what to do."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from gangline.api.meta import Key
from gangline.runtime.cache import key_of
from gangline.runtime.informer import Delta, Informer

T = TypeVar("T")
Keys = Callable[[T], Iterable[Key]]


class Source(Protocol):
    """Feeds a queue while attached."""

    def attached(self, add: Callable[[Key], None]) -> AbstractContextManager[None]: ...

    async def synced(self) -> None: ...


class Changes:
    """Every change of an informer's objects, mapped to keys. Both the old and the new object are asked."""

    def __init__(self, informer: Informer[T], keys: Keys[T]) -> None:
        self._informer: Informer[Any] = informer
        self._keys: Keys[Any] = keys

    def attached(self, add: Callable[[Key], None]) -> AbstractContextManager[None]:
        def tell(delta: Delta[Any]) -> None:
            for found in (delta.before, delta.after):
                if found is not None:
                    for key in self._keys(found):
                        add(key)

        return self._informer.subscribed(tell)

    async def synced(self) -> None:
        await self._informer.synced()


def itself(found: Any) -> Iterable[Key]:
    """The object's own key."""
    return (key_of(found),)


def owner(kind: str, api_version: str = "") -> Keys[Any]:
    """The key of the controlling owner, if it is of that kind."""

    def keys(found: Any) -> Iterable[Key]:
        reference = found.metadata.controller
        if (
            reference is None
            or reference.kind != kind
            or (api_version and reference.api_version != api_version)
        ):
            return ()
        return (Key(found.metadata.namespace, reference.name),)

    return keys
