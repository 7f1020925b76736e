"""Custom resources: a CRD that is accepted is served; one that is deleted takes its objects with it."""

import logging
from collections.abc import Callable

import msgspec

from gangline.api.meta import JSON, Key
from gangline.apiserver.http.nonresource import RootPaths
from gangline.apiserver.refusals import Refused
from gangline.apiserver.registry.custom import custom_entry
from gangline.apiserver.registry.deletion import CLEANUP, IN_PROGRESS, DeleteOptions, terminating
from gangline.apiserver.registry.registry import Call, Registry, decoded
from gangline.apiserver.registry.resources import defined
from gangline.apiserver.registry.selection import EVERYTHING
from gangline.apiserver.store.paths import collection_prefix, split_path
from gangline.apiserver.store.records import Event
from gangline.base.clock import Clock
from gangline.base.tasks import supervise

log = logging.getLogger(__name__)

GROUP, PLURAL = "apiextensions.k8s.io", "customresourcedefinitions"
PREFIX = collection_prefix(GROUP, PLURAL)
STATUS = Call(manager="kube-apiserver", subresource="status")
MAIN = Call(manager="kube-apiserver")

Edit = Callable[[JSON], None]


class CustomResources:
    """Follows CRDs in the store: `load` serves those that are there, `run` looks after those to come."""

    def __init__(self, registry: Registry, roots: RootPaths, clock: Clock) -> None:
        self._registry, self._roots, self._clock = registry, roots, clock
        # By name, as last seen: what is served now.
        self._known: dict[str, JSON] = {}

    def load(self) -> None:
        """Serve what is established already, before the first request."""
        for crd in self._stored():
            if _holds(crd, "Established"):
                self._serve(crd)

    def _stored(self) -> list[JSON]:
        return [decoded(record) for record in self._registry.store.range(PREFIX).records]

    async def run(self) -> None:
        """Accept, serve and remove until cancelled."""
        store = self._registry.store
        with store.watch("", after=store.revision) as changes:
            for crd in self._stored():
                await supervise(self._look(crd), f"CRD {crd['metadata']['name']}")
            async for events in changes:
                for event in events:
                    await supervise(self._take(event), f"change of {event.path}")

    async def _take(self, event: Event) -> None:
        if event.path.startswith(PREFIX):
            crd: JSON = msgspec.json.decode(event.data)
            if event.deleted:
                self._stop(crd)
            else:
                await self._look(crd)
        elif event.deleted:
            where = split_path(event.path)
            waiting = self._known.get(f"{where.plural}.{where.group}")
            if waiting is not None and waiting["metadata"].get("deletionTimestamp"):
                await self._empty(waiting)

    async def _look(self, crd: JSON) -> None:
        if crd["metadata"].get("deletionTimestamp"):
            await self._empty(crd)
        elif _holds(crd, "Established"):
            self._serve(crd)
        else:
            await self._accept(crd)

    # Accepting

    async def _accept(self, crd: JSON) -> None:
        taken = self._conflict(crd)
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

        def accepted(found: JSON) -> None:
            status = found.setdefault("status", {})
            if taken:
                _set(status, "NamesAccepted", "False", "MultipleNamesNotAllowed", taken, now)
                _set(status, "Established", "False", "NotAccepted", "not all names are accepted", now)
                return
            status["acceptedNames"] = found["spec"]["names"]
            _set(status, "NamesAccepted", "True", "NoConflicts", "no conflicts found", now)
            _set(
                status,
                "Established",
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted",
                now,
            )

        await self._edit(crd, STATUS, accepted)

    def _conflict(self, crd: JSON) -> str:
        group, names = crd["spec"]["group"], crd["spec"]["names"]
        for other in self._known.values():
            theirs = other["spec"]["names"]
            if other["spec"]["group"] != group or other["metadata"]["name"] == crd["metadata"]["name"]:
                continue
            if theirs["kind"] == names["kind"]:
                return f'"{names["kind"]}" is already in use'
        return ""

    def _serve(self, crd: JSON) -> None:
        name = crd["metadata"]["name"]
        if self._known.get(name, {}).get("spec") != crd["spec"]:
            spec = crd["spec"]
            self._registry.catalog.drop(spec["group"], spec["names"]["plural"])
            for served in defined(crd):
                storage = served.stored_as == (served.group, served.version)
                self._registry.catalog.add(custom_entry(crd, served), storage=storage)
        self._known[name] = crd
        self._roots.define(list(self._known.values()))

    # Removing

    async def _empty(self, crd: JSON) -> None:
        """Delete its objects; when none is left, let it go."""
        self._known[crd["metadata"]["name"]] = crd
        group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
        entry = self._registry.catalog.stored(group, plural)
        prefix = collection_prefix(group, plural)
        if entry is not None and self._registry.store.count(prefix):
            await self._registry.delete_all(entry, "", EVERYTHING, DeleteOptions(propagation="Background"))
        if entry is None or not self._registry.store.count(prefix):
            await self._edit(crd, MAIN, _without_finalizer)
        else:
            now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
            await self._edit(crd, STATUS, lambda found: _waiting(found, now))

    def _stop(self, crd: JSON) -> None:
        if self._known.pop(crd["metadata"]["name"], None) is not None:
            self._registry.catalog.drop(crd["spec"]["group"], crd["spec"]["names"]["plural"])
            self._roots.define(list(self._known.values()))

    async def _edit(self, crd: JSON, call: Call, edit: Edit) -> None:
        entry = self._registry.catalog.stored(GROUP, PLURAL)
        assert entry is not None

        def transform(old: JSON | None) -> JSON:
            assert old is not None
            if old["metadata"]["uid"] == crd["metadata"]["uid"]:
                edit(old)
            return old

        try:
            await self._registry.change(call, entry, Key("", crd["metadata"]["name"]), transform)
        except Refused as refusal:
            if refusal.code != 404:
                raise


def _holds(crd: JSON, kind: str) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(found["type"] == kind and found["status"] == "True" for found in conditions)


def _waiting(crd: JSON, now: str) -> None:
    crd["status"] = terminating(crd, IN_PROGRESS, now)


def _without_finalizer(crd: JSON) -> None:
    kept = [found for found in crd["metadata"].get("finalizers", ()) if found != CLEANUP]
    crd["metadata"].pop("finalizers", None)
    if kept:
        crd["metadata"]["finalizers"] = kept


def _set(status: JSON, kind: str, value: str, reason: str, message: str, now: str) -> None:
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
