"""The caches of a `World`: they receive events when a test says so."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gangline.api.kubeflow.training import JOB_NAME
from gangline.api.meta import JSON
from gangline.jobs.observer import ORPHAN_INDEX, OWNER_INDEX, orphan_keys, owner_uid
from gangline.operator.engine import metadata_if_foreign
from gangline.runtime.cache import Cache, IndexFunc, key_of
from gangline.runtime.informer import Delta
from gangline.testing.world.server import decode_as, labels_of

OwnerKinds = Collection[tuple[str, str]]


class LaggingInformer:
    """An informer of one resource that receives its events late."""

    def __init__(self, resource: str, model: type[Any], *, labelled: bool = False, owners: OwnerKinds = ()) -> None:
        """`labelled`: only objects with the label of a job. `owners`: objects that no such kind owns are stripped."""
        self.resource, self._model, self._labelled_only, self._owner_kinds = resource, model, labelled, owners
        indexes: dict[str, IndexFunc[Any]] = {OWNER_INDEX: owner_uid, ORPHAN_INDEX: orphan_keys} if labelled else {}
        self.cache: Cache[Any] = Cache(indexes)
        self.backlog: list[tuple[JSON | None, JSON | None]] = []
        self._subscribers: list[Callable[[Delta[Any]], None]] = []

    @contextmanager
    def subscribe(self, handler: Callable[[Delta[Any]], None]) -> Iterator[None]:
        for item in self.cache:
            handler(Delta(None, item))
        self._subscribers.append(handler)
        yield
        self._subscribers.remove(handler)

    async def wait_for_sync(self) -> None: ...

    def deliver(self, count: int | None = None) -> None:
        """Receive the next events; all of them if `count` is None."""
        for before, after in self._take(count):
            if after is not None and self._is_selected(after):
                self._show(after)
            elif before is not None and self._is_selected(before):
                self._drop(before)

    def relist(self, objects: Sequence[JSON]) -> None:
        """Replace the cache by these objects, without the events in between: the watch was broken for a while."""
        self.backlog.clear()
        listed = {key_of(body): body for body in objects if self._is_selected(body)}
        for cached in self.cache:
            if key_of(cached) not in listed:
                self._notify(Delta(self.cache.drop(key_of(cached)), None))
        for body in listed.values():
            self._show(body)

    def _take(self, count: int | None) -> list[tuple[JSON | None, JSON | None]]:
        events = self.backlog[:count]
        del self.backlog[: len(events)]
        return events

    def _is_selected(self, body: JSON) -> bool:
        return not self._labelled_only or JOB_NAME in labels_of(body)

    def _show(self, body: JSON) -> None:
        item = decode_as(metadata_if_foreign(self._owner_kinds, body) if self._owner_kinds else body, self._model)
        before = self.cache.put(item)
        if before != item:
            self._notify(Delta(before, item))

    def _drop(self, body: JSON) -> None:
        before = self.cache.drop(key_of(body))
        if before is not None:
            self._notify(Delta(before, None))

    def _notify(self, delta: Delta[Any]) -> None:
        for handler in tuple(self._subscribers):
            handler(delta)
