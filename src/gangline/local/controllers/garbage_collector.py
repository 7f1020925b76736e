"""Garbage collection by owner references, as in a cluster.

- Background: an object whose owners are all deleted is deleted.
- Foreground: an owner that is being deleted (finalizer `foregroundDeletion`) stays until the dependents that block it
  are deleted; they are deleted first.
- Orphan: an owner that is being deleted (finalizer `orphan`) is first removed from the references of its dependents.

An owner exists if the object that the reference names exists and has its uid. A namespaced owner is in the namespace of
its dependent. Whether the owner exists is unknown if its kind is not served, unless it was seen before, and if a
cluster-scoped object names a namespaced owner: such objects are left alone.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence

import msgspec

from gangline.api.meta import JSON, Key
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.registry.deletion import (
    FOREGROUND_FINALIZER,
    ORPHAN_FINALIZER,
    DeletionOptions,
    is_deletion_complete,
)
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.storage import decode_record, storage_path
from gangline.apiserver.registry.writes import WriteContext
from gangline.apiserver.store.paths import split_path
from gangline.apiserver.store.records import StoreEvent, StoreRecord
from gangline.base.clock import Clock
from gangline.base.errors import GanglineError
from gangline.local.controllers.key_worker import KeyWorker
from gangline.local.registry_writes import edit_object, ignore_status, remove_finalizer

RECORDS_PER_TURN = 500
"""How many objects are read at the start before requests have their turn."""

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
    revision: int

    @property
    def is_deleting(self) -> bool:
        return bool(self.meta.deletion_timestamp)

    @property
    def is_deleting_dependents(self) -> bool:
        return self.is_deleting and FOREGROUND_FINALIZER in self.meta.finalizers


class _OwnerUnknown(GanglineError):
    """Whether an owner exists cannot be known now."""


class GarbageCollector:
    """Watches the store and deletes objects whose owners are deleted. Inert until `run`."""

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        # By uid: a name may be reused, a uid never.
        self._nodes: dict[str, _GraphNode] = {}
        self._dependents: dict[str, set[str]] = {}
        # Owners that were deleted while they had dependents. Their kind may be deleted by now.
        self._absent: set[str] = set()
        # Objects with an owner of which nothing is known. They are looked at again when kinds change.
        self._undecided: set[str] = set()
        self._worker = KeyWorker("garbage collection", self._process, clock)
        self._revision = 0
        self._progress = asyncio.Event()
        registry.catalog.subscribe(self._process_undecided)

    async def run(self) -> None:
        """Collect until cancelled. Begins with all objects of the store."""
        store = self._registry.store
        snapshot = store.range("")
        with store.watch("", after=snapshot.revision) as changes:
            deleting = await self._add_all(snapshot.records)
            self._set_revision(snapshot.revision)
            for record in deleting:
                if is_deletion_complete(decode_record(record)):
                    # The server ended between the mark and the removal.
                    await self._finish_deletion(record)
            await self._worker.follow(changes, self._handle_event)

    async def _add_all(self, records: Sequence[StoreRecord]) -> list[StoreRecord]:
        """Begin the graph with the objects of a store. Returns those that are being deleted.

        There may be 100,000 of them, nearly all with owners that exist: those need no turn of the worker, and the server
        answers requests meanwhile.
        """
        deleting = []
        for turn in range(0, len(records), RECORDS_PER_TURN):
            for record in records[turn : turn + RECORDS_PER_TURN]:
                node = self._link(record)
                if node.is_deleting:
                    deleting.append(record)
            await asyncio.sleep(0)  # noqa: TID251 - no time passes, others have their turn
        for turn, (uid, node) in enumerate(tuple(self._nodes.items())):
            if turn % RECORDS_PER_TURN == 0:
                await asyncio.sleep(0)  # noqa: TID251 - no time passes, others have their turn
            if node.is_deleting or not all(self._keeps(node, owner) for owner in node.meta.owner_references):
                self._worker.add(uid)
        return deleting

    async def wait_until_settled(self) -> None:
        """Wait until all changes so far have had their effect on owners and dependents, except for errors."""
        revision = self._registry.store.revision
        while self._revision < revision:
            self._progress.clear()
            await self._progress.wait()
        await self._worker.wait_until_idle()

    def _set_revision(self, revision: int) -> None:
        self._revision = revision
        self._progress.set()

    # The graph

    def _handle_event(self, event: StoreEvent) -> None:
        if event.deleted:
            self._remove_node(event.record)
        else:
            self._add_node(event.record)
        self._set_revision(event.record.revision)

    def _add_node(self, record: StoreRecord) -> None:
        meta = self._link(record).meta
        if meta.owner_references or meta.deletion_timestamp:
            self._worker.add(meta.uid)
        if meta.deletion_timestamp:
            # Dependents of an object that is deleted in the foreground are deleted first.
            for dependent in self._dependents.get(meta.uid, ()):
                self._worker.add(dependent)

    def _link(self, record: StoreRecord) -> _GraphNode:
        """Put an object into the graph, with its present owners."""
        meta = _decode_metadata(record.data).metadata
        before = self._nodes.get(meta.uid)
        node = self._nodes[meta.uid] = _GraphNode(record.path, meta, record.revision)
        if before is None or before.meta.owner_references != meta.owner_references:
            owners = {owner.uid for owner in meta.owner_references}
            for uid in owners:
                self._dependents.setdefault(uid, set()).add(meta.uid)
            if before is not None:
                self._remove_references(meta.uid, before.meta, except_for=owners)
        return node

    def _remove_node(self, record: StoreRecord) -> None:
        meta = _decode_metadata(record.data).metadata
        node = self._nodes.pop(meta.uid, None)
        self._undecided.discard(meta.uid)
        self._remove_references(meta.uid, node.meta if node else meta)
        if meta.uid in self._dependents:
            self._absent.add(meta.uid)
        for uid in self._dependents.get(meta.uid, ()):
            self._worker.add(uid)

    def _remove_references(self, uid: str, meta: _GraphMeta, except_for: Collection[str] = ()) -> None:
        """Forget an object as a dependent of its owners, with exceptions. Any of them may wait for this change."""
        for owner in meta.owner_references:
            dependents = self._dependents.get(owner.uid, set())
            if owner.uid not in except_for and uid in dependents:
                dependents.remove(uid)
                if not dependents:
                    del self._dependents[owner.uid]
                    self._absent.discard(owner.uid)
            self._worker.add(owner.uid)

    def _process_undecided(self) -> None:
        for uid in self._undecided:
            self._worker.add(uid)

    # The work

    async def _process(self, uid: str) -> None:
        node = self._nodes.get(uid)
        if node is None:
            return
        # Deleted or changed meanwhile: that change adds the object again.
        with ignore_status(404, 409):
            if node.is_deleting and ORPHAN_FINALIZER in node.meta.finalizers:
                await self._orphan_dependents(uid, node)
            elif node.is_deleting_dependents:
                if not any(self._blocks(uid, other) for other in self._dependents.get(uid, ())):
                    await self._drop_finalizer(node, FOREGROUND_FINALIZER)
            elif node.meta.owner_references and not node.is_deleting:
                await self._process_dependent(uid, node)

    async def _process_dependent(self, uid: str, node: _GraphNode) -> None:
        # As in Kubernetes' collector: `solid` owners keep the object, `dangling` are deleted, `waiting` wait for it.
        dangling: list[_OwnerRef] = []
        solid: list[_OwnerRef] = []
        waiting: list[_OwnerRef] = []
        self._undecided.discard(uid)
        try:
            for reference in node.meta.owner_references:
                owner = self._find_owner(node, reference)
                if owner is None:
                    dangling.append(reference)
                elif owner.is_deleting_dependents:
                    waiting.append(reference)
                else:
                    solid.append(reference)
        except _OwnerUnknown:
            self._undecided.add(uid)
            return
        if solid:
            if dangling or waiting:
                await self._drop_owners(node, {reference.uid for reference in (*dangling, *waiting)})
        elif waiting and uid in self._dependents:
            if self._may_be_in_cycle(uid) and any(owner.block_owner_deletion for owner in node.meta.owner_references):
                # All would wait for each other. This change brings the object here again.
                await self._edit_metadata(node, _unblock_owners)
            else:
                await self._delete(node, "Foreground")
        else:
            await self._delete(node, _propagation(node.meta.finalizers))

    async def _orphan_dependents(self, uid: str, node: _GraphNode) -> None:
        for other in list(self._dependents.get(uid, ())):
            dependent = self._nodes.get(other)
            if dependent is not None:
                with ignore_status(404):
                    await self._drop_owners(dependent, {uid})
        await self._drop_finalizer(node, ORPHAN_FINALIZER)

    def _blocks(self, owner: str, dependent: str) -> bool:
        """Whether the owner waits for the dependent. It does not for one that names it in vain, or is the owner itself."""
        node = self._nodes.get(dependent)
        if node is None or owner == dependent:
            return False
        return any(
            reference.uid == owner and reference.block_owner_deletion and self._owner_exists(node, reference)
            for reference in node.meta.owner_references
        )

    def _keeps(self, node: _GraphNode, reference: _OwnerRef) -> bool:
        """Whether an owner exists and does not wait for the object to be deleted."""
        try:
            owner = self._find_owner(node, reference)
        except _OwnerUnknown:
            return False
        return owner is not None and not owner.is_deleting_dependents

    def _owner_exists(self, node: _GraphNode, reference: _OwnerRef) -> bool:
        try:
            return self._find_owner(node, reference) is not None
        except _OwnerUnknown:
            return False

    def _may_be_in_cycle(self, uid: str) -> bool:
        """Whether a dependent of the object waits for its own dependents to be deleted."""
        dependents = (self._nodes.get(other) for other in self._dependents.get(uid, ()))
        return any(node is not None and node.is_deleting_dependents for node in dependents)

    def _find_owner(self, node: _GraphNode, reference: _OwnerRef) -> _GraphNode | None:
        """The owner, if it exists. Raises `_OwnerUnknown`."""
        kind = self._registry.catalog.find_kind(reference.api_version, reference.kind)
        if kind is None:
            if reference.uid in self._absent:
                return None
            raise _OwnerUnknown(f"{reference.api_version} {reference.kind} is not served")
        namespace = split_path(node.path).namespace
        if kind.resource.namespaced and not namespace:
            raise _OwnerUnknown("a cluster-scoped object cannot have a namespaced owner")
        owner = self._nodes.get(reference.uid)
        is_named = owner is not None and owner.path == storage_path(kind, Key(namespace, reference.name))
        return owner if is_named else None

    # Writes

    async def _finish_deletion(self, record: StoreRecord) -> None:
        meta = _decode_metadata(record.data).metadata
        with ignore_status(404, 409):
            await self._delete(_GraphNode(record.path, meta, record.revision), "Background")

    def _kind_and_key(self, node: _GraphNode) -> tuple[ServedKind, Key] | None:
        group, plural, namespace, name = split_path(node.path)
        kind = self._registry.catalog.storage_kind(group, plural)
        return None if kind is None else (kind, Key(namespace, name))

    async def _delete(self, node: _GraphNode, propagation: str) -> None:
        location = self._kind_and_key(node)
        if location is not None:
            options = DeletionOptions(
                uid=node.meta.uid, resource_version=str(node.revision), propagation_policy=propagation
            )
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


def _propagation(finalizers: Collection[str]) -> str:
    """How an object is deleted: as its finalizers ask, else in the background."""
    if ORPHAN_FINALIZER in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND_FINALIZER in finalizers else "Background"


def _unblock_owners(metadata: JSON) -> None:
    for reference in metadata.get("ownerReferences", ()):
        if reference.get("blockOwnerDeletion"):
            reference["blockOwnerDeletion"] = False
