"""Serves the kinds of accepted CRDs, and deletes the objects of a deleted CRD."""

from collections.abc import Awaitable, Callable

from gangline.api.meta import JSON, Key, timestamp
from gangline.apiserver.http.nonresource import NonResourceHandler
from gangline.apiserver.registry.deletion import (
    CRD_CLEANUP_FINALIZER,
    INSTANCE_DELETION_IN_PROGRESS,
    DeletionOptions,
    crd_terminating_status,
)
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.resources import crd_resources, crd_storage_resource
from gangline.apiserver.registry.served_kinds import custom_served_kind
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.registry.writes import WriteContext
from gangline.apiserver.store.paths import collection_prefix, object_path, split_path
from gangline.apiserver.store.records import StoreEvent
from gangline.base.clock import Clock
from gangline.local.bootstrap import API_SERVER_CALL
from gangline.local.controllers.crd_names import decide_names, names_only
from gangline.local.controllers.key_worker import KeyWorker
from gangline.local.registry_writes import edit_object, ignore_status, remove_finalizer, storage_kind

CRD_GROUP, CRD_PLURAL = "apiextensions.k8s.io", "customresourcedefinitions"
CRD_PREFIX = collection_prefix(CRD_GROUP, CRD_PLURAL)
API_SERVER_STATUS_CALL = WriteContext(field_manager="kube-apiserver", subresource="status")

CrdEdit = Callable[[JSON], None]


class CrdController:
    """Watches CRDs in the store: `serve_established` serves those that exist, `run` handles their changes."""

    def __init__(
        self,
        registry: Registry,
        roots: NonResourceHandler,
        clock: Clock,
        wait_for_dependents: Callable[[], Awaitable[object]],
    ) -> None:
        """`wait_for_dependents` returns when the dependents of all deleted objects are deleted too."""
        self._registry, self._roots, self._clock = registry, roots, clock
        self._wait_for_dependents = wait_for_dependents
        # The CRDs that are served now, by name.
        self._served: dict[str, JSON] = {}
        # Group and names of all CRDs, without their schemas, by name.
        self._heads: dict[str, JSON] = {}
        self._terminating: set[str] = set()
        self._worker = KeyWorker("handling of a CRD", self._reconcile, clock)

    def serve_established(self) -> None:
        """Serve the established CRDs, before the first request."""
        for crd in self._stored_crds():
            self._heads[crd["metadata"]["name"]] = names_only(crd)
            if _has_condition(crd, "Established"):
                self._serve(crd)

    def _stored_crds(self) -> list[JSON]:
        return [decode_record(record) for record in self._registry.store.range(CRD_PREFIX).records]

    async def run(self) -> None:
        """Accept, serve and delete CRDs until cancelled."""
        store = self._registry.store
        with store.watch("", after=store.revision) as changes:
            for record in store.range(CRD_PREFIX).records:
                self._worker.add(split_path(record.path).name)
            await self._worker.follow(changes, self._handle_event)

    def _handle_event(self, event: StoreEvent) -> None:
        path = split_path(event.record.path)
        if event.record.path.startswith(CRD_PREFIX):
            self._worker.add(path.name)
        elif event.deleted and f"{path.plural}.{path.group}" in self._terminating:
            self._worker.add(f"{path.plural}.{path.group}")

    async def _reconcile(self, name: str) -> None:
        record = self._registry.store.get(object_path(CRD_GROUP, CRD_PLURAL, "", name))
        crd = decode_record(record) if record is not None else None
        served = self._served.get(name)
        if served is not None and (crd is None or crd["metadata"]["uid"] != served["metadata"]["uid"]):
            self._stop_serving(served)
        self._terminating.discard(name)
        if crd is None:
            if (head := self._heads.pop(name, None)) is not None:
                self._reconsider_names(head)
            return
        self._heads[name] = names_only(crd)
        if crd["metadata"].get("deletionTimestamp"):
            self._terminating.add(name)
            await self._delete_objects(crd)
            return
        await self._accept_names(crd)
        if _has_condition(crd, "Established"):
            self._serve(crd)

    # Accepting

    async def _accept_names(self, crd: JSON) -> None:
        """Accept the names that no other CRD has. With all of them, the CRD is established."""
        before = crd.get("status") or {}
        if before.get("acceptedNames") == crd["spec"]["names"] and _has_condition(crd, "Established"):
            return
        decision = decide_names(crd, self._heads.values())
        if before.get("acceptedNames") == decision.accepted and _condition_message(crd) == decision.message:
            return
        now = timestamp(self._clock.now())

        def accept(current: JSON) -> None:
            status = current.setdefault("status", {})
            status["acceptedNames"] = decision.accepted
            if decision.reason:
                _set_condition(status, "NamesAccepted", "False", decision.reason, decision.message, now)
                if not _has_condition(current, "Established"):
                    _set_condition(status, "Established", "False", "NotAccepted", "not all names are accepted", now)
                return
            _set_condition(status, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now)
            if not _has_condition(current, "Established"):
                message = "the initial names have been accepted"
                _set_condition(status, "Established", "True", "InitialNamesAccepted", message, now)

        self._heads[crd["metadata"]["name"]]["status"]["acceptedNames"] = decision.accepted
        if not decision.reason:
            # Before the status says so: a client may ask for the resource at once.
            self._serve({**crd, "status": {**before, "acceptedNames": decision.accepted}})
        await self._edit(crd, API_SERVER_STATUS_CALL, accept)
        self._reconsider_names(crd)

    def _reconsider_names(self, crd: JSON) -> None:
        """Look again at the CRDs of the group that lack names: some may be free now."""
        for name, head in self._heads.items():
            lacks_names = head["spec"]["names"] != head["status"].get("acceptedNames")
            if head["spec"]["group"] == crd["spec"]["group"] and lacks_names:
                self._worker.add(name)

    def _serve(self, crd: JSON) -> None:
        name = crd["metadata"]["name"]
        served = self._served.get(name, {})
        if served.get("spec") != crd["spec"] or served["status"]["acceptedNames"] != crd["status"]["acceptedNames"]:
            catalog, spec = self._registry.catalog, crd["spec"]
            catalog.remove(spec["group"], spec["names"]["plural"])
            stored = crd_storage_resource(crd)
            for resource in crd_resources(crd):
                catalog.add(custom_served_kind(crd, resource), storage=resource == stored)
            if catalog.storage_kind(stored.group, stored.plural) is None:
                catalog.add(custom_served_kind(crd, stored), served=False)
        self._served[name] = crd
        self._roots.set_crds(list(self._served.values()))

    # Deleting

    async def _delete_objects(self, crd: JSON) -> None:
        """Delete the objects of the CRD; when none is left, remove its finalizer."""
        name, group, plural = crd["metadata"]["name"], crd["spec"]["group"], crd["spec"]["names"]["plural"]
        if name in self._served:
            self._served[name] = crd
        await self._registry.creations.wait_for_resource(group, plural)
        entry = self._registry.catalog.storage_kind(group, plural)
        prefix = collection_prefix(group, plural)
        if entry is not None:
            await self._registry.delete_all(entry, self._registry.store.range(prefix).records, DeletionOptions())
        if self._registry.store.has(prefix):
            now = timestamp(self._clock.now())

            def set_terminating(current: JSON) -> None:
                current["status"] = crd_terminating_status(current, INSTANCE_DELETION_IN_PROGRESS, now)

            await self._edit(crd, API_SERVER_STATUS_CALL, set_terminating)
            return
        # Whether the owner of a dependent exists is unknown when its kind is no longer served.
        await self._wait_for_dependents()
        await self._edit(
            crd, API_SERVER_CALL, lambda current: remove_finalizer(current["metadata"], CRD_CLEANUP_FINALIZER)
        )

    def _stop_serving(self, crd: JSON) -> None:
        name = crd["metadata"]["name"]
        del self._served[name]
        self._registry.catalog.remove(crd["spec"]["group"], crd["spec"]["names"]["plural"])
        self._roots.set_crds(list(self._served.values()))

    async def _edit(self, crd: JSON, call: WriteContext, edit: CrdEdit) -> None:
        kind = storage_kind(self._registry, CRD_GROUP, CRD_PLURAL)
        metadata = crd["metadata"]
        with ignore_status(404):
            await edit_object(self._registry, call, kind, Key("", metadata["name"]), metadata["uid"], edit)


def _has_condition(crd: JSON, type_: str) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(condition.get("type") == type_ and condition.get("status") == "True" for condition in conditions)


def _condition_message(crd: JSON) -> str:
    """Why names are not accepted, as the status has it; empty if they are, or nothing is decided."""
    conditions = (crd.get("status") or {}).get("conditions") or ()
    refused = (
        item["message"] for item in conditions if (item.get("type"), item.get("status")) == ("NamesAccepted", "False")
    )
    message: str = next(refused, "")
    return message


def _set_condition(status: JSON, type_: str, value: str, reason: str, message: str, now: str) -> None:
    """Replace the condition of this type. Its transition time is kept while the value is the same."""
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or []}
    old = conditions.get(type_)
    since = old["lastTransitionTime"] if old and old["status"] == value else now
    # In its old place, if it had one.
    conditions[type_] = {
        "type": type_,
        "status": value,
        "lastTransitionTime": since,
        "reason": reason,
        "message": message,
    }
    status["conditions"] = [*conditions.values()]
