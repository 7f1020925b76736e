"""Custom resources: a CRD that is accepted is served; one that is deleted takes its objects with it."""

import logging
from collections.abc import Callable

import msgspec

from gangline.api.meta import JSON, Key
from gangline.apiserver.errors import StatusError
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

log = logging.getLogger(__name__)

CRD_GROUP, CRD_PLURAL = "apiextensions.k8s.io", "customresourcedefinitions"
CRD_PREFIX = collection_prefix(CRD_GROUP, CRD_PLURAL)
API_SERVER_STATUS_CALL = WriteContext(field_manager="kube-apiserver", subresource="status")
API_SERVER_CALL = WriteContext(field_manager="kube-apiserver")

CrdEdit = Callable[[JSON], None]


class CrdController:
    """Follows CRDs in the store: `load` serves those that are there, `run` looks after those to come."""

    def __init__(self, registry: Registry, roots: NonResourceHandler, clock: Clock) -> None:
        self._registry, self._roots, self._clock = registry, roots, clock
        # By name, as last seen: what is served now.
        self._served: dict[str, JSON] = {}

    def serve_established(self) -> None:
        """Serve what is established already, before the first request."""
        for crd in self._stored_crds():
            if _has_condition(crd, "Established"):
                self._serve(crd)

    def _stored_crds(self) -> list[JSON]:
        return [decode_record(record) for record in self._registry.store.range(CRD_PREFIX).records]

    async def run(self) -> None:
        """Accept, serve and remove until cancelled."""
        store = self._registry.store
        with store.watch("", after=store.revision) as changes:
            for crd in self._stored_crds():
                await supervise(self._reconcile(crd), f"CRD {crd['metadata']['name']}")
            async for events in changes:
                for event in events:
                    await supervise(self._handle_event(event), f"change of {event.path}")

    async def _handle_event(self, event: StoreEvent) -> None:
        if event.path.startswith(CRD_PREFIX):
            crd: JSON = msgspec.json.decode(event.data)
            if event.deleted:
                self._stop_serving(crd)
            else:
                await self._reconcile(crd)
        elif event.deleted:
            where = split_path(event.path)
            waiting = self._served.get(f"{where.plural}.{where.group}")
            if waiting is not None and waiting["metadata"].get("deletionTimestamp"):
                await self._delete_objects(waiting)

    async def _reconcile(self, crd: JSON) -> None:
        if crd["metadata"].get("deletionTimestamp"):
            await self._delete_objects(crd)
        elif _has_condition(crd, "Established"):
            self._serve(crd)
        else:
            await self._accept(crd)

    # Accepting

    async def _accept(self, crd: JSON) -> None:
        taken = self._name_conflict(crd)
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

        def accepted(found: JSON) -> None:
            status = found.setdefault("status", {})
            if taken:
                _set_condition(status, "NamesAccepted", "False", "MultipleNamesNotAllowed", taken, now)
                _set_condition(status, "Established", "False", "NotAccepted", "not all names are accepted", now)
                return
            status["acceptedNames"] = found["spec"]["names"]
            _set_condition(status, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now)
            _set_condition(
                status,
                "Established",
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted",
                now,
            )

        await self._edit(crd, API_SERVER_STATUS_CALL, accepted)

    def _name_conflict(self, crd: JSON) -> str:
        group, names = crd["spec"]["group"], crd["spec"]["names"]
        for other in self._served.values():
            theirs = other["spec"]["names"]
            if other["spec"]["group"] != group or other["metadata"]["name"] == crd["metadata"]["name"]:
                continue
            if theirs["kind"] == names["kind"]:
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

    # Removing

    async def _delete_objects(self, crd: JSON) -> None:
        """Delete its objects; when none is left, let it go."""
        self._served[crd["metadata"]["name"]] = crd
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        entry = self._registry.catalog.storage_kind(group, plural)
        prefix = collection_prefix(group, plural)
        if entry is not None and self._registry.store.count(prefix):
            await self._registry.delete_collection(
                entry, "", SELECT_ALL, DeletionOptions(propagation_policy="Background")
            )
        if entry is None or not self._registry.store.count(prefix):
            await self._edit(crd, API_SERVER_CALL, _remove_finalizer)
        else:
            now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
            await self._edit(crd, API_SERVER_STATUS_CALL, lambda found: _set_terminating(found, now))

    def _stop_serving(self, crd: JSON) -> None:
        if self._served.pop(crd["metadata"]["name"], None) is not None:
            self._registry.catalog.remove(crd["spec"]["group"], crd["spec"]["names"]["plural"])
            self._roots.set_crds(list(self._served.values()))

    async def _edit(self, crd: JSON, call: WriteContext, edit: CrdEdit) -> None:
        entry = self._registry.catalog.storage_kind(CRD_GROUP, CRD_PLURAL)
        assert entry is not None

        def transform(old: JSON | None) -> JSON:
            assert old is not None
            if old["metadata"]["uid"] == crd["metadata"]["uid"]:
                edit(old)
            return old

        try:
            await self._registry.update(call, entry, Key("", crd["metadata"]["name"]), transform)
        except StatusError as refusal:
            if refusal.code != 404:
                raise


def _has_condition(crd: JSON, kind: str) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(found["type"] == kind and found["status"] == "True" for found in conditions)


def _set_terminating(crd: JSON, now: str) -> None:
    crd["status"] = crd_terminating_status(crd, INSTANCE_DELETION_IN_PROGRESS, now)


def _remove_finalizer(crd: JSON) -> None:
    kept = [found for found in crd["metadata"].get("finalizers", ()) if found != CRD_CLEANUP_FINALIZER]
    crd["metadata"].pop("finalizers", None)
    if kept:
        crd["metadata"]["finalizers"] = kept


def _set_condition(status: JSON, kind: str, value: str, reason: str, message: str, now: str) -> None:
    conditions = [found for found in status.get("conditions") or [] if found["type"] != kind]
    before = next((found for found in status.get("conditions") or [] if found["type"] == kind), None)
    since = before["lastTransitionTime"] if before and before["status"] == value else now
    condition = {
        "type": kind,
        "status": value,
        "lastTransitionTime": since,
        "reason": reason,
        "message": message,
    }
    status["conditions"] = [*conditions, condition]
