"""The watches of one viewer: one per resource and selector, shared by all views of that viewer."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, NamedTuple

from gangline.api.meta import EVERYTHING, Selector
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.base.tasks import supervise
from gangline.kube.client import Client
from gangline.runtime.cache import IndexFunc
from gangline.runtime.informer import Informer

LINGER = timedelta(seconds=5)
"""How long a watch goes on after its last use: a page that is loaded again continues with it."""


class WatchSpec(NamedTuple):
    """What is watched, and what stays of it in memory. Equal specs share a watch."""

    resource: Resource[Any]
    selector: Selector = EVERYTHING
    # Each of them is watched by a request of its own; empty: as the selector says.
    namespaces: tuple[str, ...] = ()
    trim: Callable[[Any], Any] | None = None


def first_problem(informers: Iterable[Informer[Any] | None]) -> str:
    """Why one of the watches does not follow the server; empty if all do. A kind that the server lacks is no problem."""
    problems = (informer.problem for informer in informers if informer is not None and informer.is_synced)
    return next((problem for problem in problems if problem is not None), "")


class _SharedWatch:
    def __init__(self, informer: Informer[Any], task: asyncio.Task[None]) -> None:
        self.informer, self.task = informer, task
        self.users = 0


class WatchPool:
    """Starts a watch with its first user and ends it some seconds after the last."""

    def __init__(self, client: Client, clock: Clock, group: asyncio.TaskGroup) -> None:
        self._client, self._clock, self._group = client, clock, group
        self._watches: dict[WatchSpec, _SharedWatch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    @asynccontextmanager
    async def informer(
        self, spec: WatchSpec, indexes: Mapping[str, IndexFunc[Any]] | None = None
    ) -> AsyncIterator[Informer[Any]]:
        """A running informer, which may already have its objects. Equal specs must have equal indexes."""
        watch = self._watches.get(spec)
        if watch is None:
            watch = self._watches[spec] = self._begin(spec, indexes)
        watch.users += 1
        try:
            yield watch.informer
        finally:
            watch.users -= 1
            if not watch.users:
                self._clock.call_later(LINGER, lambda: self._end_unused(spec))

    def _begin(self, spec: WatchSpec, indexes: Mapping[str, IndexFunc[Any]] | None) -> _SharedWatch:
        informer: Informer[Any] = Informer(
            self._client,
            spec.resource,
            spec.selector,
            clock=self._clock,
            namespaces=spec.namespaces,
            indexes=indexes,
            trim=spec.trim,
        )
        return _SharedWatch(informer, self._group.create_task(supervise(informer.run(), "dashboard watch")))

    def _end_unused(self, spec: WatchSpec) -> None:
        watch = self._watches.get(spec)
        if watch is not None and not watch.users:
            del self._watches[spec]
            watch.task.cancel()

    async def close(self) -> None:
        """End all watches."""
        watches, self._watches = list(self._watches.values()), {}
        for watch in watches:
            watch.task.cancel()
        if watches:
            await asyncio.wait([watch.task for watch in watches])
