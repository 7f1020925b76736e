"""The caches of a `World`: they show what the server has when they are told to."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gangline.api.kubeflow.training import JOB_NAME
from gangline.api.meta import JSON
from gangline.jobs.observer import ORPHANS, OWNER_UID, orphaned, owner_uid
from gangline.operator.engine import bare_if_foreign
from gangline.runtime.cache import Cache, Index, key_of
from gangline.runtime.informer import Delta
from gangline.testing.world.server import decoded, labels_of

Owners = Collection[tuple[str, str]]


class View:
    """What an informer shows of one resource: the truth, late."""

    def __init__(
        self, resource: str, model: type[Any], *, labelled: bool = False, owners: Owners = ()
    ) -> None:
        """`labelled`: only what has a job's label. `owners`: of what none of these kinds owns, only that it is there."""
        self.resource, self._model, self._labelled, self._owners = resource, model, labelled, owners
        indexes: dict[str, Index[Any]] = {OWNER_UID: owner_uid, ORPHANS: orphaned} if labelled else {}
        self.cache: Cache[Any] = Cache(indexes)
        self.backlog: list[tuple[JSON | None, JSON | None]] = []
        self._subscribers: list[Callable[[Delta[Any]], None]] = []

    @contextmanager
    def subscribed(self, tell: Callable[[Delta[Any]], None]) -> Iterator[None]:
        for found in self.cache:
            tell(Delta(None, found))
        self._subscribers.append(tell)
        yield
        self._subscribers.remove(tell)

    async def synced(self) -> None: ...

    def deliver(self, count: int | None = None) -> None:
        """Show the next changes; all of them if no number is given."""
        for before, after in self._taken(count):
            if after is not None and self._wanted(after):
                self._show(after)
            elif before is not None and self._wanted(before):
                self._drop(before)

    def relist(self, truth: Sequence[JSON]) -> None:
        """Show what there is, and never what was in between: the watch was broken for a while."""
        self.backlog.clear()
        there = {key_of(found): found for found in truth if self._wanted(found)}
        for known in self.cache:
            if key_of(known) not in there:
                self._tell(Delta(self.cache.drop(key_of(known)), None))
        for found in there.values():
            self._show(found)

    def _taken(self, count: int | None) -> list[tuple[JSON | None, JSON | None]]:
        taken = self.backlog[:count]
        del self.backlog[: len(taken)]
        return taken

    def _wanted(self, found: JSON) -> bool:
        return not self._labelled or JOB_NAME in labels_of(found)

    def _show(self, found: JSON) -> None:
        shown = decoded(bare_if_foreign(self._owners, found) if self._owners else found, self._model)
        before = self.cache.put(shown)
        if before != shown:
            self._tell(Delta(before, shown))

    def _drop(self, found: JSON) -> None:
        before = self.cache.drop(key_of(found))
        if before is not None:
            self._tell(Delta(before, None))

    def _tell(self, delta: Delta[Any]) -> None:
        for tell in tuple(self._subscribers):
            tell(delta)
