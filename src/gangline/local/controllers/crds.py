"""Serves the kinds of accepted CRDs, and deletes the objects of a deleted CRD."""

import logging
from collections.abc import Callable

import msgspec

from gangline.api.meta import JSON, Key, timestamp
from gangline.apiserver.http.nonresource import NonResourceHandler
from gangline.apiserver.registry.deletion import (
    CRD_CLEANUP_FINALIZER,
    INSTANCE_DELETION_IN_PROGRESS,
    DeletionOptions,
    crd_terminating_status,
)
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.resources import crd_resources
from gangline.apiserver.registry.selection import SELECT_ALL
from gangline.apiserver.registry.served_kinds import custom_served_kind
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.registry.writes import WriteContext
from gangline.apiserver.store.paths import collection_prefix, split_path
from gangline.apiserver.store.records import StoreEvent
from gangline.base.clock import Clock
from gangline.base.tasks import supervise
from gangline.local.bootstrap import API_SERVER_CALL
from gangline.local.registry_writes import edit_object, ignore_status, remove_finalizer, storage_kind

log = logging.getLogger(__name__)

CRD_GROUP, CRD_PLURAL = "apiextensions.k8s.io", "customresourcedefinitions"
CRD_PREFIX = collection_prefix(CRD_GROUP, CRD_PLURAL)
API_SERVER_STATUS_CALL = WriteContext(field_manager="kube-apiserver", subresource="status")

CrdEdit = Callable[[JSON], None]


class CrdController:
    """Watches CRDs in the store: `serve_established` serves those that exist, `run` handles their changes."""

    def __init__(self, registry: Registry, roots: NonResourceHandler, clock: Clock) -> None:
        self._registry, self._roots, self._clock = registry, roots, clock
        # The CRDs that are served now, by name.
        self._served: dict[str, JSON] = {}

    def serve_established(self) -> None:
        """Serve the established CRDs, before the first request."""
        for crd in self._stored_crds():
            if _has_condition(crd, "Established"):
                self._serve(crd)

    def _stored_crds(self) -> list[JSON]:
        return [decode_record(record) for record in self._registry.store.range(CRD_PREFIX).records]

    async def run(self) -> None:
        """Accept, serve and delete CRDs until cancelled."""
        store = self._registry.store
        with store.watch("", after=store.revision) as changes:
            for crd in self._stored_crds():
                await supervise(self._reconcile(crd), f"CRD {crd['metadata']['name']}")
            async for events in changes:
                for event in events:
                    await supervise(self._handle_event(event), f"change of {event.record.path}")

    async def _handle_event(self, event: StoreEvent) -> None:
        if event.record.path.startswith(CRD_PREFIX):
            crd: JSON = msgspec.json.decode(event.record.data)
            if event.deleted:
                self._stop_serving(crd)
            else:
                await self._reconcile(crd)
        elif event.deleted:
            path = split_path(event.record.path)
            owner = self._served.get(f"{path.plural}.{path.group}")
            if owner is not None and owner["metadata"].get("deletionTimestamp"):
                await self._delete_objects(owner)

    async def _reconcile(self, crd: JSON) -> None:
        if crd["metadata"].get("deletionTimestamp"):
            await self._delete_objects(crd)
        elif _has_condition(crd, "Established"):
            self._serve(crd)
        else:
            await self._accept(crd)

    # Accepting

    async def _accept(self, crd: JSON) -> None:
        conflict = self._name_conflict(crd)
        now = timestamp(self._clock.now())

        def accept(current: JSON) -> None:
            status = current.setdefault("status", {})
            if conflict:
                _set_condition(status, "NamesAccepted", "False", "MultipleNamesNotAllowed", conflict, now)
                _set_condition(status, "Established", "False", "NotAccepted", "not all names are accepted", now)
                return
            status["acceptedNames"] = current["spec"]["names"]
            _set_condition(status, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now)
            message = "the initial names have been accepted"
            _set_condition(status, "Established", "True", "InitialNamesAccepted", message, now)

        await self._edit(crd, API_SERVER_STATUS_CALL, accept)

    def _name_conflict(self, crd: JSON) -> str:
        group, names = crd["spec"]["group"], crd["spec"]["names"]
        for other in self._served.values():
            if other["spec"]["group"] != group or other["metadata"]["name"] == crd["metadata"]["name"]:
                continue
            if other["spec"]["names"]["kind"] == names["kind"]:
                return f'"{names["kind"]}" is already in use'
        return ""

    def _serve(self, crd: JSON) -> None:
        name = crd["metadata"]["name"]
        if self._served.get(name, {}).get("spec") != crd["spec"]:
            spec = crd["spec"]
            self._registry.catalog.remove(spec["group"], spec["names"]["plural"])
            for served in crd_resources(crd):
                storage = served.storage_version == (served.group, served.version)
                self._registry.catalog.add(custom_served_kind(crd, served), storage=storage)
        self._served[name] = crd
        self._roots.set_crds(list(self._served.values()))

    # Deleting

    async def _delete_objects(self, crd: JSON) -> None:
        """Delete the objects of the CRD; when none is left, remove its finalizer."""
        self._served[crd["metadata"]["name"]] = crd
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        entry = self._registry.catalog.storage_kind(group, plural)
        prefix = collection_prefix(group, plural)
        if entry is not None and self._registry.store.count(prefix):
            await self._registry.delete_collection(
                entry, "", SELECT_ALL, DeletionOptions(propagation_policy="Background")
            )
        if entry is None or not self._registry.store.count(prefix):
            await self._edit(
                crd, API_SERVER_CALL, lambda current: remove_finalizer(current["metadata"], CRD_CLEANUP_FINALIZER)
            )
        else:
            now = timestamp(self._clock.now())

            def set_terminating(current: JSON) -> None:
                current["status"] = crd_terminating_status(current, INSTANCE_DELETION_IN_PROGRESS, now)

            await self._edit(crd, API_SERVER_STATUS_CALL, set_terminating)

    def _stop_serving(self, crd: JSON) -> None:
        if self._served.pop(crd["metadata"]["name"], None) is not None:
            self._registry.catalog.remove(crd["spec"]["group"], crd["spec"]["names"]["plural"])
            self._roots.set_crds(list(self._served.values()))

    async def _edit(self, crd: JSON, call: WriteContext, edit: CrdEdit) -> None:
        kind = storage_kind(self._registry, CRD_GROUP, CRD_PLURAL)
        metadata = crd["metadata"]
        with ignore_status(404):
            await edit_object(self._registry, call, kind, Key("", metadata["name"]), metadata["uid"], edit)


def _has_condition(crd: JSON, type_: str) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == type_ and condition["status"] == "True" for condition in conditions)


def _set_condition(status: JSON, type_: str, value: str, reason: str, message: str, now: str) -> None:
    """Replace the condition of this type. Its transition time is kept while the value is the same."""
    before = {condition["type"]: condition for condition in status.get("conditions") or []}
    old = before.pop(type_, None)
    since = old["lastTransitionTime"] if old and old["status"] == value else now
    condition = {"type": type_, "status": value, "lastTransitionTime": since, "reason": reason, "message": message}
    status["conditions"] = [*before.values(), condition]
