"""Typed verbs on any Kubernetes-compatible server. The only place that knows URLs.

Reads give structs with the fields we decide on, so nothing decoded is ever written back: a write is a create, an
apply, a patch or a delete, with a JSON body.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import quote

import msgspec

from gangline.api.codec import decode
from gangline.api.core import Scale
from gangline.api.meta import EVERYTHING, JSON, Key, ListMeta, Selector, Wire
from gangline.api.scheme import CORE, Resource, Scheme
from gangline.base.clock import Clock, SystemClock
from gangline.kube.errors import ApiError, ServerError, TooManyRequests, read_error
from gangline.kube.transport import Request, Response, Transport
from gangline.kube.watch import Change, changes

T = TypeVar("T")
Kind = type[T] | Resource[T]
Query = tuple[tuple[str, str], ...]

PAGE = 500
TRIES = 8


class PatchForm(StrEnum):
    """The three ways to say what should change, by their content types."""

    MERGE = "application/merge-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"
    JSON = "application/json-patch+json"


class Propagation(StrEnum):
    """What becomes of the children of a deleted object."""

    BACKGROUND = "Background"
    FOREGROUND = "Foreground"
    ORPHAN = "Orphan"


class Page(Wire, Generic[T], frozen=True):
    """Part of a list, or all of it: `metadata.continue_` says whether more follows."""

    metadata: ListMeta = ListMeta()
    items: tuple[T, ...] = ()


class Reader(Protocol):
    """What observing code needs of a client."""

    async def get(self, kind: Kind[T], key: Key) -> T: ...
    def pages(self, kind: Kind[T], where: Selector = ..., *, limit: int = ...) -> AsyncIterator[Page[T]]: ...
    def watch(
        self, kind: Kind[T], where: Selector = ..., *, since: str, idle: timedelta = ...
    ) -> AsyncIterator[Change[T]]: ...


class Writer(Protocol):
    """What acting code needs of a client."""

    async def create(self, kind: Kind[T], body: JSON, *, namespace: str = ...) -> T: ...
    async def apply(
        self, kind: Kind[T], body: JSON, *, owner: str, force: bool = ..., subresource: str = ...
    ) -> T: ...
    async def patch(
        self,
        kind: Kind[T],
        key: Key,
        body: JSON | Sequence[JSON],
        *,
        form: PatchForm = ...,
        subresource: str = ...,
        resource_version: str | None = ...,
    ) -> T: ...
    async def delete(
        self,
        kind: Kind[Any],
        key: Key,
        *,
        uid: str | None = ...,
        resource_version: str | None = ...,
        propagation: Propagation | None = ...,
        grace: timedelta | None = ...,
    ) -> None: ...


class WriteOptions(msgspec.Struct, frozen=True):
    """How a client writes: in whose name, for real or not, and how strict the server is with unknown fields."""

    field_manager: str = "gangline"
    dry_run: bool = False
    field_validation: str = ""

    def query(self) -> Query:
        pairs = [("fieldManager", self.field_manager)]
        if self.dry_run:
            pairs.append(("dryRun", "All"))
        if self.field_validation:
            pairs.append(("fieldValidation", self.field_validation))
        return tuple(pairs)


DEFAULT_OPTIONS = WriteOptions()


class RateLimit(Protocol):
    """A client-side limit, for servers without API priority and fairness."""

    async def wait(self) -> None: ...


class Client:
    """Reader and Writer over a transport. Holds no state of its own; safe to share between tasks.

    Every verb raises `ApiError` (one class per reason) or `Unreachable`. Throttled requests (429, and 5xx with
    Retry-After) are sent again as the server asked, a bounded number of times.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        scheme: Scheme = CORE,
        options: WriteOptions = DEFAULT_OPTIONS,
        clock: Clock | None = None,
        limit: RateLimit | None = None,
    ) -> None:
        self.transport = transport
        self.scheme = scheme
        self._options = options
        self._clock = clock or SystemClock()
        self._limit = limit

    def writing(self, options: WriteOptions) -> "Client":
        """This client, writing otherwise: another field manager, or a dry run."""
        return Client(
            self.transport, scheme=self.scheme, options=options, clock=self._clock, limit=self._limit
        )

    # Reads

    async def get(self, kind: Kind[T], key: Key) -> T:
        resource = self.scheme.of(kind)
        return decode(
            await self.call(Request("GET", path(resource, key.namespace, key.name))), resource.model
        )

    async def list(self, kind: Kind[T], where: Selector = EVERYTHING, *, query: Query = ()) -> Page[T]:
        """One page as the server gives it; without `limit` in the query, everything at once."""
        resource = self.scheme.of(kind)
        request = Request("GET", path(resource, where.namespace), selection(where) + query)
        return decode(await self.call(request), page_of(resource.model))

    async def pages(
        self, kind: Kind[T], where: Selector = EVERYTHING, *, limit: int = PAGE
    ) -> AsyncIterator[Page[T]]:
        """All objects, page by page, one consistent snapshot. Raises `Gone` if it takes too long: start again."""
        token = ""
        while True:
            query: Query = (("limit", str(limit)),) + ((("continue", token),) if token else ())
            page = await self.list(kind, where, query=query)
            yield page
            token = page.metadata.continue_
            if not token:
                return

    async def watch(
        self,
        kind: Kind[T],
        where: Selector = EVERYTHING,
        *,
        since: str,
        idle: timedelta = timedelta(minutes=3),
    ) -> AsyncIterator[Change[T]]:
        """Changes after a resourceVersion, until the server ends the connection.

        Raises `Gone` when `since` is too old, `StreamBroken` when the stream is cut, garbled, or silent for
        longer than `idle` (servers send a bookmark about every minute).
        """
        resource = self.scheme.of(kind)
        query: Query = (("watch", "true"), ("allowWatchBookmarks", "true"), ("resourceVersion", since))
        request = Request("GET", path(resource, where.namespace), selection(where) + query)
        async with self.transport.stream(request, idle=idle) as stream:
            if stream.response.status >= 400:
                raise _error(stream.response)
            async for change in changes(stream.chunks(), resource.model):
                yield change

    # Writes

    async def create(self, kind: Kind[T], body: JSON, *, namespace: str = "") -> T:
        resource = self.scheme.of(kind)
        where = namespace or str(body.get("metadata", {}).get("namespace", ""))
        request = Request(
            "POST",
            path(resource, where),
            self._options.query(),
            msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind, **body}),
            "application/json",
        )
        return decode(await self.call(request), resource.model)

    async def apply(
        self, kind: Kind[T], body: JSON, *, owner: str, force: bool = False, subresource: str = ""
    ) -> T:
        """Server-side apply: the object has these fields, and `owner` owns them. Idempotent."""
        resource = self.scheme.of(kind)
        metadata = body["metadata"]
        options = msgspec.structs.replace(self._options, field_manager=owner)
        request = Request(
            "PATCH",
            path(resource, metadata.get("namespace", ""), metadata["name"], subresource),
            options.query() + ((("force", "true"),) if force else ()),
            msgspec.json.encode({"apiVersion": resource.api_version, "kind": resource.kind, **body}),
            "application/apply-patch+yaml",
        )
        return decode(await self.call(request), resource.model)

    async def patch(
        self,
        kind: Kind[T],
        key: Key,
        body: JSON | Sequence[JSON],
        *,
        form: PatchForm = PatchForm.MERGE,
        subresource: str = "",
        resource_version: str | None = None,
    ) -> T:
        """Change some fields. With `resource_version`, only if nobody changed the object since: else `Conflict`."""
        resource = self.scheme.of(kind)
        if resource_version is not None:
            body = _guarded(body, resource_version)
        request = Request(
            "PATCH",
            path(resource, key.namespace, key.name, subresource),
            self._options.query(),
            msgspec.json.encode(body),
            form.value,
        )
        return decode(await self.call(request), resource.model)

    async def delete(
        self,
        kind: Kind[Any],
        key: Key,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation | None = None,
        grace: timedelta | None = None,
    ) -> None:
        """Ask for deletion. With `uid` or `resource_version`, only of that very object: else `Conflict`."""
        resource = self.scheme.of(kind)
        body = _delete_options(uid, resource_version, propagation, grace)
        if self._options.dry_run:
            body["dryRun"] = ["All"]
        await self.call(
            Request(
                "DELETE",
                path(resource, key.namespace, key.name),
                body=msgspec.json.encode(body),
                content_type="application/json",
            )
        )

    async def delete_all(
        self, kind: Kind[Any], where: Selector, *, propagation: Propagation | None = None
    ) -> None:
        """Ask for deletion of all that is selected."""
        body = _delete_options(None, None, propagation, None)
        if self._options.dry_run:
            body["dryRun"] = ["All"]
        request = Request(
            "DELETE",
            path(self.scheme.of(kind), where.namespace),
            selection(where),
            msgspec.json.encode(body),
            "application/json",
        )
        await self.call(request)

    # Scale

    async def scale(self, kind: Kind[Any], key: Key, replicas: int | None = None) -> Scale:
        """The scale subresource of any kind; with a number, set it first."""
        target = path(self.scheme.of(kind), key.namespace, key.name, "scale")
        if replicas is None:
            return decode(await self.call(Request("GET", target)), Scale)
        body = msgspec.json.encode({"spec": {"replicas": replicas}})
        request = Request("PATCH", target, self._options.query(), body, PatchForm.MERGE.value)
        return decode(await self.call(request), Scale)

    # Wire

    async def call(self, request: Request) -> bytes:
        """Send, wait out throttling, and give the body of a good answer."""
        tries = 0
        while True:
            if self._limit is not None:
                await self._limit.wait()
            response = await self.transport.send(request)
            if response.status < 400:
                return response.body
            error = _error(response)
            tries += 1
            if (
                tries >= TRIES
                or error.retry_after is None
                or not isinstance(error, (TooManyRequests, ServerError))
            ):
                raise error
            await self._clock.sleep(error.retry_after)


def path(resource: Resource[Any], namespace: str = "", name: str = "", subresource: str = "") -> str:
    """Where an object, or a collection, lives on every Kubernetes-compatible server."""
    parts = ["apis", resource.group, resource.version] if resource.group else ["api", resource.version]
    if namespace and resource.namespaced:
        parts += ["namespaces", namespace]
    parts += [resource.plural, name, *subresource.split("/")]
    return "/" + "/".join(quote(part, safe="") for part in parts if part)


def selection(where: Selector) -> Query:
    """A selector as query parameters."""
    labels: Query = (("labelSelector", where.labels),) if where.labels else ()
    fields: Query = (("fieldSelector", where.fields),) if where.fields else ()
    return labels + fields


def page_of(model: type[T]) -> type[Page[T]]:
    """The type a list of a kind decodes to."""
    return Page[model]  # type: ignore[valid-type]


def _guarded(body: JSON | Sequence[JSON], version: str) -> JSON | Sequence[JSON]:
    if not isinstance(body, dict):
        return [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *body]
    return {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": version}}


def _delete_options(
    uid: str | None, version: str | None, propagation: Propagation | None, grace: timedelta | None
) -> JSON:
    body: JSON = {"apiVersion": "v1", "kind": "DeleteOptions"}
    preconditions = {k: v for k, v in (("uid", uid), ("resourceVersion", version)) if v is not None}
    if preconditions:
        body["preconditions"] = preconditions
    if propagation is not None:
        body["propagationPolicy"] = propagation.value
    if grace is not None:
        body["gracePeriodSeconds"] = int(grace.total_seconds())
    return body


def _error(response: Response) -> ApiError:
    after = response.headers.get("retry-after", "")
    return read_error(
        response.status, response.body, timedelta(seconds=int(after)) if after.isdigit() else None
    )
