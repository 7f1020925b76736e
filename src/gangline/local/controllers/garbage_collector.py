"""Garbage collection by owner references, as the garbage collector of a cluster does it.

- Background: an object whose owners are all gone is deleted.
- Foreground: an owner that is being deleted waits (finalizer `foregroundDeletion`) until the dependents that block it
  are gone; they are deleted first.
- Orphan: an owner that is being deleted (finalizer `orphan`) first takes its name off its dependents.

An owner counts as there when an object with its uid exists, in the dependent's namespace or without one. References to
kinds that nobody serves are left alone: what cannot be looked up is not known to be gone.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from gangline.api.meta import JSON, Key
from gangline.apiserver.errors import StatusError
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.registry.deletion import FOREGROUND_FINALIZER, ORPHAN_FINALIZER, DeletionOptions
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.writes import WriteContext
from gangline.apiserver.store.paths import split_path
from gangline.apiserver.store.records import StoreEvent, StoreRecord
from gangline.base.tasks import supervise

log = logging.getLogger(__name__)

COLLECTOR_CALL = WriteContext(field_manager="garbage-collector")


class _OwnerRef(msgspec.Struct, frozen=True, rename="camel", gc=False):
    uid: str
    api_version: str = ""
    kind: str = ""
    name: str = ""
    block_owner_deletion: bool | None = None


class _GraphMeta(msgspec.Struct, frozen=True, rename="camel", gc=False):
    uid: str = ""
    owner_references: tuple[_OwnerRef, ...] = ()
    finalizers: tuple[str, ...] = ()
    deletion_timestamp: str = ""


class _MetadataOnly(msgspec.Struct, frozen=True, gc=False):
    metadata: _GraphMeta


_decode_metadata = msgspec.json.Decoder(_MetadataOnly).decode


class _GraphNode(msgspec.Struct, frozen=True, gc=False):
    """One object in the graph."""

    path: str
    meta: _GraphMeta

    @property
    def is_deleting(self) -> bool:
        return bool(self.meta.deletion_timestamp)


class GarbageCollector:
    """Follows the store and deletes what nobody owns any more. Inert until `run`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        # By uid: a name may be used again, a uid never.
        self._nodes: dict[str, _GraphNode] = {}
        self._dependents: dict[str, set[str]] = {}
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()

    async def run(self) -> None:
        """Collect until cancelled. Begins with everything that is there."""
        store = self._registry.store
        snapshot = store.range("")
        with store.watch("", after=snapshot.revision) as changes:
            for record in snapshot.records:
                self._add_node(record)
            for uid in list(self._nodes):
                self._enqueue(uid)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._process_queue())
                async for events in changes:
                    for event in events:
                        self._handle_event(event)

    # The graph

    def _handle_event(self, event: StoreEvent) -> None:
        if event.deleted:
            self._remove_node(event.record)
        else:
            self._add_node(event.record)

    def _add_node(self, record: StoreRecord) -> None:
        meta = _decode_metadata(record.data).metadata
        known = self._nodes.get(meta.uid)
        self._nodes[meta.uid] = _GraphNode(record.path, meta)
        if known is None or known.meta.owner_references != meta.owner_references:
            for owner in known.meta.owner_references if known else ():
                self._dependents.get(owner.uid, set()).discard(meta.uid)
            for owner in meta.owner_references:
                self._dependents.setdefault(owner.uid, set()).add(meta.uid)
        if meta.owner_references or meta.deletion_timestamp:
            self._enqueue(meta.uid)
        if meta.deletion_timestamp:
            # A dependent on its way out may be what its owner waits for, and the other way round.
            for owner in meta.owner_references:
                self._enqueue(owner.uid)

    def _remove_node(self, record: StoreRecord) -> None:
        meta = _decode_metadata(record.data).metadata
        self._nodes.pop(meta.uid, None)
        for owner in meta.owner_references:
            dependents = self._dependents.get(owner.uid)
            if dependents is not None:
                dependents.discard(meta.uid)
                if not dependents:
                    del self._dependents[owner.uid]
            self._enqueue(owner.uid)
        for uid in self._dependents.get(meta.uid, ()):
            self._enqueue(uid)

    def _enqueue(self, uid: str) -> None:
        if uid not in self._queued:
            self._queued.add(uid)
            self._queue.put_nowait(uid)

    # The work

    async def _process_queue(self) -> None:
        while True:
            uid = await self._queue.get()
            self._queued.discard(uid)
            node = self._nodes.get(uid)
            if node is not None:
                await supervise(self._process(uid, node), f"garbage collection of {node.path}")

    async def _process(self, uid: str, node: _GraphNode) -> None:
        try:
            if node.is_deleting and ORPHAN_FINALIZER in node.meta.finalizers:
                await self._orphan_dependents(uid, node)
            elif node.is_deleting and FOREGROUND_FINALIZER in node.meta.finalizers:
                await self._delete_foreground(uid, node)
            elif node.meta.owner_references and not node.is_deleting:
                await self._process_dependent(uid, node)
        except StatusError as refusal:
            if refusal.code not in (404, 409):
                raise
            # Gone, or changed meanwhile: the change brings us back.

    async def _process_dependent(self, uid: str, node: _GraphNode) -> None:
        gone, solid, waiting = [], [], []
        for owner in node.meta.owner_references:
            there = self._find_owner(node, owner)
            if there is None:
                if self._is_served(owner):
                    gone.append(owner)
                else:
                    solid.append(owner)
            elif there.is_deleting and FOREGROUND_FINALIZER in there.meta.finalizers:
                waiting.append(owner)
            else:
                solid.append(owner)
        if solid:
            if gone or waiting:
                unwanted = {owner.uid for owner in (*gone, *waiting)}
                await self._drop_owners(node, unwanted)
        elif waiting:
            # Its owner waits for it; its own dependents that block must go first too.
            blocked = any(self._blocks(uid, other) for other in self._dependents.get(uid, ()))
            await self._delete(node, "Foreground" if blocked else "")
        elif gone:
            await self._delete(node, "")

    async def _delete_foreground(self, uid: str, node: _GraphNode) -> None:
        dependents = [other for other in self._dependents.get(uid, set()) if other in self._nodes]
        for other in dependents:
            self._enqueue(other)
        if not any(self._blocks(uid, other) for other in dependents):
            await self._drop_finalizer(node, FOREGROUND_FINALIZER)

    async def _orphan_dependents(self, uid: str, node: _GraphNode) -> None:
        for other in list(self._dependents.get(uid, ())):
            dependent = self._nodes.get(other)
            if dependent is not None:
                await self._drop_owners(dependent, {uid})
        await self._drop_finalizer(node, ORPHAN_FINALIZER)

    def _blocks(self, owner: str, dependent: str) -> bool:
        node = self._nodes.get(dependent)
        return node is not None and any(
            found.uid == owner and found.block_owner_deletion for found in node.meta.owner_references
        )

    def _find_owner(self, node: _GraphNode, owner: _OwnerRef) -> _GraphNode | None:
        there = self._nodes.get(owner.uid)
        if there is None:
            return None
        home, where = split_path(there.path).namespace, split_path(node.path).namespace
        return there if home in ("", where) else None

    def _is_served(self, owner: _OwnerRef) -> bool:
        return any(e.kind == owner.kind and e.api_version == owner.api_version for e in self._registry.catalog)

    # Writes

    def _entry_and_key(self, node: _GraphNode) -> tuple[ServedKind, Key] | None:
        group, plural, namespace, name = split_path(node.path)
        entry = self._registry.catalog.storage_kind(group, plural)
        return None if entry is None else (entry, Key(namespace, name))

    async def _delete(self, node: _GraphNode, propagation: str) -> None:
        found = self._entry_and_key(node)
        if found is not None:
            options = DeletionOptions(uid=node.meta.uid, propagation_policy=propagation or "Background")
            await self._registry.delete(COLLECTOR_CALL, *found, options)

    async def _drop_owners(self, node: _GraphNode, unwanted: set[str]) -> None:
        def without(metadata: JSON) -> None:
            kept = [ref for ref in metadata.get("ownerReferences", ()) if ref["uid"] not in unwanted]
            metadata["ownerReferences"] = kept
            if not kept:
                del metadata["ownerReferences"]

        await self._edit_metadata(node, without)

    async def _drop_finalizer(self, node: _GraphNode, name: str) -> None:
        def without(metadata: JSON) -> None:
            kept = [found for found in metadata.get("finalizers", ()) if found != name]
            metadata["finalizers"] = kept
            if not kept:
                del metadata["finalizers"]

        await self._edit_metadata(node, without)

    async def _edit_metadata(self, node: _GraphNode, change: Callable[[JSON], None]) -> None:
        found = self._entry_and_key(node)
        if found is None:
            return

        def transform(old: JSON | None) -> JSON:
            assert old is not None
            if old["metadata"]["uid"] == node.meta.uid:
                change(old["metadata"])
            return old

        await self._registry.update(COLLECTOR_CALL, *found, transform)
