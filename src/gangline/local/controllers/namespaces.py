"""Namespaces: their default objects, and the deletion of their contents."""

import asyncio
import logging
from pathlib import Path

import msgspec

from gangline.api.meta import JSON, Key
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.registry.deletion import DeletionOptions
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.selection import SELECT_ALL
from gangline.apiserver.registry.storage import decode_record, storage_path
from gangline.apiserver.registry.writes import WriteContext
from gangline.apiserver.store.paths import collection_prefix, split_path
from gangline.apiserver.store.records import StoreEvent
from gangline.base.tasks import supervise
from gangline.local.registry_writes import ignore_status, remove_finalizer, storage_kind

log = logging.getLogger(__name__)

NAMESPACE_CONTROLLER_CALL = WriteContext(field_manager="namespace-controller")
INITIAL_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
FINALIZER = "kubernetes"
ROOT_CA = "kube-root-ca.crt"
ROOT_CA_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints "
    "such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across "
    "distributions of Kubernetes clusters."
)
DEFAULT_OBJECTS = (("", "serviceaccounts", "default"), ("", "configmaps", ROOT_CA))
"""Objects that every namespace has: group, plural, name."""


class NamespaceController:
    """Creates the initial namespaces, and the default objects of each; empties deleted ones."""

    def __init__(self, registry: Registry, ca: Path | None = None) -> None:
        self._registry, self._ca = registry, ca
        self._terminating: set[str] = set()
        self._queue: asyncio.Queue[str] = asyncio.Queue()

    async def create_initial(self) -> None:
        """Create the namespaces that every cluster has. Idempotent."""
        for name in INITIAL_NAMESPACES:
            await self._ensure_object("namespaces", "", {"metadata": {"name": name}})

    async def run(self) -> None:
        """Reconcile namespaces until cancelled."""
        store = self._registry.store
        snapshot = store.range(collection_prefix("", "namespaces"))
        with store.watch("", after=store.revision) as changes:
            for record in snapshot.records:
                await self._reconcile(decode_record(record))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._process_queue())
                async for events in changes:
                    for event in events:
                        await self._handle_event(event)

    async def _handle_event(self, event: StoreEvent) -> None:
        path = split_path(event.record.path)
        if (path.group, path.plural) == ("", "namespaces"):
            if not event.deleted:
                await self._reconcile(msgspec.json.decode(event.record.data))
            else:
                self._terminating.discard(path.name)
        elif event.deleted and path.namespace in self._terminating:
            self._queue.put_nowait(path.namespace)
        elif event.deleted and (path.group, path.plural, path.name) in DEFAULT_OBJECTS:
            await self._restore_defaults(path.namespace)

    async def _reconcile(self, namespace: JSON) -> None:
        metadata = namespace["metadata"]
        if metadata.get("deletionTimestamp"):
            self._terminating.add(metadata["name"])
            self._queue.put_nowait(metadata["name"])
            return
        await self._ensure_object("serviceaccounts", metadata["name"], {"metadata": {"name": "default"}})
        if self._ca is not None:
            config_meta = {"name": ROOT_CA, "annotations": {"kubernetes.io/description": ROOT_CA_DESCRIPTION}}
            body = {"metadata": config_meta, "data": {"ca.crt": self._ca.read_text()}}
            await self._ensure_object("configmaps", metadata["name"], body)

    async def _restore_defaults(self, namespace: str) -> None:
        """Create the default objects of a namespace again after one was deleted."""
        kind = storage_kind(self._registry, "", "namespaces")
        record = self._registry.store.get(storage_path(kind, Key("", namespace)))
        if record is not None:
            await self._reconcile(decode_record(record))

    async def _ensure_object(self, plural: str, namespace: str, body: JSON) -> None:
        kind = storage_kind(self._registry, "", plural)
        with ignore_status(409, 403, 404):  # it exists, or its namespace is being deleted
            await self._registry.create(NAMESPACE_CONTROLLER_CALL, kind, namespace, body)

    # Deletion

    async def _process_queue(self) -> None:
        while True:
            name = await self._queue.get()
            await supervise(self._delete_contents(name), f"emptying namespace {name}")

    async def _delete_contents(self, name: str) -> None:
        """Delete all objects of the namespace; when none is left, remove its finalizer."""
        has_objects = False
        for kind in self._namespaced_kinds():
            prefix = collection_prefix(*kind.resource.group_resource, name)
            if self._registry.store.count(prefix):
                await self._registry.delete_collection(
                    kind, name, SELECT_ALL, DeletionOptions(propagation_policy="Background")
                )
                has_objects = has_objects or self._registry.store.count(prefix) > 0
        if not has_objects:
            await self._finalize(name)

    def _namespaced_kinds(self) -> list[ServedKind]:
        kinds = {kind.resource.group_resource: kind for kind in self._registry.catalog if kind.resource.namespaced}
        return [
            kind
            for kind in kinds.values()
            if kind is self._registry.catalog.storage_kind(*kind.resource.group_resource)
        ]

    async def _finalize(self, name: str) -> None:
        def transform(old: JSON | None) -> JSON:
            assert old is not None
            remove_finalizer(old.setdefault("spec", {}), FINALIZER)
            return old

        call = msgspec.structs.replace(NAMESPACE_CONTROLLER_CALL, subresource="finalize")
        with ignore_status(404):
            await self._registry.update(call, storage_kind(self._registry, "", "namespaces"), Key("", name), transform)
