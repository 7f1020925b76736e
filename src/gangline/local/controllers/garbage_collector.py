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
from gangline.apiserver.refusals import Refused
from gangline.apiserver.registry.catalog import Entry
from gangline.apiserver.registry.deletion import FOREGROUND, ORPHAN, DeleteOptions
from gangline.apiserver.registry.registry import Call, Registry
from gangline.apiserver.store.paths import split_path
from gangline.apiserver.store.records import Event, Record
from gangline.base.tasks import supervise

log = logging.getLogger(__name__)

CALL = Call(manager="garbage-collector")


class _Owner(msgspec.Struct, frozen=True, rename="camel", gc=False):
    uid: str
    api_version: str = ""
    kind: str = ""
    name: str = ""
    block_owner_deletion: bool | None = None


class _Meta(msgspec.Struct, frozen=True, rename="camel", gc=False):
    uid: str = ""
    owner_references: tuple[_Owner, ...] = ()
    finalizers: tuple[str, ...] = ()
    deletion_timestamp: str = ""


class _Seen(msgspec.Struct, frozen=True, gc=False):
    metadata: _Meta


_seen = msgspec.json.Decoder(_Seen).decode


class _Node(msgspec.Struct, frozen=True, gc=False):
    """One object in the graph."""

    path: str
    meta: _Meta

    @property
    def deleting(self) -> bool:
        return bool(self.meta.deletion_timestamp)


class GarbageCollector:
    """Follows the store and deletes what nobody owns any more. Inert until `run`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        # By uid: a name may be used again, a uid never.
        self._nodes: dict[str, _Node] = {}
        self._dependents: dict[str, set[str]] = {}
        self._work: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()

    async def run(self) -> None:
        """Collect until cancelled. Begins with everything that is there."""
        store = self._registry.store
        snapshot = store.range("")
        with store.watch("", after=snapshot.revision) as changes:
            for record in snapshot.records:
                self._note(record)
            for uid in list(self._nodes):
                self._look(uid)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._collect())
                async for events in changes:
                    for event in events:
                        self._take(event)

    # The graph

    def _take(self, event: Event) -> None:
        if event.deleted:
            self._forget(event.record)
        else:
            self._note(event.record)

    def _note(self, record: Record) -> None:
        meta = _seen(record.data).metadata
        known = self._nodes.get(meta.uid)
        self._nodes[meta.uid] = _Node(record.path, meta)
        if known is None or known.meta.owner_references != meta.owner_references:
            for owner in known.meta.owner_references if known else ():
                self._dependents.get(owner.uid, set()).discard(meta.uid)
            for owner in meta.owner_references:
                self._dependents.setdefault(owner.uid, set()).add(meta.uid)
        if meta.owner_references or meta.deletion_timestamp:
            self._look(meta.uid)
        if meta.deletion_timestamp:
            # A dependent on its way out may be what its owner waits for, and the other way round.
            for owner in meta.owner_references:
                self._look(owner.uid)

    def _forget(self, record: Record) -> None:
        meta = _seen(record.data).metadata
        self._nodes.pop(meta.uid, None)
        for owner in meta.owner_references:
            dependents = self._dependents.get(owner.uid)
            if dependents is not None:
                dependents.discard(meta.uid)
                if not dependents:
                    del self._dependents[owner.uid]
            self._look(owner.uid)
        for uid in self._dependents.get(meta.uid, ()):
            self._look(uid)

    def _look(self, uid: str) -> None:
        if uid not in self._queued:
            self._queued.add(uid)
            self._work.put_nowait(uid)

    # The work

    async def _collect(self) -> None:
        while True:
            uid = await self._work.get()
            self._queued.discard(uid)
            node = self._nodes.get(uid)
            if node is not None:
                await supervise(self._process(uid, node), f"garbage collection of {node.path}")

    async def _process(self, uid: str, node: _Node) -> None:
        try:
            if node.deleting and ORPHAN in node.meta.finalizers:
                await self._orphan(uid, node)
            elif node.deleting and FOREGROUND in node.meta.finalizers:
                await self._foreground(uid, node)
            elif node.meta.owner_references and not node.deleting:
                await self._owned(uid, node)
        except Refused as refusal:
            if refusal.code not in (404, 409):
                raise
            # Gone, or changed meanwhile: the change brings us back.

    async def _owned(self, uid: str, node: _Node) -> None:
        gone, solid, waiting = [], [], []
        for owner in node.meta.owner_references:
            there = self._owner_of(node, owner)
            if there is None:
                if self._served(owner):
                    gone.append(owner)
                else:
                    solid.append(owner)
            elif there.deleting and FOREGROUND in there.meta.finalizers:
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

    async def _foreground(self, uid: str, node: _Node) -> None:
        dependents = [other for other in self._dependents.get(uid, set()) if other in self._nodes]
        for other in dependents:
            self._look(other)
        if not any(self._blocks(uid, other) for other in dependents):
            await self._drop_finalizer(node, FOREGROUND)

    async def _orphan(self, uid: str, node: _Node) -> None:
        for other in list(self._dependents.get(uid, ())):
            dependent = self._nodes.get(other)
            if dependent is not None:
                await self._drop_owners(dependent, {uid})
        await self._drop_finalizer(node, ORPHAN)

    def _blocks(self, owner: str, dependent: str) -> bool:
        node = self._nodes.get(dependent)
        return node is not None and any(
            found.uid == owner and found.block_owner_deletion for found in node.meta.owner_references
        )

    def _owner_of(self, node: _Node, owner: _Owner) -> _Node | None:
        there = self._nodes.get(owner.uid)
        if there is None:
            return None
        home, where = split_path(there.path).namespace, split_path(node.path).namespace
        return there if home in ("", where) else None

    def _served(self, owner: _Owner) -> bool:
        return any(
            e.kind == owner.kind and e.api_version == owner.api_version for e in self._registry.catalog
        )

    # Writes

    def _entry(self, node: _Node) -> tuple[Entry, Key] | None:
        group, plural, namespace, name = split_path(node.path)
        entry = self._registry.catalog.stored(group, plural)
        return None if entry is None else (entry, Key(namespace, name))

    async def _delete(self, node: _Node, propagation: str) -> None:
        found = self._entry(node)
        if found is not None:
            options = DeleteOptions(uid=node.meta.uid, propagation=propagation or "Background")
            await self._registry.delete(CALL, *found, options)

    async def _drop_owners(self, node: _Node, unwanted: set[str]) -> None:
        def without(metadata: JSON) -> None:
            kept = [ref for ref in metadata.get("ownerReferences", ()) if ref["uid"] not in unwanted]
            metadata["ownerReferences"] = kept
            if not kept:
                del metadata["ownerReferences"]

        await self._edit(node, without)

    async def _drop_finalizer(self, node: _Node, name: str) -> None:
        def without(metadata: JSON) -> None:
            kept = [found for found in metadata.get("finalizers", ()) if found != name]
            metadata["finalizers"] = kept
            if not kept:
                del metadata["finalizers"]

        await self._edit(node, without)

    async def _edit(self, node: _Node, change: Callable[[JSON], None]) -> None:
        found = self._entry(node)
        if found is None:
            return

        def transform(old: JSON | None) -> JSON:
            assert old is not None
            if old["metadata"]["uid"] == node.meta.uid:
                change(old["metadata"])
            return old

        await self._registry.change(CALL, *found, transform)
