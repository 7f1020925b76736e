"""Typed verbs on any Kubernetes-compatible server.

Reads give structs with the fields we decide on, so nothing decoded is ever written back: a write is a create, an
apply, a patch or a delete, with a JSON body. Here, in `pods.py` and in `discovery.py` requests are made; their
URLs come from `paths.py`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import msgspec

from gangline.api.codec.codec import DecodeError, decode
from gangline.api.core import Scale
from gangline.api.meta import EVERYTHING, JSON, Key, Selector
from gangline.api.scheme import CORE_SCHEME, Resource, Scheme
from gangline.base.clock import Clock, SystemClock
from gangline.base.errors import InputError
from gangline.kube.errors import ApiError, MalformedResponse, ServerError, TooManyRequests
from gangline.kube.options import (
    APPLY_PATCH,
    DEFAULT_WRITE_OPTIONS,
    DeleteOptions,
    DeletionPropagation,
    PatchType,
    WriteOptions,
)
from gangline.kube.pages import Page, read_page
from gangline.kube.paths import collection_path, object_path, selector_query, writable_collection_path
from gangline.kube.transport.api import (
    QueryParams,
    Request,
    ResponseStream,
    Transport,
    WebSocket,
    response_error,
)
from gangline.kube.watch import WatchEvent, watch_events

T = TypeVar("T")
R = TypeVar("R")
Kind = type[T] | Resource[T]

PAGE_SIZE = 500
MAX_ATTEMPTS = 8
"""How often a throttled request is sent in all."""
MAX_THROTTLE_WAIT = timedelta(minutes=1)
"""A server that asks for more is not waited for here: the caller has better things to do."""
WATCH_IDLE_TIMEOUT = timedelta(minutes=3)


class ApiReader(Protocol):
    """What observing code needs of a client."""

    async def get(self, kind: Kind[T], key: Key) -> T: ...
    def pages(self, kind: Kind[T], where: Selector = ..., *, limit: int = ...) -> AsyncIterator[Page[T]]: ...
    def watch(
        self,
        kind: Kind[T],
        where: Selector = ...,
        *,
        since: str,
        timeout: timedelta | None = ...,
        idle: timedelta = ...,
    ) -> AsyncIterator[WatchEvent[T]]: ...


class ApiWriter(Protocol):
    """What acting code needs of a client."""

    async def create(self, kind: Kind[T], body: JSON, *, namespace: str = ...) -> T: ...
    async def apply(self, kind: Kind[T], body: JSON, *, owner: str, force: bool = ..., subresource: str = ...) -> T: ...
    async def patch(
        self,
        kind: Kind[T],
        key: Key,
        body: JSON | Sequence[JSON],
        *,
        form: PatchType = ...,
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
        propagation: DeletionPropagation | None = ...,
        grace: timedelta | None = ...,
    ) -> None: ...


class Throttle(Protocol):
    """A client-side limit, for servers without API priority and fairness."""

    async def wait(self) -> None: ...


class Client:
    """Reader and Writer over a transport. Holds no state of its own; safe to share between tasks.

    Every verb raises `ApiError` (one class per reason), `Unreachable`, `MalformedResponse` when a good answer cannot be
    read, or `InputError` for a name that cannot be one, before anything is sent. A kind is a type in the scheme or
    a `Resource`; with `plain(kind)`, or any `Resource` whose model is `dict`, objects come as whole JSON.

    Throttled requests are sent again when the server says, a bounded number of times: 429 and 503 with a
    Retry-After, other 5xx with one only where sending twice does no harm. Nothing is repeated after `Unreachable`:
    the server may have done it. All verbs are cancel-safe, in that a cancelled write was carried out or not.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        scheme: Scheme = CORE_SCHEME,
        options: WriteOptions = DEFAULT_WRITE_OPTIONS,
        clock: Clock | None = None,
        limit: Throttle | None = None,
        timeout: timedelta | None = None,
    ) -> None:
        self.transport = transport
        self.scheme = scheme
        self.options = options
        self._clock = clock or SystemClock()
        self._throttle = limit
        # Of one request, without waiting for throttling. None: the transport's own.
        self._timeout = timeout

    def with_options(self, options: WriteOptions) -> "Client":
        """This client, writing otherwise: another field manager, or a dry run."""
        return Client(
            self.transport,
            scheme=self.scheme,
            options=options,
            clock=self._clock,
            limit=self._throttle,
            timeout=self._timeout,
        )

    def unstructured(self, kind: Kind[Any]) -> Resource[JSON]:
        """The same resource, read as the server sends it: for printing, copying, editing."""
        known = self.scheme.of(kind)
        return Resource(
            known.group, known.version, known.kind, known.plural, dict[str, Any], namespaced=known.namespaced
        )

    # Reads

    async def get(self, kind: Kind[T], key: Key) -> T:
        """One object. Raises `NotFound`."""
        resource = self.scheme.of(kind)
        return await self.call_typed(Request("GET", object_path(resource, key)), resource.model)

    async def list(
        self, kind: Kind[T], where: Selector = EVERYTHING, *, limit: int | None = None, token: str = ""
    ) -> Page[T]:
        """One page from a continue token on, or from the start; without a limit, everything at once.

        Objects that do not fit their type are left out, and named in the page's `unreadable`.
        """
        resource = self.scheme.of(kind)
        query = selector_query(where)
        query += (("limit", str(limit)),) if limit is not None else ()
        query += (("continue", token),) if token else ()
        request = Request("GET", collection_path(resource, where.namespace), query)
        return _decoded_answer(request, await self.call(request), resource.model, read_page)

    async def pages(
        self, kind: Kind[T], where: Selector = EVERYTHING, *, limit: int = PAGE_SIZE
    ) -> AsyncGenerator[Page[T], None]:
        """All objects, page by page, one consistent snapshot.

        Holds one page at a time. Raises `Gone` if the whole takes so long that the server forgot the snapshot:
        what was given until then stands, but start again for the rest.
        """
        token = ""
        while True:
            page = await self.list(kind, where, limit=limit, token=token)
            token = page.metadata.continue_
            yield page
            del page  # before the next one arrives
            if not token:
                return

    async def iterate(
        self, kind: Kind[T], where: Selector = EVERYTHING, *, limit: int = PAGE_SIZE
    ) -> AsyncGenerator[T, None]:
        """All objects that can be read, one by one, as `pages` gives them."""
        async with aclosing(self.pages(kind, where, limit=limit)) as pages:
            async for page in pages:
                for found in page.items:
                    yield found

    async def watch(
        self,
        kind: Kind[T],
        where: Selector = EVERYTHING,
        *,
        since: str,
        timeout: timedelta | None = None,
        idle: timedelta = WATCH_IDLE_TIMEOUT,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """What happens after a resourceVersion, until the server ends the connection, after `timeout` or its own.

        Raises `Gone` when `since` is too old, `StreamBroken` when the stream is cut, garbled, or silent for
        longer than `idle` (servers send a bookmark about every minute). Close it (`aclosing`) to leave early.
        """
        resource = self.scheme.of(kind)
        query: QueryParams = (("watch", "true"), ("allowWatchBookmarks", "true"), ("resourceVersion", since))
        query += (("timeoutSeconds", str(int(timeout.total_seconds()))),) if timeout is not None else ()
        request = Request("GET", collection_path(resource, where.namespace), selector_query(where) + query)
        async with (
            self.stream(request, idle=idle) as stream,
            # Left early, a generator would be closed by a task of its own, some time later.
            aclosing(watch_events(stream.chunks(), resource.model)) as events,
        ):
            async for event in events:
                yield event

    # Writes

    async def create(self, kind: Kind[T], body: JSON, *, namespace: str = "") -> T:
        """Create what the body says, in `namespace` or where the body says. Raises `AlreadyExists`.

        A namespace that differs from the body's is a `BadRequest`; for kinds without namespaces it is ignored.
        """
        resource = self.scheme.of(kind)
        where = (namespace or _metadata(body).get("namespace") or "") if resource.namespaced else ""
        request = Request(
            "POST",
            writable_collection_path(resource, where),
            self.options.query(),
            msgspec.json.encode(_with_type_meta(resource, body)),
            "application/json",
        )
        return await self.call_typed(request, resource.model)

    async def apply(self, kind: Kind[T], body: JSON, *, owner: str, force: bool = False, subresource: str = "") -> T:
        """Server-side apply: the object has these fields, and `owner` owns them. Idempotent.

        Raises `Conflict` when somebody else owns a field with another value; `force` takes it from them.
        """
        resource = self.scheme.of(kind)
        metadata = _metadata(body)
        key = Key(metadata.get("namespace") or "", metadata.get("name") or "")
        query = msgspec.structs.replace(self.options, field_manager=owner).query()
        request = Request(
            "PATCH",
            object_path(resource, key, subresource),
            query + ((("force", "true"),) if force else ()),
            msgspec.json.encode(_with_type_meta(resource, body)),
            APPLY_PATCH,
        )
        return await self.call_typed(request, resource.model)

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
        """Change some fields. With `resource_version`, only if nobody changed the object since: else `Conflict`."""
        resource = self.scheme.of(kind)
        if resource_version is not None:
            body = _with_precondition(body, resource_version)
        request = Request(
            "PATCH",
            object_path(resource, key, subresource),
            self.options.query(),
            msgspec.json.encode(body),
            form.value,
        )
        return await self.call_typed(request, resource.model)

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
        """Ask for deletion. With `uid` or `resource_version`, only of that very object: else `Conflict`.

        Raises `NotFound`. Returning means the server agreed: finalizers and grace may keep the object for a while.
        """
        options = DeleteOptions(
            uid=uid,
            resource_version=resource_version,
            propagation=propagation,
            grace=grace,
            dry_run=self.options.dry_run,
        )
        await self._delete(object_path(self.scheme.of(kind), key), (), options)

    async def delete_all(
        self,
        kind: Kind[Any],
        where: Selector,
        *,
        propagation: DeletionPropagation | None = None,
        grace: timedelta | None = None,
    ) -> None:
        """Ask for deletion of all that is selected, in one namespace."""
        options = DeleteOptions(propagation=propagation, grace=grace, dry_run=self.options.dry_run)
        await self._delete(
            writable_collection_path(self.scheme.of(kind), where.namespace), selector_query(where), options
        )

    async def _delete(self, path: str, query: QueryParams, options: DeleteOptions) -> None:
        body = msgspec.json.encode(options.body())
        await self.call(Request("DELETE", path, query, body, "application/json"))

    # Scale

    async def scale(self, kind: Kind[Any], key: Key, replicas: int | None = None) -> Scale:
        """The scale subresource of any kind that has one; with a number, set it first."""
        path = object_path(self.scheme.of(kind), key, "scale")
        if replicas is None:
            return await self.call_typed(Request("GET", path), Scale)
        body = msgspec.json.encode({"spec": {"replicas": replicas}})
        return await self.call_typed(Request("PATCH", path, self.options.query(), body, PatchType.MERGE.value), Scale)

    # Wire

    async def call_typed(self, request: Request, model: type[T]) -> T:
        """Send, and decode a good answer. Raises `MalformedResponse` when it does not fit."""
        return _decoded_answer(request, await self.call(request), model, decode)

    async def call(self, request: Request) -> bytes:
        """Send, wait out throttling, and give the body of a good answer."""
        tries = 1
        while True:
            await self._wait_for_throttle()
            response = await self.transport.send(request, timeout=self._timeout)
            error = response_error(response)
            if error is None:
                return response.body
            await self._wait_or_raise(request, error, tries)
            tries += 1

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator[ResponseStream]:
        """Send, wait out throttling, and give a good answer to read as it arrives."""
        tries = 1
        while True:
            await self._wait_for_throttle()
            async with self.transport.stream(request, idle=idle) as stream:
                error = response_error(stream.response)
                if error is None:
                    yield stream
                    return
            await self._wait_or_raise(request, error, tries)
            tries += 1

    @asynccontextmanager
    async def frames(self, request: Request, protocols: tuple[str, ...]) -> AsyncIterator[WebSocket]:
        """A WebSocket. Sent once: it starts something."""
        await self._wait_for_throttle()
        async with self.transport.frames(request, protocols) as frames:
            yield frames

    async def _wait_for_throttle(self) -> None:
        if self._throttle is not None:
            await self._throttle.wait()

    async def _wait_or_raise(self, request: Request, error: ApiError, tries: int) -> None:
        """Return when the request may be sent again; raise the error if it may not."""
        wait = retry_delay(request, error)
        if wait is None or wait > MAX_THROTTLE_WAIT or tries >= MAX_ATTEMPTS:
            raise error
        await self._clock.sleep(wait)


def retry_delay(request: Request, error: ApiError) -> timedelta | None:
    """How long to wait before sending it again; None when that is not what the server means."""
    match error:
        case TooManyRequests():
            # An eviction that a disruption budget forbids is also a 429. But that is an answer, and may take days.
            budget = any(cause.reason == "DisruptionBudget" for cause in error.causes)
            return None if budget else error.retry_after
        case ServerError() if request.is_idempotent or error.code == 503:
            # The others may come after the deed: 504, and 500 when a webhook or the store took too long.
            return error.retry_after
    return None


def _decoded_answer(request: Request, body: bytes, model: type[T], how: Callable[[bytes, type[T]], R]) -> R:
    try:
        return how(body, model)
    except DecodeError as error:
        raise MalformedResponse(f"{request}: the server's answer cannot be read: {error}") from error


def _metadata(body: JSON) -> JSON:
    metadata = body.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise InputError(f"metadata: is {type(metadata).__name__}; write a mapping with a name")
    return metadata


def _with_type_meta(resource: Resource[Any], body: JSON) -> JSON:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def _with_precondition(body: JSON | Sequence[JSON], version: str) -> JSON | Sequence[JSON]:
    """A patch that also sets the version it was made for: the server then refuses it for any other."""
    if isinstance(body, dict):
        return {**body, "metadata": {**_metadata(body), "resourceVersion": version}}
    # Not "test": the server would call the patch invalid, instead of telling that it came too late.
    return [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}, *body]
