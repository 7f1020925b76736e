"""The creations under way. The deletion of a namespace or of a CRD waits for those that were admitted before it began."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from gangline.apiserver.registry.catalog import ServedKind


class CreationTracker:
    """Counts the creations under way by scope: a namespace, or a resource."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], int] = {}
        self._change = asyncio.Event()

    @contextmanager
    def under_way(self, served_kind: ServedKind, namespace: str) -> Iterator[None]:
        """A creation from its admission to its commit."""
        scopes = (("namespace", namespace), ("resource", *served_kind.resource.group_resource))
        for scope in scopes:
            self._counts[scope] = self._counts.get(scope, 0) + 1
        try:
            yield
        finally:
            for scope in scopes:
                self._counts[scope] -= 1
                if not self._counts[scope]:
                    del self._counts[scope]
            self._change.set()

    async def wait_for_namespace(self, namespace: str) -> None:
        """Wait until no creation in this namespace is under way. One that is refused at once is never seen."""
        await self._wait(("namespace", namespace))

    async def wait_for_resource(self, group: str, plural: str) -> None:
        """Wait until no creation of this resource is under way."""
        await self._wait(("resource", group, plural))

    async def _wait(self, scope: tuple[str, ...]) -> None:
        while scope in self._counts:
            self._change.clear()
            await self._change.wait()
