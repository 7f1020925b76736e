"""Garbage collection by owner references, as in a cluster.

- Background: an object whose owners are all deleted is deleted.
- Foreground: an owner that is being deleted (finalizer `foregroundDeletion`) stays until the dependents that block it
  are deleted; they are deleted first.
- Orphan: an owner that is being deleted (finalizer `orphan`) is first removed from the references of its dependents.

An owner exists if an object with its uid exists, in the dependent's namespace or cluster-scoped. References to kinds
that are not served are kept: whether such an owner exists is unknown.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from gangline.api.meta import JSON, Key
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.registry.deletion import FOREGROUND_FINALIZER, ORPHAN_FINALIZER, DeletionOptions
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.writes import WriteContext
from gangline.apiserver.store.paths import split_path
from gangline.apiserver.store.records import StoreEvent, StoreRecord
from gangline.base.tasks import supervise
from gangline.local.registry_writes import edit_object, ignore_status, remove_finalizer

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
    """One object of the ownership graph."""

    path: str
    meta: _GraphMeta

    @property
    def is_deleting(self) -> bool:
        return bool(self.meta.deletion_timestamp)


class GarbageCollector:
    """Watches the store and deletes objects whose owners are deleted. Inert until `run`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        # By uid: a name may be reused, a uid never.
        self._nodes: dict[str, _GraphNode] = {}
        self._dependents: dict[str, set[str]] = {}
        self._queue: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()

    async def run(self) -> None:
        """Collect until cancelled. Begins with all objects of the store."""
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
        before = self._nodes.get(meta.uid)
        self._nodes[meta.uid] = _GraphNode(record.path, meta)
        if before is None or before.meta.owner_references != meta.owner_references:
            for owner in before.meta.owner_references if before else ():
                self._dependents.get(owner.uid, set()).discard(meta.uid)
            for owner in meta.owner_references:
                self._dependents.setdefault(owner.uid, set()).add(meta.uid)
        if meta.owner_references or meta.deletion_timestamp:
            self._enqueue(meta.uid)
        if meta.deletion_timestamp:
            # An owner may wait for a dependent that is being deleted, and a dependent for its owner.
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
        # Deleted or changed meanwhile: that change enqueues the object again.
        with ignore_status(404, 409):
            if node.is_deleting and ORPHAN_FINALIZER in node.meta.finalizers:
                await self._orphan_dependents(uid, node)
            elif node.is_deleting and FOREGROUND_FINALIZER in node.meta.finalizers:
                await self._delete_foreground(uid, node)
            elif node.meta.owner_references and not node.is_deleting:
                await self._process_dependent(uid, node)

    async def _process_dependent(self, uid: str, node: _GraphNode) -> None:
        # As in Kubernetes' collector: `solid` owners keep the object, `dangling` are deleted, `waiting` wait for it.
        dangling: list[_OwnerRef] = []
        solid: list[_OwnerRef] = []
        waiting: list[_OwnerRef] = []
        for reference in node.meta.owner_references:
            owner = self._find_owner(node, reference)
            if owner is None:
                (dangling if self._is_served(reference) else solid).append(reference)
            elif owner.is_deleting and FOREGROUND_FINALIZER in owner.meta.finalizers:
                waiting.append(reference)
            else:
                solid.append(reference)
        if solid:
            if dangling or waiting:
                await self._drop_owners(node, {reference.uid for reference in (*dangling, *waiting)})
        elif waiting:
            # The object's own dependents that block it must be deleted before it too.
            blocked = any(self._blocks(uid, other) for other in self._dependents.get(uid, ()))
            await self._delete(node, "Foreground" if blocked else "")
        elif dangling:
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
            reference.uid == owner and reference.block_owner_deletion for reference in node.meta.owner_references
        )

    def _find_owner(self, node: _GraphNode, reference: _OwnerRef) -> _GraphNode | None:
        owner = self._nodes.get(reference.uid)
        if owner is None:
            return None
        return owner if split_path(owner.path).namespace in ("", split_path(node.path).namespace) else None

    def _is_served(self, reference: _OwnerRef) -> bool:
        return any(
            served.resource.kind == reference.kind and served.resource.api_version == reference.api_version
            for served in self._registry.catalog
        )

    # Writes

    def _kind_and_key(self, node: _GraphNode) -> tuple[ServedKind, Key] | None:
        group, plural, namespace, name = split_path(node.path)
        kind = self._registry.catalog.storage_kind(group, plural)
        return None if kind is None else (kind, Key(namespace, name))

    async def _delete(self, node: _GraphNode, propagation: str) -> None:
        location = self._kind_and_key(node)
        if location is not None:
            options = DeletionOptions(uid=node.meta.uid, propagation_policy=propagation or "Background")
            await self._registry.delete(COLLECTOR_CALL, *location, options)

    async def _drop_owners(self, node: _GraphNode, owners: set[str]) -> None:
        def edit(metadata: JSON) -> None:
            references = metadata.pop("ownerReferences", ())
            remaining = [reference for reference in references if reference["uid"] not in owners]
            if remaining:
                metadata["ownerReferences"] = remaining

        await self._edit_metadata(node, edit)

    async def _drop_finalizer(self, node: _GraphNode, name: str) -> None:
        await self._edit_metadata(node, lambda metadata: remove_finalizer(metadata, name))

    async def _edit_metadata(self, node: _GraphNode, edit: Callable[[JSON], None]) -> None:
        location = self._kind_and_key(node)
        if location is not None:
            await edit_object(
                self._registry, COLLECTOR_CALL, *location, node.meta.uid, lambda body: edit(body["metadata"])
            )
