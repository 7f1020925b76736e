"""The server of a `World`: one namespace in memory, which the job engine cannot tell from a real one.

It has uids and resourceVersions, preconditions, graceful deletion of pods, a garbage collector, and watch events that
wait until a test delivers them. Requests may fail: see `Fault`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn, TypeVar

import msgspec

from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource, Scheme
from gangline.apiserver.patch.json_patch import merge_patch
from gangline.base.clock import Clock
from gangline.kube.client import Kind
from gangline.kube.errors import KubeError, Status, Unreachable, error_from_status
from gangline.kube.options import DeletionPropagation, PatchType
from gangline.testing.faults import STATUS_REASONS, Fault, Faults, SimulatedCrash

T = TypeVar("T")


class WorldWrite(NamedTuple):
    """A write of the operator: verb, resource, and the object before and after."""

    verb: str
    resource: str
    before: JSON | None
    after: JSON | None

    @property
    def newest(self) -> JSON:
        body = self.after or self.before
        assert body is not None
        return body


class WorldServer:
    """Objects by resource (its plural) and name, and the watch events that are not delivered yet."""

    def __init__(self, scheme: Scheme, clock: Clock, namespace: str) -> None:
        self.scheme, self._clock, self._namespace = scheme, clock, namespace
        self.objects: dict[tuple[str, str], JSON] = {}
        self.pending_events: list[tuple[str, JSON | None, JSON | None]] = []
        # The name of every uid, numbered among the objects of that name: for messages, and to compare two worlds.
        self.names_by_uid: dict[str, str] = {}
        self._incarnations: dict[tuple[str, str], int] = {}
        # How many pods of a name have started.
        self.start_counts: Counter[str] = Counter()
        self._revision = 0
        # Deleted pods stay until the kubelet removes them, even if they have ended.
        self.hold_deleted_pods = False

    def find(self, resource: str, name: str) -> JSON | None:
        return self.objects.get((resource, name))

    def list_objects(self, resource: str) -> list[JSON]:
        return [body for (kind, _), body in sorted(self.objects.items()) if kind == resource]

    def owned_by(self, uid: str) -> list[tuple[str, JSON]]:
        return [(kind, body) for (kind, _), body in sorted(self.objects.items()) if controller_uid(body) == uid]

    def create(self, resource: str, body: JSON) -> JSON:
        name = body["metadata"]["name"]
        if (resource, name) in self.objects:
            raise status_error(409, "AlreadyExists", f'{resource} "{name}" already exists')
        number = self._incarnations.get((resource, name), 0) + 1
        self._incarnations[resource, name] = number
        uid = f"uid-{len(self.names_by_uid) + 1}"
        self.names_by_uid[uid] = f"{resource}/{name}#{number}"
        metadata = {**body["metadata"], "namespace": self._namespace, "uid": uid, "generation": 1}
        metadata["creationTimestamp"] = self.timestamp()
        created = {**body, "metadata": metadata}
        if resource == "pods":
            created["status"] = {"phase": "Pending"}
        return self._store(resource, name, created)

    def patch(self, resource: str, name: str, patch: JSON, version: str | None = None) -> JSON:
        """Apply a merge patch (RFC 7396). `version`, and a uid in the patch, are preconditions."""
        before = self.get(resource, name)
        metadata = before["metadata"]
        if version is not None and version != metadata["resourceVersion"]:
            raise status_error(409, "Conflict", "the object has been modified")
        if patch.get("metadata", {}).get("uid", metadata["uid"]) != metadata["uid"]:
            raise status_error(422, "Invalid", "metadata.uid: field is immutable")
        after = merge_patch(before, patch)
        if after == before:
            return before
        if after.get("spec") != before.get("spec"):
            after["metadata"] = {**after["metadata"], "generation": metadata["generation"] + 1}
        if resource == "pods" and before["status"]["phase"] == "Pending" != after["status"]["phase"]:
            self.start_counts[name] += 1
        return self._store(resource, name, after)

    def delete(self, resource: str, name: str, uid: str | None = None) -> JSON:
        """Delete an object. A running pod only gets a deletionTimestamp; `remove` ends it."""
        before = self.get(resource, name)
        if uid is not None and uid != before["metadata"]["uid"]:
            raise status_error(409, "Conflict", "the UID in the precondition is another")
        if resource != "pods" or not self._terminates_gracefully(before):
            return self.remove(resource, name)
        if "deletionTimestamp" in before["metadata"]:
            return before
        metadata = {**before["metadata"], "deletionTimestamp": self.timestamp()}
        return self._store(resource, name, {**before, "metadata": metadata})

    def remove(self, resource: str, name: str) -> JSON:
        """Remove an object at once."""
        removed = self.objects.pop((resource, name))
        self._revision += 1
        self.pending_events.append((resource, removed, None))
        return removed

    def collect_garbage(self) -> bool:
        """Delete objects whose owner does not exist any more. Returns whether there were any."""
        uids = {body["metadata"]["uid"] for body in self.objects.values()}
        doomed = [
            (resource, name)
            for (resource, name), body in self.objects.items()
            if (owner := controller_uid(body)) is not None
            and owner not in uids
            and "deletionTimestamp" not in body["metadata"]
        ]
        for resource, name in doomed:
            self.delete(resource, name)
        return bool(doomed)

    def _terminates_gracefully(self, pod: JSON) -> bool:
        return self.hold_deleted_pods or pod["status"]["phase"] == "Running"

    def get(self, resource: str, name: str) -> JSON:
        body = self.objects.get((resource, name))
        if body is None:
            raise status_error(404, "NotFound", f'{resource} "{name}" not found')
        return body

    def _store(self, resource: str, name: str, body: JSON) -> JSON:
        self._revision += 1
        stored = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self._revision)}}
        self.pending_events.append((resource, self.objects.get((resource, name)), stored))
        self.objects[resource, name] = stored
        return stored

    def timestamp(self) -> str:
        return self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")


class WorldClient:
    """The client of the engine, with faults. Every write is passed to `on_write`."""

    def __init__(self, server: WorldServer, on_write: Callable[[WorldWrite], None], faults: Faults) -> None:
        self._server, self._on_write, self._faults = server, on_write, faults
        self._dead = False

    @property
    def scheme(self) -> Scheme:
        return self._server.scheme

    def unstructured(self, kind: Kind[Any]) -> Resource[JSON]:
        return msgspec.structs.replace(self.scheme.of(kind), model=dict)

    async def get(self, kind: Kind[T], key: Key) -> T:
        resource = self.scheme.of(kind)
        return self._call("GET", resource, key.name, lambda: self._server.get(resource.plural, key.name))

    async def create(self, kind: Kind[T], body: JSON, *, namespace: str = "") -> T:
        resource = self.scheme.of(kind)
        return self._write(
            "create", resource, body["metadata"]["name"], lambda: self._server.create(resource.plural, body)
        )

    async def patch(
        self,
        kind: Kind[T],
        key: Key,
        body: JSON | Sequence[JSON],
        *,
        form: PatchType = PatchType.MERGE,
        subresource: str = "",
        resource_version: str | None = None,
    ) -> T:
        assert isinstance(body, dict)
        assert form is PatchType.MERGE
        assert (subresource == "status") == ("status" in body), "a status goes to its subresource, alone"
        resource = self.scheme.of(kind)
        return self._write(
            "status" if subresource else "patch",
            resource,
            key.name,
            lambda: self._server.patch(resource.plural, key.name, body, resource_version),
        )

    async def delete(
        self,
        kind: Kind[Any],
        key: Key,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: DeletionPropagation | None = None,
        grace: timedelta | None = None,
    ) -> None:
        resource = self.scheme.of(kind)
        self._write("delete", resource, key.name, lambda: self._server.delete(resource.plural, key.name, uid))

    async def apply(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("the engine never applies")

    update = apply

    def _write(self, verb: str, resource: Resource[T], name: str, perform: Callable[[], JSON]) -> T:
        def perform_and_report() -> JSON:
            before = self._server.find(resource.plural, name)
            result = perform()
            after = self._server.find(resource.plural, name)
            if after is not before:
                self._on_write(WorldWrite(verb, resource.plural, before, after))
            return result

        return self._call(_HTTP_METHODS[verb], resource, name, perform_and_report)

    def _call(self, method: str, resource: Resource[T], name: str, perform: Callable[[], JSON]) -> T:
        if self._dead:
            raise SimulatedCrash
        match self._faults.due(method, f"/{resource.plural}/{name}"):
            case Fault(what=int(code)):
                raise status_error(code, STATUS_REASONS.get(code, ""), f"the server said {code}")
            case Fault(what="unreachable"):
                raise Unreachable("no route")
            case Fault(what="dies"):
                self._die()
            case Fault(what="dies after"):
                perform()
                self._die()
            case Fault(what="lost"):
                perform()
                raise Unreachable("the answer was lost")
        return decode_as(perform(), resource.model)

    def _die(self) -> NoReturn:
        self._dead = True
        raise SimulatedCrash


_HTTP_METHODS = {"create": "POST", "patch": "PATCH", "status": "PATCH", "delete": "DELETE"}


def status_error(code: int, reason: str, message: str) -> KubeError:
    return error_from_status(Status(status="Failure", code=code, reason=reason, message=message))


def decode_as(body: JSON, model: type[T]) -> T:
    """Decode an object as the client and the informers do."""
    if model is dict:
        return body  # type: ignore[return-value]
    return msgspec.convert(body, model)


def controller_uid(body: Mapping[str, Any]) -> str | None:
    """The uid of the controlling owner."""
    for reference in body["metadata"].get("ownerReferences") or []:
        if reference.get("controller"):
            uid: str = reference["uid"]
            return uid
    return None


def labels_of(body: Mapping[str, Any]) -> dict[str, str]:
    return body["metadata"].get("labels") or {}
