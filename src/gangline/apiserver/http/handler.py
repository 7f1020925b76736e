"""The HTTP handler of the Kubernetes API. It decides only what concerns HTTP; the registry does the rest."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress

import msgspec
from aiohttp import web

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.apply.managed_fields import manager_name
from gangline.apiserver.auth.attributes import AccessAttributes
from gangline.apiserver.auth.authentication import Authenticator
from gangline.apiserver.auth.authorizer import Authorizer, check_access
from gangline.apiserver.auth.impersonation import impersonated_user
from gangline.apiserver.errors import StatusError, UnknownFields
from gangline.apiserver.http.access_reviews import ReviewHandler, ReviewRequest
from gangline.apiserver.http.body import MAX_BODY_BYTES, check_fields, check_kind, read_object, read_yaml
from gangline.apiserver.http.list import list_page, parse_resource_version
from gangline.apiserver.http.negotiation import Representation, error_representation, negotiate
from gangline.apiserver.http.nonresource import NonResourceHandler
from gangline.apiserver.http.patch import APPLY_PATCH, patch_function
from gangline.apiserver.http.query import check_list_options, check_write_options, deletion_options
from gangline.apiserver.http.representations import NegotiationError
from gangline.apiserver.http.request_info import RequestInfo, RequestVerb, query_flag, request_info, request_verb
from gangline.apiserver.http.watch import WatchRequest, watch_lines
from gangline.apiserver.patch.json_patch import deep_copy
from gangline.apiserver.registry.catalog import Catalog, ServedKind, allows_create_on_update
from gangline.apiserver.registry.object_meta import check_namespace, check_object_key, ensure_metadata
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.selection import Selection
from gangline.apiserver.registry.writes import WriteContext, WriteResult
from gangline.apiserver.users import UserInfo
from gangline.base.clock import Clock

log = logging.getLogger(__name__)

RESPONSE_CHUNK_BYTES = 2**18
"""The most bytes of a response that are encrypted and sent at once."""
NO_CACHE = "no-cache, private"

SubresourceHandler = Callable[["ApiRequest"], Awaitable[web.StreamResponse]]


class ApiRequest(msgspec.Struct, frozen=True):
    """A parsed and authorized request for a resource."""

    http: web.BaseRequest
    user: UserInfo
    info: RequestInfo
    verb: RequestVerb
    served_kind: ServedKind
    query: Mapping[str, str]
    warnings: list[str]

    def write_context(self) -> WriteContext:
        """The options of a write request."""
        return WriteContext(
            field_manager=manager_name(self.query.get("fieldManager", ""), self.http.headers.get("User-Agent", "")),
            dry_run=bool(self.query.get("dryRun")),
            subresource=self.info.subresource,
            field_validation=self.query.get("fieldValidation", ""),
            user=self.user,
        )

    async def read_body(self) -> bytes:
        return await read_body(self.http)

    @property
    def media_type(self) -> str:
        """The content type without parameters."""
        return self.http.headers.get("Content-Type", "").partition(";")[0].strip()

    def decode_body(self, raw: bytes) -> JSON:
        """The object in a body, decoded by its content type. Raises `StatusError`."""
        return read_object(raw, self.http.headers.get("Content-Type", ""), self.served_kind.resource.kind)


class ApiHandler:
    """Handles the requests of an `aiohttp.web.Server`."""

    def __init__(
        self,
        registry: Registry,
        authenticator: Authenticator,
        authorizer: Authorizer,
        clock: Clock,
        nonresource: NonResourceHandler,
        *,
        subresources: Mapping[tuple[str, str, str], SubresourceHandler] | None = None,
    ) -> None:
        """The keys of `subresources` are group, plural and name of the subresource."""
        self._registry, self._clock = registry, clock
        self._authenticator, self._authorizer = authenticator, authorizer
        self._catalog: Catalog = registry.catalog
        self._nonresource = nonresource
        self._subresource_handlers = dict(subresources or {})
        self._reviews = ReviewHandler(authenticator, authorizer)
        self._verb_handlers: Mapping[RequestVerb, SubresourceHandler] = {
            RequestVerb.GET: self._get,
            RequestVerb.LIST: self._list,
            RequestVerb.WATCH: self._watch,
            RequestVerb.CREATE: self._create,
            RequestVerb.UPDATE: self._update,
            RequestVerb.PATCH: self._patch,
            RequestVerb.DELETE: self._delete,
            RequestVerb.DELETE_COLLECTION: self._delete_collection,
        }

    async def __call__(self, http: web.BaseRequest) -> web.StreamResponse:
        response = await self._handle(http)
        if not response.prepared:
            response.headers.setdefault("Cache-Control", NO_CACHE)
        return response

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        warnings: list[str] = []
        try:
            return await self._route(http, warnings)
        except (StatusError, NegotiationError) as error:
            if isinstance(error, StatusError):
                warnings += error.warnings
            return _error_response(http, error.code, error.status, warnings)
        except Exception:
            # An error of the server itself must fail one request only.
            log.exception("request failed", extra={"method": http.method, "path": http.path})
            internal = apierrors.internal_error("see the server's log")
            return _error_response(http, internal.code, internal.status, warnings)

    # Routing

    async def _route(self, http: web.BaseRequest, warnings: list[str]) -> web.StreamResponse:
        peer = http.transport.get_extra_info("peercert") if http.transport is not None else None
        user = self._authenticator.authenticate(http.headers.get("Authorization"), peer)
        user = impersonated_user(user, http.headers.items(), self._authorizer)
        info = request_info(http.path)
        if info is None or not info.plural:
            check_access(self._authorizer, AccessAttributes(user, http.method.lower(), path=http.path))
            return self._serve_nonresource(http)
        verb = request_verb(http.method, info, http.query)
        if verb is None:
            raise apierrors.method_not_allowed()
        check_access(self._authorizer, access_attributes(user, verb, info))
        if info in self._reviews:
            return await self._serve_review(http, user, verb, info)
        served_kind = self._catalog.find(info.group, info.version, info.plural)
        if served_kind is None:
            return self._unknown_resource(info)
        if served_kind.deprecation_warning:
            warnings.append(served_kind.deprecation_warning)
        request = ApiRequest(http, user, info, verb, served_kind, http.query, warnings)
        return await self._serve_resource(request)

    def _unknown_resource(self, info: RequestInfo) -> web.StreamResponse:
        if not any(kind.resource.group == info.group and not kind.custom for kind in self._catalog):
            # kube-apiserver serves CRD groups by another server of its chain, which responds in plain text.
            return _page_not_found()
        raise apierrors.no_such_resource()

    async def _serve_review(
        self, http: web.BaseRequest, user: UserInfo, verb: RequestVerb, info: RequestInfo
    ) -> web.StreamResponse:
        self._reviews.check_verb(verb, info)
        accept, agent = http.headers.get("Accept", ""), http.headers.get("User-Agent", "")
        representation = negotiate(accept, http.query, now=self._clock.now, agent=agent, views=False)
        body = read_object(await read_body(http), http.headers.get("Content-Type", ""))
        manager = manager_name(http.query.get("fieldManager", ""), agent)
        review = self._reviews.review(ReviewRequest(user, info, body, manager, self._registry.timestamp()))
        encoded = representation.encode_status(review)
        return web.Response(body=encoded, status=201, content_type=representation.content_type)

    def _serve_nonresource(self, http: web.BaseRequest) -> web.StreamResponse:
        if http.method not in ("GET", "HEAD"):
            raise apierrors.method_not_allowed()
        page = self._nonresource.response(http.path, http.query, http.headers.get("Accept", ""))
        tag = page.headers.get("ETag")
        if tag is not None and tag in http.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=page.headers)
        headers = {"Content-Type": page.content_type, **page.headers}
        return web.Response(body=page.body, status=page.code, headers=headers)

    async def _serve_resource(self, request: ApiRequest) -> web.StreamResponse:
        info, served_kind = request.info, request.served_kind
        if info.subresource not in ("", "status"):
            handler = self._subresource_handler(served_kind, info.subresource)
            if handler is None:
                raise apierrors.no_such_resource()
            return await handler(request)
        if info.subresource == "status" and not served_kind.has_status:
            if served_kind.custom:
                raise apierrors.not_found(served_kind.resource, info.name)
            raise apierrors.no_such_resource()
        if bool(info.namespace) > served_kind.resource.namespaced:
            if served_kind.custom:
                return _page_not_found()
            raise apierrors.no_such_resource()
        if (
            served_kind.resource.namespaced
            and not info.namespace
            and request.verb not in (RequestVerb.LIST, RequestVerb.WATCH)
        ):
            raise apierrors.no_such_resource() if info.name else apierrors.method_not_allowed()
        if info.subresource == "status" and request.verb is RequestVerb.DELETE:
            raise apierrors.method_not_allowed()
        if request.verb is RequestVerb.DELETE_COLLECTION and request.verb not in served_kind.resource.verbs:
            raise apierrors.method_not_allowed()
        return await self._verb_handlers[request.verb](request)

    def _subresource_handler(self, served_kind: ServedKind, name: str) -> SubresourceHandler | None:
        """The handler of a subresource: the resource's own, or the generic one if the resource has the subresource."""
        own = self._subresource_handlers.get((*served_kind.resource.group_resource, name))
        if own is None and served_kind.resource.subresource(name) is not None:
            return self._subresource_handlers.get(("", "", name))
        return own

    # Reading

    async def _get(self, request: ApiRequest) -> web.StreamResponse:
        representation = self._representation(request)
        version = request.query.get("resourceVersion", "")
        if version and parse_resource_version(version) > self._registry.store.revision:
            raise apierrors.resource_version_too_large(int(version), self._registry.store.revision)
        record = self._registry.get(request.served_kind, request.info.key)
        data = request.served_kind.served_bytes(record.data)
        return _response(request, representation, representation.encode_object(request.served_kind.object_kind, data))

    async def _list(self, request: ApiRequest) -> web.StreamResponse:
        representation = self._representation(request)
        selection = Selection.from_query(request.query, request.served_kind.selectable_fields)
        page = list_page(self._registry.store, request.served_kind, request.info.namespace, request.query, selection)
        items = [request.served_kind.served_bytes(record.data) for record in page.records]
        body = representation.encode_list(request.served_kind.object_kind, items, page.metadata)
        return _response(request, representation, body)

    async def _watch(self, request: ApiRequest) -> web.StreamResponse:
        representation = self._representation(request, watch=True)
        query = dict(request.query)
        if request.info.name:  # the deprecated /watch/.../NAME
            query["fieldSelector"] = f"metadata.name={request.info.name}"
        check_list_options(query, watch=True)
        selection = Selection.from_query(query, request.served_kind.selectable_fields)
        if query.get("resourceVersion"):
            parse_resource_version(query["resourceVersion"])  # refuse it before the response begins
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": NO_CACHE})
        # The response starts now, so that each line is sent when it is written.
        await response.prepare(request.http)
        spec = WatchRequest(request.served_kind, request.info.namespace, selection, representation, query)
        # A client may disconnect at any time.
        with suppress(ConnectionResetError):
            async for piece in watch_lines(self._registry.store, spec, self._clock):
                await response.write(piece)
        return response

    # Writing

    async def _create(self, request: ApiRequest) -> web.StreamResponse:
        if request.info.name:
            raise apierrors.method_not_allowed()
        representation = self._representation(request)
        check_write_options(request.verb, request.query)
        raw = await request.read_body()
        body = request.decode_body(raw)
        _check_body(request, body, raw)
        check_namespace(request.served_kind, request.info.namespace, ensure_metadata(body))
        result = await self._registry.create(request.write_context(), request.served_kind, request.info.namespace, body)
        return _write_response(request, representation, result)

    async def _update(self, request: ApiRequest) -> web.StreamResponse:
        representation = self._representation(request)
        check_write_options(request.verb, request.query)
        raw = await request.read_body()
        body = request.decode_body(raw)
        _check_body(request, body, raw)
        check_object_key(request.served_kind, request.info.key, body)
        context = msgspec.structs.replace(
            request.write_context(), is_put=True, expected_uid=body["metadata"].get("uid") or ""
        )
        upsert = allows_create_on_update(request.served_kind) and not request.info.subresource
        result = await self._registry.update(
            context, request.served_kind, request.info.key, lambda old: deep_copy(body), upsert=upsert
        )
        return _write_response(request, representation, result)

    async def _patch(self, request: ApiRequest) -> web.StreamResponse:
        representation, media = self._representation(request), request.media_type
        raw = await request.read_body()
        if media == APPLY_PATCH:
            return _write_response(request, representation, await self._apply(request, raw))
        context = request.write_context()
        transform = patch_function(
            request.served_kind, media, raw, validation=context.field_validation, warn=request.warnings.append
        )
        check_write_options(request.verb, request.query)
        try:
            result = await self._registry.update(context, request.served_kind, request.info.key, transform)
        except UnknownFields as error:
            raise apierrors.invalid_patch(raw.decode(errors="replace"), error.message) from error
        return _write_response(request, representation, result)

    async def _apply(self, request: ApiRequest, raw: bytes) -> WriteResult:
        check_write_options(RequestVerb.PATCH, request.query, apply=True)
        config, context, force = read_yaml(raw), request.write_context(), query_flag(request.query, "force")
        return await self._registry.apply(context, request.served_kind, request.info.key, config, force=force)

    async def _delete(self, request: ApiRequest) -> web.StreamResponse:
        representation = self._representation(request)
        raw = await request.read_body()
        options = deletion_options(request.decode_body(raw) if raw else None, request.query)
        context = WriteContext(dry_run=options.dry_run, user=request.user)
        result = await self._registry.delete(context, request.served_kind, request.info.key, options)
        return _write_response(request, representation, result)

    async def _delete_collection(self, request: ApiRequest) -> web.StreamResponse:
        representation = self._representation(request)
        raw = await request.read_body()
        options = deletion_options(request.decode_body(raw) if raw else None, request.query)
        selection = Selection.from_query(request.query, request.served_kind.selectable_fields)
        namespace = request.info.namespace
        deleted = await self._registry.delete_collection(request.served_kind, namespace, selection, options)
        metadata: JSON = {"resourceVersion": str(self._registry.store.revision)}
        body = representation.encode_list(request.served_kind.object_kind, deleted, metadata)
        return _response(request, representation, body)

    def _representation(self, request: ApiRequest, *, watch: bool = False) -> Representation:
        accept, agent = request.http.headers.get("Accept", ""), request.http.headers.get("User-Agent", "")
        return negotiate(accept, request.query, now=self._clock.now, agent=agent, watch=watch)


def access_attributes(user: UserInfo, verb: RequestVerb, info: RequestInfo) -> AccessAttributes:
    """What a request for a resource asks the authorizer."""
    return AccessAttributes(
        user, verb, info.group, info.version, info.plural, info.subresource, info.namespace, info.name
    )


async def read_body(http: web.BaseRequest) -> bytes:
    """The body of a request. Raises `StatusError` (413)."""
    try:
        return await http.read()
    except web.HTTPRequestEntityTooLarge:
        raise apierrors.body_too_large(MAX_BODY_BYTES) from None


def _check_body(request: ApiRequest, body: JSON, raw: bytes) -> None:
    check_kind(request.served_kind, body)
    check_fields(request.served_kind, body, raw, request.query.get("fieldValidation", ""), request.warnings.append)


def _write_response(request: ApiRequest, representation: Representation, result: WriteResult) -> web.Response:
    request.warnings.extend(result.warnings)
    if result.is_status:
        return _response(request, representation, representation.encode_status(msgspec.json.decode(result.data)))
    body = representation.encode_object(request.served_kind.object_kind, result.data)
    return _response(request, representation, body, 201 if result.created else 200)


def _response(request: ApiRequest, representation: Representation, body: bytes, code: int = 200) -> web.Response:
    response = web.Response(
        body=body if len(body) <= RESPONSE_CHUNK_BYTES else _chunks(body),
        status=code,
        headers={"Content-Type": representation.content_type, "Content-Length": str(len(body))},
    )
    _add_warnings(response, request.warnings)
    return response


def _error_response(http: web.BaseRequest, code: int, status: JSON, warnings: list[str]) -> web.Response:
    accept, agent = http.headers.get("Accept", ""), http.headers.get("User-Agent", "")
    representation = error_representation(accept, http.query, agent=agent)
    encoded = representation.encode_status(status)
    response = web.Response(body=encoded, status=code, content_type=representation.content_type)
    retry = (status.get("details") or {}).get("retryAfterSeconds")
    if retry:
        response.headers["Retry-After"] = str(retry)
    _add_warnings(response, warnings)
    return response


def _page_not_found() -> web.Response:
    return web.Response(status=404, text="404 page not found\n")


async def _chunks(body: bytes) -> AsyncIterator[memoryview]:
    """A long response in pieces, so that other requests are served meanwhile and the body is not copied."""
    view = memoryview(body)
    for start in range(0, len(body), RESPONSE_CHUNK_BYTES):
        yield view[start : start + RESPONSE_CHUNK_BYTES]


def _add_warnings(response: web.Response, warnings: list[str]) -> None:
    for text in dict.fromkeys(warnings):
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{escaped}"')
