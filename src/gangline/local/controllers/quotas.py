"""Resource quotas: their status says what they allow and what is used, and admission enforces it."""

from datetime import timedelta

import msgspec

from gangline.api.meta import JSON, Key
from gangline.apiserver.admission.quota.items import (
    COUNTED_BY_CONTENT,
    GroupResource,
    QuotaItem,
    counted_resource,
    is_counted,
    is_simple,
    matching_resources,
    quota_item,
)
from gangline.apiserver.admission.quota.usage import used_amounts
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.registry.writes import WriteContext
from gangline.apiserver.store.paths import ObjectPath, collection_prefix, split_path
from gangline.apiserver.store.records import StoreEvent, StoreRecord
from gangline.base.clock import Clock
from gangline.base.tasks import run_until_first
from gangline.local.controllers.key_worker import KeyWorker
from gangline.local.registry_writes import ignore_status, storage_kind

STATUS_CALL = WriteContext(field_manager="kube-controller-manager", subresource="status")
QUOTAS: GroupResource = ("", "resourcequotas")
QUOTAS_PREFIX = collection_prefix(*QUOTAS)
RESYNC_PERIOD = timedelta(minutes=5)
"""How often all quotas are counted again: a pod whose node does not end it is free after its grace period."""


class QuotaController:
    """Fills the status of new and changed quotas, and counts again when objects of their namespace are gone or ended.

    What is created is charged by admission, in the same commit. As long as there is no quota, nothing but quotas is
    watched.
    """

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry, self._clock, self._store = registry, clock, registry.store
        # What the objects of namespaces with quotas count, by path, at the revision of their record.
        self._items: dict[str, tuple[int, QuotaItem]] = {}
        self._worker = KeyWorker("counting of a resource quota", self._write_status, clock)

    async def run(self) -> None:
        """Keep the quotas counted until cancelled, or until the store ends its watches."""
        while await self._has_quota():
            await run_until_first(self._follow_changes(), self._resync(), self._worker.run())
            self._items.clear()

    async def _has_quota(self) -> bool:
        """Wait until there is a quota. Returns False when there will be none."""
        with self._store.watch(QUOTAS_PREFIX, after=self._store.revision) as changes:
            if self._store.has(QUOTAS_PREFIX):
                return True
            async for _ in changes:
                if self._store.has(QUOTAS_PREFIX):
                    return True
        return False

    async def _follow_changes(self) -> None:
        """Count until no quota is left."""
        with self._store.watch("", after=self._store.revision) as changes:
            self._outdate_all()
            async for events in changes:
                for event in events:
                    self._handle_event(event)
                if not self._store.has(QUOTAS_PREFIX):
                    return

    async def _resync(self) -> None:
        while True:
            await self._clock.sleep(RESYNC_PERIOD)
            self._outdate_all()

    def _outdate_all(self) -> None:
        for record in self._store.range(QUOTAS_PREFIX).records:
            self._worker.add(record.path)

    def _handle_event(self, event: StoreEvent) -> None:
        if event.deleted:
            self._items.pop(event.record.path, None)
        path = split_path(event.record.path)
        resource = (path.group, path.plural)
        if resource == QUOTAS and not event.deleted and _is_new_limit(event):
            self._worker.add(event.record.path)
        elif path.namespace and _may_free(resource, event):
            self._outdate(path, resource)

    def _outdate(self, path: ObjectPath, resource: GroupResource) -> None:
        """Count the quotas again that count objects of the resource."""
        prefix = collection_prefix(*QUOTAS, path.namespace)
        if self._store.has(prefix):
            for record in self._store.range(prefix).records:
                if matching_resources(resource, decode_record(record)["spec"].get("hard") or ()):
                    self._worker.add(record.path)

    async def _write_status(self, path: str) -> None:
        """Write what is used. No object is charged meanwhile; those that were accepted before are counted."""
        kind, parts = storage_kind(self._registry, *QUOTAS), split_path(path)
        key = Key(parts.namespace, parts.name)

        def transform(quota: JSON | None) -> JSON:
            assert quota is not None
            return {**quota, "status": self._status(quota)}

        async with self._registry.joint_commits(key.namespace):
            await self._store.flush()
            record = self._store.get(path)
            if record is not None and self._status(quota := decode_record(record)) != quota.get("status"):
                with ignore_status(404, 409):
                    await self._registry.update(STATUS_CALL, kind, key, transform)

    def _status(self, quota: JSON) -> JSON:
        namespace, hard = quota["metadata"]["namespace"], quota["spec"].get("hard") or {}
        items = {
            resource: self._namespace_items(resource, namespace)
            for resource in COUNTED_BY_CONTENT
            if matching_resources(resource, hard)
        }
        counts = {
            resource: self._store.count(collection_prefix(*resource, namespace))
            for name in hard
            if (resource := counted_resource(name)) is not None and self._is_namespaced(resource)
        }
        used = used_amounts(quota, items, counts, self._clock.now())
        status = {"hard": hard, "used": {name: str(amount) for name, amount in used.items()}}
        return {name: amounts for name, amounts in status.items() if amounts}

    def _is_namespaced(self, resource: GroupResource) -> bool:
        # Objects of a kind that is not served yet are counted too: there is none.
        kind = self._registry.catalog.storage_kind(*resource)
        return kind is None or kind.resource.namespaced

    def _namespace_items(self, resource: GroupResource, namespace: str) -> list[QuotaItem]:
        records = self._store.range(collection_prefix(*resource, namespace)).records
        return [self._item(resource, record) for record in records]

    def _item(self, resource: GroupResource, record: StoreRecord) -> QuotaItem:
        known = self._items.get(record.path)
        if known is not None and known[0] == record.revision:
            return known[1]
        item = quota_item(resource, decode_record(record))
        self._items[record.path] = (record.revision, item)
        return item


def _is_new_limit(event: StoreEvent) -> bool:
    """Whether a quota is new or its spec has changed. Its status is ours and admission's."""
    if event.previous is None:
        return True
    new, old = msgspec.json.decode(event.record.data), msgspec.json.decode(event.previous.data)
    return bool(new["spec"] != old["spec"])


def _may_free(resource: GroupResource, event: StoreEvent) -> bool:
    """Whether a change can lower what is used: an object is gone, or counts less."""
    if event.deleted:
        return is_counted(resource)
    if event.previous is None or is_simple(resource):
        return False
    new, old = decode_record(event.record), decode_record(event.previous)
    return quota_item(resource, new) != quota_item(resource, old)
