"""The caches of a `World`: they show what the server has when they are told to."""

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
    """What an informer shows of one resource: the truth, late."""

    def __init__(self, resource: str, model: type[Any], *, labelled: bool = False, owners: OwnerKinds = ()) -> None:
        """`labelled`: only what has a job's label. `owners`: of what none of these kinds owns, only that it is there."""
        self.resource, self._model, self._labelled_only, self._owner_kinds = resource, model, labelled, owners
        indexes: dict[str, IndexFunc[Any]] = {OWNER_INDEX: owner_uid, ORPHAN_INDEX: orphan_keys} if labelled else {}
        self.cache: Cache[Any] = Cache(indexes)
        self.backlog: list[tuple[JSON | None, JSON | None]] = []
        self._subscribers: list[Callable[[Delta[Any]], None]] = []

    @contextmanager
    def subscribe(self, tell: Callable[[Delta[Any]], None]) -> Iterator[None]:
        for found in self.cache:
            tell(Delta(None, found))
        self._subscribers.append(tell)
        yield
        self._subscribers.remove(tell)

    async def wait_for_sync(self) -> None: ...

    def deliver(self, count: int | None = None) -> None:
        """Show the next changes; all of them if no number is given."""
        for before, after in self._take(count):
            if after is not None and self._is_selected(after):
                self._show(after)
            elif before is not None and self._is_selected(before):
                self._drop(before)

    def relist(self, truth: Sequence[JSON]) -> None:
        """Show what there is, and never what was in between: the watch was broken for a while."""
        self.backlog.clear()
        there = {key_of(found): found for found in truth if self._is_selected(found)}
        for known in self.cache:
            if key_of(known) not in there:
                self._notify(Delta(self.cache.drop(key_of(known)), None))
        for found in there.values():
            self._show(found)

    def _take(self, count: int | None) -> list[tuple[JSON | None, JSON | None]]:
        taken = self.backlog[:count]
        del self.backlog[: len(taken)]
        return taken

    def _is_selected(self, found: JSON) -> bool:
        return not self._labelled_only or JOB_NAME in labels_of(found)

    def _show(self, found: JSON) -> None:
        shown = decode_as(metadata_if_foreign(self._owner_kinds, found) if self._owner_kinds else found, self._model)
        before = self.cache.put(shown)
        if before != shown:
            self._notify(Delta(before, shown))

    def _drop(self, found: JSON) -> None:
        before = self.cache.drop(key_of(found))
        if before is not None:
            self._notify(Delta(before, None))

    def _notify(self, delta: Delta[Any]) -> None:
        for tell in tuple(self._subscribers):
            tell(delta)
