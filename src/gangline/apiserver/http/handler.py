"""The Kubernetes API over HTTP: requests in, answers out, nothing decided here that is not about HTTP."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress

import msgspec
from aiohttp import web

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.apply.managed import manager_name
from gangline.apiserver.errors import StatusError, UnknownFields
from gangline.apiserver.http.access_reviews import ReviewHandler, ReviewRequest
from gangline.apiserver.http.authentication import (
    Authenticator,
    UserInfo,
    authorize,
    authorize_nonresource,
    impersonated_user,
)
from gangline.apiserver.http.body import MAX_BODY_BYTES, check_fields, check_kind, read_object, read_yaml
from gangline.apiserver.http.list import list_page, parse_resource_version
from gangline.apiserver.http.negotiation import (
    NegotiationError,
    Representation,
    error_representation,
    negotiate,
)
from gangline.apiserver.http.nonresource import NonResourceHandler
from gangline.apiserver.http.patch import APPLY_PATCH, patch_function
from gangline.apiserver.http.query import check_list_options, check_write_options
from gangline.apiserver.http.routes import RequestInfo, RequestVerb, request_info, request_verb
from gangline.apiserver.http.watch import WatchRequest, watch_lines
from gangline.apiserver.patch.json_patch import deep_copy
from gangline.apiserver.registry.catalog import Catalog, ServedKind, allows_create_on_update
from gangline.apiserver.registry.deletion import deletion_options
from gangline.apiserver.registry.metadata import check_namespace, check_object_key, ensure_metadata
from gangline.apiserver.registry.registry import Registry, WriteContext, WriteResult
from gangline.apiserver.registry.selection import Selection
from gangline.base.clock import Clock

log = logging.getLogger(__name__)

RESPONSE_CHUNK_BYTES = 2**18
"""The most bytes of an answer that are encrypted and sent at once."""
NO_CACHE = "no-cache, private"

SubresourceHandler = Callable[["ApiRequest"], Awaitable[web.StreamResponse]]


class ApiRequest(msgspec.Struct, frozen=True):
    """One request for a resource, understood."""

    http: web.BaseRequest
    user: UserInfo
    info: RequestInfo
    verb: RequestVerb
    served_kind: ServedKind
    query: Mapping[str, str]
    warnings: list[str]

    def write_context(self) -> WriteContext:
        """How a write is to be done."""
        return WriteContext(
            field_manager=manager_name(self.query.get("fieldManager", ""), self.http.headers.get("User-Agent", "")),
            dry_run=bool(self.query.get("dryRun")),
            subresource=self.info.subresource,
            field_validation=self.query.get("fieldValidation", ""),
        )

    async def read_body(self) -> bytes:
        return await read_body(self.http)

    @property
    def media_type(self) -> str:
        """The content type, without parameters."""
        return self.http.headers.get("Content-Type", "").partition(";")[0].strip()

    def decode_body(self, raw: bytes) -> JSON:
        """The object sent, in whatever format the client says. Raises `Refused`."""
        return read_object(raw, self.http.headers.get("Content-Type", ""), self.served_kind.kind)


class ApiHandler:
    """Answers requests. Give it to an `aiohttp.web.Server`."""

    def __init__(
        self,
        registry: Registry,
        authenticator: Authenticator,
        clock: Clock,
        roots: NonResourceHandler,
        *,
        subresources: Mapping[tuple[str, str, str], SubresourceHandler] | None = None,
    ) -> None:
        """`subresources` are by group, plural and name."""
        self._registry, self._authenticator, self._clock = registry, authenticator, clock
        self._catalog: Catalog = registry.catalog
        self._nonresource = roots
        self._subresource_handlers = dict(subresources or {})
        self._reviews = ReviewHandler(authenticator)
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
        except (StatusError, NegotiationError) as refusal:
            return self._respond_error(http, refusal.code, refusal.status, warnings)
        except Exception:
            # The one place where a bug of ours becomes an answer: the others must not suffer for one request.
            log.exception("request failed", extra={"method": http.method, "path": http.path})
            broken = apierrors.internal_error("see the server's log")
            return self._respond_error(http, broken.code, broken.status, warnings)

    # Routing

    async def _route(self, http: web.BaseRequest, warnings: list[str]) -> web.StreamResponse:
        peer = http.transport.get_extra_info("peercert") if http.transport is not None else None
        user = self._authenticator.authenticate(http.headers.get("Authorization"), peer)
        user = impersonated_user(user, http.headers.items())
        found = request_info(http.path)
        if found is None or not found.plural:
            authorize_nonresource(user, http.method, http.path)
            return self._serve_nonresource(http)
        asked_verb = request_verb(http.method, found, http.query)
        if asked_verb is None:
            raise apierrors.method_not_allowed()
        if found in self._reviews:
            return await self._answer_review(http, user, asked_verb, found)
        authorize(user, asked_verb, found)
        entry = self._catalog.find(found.group, found.version, found.plural)
        if entry is None:
            return self._unknown_resource(found)
        if entry.deprecation_warning:
            warnings.append(entry.deprecation_warning)
        asked = ApiRequest(http, user, found, asked_verb, entry, http.query, warnings)
        return await self._serve_resource(asked)

    def _unknown_resource(self, found: RequestInfo) -> web.StreamResponse:
        builtin = any(e.group == found.group and not e.custom for e in self._catalog)
        if not builtin:
            # CRD groups are served by another part of kube-apiserver, which answers in plain text.
            return _page_not_found()
        raise apierrors.no_such_resource()

    def _raise_no_resource(self) -> web.StreamResponse:
        raise apierrors.no_such_resource()

    async def _answer_review(
        self, http: web.BaseRequest, user: UserInfo, asked: RequestVerb, found: RequestInfo
    ) -> web.StreamResponse:
        self._reviews.authorize(user, asked, found)
        accept, agent = http.headers.get("Accept", ""), http.headers.get("User-Agent", "")
        form = negotiate(accept, http.query, now=self._clock.now, agent=agent, views=False)
        body = read_object(await read_body(http), http.headers.get("Content-Type", ""))
        manager = manager_name(http.query.get("fieldManager", ""), agent)
        answer = self._reviews.review(ReviewRequest(user, found, body, manager, self._registry.timestamp()))
        return web.Response(body=form.encode_status(answer), status=201, content_type=form.content_type)

    def _serve_nonresource(self, http: web.BaseRequest) -> web.StreamResponse:
        if http.method not in ("GET", "HEAD"):
            raise apierrors.method_not_allowed()
        found = self._nonresource.response(http.path, http.query, http.headers.get("Accept", ""))
        tag = found.headers.get("ETag")
        if tag is not None and tag in http.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=found.headers)
        headers = {"Content-Type": found.content_type, **found.headers}
        return web.Response(body=found.body, status=found.code, headers=headers)

    async def _serve_resource(self, asked: ApiRequest) -> web.StreamResponse:
        where, entry = asked.info, asked.served_kind
        if where.subresource not in ("", "status"):
            special = self._subresource_handler(entry, where.subresource)
            if special is None:
                raise apierrors.no_such_resource()
            return await special(asked)
        if where.subresource == "status" and not entry.has_status:
            if entry.custom:
                raise apierrors.not_found(entry, where.name)
            raise apierrors.no_such_resource()
        if bool(where.namespace) > entry.resource.namespaced:
            return _page_not_found() if entry.custom else self._raise_no_resource()
        if (
            entry.resource.namespaced
            and not where.namespace
            and asked.verb not in (RequestVerb.LIST, RequestVerb.WATCH)
        ):
            raise apierrors.no_such_resource() if where.name else apierrors.method_not_allowed()
        if where.subresource == "status" and asked.verb is RequestVerb.DELETE:
            raise apierrors.method_not_allowed()
        if asked.verb is RequestVerb.DELETE_COLLECTION and asked.verb not in entry.resource.verbs:
            raise apierrors.method_not_allowed()
        return await self._verb_handlers[asked.verb](asked)

    def _subresource_handler(self, entry: ServedKind, name: str) -> SubresourceHandler | None:
        """The handler of a subresource: its own, or the one for all resources that have it."""
        own = self._subresource_handlers.get((entry.group, entry.plural, name))
        if own is None and entry.resource.subresource(name) is not None:
            return self._subresource_handlers.get(("", "", name))
        return own

    # Reading

    async def _get(self, asked: ApiRequest) -> web.StreamResponse:
        form = self._representation(asked)
        version = asked.query.get("resourceVersion", "")
        if version and parse_resource_version(version) > self._registry.store.revision:
            raise apierrors.resource_version_too_large(int(version), self._registry.store.revision)
        record = self._registry.get(asked.served_kind, asked.info.key)
        return self._respond(
            asked,
            form,
            form.encode_object(asked.served_kind.object_kind, asked.served_kind.served_bytes(record.data)),
        )

    async def _list(self, asked: ApiRequest) -> web.StreamResponse:
        form = self._representation(asked)
        chosen = Selection.from_query(asked.query, asked.served_kind.selectable_fields)
        page = list_page(self._registry.store, asked.served_kind, asked.info.namespace, asked.query, chosen)
        items = [asked.served_kind.served_bytes(record.data) for record in page.records]
        return self._respond(asked, form, form.encode_list(asked.served_kind.object_kind, items, page.metadata))

    async def _watch(self, asked: ApiRequest) -> web.StreamResponse:
        form = self._representation(asked, watch=True)
        query = dict(asked.query)
        if asked.info.name:  # the deprecated /watch/.../NAME
            query["fieldSelector"] = f"metadata.name={asked.info.name}"
        check_list_options(query, watch=True)
        chosen = Selection.from_query(query, asked.served_kind.selectable_fields)
        if query.get("resourceVersion"):
            parse_resource_version(query["resourceVersion"])  # refused before the answer begins
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": NO_CACHE})
        # Lines go out as they are written, not when a buffer is full.
        await response.prepare(asked.http)
        spec = WatchRequest(asked.served_kind, asked.info.namespace, chosen, form, query)
        # A client that leaves in the middle of a line is no error.
        with suppress(ConnectionResetError):
            async for piece in watch_lines(self._registry.store, spec, self._clock):
                await response.write(piece)
        return response

    # Writing

    async def _create(self, asked: ApiRequest) -> web.StreamResponse:
        if asked.info.name:
            raise apierrors.method_not_allowed()
        form = self._representation(asked)
        check_write_options(asked.verb, asked.query)
        raw = await asked.read_body()
        body = asked.decode_body(raw)
        self._check_body(asked, body, raw)
        check_namespace(asked.served_kind, asked.info.namespace, ensure_metadata(body))
        outcome = await self._registry.create(asked.write_context(), asked.served_kind, asked.info.namespace, body)
        return self._respond_write(asked, form, outcome)

    async def _update(self, asked: ApiRequest) -> web.StreamResponse:
        form = self._representation(asked)
        check_write_options(asked.verb, asked.query)
        raw = await asked.read_body()
        body = asked.decode_body(raw)
        self._check_body(asked, body, raw)
        check_object_key(asked.served_kind, asked.info.key, body)
        call = msgspec.structs.replace(
            asked.write_context(), is_put=True, expected_uid=body["metadata"].get("uid") or ""
        )
        upsert = allows_create_on_update(asked.served_kind) and not asked.info.subresource
        outcome = await self._registry.update(
            call, asked.served_kind, asked.info.key, lambda old: deep_copy(body), upsert=upsert
        )
        return self._respond_write(asked, form, outcome)

    async def _patch(self, asked: ApiRequest) -> web.StreamResponse:
        form, media = self._representation(asked), asked.media_type
        raw = await asked.read_body()
        if media == APPLY_PATCH:
            return self._respond_write(asked, form, await self._apply(asked, raw))
        call = asked.write_context()
        transform = patch_function(
            asked.served_kind, media, raw, validation=call.field_validation, warn=asked.warnings.append
        )
        check_write_options(asked.verb, asked.query)
        try:
            outcome = await self._registry.update(call, asked.served_kind, asked.info.key, transform)
        except UnknownFields as refusal:
            raise apierrors.invalid_patch(raw.decode(errors="replace"), refusal.message) from refusal
        return self._respond_write(asked, form, outcome)

    async def _apply(self, asked: ApiRequest, raw: bytes) -> WriteResult:
        check_write_options(RequestVerb.PATCH, asked.query, apply=True)
        config = read_yaml(raw)
        force = asked.query.get("force") in ("true", "1")
        return await self._registry.apply(asked.write_context(), asked.served_kind, asked.info.key, config, force=force)

    async def _delete(self, asked: ApiRequest) -> web.StreamResponse:
        form = self._representation(asked)
        raw = await asked.read_body()
        options = deletion_options(asked.decode_body(raw) if raw else None, asked.query)
        call = WriteContext(dry_run=options.dry_run)
        outcome = await self._registry.delete(call, asked.served_kind, asked.info.key, options)
        return self._respond_write(asked, form, outcome)

    async def _delete_collection(self, asked: ApiRequest) -> web.StreamResponse:
        form = self._representation(asked)
        raw = await asked.read_body()
        options = deletion_options(asked.decode_body(raw) if raw else None, asked.query)
        chosen = Selection.from_query(asked.query, asked.served_kind.selectable_fields)
        records = await self._registry.delete_collection(asked.served_kind, asked.info.namespace, chosen, options)
        metadata: JSON = {"resourceVersion": str(self._registry.store.revision)}
        return self._respond(asked, form, form.encode_list(asked.served_kind.object_kind, records, metadata))

    # Answers

    def _check_body(self, asked: ApiRequest, body: JSON, raw: bytes) -> None:
        check_kind(asked.served_kind, body)
        check_fields(asked.served_kind, body, raw, asked.query.get("fieldValidation", ""), asked.warnings.append)

    def _representation(self, asked: ApiRequest, *, watch: bool = False) -> Representation:
        headers = asked.http.headers
        return negotiate(
            headers.get("Accept", ""),
            asked.query,
            now=self._clock.now,
            agent=headers.get("User-Agent", ""),
            watch=watch,
        )

    def _respond_write(self, asked: ApiRequest, form: Representation, outcome: WriteResult) -> web.StreamResponse:
        asked.warnings.extend(outcome.warnings)
        if outcome.is_status:
            return self._respond(asked, form, form.encode_status(msgspec.json.decode(outcome.data)))
        body = form.encode_object(asked.served_kind.object_kind, outcome.data)
        return self._respond(asked, form, body, 201 if outcome.created else 200)

    def _respond(self, asked: ApiRequest, form: Representation, body: bytes, code: int = 200) -> web.Response:
        response = web.Response(
            body=body if len(body) <= RESPONSE_CHUNK_BYTES else _chunks(body),
            status=code,
            headers={"Content-Type": form.content_type, "Content-Length": str(len(body))},
        )
        _add_warnings(response, asked.warnings)
        return response

    def _respond_error(self, http: web.BaseRequest, code: int, status: JSON, warnings: list[str]) -> web.Response:
        form = error_representation(
            http.headers.get("Accept", ""), http.query, agent=http.headers.get("User-Agent", "")
        )
        response = web.Response(body=form.encode_status(status), status=code, content_type=form.content_type)
        retry = (status.get("details") or {}).get("retryAfterSeconds")
        if retry:
            response.headers["Retry-After"] = str(retry)
        _add_warnings(response, warnings)
        return response


async def read_body(http: web.BaseRequest) -> bytes:
    """The body of a request. Raises `Refused` (413)."""
    try:
        return await http.read()
    except web.HTTPRequestEntityTooLarge:
        raise apierrors.body_too_large(MAX_BODY_BYTES) from None


def _page_not_found() -> web.Response:
    return web.Response(status=404, text="404 page not found\n")


async def _chunks(body: bytes) -> AsyncIterator[memoryview]:
    """A long answer bit by bit: others get their turn, and no copy of all of it is made on the way."""
    view = memoryview(body)
    for start in range(0, len(body), RESPONSE_CHUNK_BYTES):
        yield view[start : start + RESPONSE_CHUNK_BYTES]


def _add_warnings(response: web.Response, warnings: list[str]) -> None:
    for text in dict.fromkeys(warnings):
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{escaped}"')
