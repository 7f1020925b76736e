"""Typed verbs on any Kubernetes-compatible server.

Reads return structs with only the fields that gangline uses, so a decoded object is never written back: a write is a
create, an apply, a patch or a delete with a JSON body. Requests are built here, in `pods.py` and in `discovery.py`;
their URLs come from `paths.py`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import msgspec

from gangline.api.meta import EVERYTHING, JSON, Key, Object, Selector
from gangline.api.scale import Scale
from gangline.api.scheme import CORE_SCHEME, Resource, Scheme
from gangline.base.clock import Clock, SystemClock
from gangline.base.errors import InputError
from gangline.kube.errors import ApiError
from gangline.kube.options import (
    DEFAULT_WRITE_OPTIONS,
    DeleteOptions,
    DeletionPropagation,
    PatchType,
    WriteOptions,
)
from gangline.kube.pages import Page, read_page
from gangline.kube.paths import collection_path, object_path, selector_query, writable_collection_path
from gangline.kube.request_sender import RequestSender, Throttle, decode_response
from gangline.kube.transport.api import QueryParams, Request, ResponseStream, Transport

if TYPE_CHECKING:
    from gangline.kube.protobuf import ProtobufBodies
    from gangline.kube.watch import WatchEvent

T = TypeVar("T")

_APPLY_PATCH = "application/apply-patch+yaml"
_JSON = "application/json"
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_METADATA = f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{_JSON}"
"""Metadata alone, or the whole object from a server that cannot leave out the rest."""
Kind = type[T] | Resource[T]

PAGE_SIZE = 500
WATCH_IDLE_TIMEOUT = timedelta(minutes=3)
"""Servers send a bookmark about every minute, so a longer silence means that the connection is dead."""


class ApiReader(Protocol):
    """The part of a client that only reads."""

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
    ) -> "AsyncIterator[WatchEvent[T]]": ...


class ApiWriter(Protocol):
    """The part of a client that writes."""

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


def metadata_only(resource: Resource[Any]) -> Resource[Object]:
    """The same resource, of whose objects only the metadata is read: a server sends nothing else in a response.

    For writes whose result nobody needs: a pod of a large job is tens of kilobytes. Lists and watches are not shortened.
    """
    return Resource(
        resource.group, resource.version, resource.kind, resource.plural, Object, namespaced=resource.namespaced
    )


class Client:
    """`ApiReader` and `ApiWriter` over a transport. Holds no state of its own; tasks can share it.

    A kind is a type in the scheme or a `Resource`. Objects are decoded to the resource's model; with
    `unstructured(kind)`, or any `Resource` whose model is `dict`, they are the full JSON.

    Every verb raises `ApiError` (one class per reason), `Unreachable`, `MalformedResponse` when a successful response
    cannot be decoded, or `InputError` for an invalid name, before anything is sent. `RequestSender` says which
    requests are sent again. All verbs can be cancelled; a cancelled write may or may not have been carried out.
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
        protobuf: "ProtobufBodies | None" = None,
    ) -> None:
        """With `protobuf`, objects of built-in kinds are created and watched in protobuf, if the server knows it."""
        self.transport, self.scheme, self.options = transport, scheme, options
        self._protobuf = protobuf
        # For requests that are no verb of a resource.
        self.requests = RequestSender(transport, clock or SystemClock(), limit, timeout)

    def with_transport(self, transport: Transport) -> Self:
        """A copy of this client that sends over another transport."""
        import copy  # slow to import, and not needed to read

        other = copy.copy(self)
        other.transport, other.requests = transport, self.requests.with_transport(transport)
        return other

    def with_options(self, options: WriteOptions) -> Self:
        """A copy of this client that writes with other options: another field manager, or a dry run."""
        import copy  # slow to import, and not needed to read

        other = copy.copy(self)
        other.options = options
        return other

    def unstructured(self, kind: Kind[Any]) -> Resource[JSON]:
        """The same resource, decoded to full JSON: for printing, copying, editing."""
        typed = self.scheme.of(kind)
        return Resource(
            typed.group, typed.version, typed.kind, typed.plural, dict[str, Any], namespaced=typed.namespaced
        )

    # Reads

    async def get(self, kind: Kind[T], key: Key) -> T:
        """One object. Raises `NotFound`."""
        resource = self.scheme.of(kind)
        request = Request("GET", object_path(resource, key), accept=_accept(resource))
        return await self.requests.call_typed(request, resource.model)

    async def list(
        self, kind: Kind[T], where: Selector = EVERYTHING, *, limit: int | None = None, token: str = ""
    ) -> Page[T]:
        """One page from a continue token on, or from the start; without a limit, all objects.

        Objects that do not fit their type are left out of `items` and named in `unreadable`.
        """
        resource = self.scheme.of(kind)
        query = selector_query(where)
        query += (("limit", str(limit)),) if limit is not None else ()
        query += (("continue", token),) if token else ()
        request = Request("GET", collection_path(resource, where.namespace), query)
        return decode_response(request, await self.requests.call(request), resource.model, read_page)

    async def pages(
        self, kind: Kind[T], where: Selector = EVERYTHING, *, limit: int = PAGE_SIZE
    ) -> AsyncGenerator[Page[T], None]:
        """All objects of one consistent snapshot, page by page; only one page is in memory at a time.

        Raises `Gone` if reading takes so long that the server has dropped the snapshot: list again from the start.
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
        """All readable objects of `pages`, one by one."""
        async with aclosing(self.pages(kind, where, limit=limit)) as pages:
            async for page in pages:
                for item in page.items:
                    yield item

    async def watch(
        self,
        kind: Kind[T],
        where: Selector = EVERYTHING,
        *,
        since: str,
        timeout: timedelta | None = None,
        idle: timedelta = WATCH_IDLE_TIMEOUT,
    ) -> "AsyncGenerator[WatchEvent[T], None]":
        """The events after resourceVersion `since`, until the server ends the watch (after `timeout`, or its own limit).

        Raises `Gone` when `since` is too old, and `StreamBroken` when the stream is cut off, malformed, or silent for
        longer than `idle`. Use `aclosing` to leave early.
        """
        # Imported here: most commands never watch, and all should start fast.
        from gangline.kube.watch import watch_events

        resource = self.scheme.of(kind)
        query: QueryParams = (("watch", "true"), ("allowWatchBookmarks", "true"), ("resourceVersion", since))
        query += (("timeoutSeconds", str(int(timeout.total_seconds()))),) if timeout is not None else ()
        accept = self._watch_accept(resource)
        request = Request(
            "GET", collection_path(resource, where.namespace), selector_query(where) + query, accept=accept
        )
        async with self.requests.stream(request, idle=idle) as stream:
            if accept != _JSON and (protobuf := _protobuf_events(stream, resource)) is not None:
                events = protobuf
            else:
                events = watch_events(stream.chunks(), resource.model)
            # Without aclosing, a generator that is left early is closed some time later, by another task.
            async with aclosing(events):
                async for event in events:
                    yield event

    def _watch_accept(self, resource: Resource[Any]) -> str:
        if self._protobuf is None or not issubclass(resource.model, msgspec.Struct):
            return _JSON
        from gangline.kube.protobuf import WATCH_ACCEPT, has_protobuf

        return WATCH_ACCEPT if has_protobuf(resource) else _JSON

    # Writes

    async def create(self, kind: Kind[T], body: JSON, *, namespace: str = "") -> T:
        """Create an object in `namespace`, by default the body's. Raises `AlreadyExists`.

        A namespace that differs from the body's is a `BadRequest`; for cluster-scoped kinds it is ignored.
        """
        resource = self.scheme.of(kind)
        where = (namespace or _metadata(body).get("namespace") or "") if resource.namespaced else ""
        path, query, accept = writable_collection_path(resource, where), self.options.query(), _accept(resource)
        if self._protobuf is not None and (content := self._protobuf.encode(resource, body)) is not None:
            request = Request("POST", path, query, content, _PROTOBUF, accept)
            try:
                return await self.requests.call_typed(request, resource.model)
            except ApiError as error:
                if not self._protobuf.is_refused(error):
                    raise
        content = msgspec.json.encode(_with_type_meta(resource, body))
        return await self.requests.call_typed(Request("POST", path, query, content, _JSON, accept), resource.model)

    async def apply(self, kind: Kind[T], body: JSON, *, owner: str, force: bool = False, subresource: str = "") -> T:
        """Server-side apply: `owner` becomes the manager of these fields of the object. Idempotent.

        Raises `Conflict` when another manager owns a field with a different value; `force` takes the field over.
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
            _APPLY_PATCH,
            _accept(resource),
        )
        return await self.requests.call_typed(request, resource.model)

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
        """Change some fields. With `resource_version`, raises `Conflict` if the object has changed since."""
        resource = self.scheme.of(kind)
        if resource_version is not None:
            body = _with_precondition(body, resource_version)
        request = Request(
            "PATCH",
            object_path(resource, key, subresource),
            self.options.query(),
            msgspec.json.encode(body),
            form.value,
            _accept(resource),
        )
        return await self.requests.call_typed(request, resource.model)

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
        """Request deletion. Raises `NotFound`, and `Conflict` if the object has another `uid` or `resource_version`.

        The object may still exist when this returns: finalizers and the grace period delay its removal.
        """
        options = DeleteOptions(
            uid=uid,
            resource_version=resource_version,
            propagation=propagation,
            grace=grace,
            dry_run=self.options.dry_run,
        )
        # The response, the whole object or a Status, is not read.
        await self._delete(object_path(self.scheme.of(kind), key), (), options, accept=_METADATA)

    async def delete_all(
        self,
        kind: Kind[Any],
        where: Selector,
        *,
        propagation: DeletionPropagation | None = None,
        grace: timedelta | None = None,
    ) -> None:
        """Request deletion of all selected objects in one namespace."""
        options = DeleteOptions(propagation=propagation, grace=grace, dry_run=self.options.dry_run)
        await self._delete(
            writable_collection_path(self.scheme.of(kind), where.namespace), selector_query(where), options
        )

    async def _delete(self, path: str, query: QueryParams, options: DeleteOptions, accept: str = _JSON) -> None:
        body = msgspec.json.encode(options.body())
        await self.requests.call(Request("DELETE", path, query, body, _JSON, accept))

    # Scale

    async def scale(self, kind: Kind[Any], key: Key, replicas: int | None = None) -> Scale:
        """The scale subresource of a kind that has one; with `replicas`, set it first."""
        path = object_path(self.scheme.of(kind), key, "scale")
        if replicas is None:
            return await self.requests.call_typed(Request("GET", path), Scale)
        body = msgspec.json.encode({"spec": {"replicas": replicas}})
        return await self.requests.call_typed(
            Request("PATCH", path, self.options.query(), body, PatchType.MERGE.value), Scale
        )


def _protobuf_events(stream: ResponseStream, resource: Resource[T]) -> "AsyncGenerator[WatchEvent[T], None] | None":
    """The events of a watch; None if the server does not send them in protobuf."""
    from gangline.kube.protobuf import is_protobuf, watch_events

    return watch_events(stream.chunks(), resource) if is_protobuf(stream.response.headers) else None


def _accept(resource: Resource[Any]) -> str:
    return _METADATA if resource.model is Object else _JSON


def _metadata(body: JSON) -> JSON:
    metadata = body.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise InputError(f"metadata: is {type(metadata).__name__}; write a mapping with a name")
    return metadata


def _with_type_meta(resource: Resource[Any], body: JSON) -> JSON:
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def _with_precondition(body: JSON | Sequence[JSON], version: str) -> JSON | Sequence[JSON]:
    """The patch with the resourceVersion it is made for: the server refuses it for any other."""
    if isinstance(body, dict):
        return {**body, "metadata": {**_metadata(body), "resourceVersion": version}}
    # Not "test": the server would report an invalid patch instead of a conflict.
    return [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}, *body]
