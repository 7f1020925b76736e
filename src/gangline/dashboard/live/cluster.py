"""The cluster, live: its nodes and what is on them."""

import asyncio
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import Any

from gangline.api.meta import Selector
from gangline.api.scheduler_views import PLACEMENT_SCHEME
from gangline.base.clock import Clock
from gangline.base.tasks import run_all, time_limit
from gangline.dashboard.live.feed import Feed
from gangline.dashboard.live.rights import ReadScopes, Refusal, ViewerRights
from gangline.dashboard.live.watches import WatchPool, WatchSpec, first_problem
from gangline.dashboard.rows.cluster import ClusterView, Hole, NodeRow, PlacedPod, free_holes, node_row, placed_pod
from gangline.dashboard.rows.job_row import ViewStruct
from gangline.runtime.informer import Delta, Informer

NODES, PODS = PLACEMENT_SCHEME.find("nodes"), PLACEMENT_SCHEME.find("pods")
FIRST_LIST_PATIENCE = timedelta(seconds=10)


class ClusterPatch(ViewStruct, frozen=True):
    """Nodes that have changed, and those that are gone."""

    upsert: list[NodeRow]
    remove: list[str]
    holes: list[Hole]


def _by_node(pod: PlacedPod) -> tuple[str, ...]:
    return (pod.node,) if pod.node else ()


class ClusterFeed(Feed):
    """The nodes of one viewer. A row is computed again only if its node or a pod on it has changed."""

    def __init__(self, rights: ViewerRights, watches: WatchPool, clock: Clock) -> None:
        super().__init__(clock)
        self._scopes, self._watches = ReadScopes(rights), watches
        self._nodes: Informer[Any] | None = None
        self._pods: Informer[Any] | None = None
        self._rows: dict[str, NodeRow] = {}
        self._dirty: set[str] = set()
        self._refused: list[Refusal] = []

    def watch_problem(self) -> str:
        return first_problem((self._nodes, self._pods))

    async def _rights_have_changed(self) -> bool:
        return await self._scopes.have_changed()

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            nodes = await self._scopes.read(NODES)
            pods = await self._scopes.read(PODS)
            self._refused = [*nodes.refusals, *pods.refusals]
            informers: list[Informer[Any]] = []
            if not nodes.is_empty:
                self._nodes = await stack.enter_async_context(self._watches.informer(WatchSpec(NODES)))
                informers.append(self._nodes)
            if not nodes.is_empty and not pods.is_empty:
                spec = WatchSpec(PODS, Selector(), pods.namespaces, placed_pod)
                self._pods = await stack.enter_async_context(self._watches.informer(spec, {"node": _by_node}))
                informers.append(self._pods)
            with suppress(TimeoutError):
                async with time_limit(FIRST_LIST_PATIENCE, self.clock):
                    await run_all(informer.wait_for_answer() for informer in informers)
            if self._nodes is not None:
                stack.enter_context(self._nodes.subscribe(self.guarded(self._on_node)))
            if self._pods is not None:
                stack.enter_context(self._pods.subscribe(self.guarded(self._on_pod)))
            self._ready.set()
            self.mark_changed()
            await asyncio.Event().wait()

    def _on_node(self, delta: Delta[Any]) -> None:
        self._dirty.add(delta.newest.metadata.name)
        self.mark_changed()

    def _on_pod(self, delta: Delta[Any]) -> None:
        for pod in (delta.before, delta.after):
            if pod is not None and pod.node:
                self._dirty.add(pod.node)
                self.mark_changed()

    def content(self) -> ClusterView:
        rows = [self._rows[name] for name in sorted(self._rows)]
        return ClusterView(nodes=rows, holes=free_holes(rows), refused=self._refused)

    def take_patch(self) -> ClusterPatch | None:
        if not self._ready.is_set() or self._nodes is None:
            return None
        dirty, self._dirty = self._dirty, set()
        nodes = {node.metadata.name: node for node in self._nodes.cache} if dirty else {}
        upsert: list[NodeRow] = []
        remove: list[str] = []
        for name in sorted(dirty):
            if name not in nodes:
                if self._rows.pop(name, None) is not None:
                    remove.append(name)
                continue
            pods = self._pods.cache.by_index("node", name) if self._pods is not None else ()
            row = node_row(nodes[name], pods)
            if self._rows.get(name) != row:
                self._rows[name] = row
                upsert.append(row)
        if not upsert and not remove:
            return None
        return ClusterPatch(upsert=upsert, remove=remove, holes=free_holes(self._rows.values()))
