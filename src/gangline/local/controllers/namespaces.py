"""The life of namespaces: what a new one gets, and how one that is deleted is emptied."""

import asyncio
import logging
from pathlib import Path

import msgspec

from gangline.api.meta import JSON, Key
from gangline.apiserver.errors import StatusError
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.registry.deletion import DeletionOptions
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.selection import SELECT_ALL
from gangline.apiserver.registry.storage import decode_record, storage_path
from gangline.apiserver.registry.writes import WriteContext
from gangline.apiserver.store.paths import collection_prefix, split_path
from gangline.apiserver.store.records import StoreEvent
from gangline.base.tasks import supervise

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
"""What every namespace has, as long as it is there."""


class NamespaceController:
    """Makes the first namespaces, gives each its service account and root certificate, empties those that go."""

    def __init__(self, registry: Registry, ca: Path | None = None) -> None:
        self._registry, self._ca = registry, ca
        self._terminating: set[str] = set()
        self._queue: asyncio.Queue[str] = asyncio.Queue()

    async def create_initial(self) -> None:
        """Make the namespaces that every cluster has. Idempotent."""
        for name in INITIAL_NAMESPACES:
            await self._ensure_object("namespaces", "", {"metadata": {"name": name}})

    async def run(self) -> None:
        """Look after namespaces until cancelled."""
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
        where = split_path(event.path)
        if (where.group, where.plural) == ("", "namespaces"):
            if not event.deleted:
                await self._reconcile(msgspec.json.decode(event.data))
            else:
                self._terminating.discard(where.name)
        elif event.deleted and where.namespace in self._terminating:
            self._queue.put_nowait(where.namespace)
        elif event.deleted and (where.group, where.plural, where.name) in DEFAULT_OBJECTS:
            await self._restore_defaults(where.namespace)

    async def _reconcile(self, space: JSON) -> None:
        metadata = space["metadata"]
        if metadata.get("deletionTimestamp"):
            self._terminating.add(metadata["name"])
            self._queue.put_nowait(metadata["name"])
            return
        await self._ensure_object("serviceaccounts", metadata["name"], {"metadata": {"name": "default"}})
        if self._ca is not None:
            named = {"name": ROOT_CA, "annotations": {"kubernetes.io/description": ROOT_CA_DESCRIPTION}}
            body = {"metadata": named, "data": {"ca.crt": self._ca.read_text()}}
            await self._ensure_object("configmaps", metadata["name"], body)

    async def _restore_defaults(self, namespace: str) -> None:
        """What every namespace has was deleted: it comes back."""
        entry = self._registry.catalog.storage_kind("", "namespaces")
        assert entry is not None
        record = self._registry.store.get(storage_path(entry, Key("", namespace)))
        if record is not None:
            await self._reconcile(decode_record(record))

    async def _ensure_object(self, plural: str, namespace: str, body: JSON) -> None:
        entry = self._registry.catalog.storage_kind("", plural)
        assert entry is not None
        try:
            await self._registry.create(NAMESPACE_CONTROLLER_CALL, entry, namespace, body)
        except StatusError as refusal:
            if refusal.code not in (409, 403, 404):  # there already, or its namespace is on its way out
                raise

    # Emptying

    async def _process_queue(self) -> None:
        while True:
            name = await self._queue.get()
            await supervise(self._delete_contents(name), f"emptying namespace {name}")

    async def _delete_contents(self, name: str) -> None:
        """Delete what is in it; when nothing is left, let it go."""
        left = False
        for entry in self._namespaced_entries():
            prefix = collection_prefix(entry.group, entry.plural, name)
            if self._registry.store.count(prefix):
                await self._registry.delete_collection(
                    entry, name, SELECT_ALL, DeletionOptions(propagation_policy="Background")
                )
                left = left or self._registry.store.count(prefix) > 0
        if not left:
            await self._finalize(name)

    def _namespaced_entries(self) -> list[ServedKind]:
        stored = {(e.group, e.plural): e for e in self._registry.catalog if e.resource.namespaced}
        return [
            entry
            for entry in stored.values()
            if entry is self._registry.catalog.storage_kind(entry.group, entry.plural)
        ]

    async def _finalize(self, name: str) -> None:
        entry = self._registry.catalog.storage_kind("", "namespaces")
        assert entry is not None

        def transform(old: JSON | None) -> JSON:
            assert old is not None
            spec = old.setdefault("spec", {})
            kept = [found for found in spec.get("finalizers", ()) if found != FINALIZER]
            spec.pop("finalizers", None)
            if kept:
                spec["finalizers"] = kept
            return old

        try:
            call = msgspec.structs.replace(NAMESPACE_CONTROLLER_CALL, subresource="finalize")
            await self._registry.update(call, entry, Key("", name), transform)
        except StatusError as refusal:
            if refusal.code != 404:
                raise
