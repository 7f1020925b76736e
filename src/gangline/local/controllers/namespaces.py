"""The life of namespaces: what a new one gets, and how one that is deleted is emptied."""

import asyncio
import logging
from pathlib import Path

import msgspec

from gangline.api.meta import JSON, Key
from gangline.apiserver.refusals import Refused
from gangline.apiserver.registry.catalog import Entry
from gangline.apiserver.registry.deletion import DeleteOptions
from gangline.apiserver.registry.registry import Call, Registry, decoded, path_of
from gangline.apiserver.registry.selection import EVERYTHING
from gangline.apiserver.store.paths import collection_prefix, split_path
from gangline.apiserver.store.records import Event
from gangline.base.tasks import supervise

log = logging.getLogger(__name__)

CALL = Call(manager="namespace-controller")
FIRST = ("default", "kube-system", "kube-public", "kube-node-lease")
FINALIZER = "kubernetes"
ROOT_CA = "kube-root-ca.crt"
DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints "
    "such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across "
    "distributions of Kubernetes clusters."
)
GIVEN = (("", "serviceaccounts", "default"), ("", "configmaps", ROOT_CA))
"""What every namespace has, as long as it is there."""


class Namespaces:
    """Makes the first namespaces, gives each its service account and root certificate, empties those that go."""

    def __init__(self, registry: Registry, ca: Path | None = None) -> None:
        self._registry, self._ca = registry, ca
        self._terminating: set[str] = set()
        self._work: asyncio.Queue[str] = asyncio.Queue()

    async def prepare(self) -> None:
        """Make the namespaces that every cluster has. Idempotent."""
        for name in FIRST:
            await self._create("namespaces", "", {"metadata": {"name": name}})

    async def run(self) -> None:
        """Look after namespaces until cancelled."""
        store = self._registry.store
        snapshot = store.range(collection_prefix("", "namespaces"))
        with store.watch("", after=store.revision) as changes:
            for record in snapshot.records:
                await self._space(decoded(record))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._empty_all())
                async for events in changes:
                    for event in events:
                        await self._take(event)

    async def _take(self, event: Event) -> None:
        where = split_path(event.path)
        if (where.group, where.plural) == ("", "namespaces"):
            if not event.deleted:
                await self._space(msgspec.json.decode(event.data))
            else:
                self._terminating.discard(where.name)
        elif event.deleted and where.namespace in self._terminating:
            self._work.put_nowait(where.namespace)
        elif event.deleted and (where.group, where.plural, where.name) in GIVEN:
            await self._restore(where.namespace)

    async def _space(self, space: JSON) -> None:
        metadata = space["metadata"]
        if metadata.get("deletionTimestamp"):
            self._terminating.add(metadata["name"])
            self._work.put_nowait(metadata["name"])
            return
        await self._create("serviceaccounts", metadata["name"], {"metadata": {"name": "default"}})
        if self._ca is not None:
            named = {"name": ROOT_CA, "annotations": {"kubernetes.io/description": DESCRIPTION}}
            body = {"metadata": named, "data": {"ca.crt": self._ca.read_text()}}
            await self._create("configmaps", metadata["name"], body)

    async def _restore(self, namespace: str) -> None:
        """What every namespace has was deleted: it comes back."""
        entry = self._registry.catalog.stored("", "namespaces")
        assert entry is not None
        record = self._registry.store.get(path_of(entry, Key("", namespace)))
        if record is not None:
            await self._space(decoded(record))

    async def _create(self, plural: str, namespace: str, body: JSON) -> None:
        entry = self._registry.catalog.stored("", plural)
        assert entry is not None
        try:
            await self._registry.create(CALL, entry, namespace, body)
        except Refused as refusal:
            if refusal.code not in (409, 403, 404):  # there already, or its namespace is on its way out
                raise

    # Emptying

    async def _empty_all(self) -> None:
        while True:
            name = await self._work.get()
            await supervise(self._empty(name), f"emptying namespace {name}")

    async def _empty(self, name: str) -> None:
        """Delete what is in it; when nothing is left, let it go."""
        left = False
        for entry in self._entries():
            prefix = collection_prefix(entry.group, entry.plural, name)
            if self._registry.store.count(prefix):
                await self._registry.delete_all(
                    entry, name, EVERYTHING, DeleteOptions(propagation="Background")
                )
                left = left or self._registry.store.count(prefix) > 0
        if not left:
            await self._finalize(name)

    def _entries(self) -> list[Entry]:
        stored = {(e.group, e.plural): e for e in self._registry.catalog if e.served.namespaced}
        return [
            entry
            for entry in stored.values()
            if entry is self._registry.catalog.stored(entry.group, entry.plural)
        ]

    async def _finalize(self, name: str) -> None:
        entry = self._registry.catalog.stored("", "namespaces")
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
            call = msgspec.structs.replace(CALL, subresource="finalize")
            await self._registry.change(call, entry, Key("", name), transform)
        except Refused as refusal:
            if refusal.code != 404:
                raise
