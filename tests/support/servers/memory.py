"""An API server as a dictionary, for tests of code that gets, creates and patches.

As on a real server, resourceVersions move on every change and on nothing else, a stale one is a Conflict, names
are unique. No watches and no server-side apply: tests that need those use a real or an embedded server.
"""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

from gangline.api.codec.codec import decode, encode
from gangline.api.meta import JSON, Key
from gangline.api.scheme import CORE_SCHEME
from gangline.kube.client import Kind
from gangline.kube.errors import ApiError, Status, error_from_status

T = TypeVar("T")


class MemoryCall(NamedTuple):
    """One request: its verb, where it goes, and what carrying it out does."""

    verb: str
    plural: str
    key: Key
    perform: Callable[[], JSON]


CallHandler = Callable[[MemoryCall], Awaitable[JSON]]


async def perform_call(call: MemoryCall) -> JSON:
    """Carry out a call at once: the wire that loses nothing."""
    return call.perform()


class MemoryServer:
    """The objects, and every change ever made, as (verb, body after it)."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, Key], JSON] = {}
        self.history: list[tuple[str, JSON]] = []

    def client(self, wire: CallHandler = perform_call) -> "MemoryClient":
        """A client whose requests go through `wire`, which may delay or lose them."""
        return MemoryClient(self, wire)

    def get(self, plural: str, key: Key) -> JSON:
        try:
            return self.objects[plural, key]
        except KeyError:
            raise api_failure(404, "NotFound") from None

    def create(self, plural: str, key: Key, body: JSON) -> JSON:
        if (plural, key) in self.objects:
            raise api_failure(409, "AlreadyExists")
        return self._store("create", plural, key, {**body, "metadata": {**body["metadata"], "uid": key.name}})

    def patch(self, plural: str, key: Key, patch: JSON) -> JSON:
        before = self.get(plural, key)
        wanted = patch.get("metadata", {}).get("resourceVersion", object_version(before))
        if wanted != object_version(before):
            raise api_failure(409, "Conflict")
        after = apply_merge_patch(before, patch)
        return before if after == before else self._store("patch", plural, key, after)

    def delete(self, plural: str, key: Key) -> JSON:
        gone = self.get(plural, key)
        del self.objects[plural, key]
        self.history.append(("delete", gone))
        return gone

    def _store(self, verb: str, plural: str, key: Key, body: JSON) -> JSON:
        metadata = {**body["metadata"], "resourceVersion": str(len(self.history) + 1)}
        stored = {**body, "metadata": metadata}
        self.objects[plural, key] = stored
        self.history.append((verb, stored))
        return stored


class MemoryClient:
    def __init__(self, server: MemoryServer, wire: CallHandler) -> None:
        self._server, self._wire = server, wire

    async def get(self, kind: Kind[T], key: Key) -> T:
        return await self._call("get", kind, key, lambda plural: self._server.get(plural, key))

    async def create(self, kind: Kind[T], body: JSON, *, namespace: str = "") -> T:
        key = Key(namespace or body["metadata"].get("namespace", ""), body["metadata"]["name"])
        return await self._call("create", kind, key, lambda plural: self._server.create(plural, key, body))

    async def patch(self, kind: Kind[T], key: Key, body: JSON, *, resource_version: str | None = None) -> T:
        guard = {} if resource_version is None else {"metadata": {"resourceVersion": resource_version}}
        change = apply_merge_patch(body, guard)
        return await self._call("patch", kind, key, lambda plural: self._server.patch(plural, key, change))

    async def _call(self, verb: str, kind: Kind[T], key: Key, perform: Callable[[str], JSON]) -> T:
        resource = CORE_SCHEME.of(kind)
        call = MemoryCall(verb, resource.plural, key, lambda: perform(resource.plural))
        return decode(encode(await self._wire(call)), resource.model)


def api_failure(code: int, reason: str) -> ApiError:
    return error_from_status(Status(status="Failure", code=code, reason=reason, message=reason))


def object_version(body: JSON) -> str:
    found: str = body["metadata"]["resourceVersion"]
    return found


def apply_merge_patch(value: Any, patch: Any) -> Any:
    """The value after a JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(value) if isinstance(value, dict) else {}
    for name, change in patch.items():
        if change is None:
            result.pop(name, None)
        else:
            result[name] = apply_merge_patch(result.get(name), change)
    return result
