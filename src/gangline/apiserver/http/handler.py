"""The HTTP handler of the Kubernetes API. It decides only what concerns HTTP; the registry does the rest."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Protocol
from urllib.parse import unquote

import msgspec
from aiohttp import web

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.aggregation.proxy import AggregationProxy
from gangline.apiserver.apply.managed_fields import manager_name
from gangline.apiserver.audit.log import AuditLog
from gangline.apiserver.audit.request import AUDIT_TRAIL, begin_trail
from gangline.apiserver.audit.trail import AuditTrail
from gangline.apiserver.auth.attributes import AccessAttributes, AccessDenied, forbidden_error, html_safe_text
from gangline.apiserver.auth.authentication import Authenticator
from gangline.apiserver.auth.authorizer import Authorizer, check_access
from gangline.apiserver.auth.impersonation import ImpersonationError, impersonated_user
from gangline.apiserver.auth.peer_certificate import peer_certificate
from gangline.apiserver.errors import StatusError
from gangline.apiserver.http.access_reviews import ReviewHandler, ReviewRequest, unanswered_review
from gangline.apiserver.http.body import (
    MAX_BODY_BYTES,
    checked_object,
    decoding_text,
    read_applied,
    read_object,
    report_applied_duplicates,
)
from gangline.apiserver.http.list import ListPage, list_page, parse_resource_version
from gangline.apiserver.http.negotiation import (
    PLAIN_JSON,
    Representation,
    check_accepted,
    error_representation,
    for_long_list,
    negotiate,
)
from gangline.apiserver.http.nonresource import NO_SNIFFING, NonResourceHandler, NonResourceResponse
from gangline.apiserver.http.patch import APPLY_PATCH, patch_function
from gangline.apiserver.http.query import check_list_options, check_write_options, deletion_options
from gangline.apiserver.http.representations import NegotiationError
from gangline.apiserver.http.request_info import (
    RequestInfo,
    RequestPathError,
    RequestVerb,
    access_attributes,
    query_flag,
    request_info,
    request_verb,
)
from gangline.apiserver.http.warnings import warning_headers
from gangline.apiserver.http.watch import WatchRequest, watch_lines
from gangline.apiserver.kinds.pod.spec_subresources import SPEC_SUBRESOURCES
from gangline.apiserver.patch.json_patch import deep_copy
from gangline.apiserver.registry.admission import WriteOperation
from gangline.apiserver.registry.catalog import Catalog, ServedKind, allows_create_on_update
from gangline.apiserver.registry.deletion import DeletionOptions
from gangline.apiserver.registry.object_meta import check_namespace, check_object_key, ensure_metadata
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.resources import ApiResource
from gangline.apiserver.registry.selection import Selection
from gangline.apiserver.registry.storage import check_name
from gangline.apiserver.registry.writes import WriteContext, WriteResult, default_and_prune
from gangline.apiserver.serving.hosts import MALFORMED_HOST, AllowedHosts
from gangline.apiserver.serving.request_metrics import RequestLabels, RequestMetrics
from gangline.apiserver.serving.server import mark_authenticated
from gangline.apiserver.store.errors import DiskFull, StoreFailed
from gangline.apiserver.store.paths import collection_prefix
from gangline.apiserver.users import ANONYMOUS_USER, UserInfo
from gangline.base.clock import Clock
from gangline.base.metrics_text import METRICS_TYPE
from gangline.schema.go_text import quoted_text

log = logging.getLogger(__name__)

RESPONSE_CHUNK_BYTES = 2**18
"""The most bytes of a response that are encrypted and sent at once."""
ONLY_OWN_NAMES = AllowedHosts()
BODY_SECONDS = 60.0
"""In how much time a body must arrive: the time limit of requests of kube-apiserver."""
NO_CACHE = "no-cache, private"
VERSION_PATH, GROUPS_PATH = "/version", "/apis"
HEALTH_PATHS = ("/healthz", "/livez", "/readyz")
CONNECTIONS = {"attach": "Attach", "exec": "Exec", "portforward": "PortForward", "proxy": "Proxy"}
"""Subresources that connect to an object, with the kinds of their options."""
METRICS_PATH = "/metrics"
REQUEST_LABELS = web.RequestKey("gangline-labels", RequestLabels)
"""Where a request keeps what it is counted as."""
CLIENT_CLOSED_REQUEST = 499
"""The code that is counted for a request whose client has disconnected."""

SubresourceHandler = Callable[["ApiRequest"], Awaitable[web.StreamResponse]]
Download = Callable[[], Awaitable[bytes]]
"""Makes a file that is served at a path of its own."""


class AggregatedGroup(Protocol):
    """An API group whose objects are made when they are read, as an APIService of Kubernetes serves one. Nothing is stored."""

    @property
    def group(self) -> str: ...

    @property
    def resources(self) -> tuple[ApiResource, ...]: ...

    async def respond(self, info: RequestInfo, verb: RequestVerb, query: Mapping[str, str]) -> JSON:
        """The object or list that an authorized request asks for. Raises `StatusError`."""
        ...


class ApiRequest(msgspec.Struct, frozen=True):
    """A parsed and authorized request for a resource."""

    http: web.BaseRequest
    user: UserInfo
    info: RequestInfo
    verb: RequestVerb
    served_kind: ServedKind
    query: Mapping[str, str]
    warnings: list[str]

    @property
    def trail(self) -> AuditTrail | None:
        """What is recorded of the request in the audit log."""
        return self.http.get(AUDIT_TRAIL)

    def write_context(self) -> WriteContext:
        """The options of a write request."""
        return WriteContext(
            audit_annotations=None if self.trail is None else self.trail.annotations,
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
        return self.http.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    def checked_object(self, raw: bytes, kind: ServedKind) -> JSON:
        """The object in a body, which must be of this kind. Raises `StatusError`."""
        content_type, validation = self.http.headers.get("Content-Type", ""), self.query.get("fieldValidation", "")
        return checked_object(kind, raw, content_type, validation, self.warnings.append)


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
        audit_log: AuditLog | None = None,
        hosts: AllowedHosts = ONLY_OWN_NAMES,
        downloads: Mapping[str, Download] | None = None,
        aggregated: Iterable[AggregatedGroup] = (),
        remote: AggregationProxy | None = None,
    ) -> None:
        """The keys of `subresources` are group, plural and name of the subresource; those of `downloads` are paths."""
        self._audit_log, self._hosts = audit_log, hosts
        self._registry, self._clock = registry, clock
        self._authenticator, self._authorizer = authenticator, authorizer
        self._catalog: Catalog = registry.catalog
        self._nonresource, self._downloads = nonresource, dict(downloads or {})
        self._subresource_handlers = dict(subresources or {})
        self._reviews = ReviewHandler(authenticator, authorizer)
        self._aggregated, self._remote = {part.group: part for part in aggregated}, remote
        self._metrics = RequestMetrics(clock)
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
        trail = None if self._audit_log is None else begin_trail(self._audit_log, self._clock, http)
        began, code = self._metrics.begin(http.method), CLIENT_CLOSED_REQUEST
        try:
            response = await self._handle(http)
            code = response.status
        except asyncio.CancelledError:
            if trail is not None:
                trail.cancel()
            raise
        finally:
            self._metrics.end(began, http.method, http.get(REQUEST_LABELS), code)
        if trail is not None:
            trail.complete(response.status)
        if not response.prepared:
            response.headers.setdefault("Cache-Control", NO_CACHE)
        return response

    def close(self) -> None:
        """Close the audit log, after the last request."""
        if self._audit_log is not None:
            self._audit_log.close()

    async def _handle(self, http: web.BaseRequest) -> web.StreamResponse:
        warnings: list[str] = []
        try:
            return await self._route(http, warnings)
        except (StatusError, NegotiationError) as error:
            if isinstance(error, StatusError):
                warnings += error.warnings
            response = _error_response(http, error.code, error.status, warnings)
            if isinstance(error, AccessDenied):
                response.headers.update(NO_SNIFFING)
            return response
        except (ImpersonationError, RequestPathError) as error:
            text = f"Internal Server Error: {quoted_text(http.path_qs)}: {html_safe_text(str(error))}\n"
            return web.Response(status=500, text=text, headers=NO_SNIFFING)
        except StoreFailed as error:
            # The store logs it, once for all requests.
            make_status = apierrors.storage_full if isinstance(error, DiskFull) else apierrors.storage_failed
            failure = make_status(error.cause)
            return _error_response(http, failure.code, failure.status, warnings)
        except RecursionError:
            # Checked where bodies are decoded; this is for what grows while it is served.
            deep = apierrors.bad_request("the object exceeded max depth")
            return _error_response(http, deep.code, deep.status, warnings)
        except Exception as error:
            # An error of the server itself must fail one request only.
            if (trail := http.get(AUDIT_TRAIL)) is not None:
                trail.panic(error)
            log.exception("request failed", extra={"method": http.method, "path": http.path})
            internal = apierrors.internal_error("see the server's log")
            return _error_response(http, internal.code, internal.status, warnings)

    # Routing

    async def _route(self, http: web.BaseRequest, warnings: list[str]) -> web.StreamResponse:
        self._check_host(http)
        trail = http.get(AUDIT_TRAIL)
        info = request_info(_decoded_path(http), http.path_qs)
        verb = request_verb(http.method, info, http.query) if info is not None and info.plural else None
        user = self._authenticate(http, info, trail, warnings)
        if trail is not None:
            trail.begin(_attributes(http, user, info))
        if user.is_authenticated:
            mark_authenticated(http)
        sender, user = user, impersonated_user(user, http.headers.items(), self._authorizer)
        if trail is not None and user is not sender:
            trail.impersonate(user)
        record = trail.decide if trail is not None else None
        check_access(self._authorizer, _attributes(http, user, info), record)
        remote = self._remote.find(http.path) if self._remote is not None else None
        if self._remote is not None and remote is not None and not self._catalog.has_builtin_group(remote.group):
            return await self._remote.serve(http, user, remote)
        if info is None or not info.plural:
            return await self._serve_nonresource(http)
        if (aggregated := self._aggregated.get(info.group)) is not None:
            return await self._serve_aggregated(http, aggregated, verb, info)
        is_review = info in self._reviews
        # A Binding is not stored: it is a write to a pod.
        plural = "pods" if (info.group, info.plural) == ("", "bindings") else info.plural
        served_kind = None if is_review else self._catalog.find(info.group, info.version, plural)
        if served_kind is None and not is_review:
            return self._unknown_resource(info)
        verb = _allowed_verb(http.method, verb, info, is_custom=served_kind is not None and served_kind.custom)
        if served_kind is None:
            return await self._serve_review(http, user, verb, info, warnings)
        if served_kind.deprecation_warning:
            warnings.append(served_kind.deprecation_warning)
        http[REQUEST_LABELS] = _labels(info, verb, served_kind)
        request = ApiRequest(http, user, info, verb, served_kind, http.query, warnings)
        return await self._serve_resource(request)

    def _check_host(self, http: web.BaseRequest) -> None:
        """Refuse a request to another host (421). HTTP 1.0, which no browser speaks, needs none."""
        headers = http.headers.getall("Host", [])
        if len(headers) > 1:
            raise apierrors.bad_request("too many Host headers")
        problem = self._hosts.problem(headers[0]) if headers else ""
        if problem:
            code = 400 if problem == MALFORMED_HOST else 421
            raise StatusError(code, problem, reason="BadRequest" if code == 400 else "MisdirectedRequest")

    def _authenticate(
        self, http: web.BaseRequest, info: RequestInfo | None, trail: AuditTrail | None, warnings: list[str]
    ) -> UserInfo:
        peer = peer_certificate(http.transport)
        try:
            return self._authenticator.authenticate(http.headers.get("Authorization"), peer, warnings.append)
        except StatusError:
            if trail is not None:
                trail.reject(_attributes(http, ANONYMOUS_USER, info))
            raise

    def _unknown_resource(self, info: RequestInfo) -> web.StreamResponse:
        if not self._catalog.has_builtin_group(info.group):
            # kube-apiserver serves CRD groups by another server of its chain, which responds in plain text.
            return _page_not_found()
        raise apierrors.no_such_resource()

    async def _serve_review(
        self, http: web.BaseRequest, user: UserInfo, verb: RequestVerb, info: RequestInfo, warnings: list[str]
    ) -> web.StreamResponse:
        self._reviews.check_verb(verb, info)
        accept, agent = http.headers.get("Accept", ""), http.headers.get("User-Agent", "")
        representation = negotiate(accept, http.query, now=self._clock.now, agent=agent, views=False)
        raw = await read_body(http)
        body = read_object(raw, http.headers.get("Content-Type", ""), self._reviews.kind_name(info)).object
        manager, validation = (
            manager_name(http.query.get("fieldManager", ""), agent),
            http.query.get("fieldValidation", ""),
        )
        request = ReviewRequest(user, info, body, manager, self._registry.timestamp(), raw, validation, warnings)
        review = self._reviews.review(request)
        encoded = representation.encode_status(review)
        if (trail := http.get(AUDIT_TRAIL)) is not None:
            trail.set_request_object(unanswered_review(review))
            trail.set_response_body(encoded)
        response = web.Response(body=encoded, status=201, content_type=representation.content_type)
        _add_warnings(response, warnings)
        return response

    async def _serve_aggregated(
        self, http: web.BaseRequest, group: AggregatedGroup, verb: RequestVerb | None, info: RequestInfo
    ) -> web.StreamResponse:
        resources = [item for item in group.resources if (item.version, item.plural) == (info.version, info.plural)]
        if not resources or info.subresource or bool(info.namespace) > resources[0].namespaced:
            raise apierrors.no_such_resource()
        if verb is None or verb not in resources[0].verbs or http.method == "HEAD":
            raise apierrors.method_not_allowed()
        accept, agent = http.headers.get("Accept", ""), http.headers.get("User-Agent", "")
        # As for custom resources, nothing is known of how these kinds look in protobuf.
        representation = negotiate(accept, http.query, now=self._clock.now, agent=agent, views=False, routed=False)
        encoded = representation.encode_status(await group.respond(info, verb, http.query))
        if (trail := http.get(AUDIT_TRAIL)) is not None:
            trail.set_response_body(encoded)
        return web.Response(body=encoded, content_type=representation.content_type)

    async def _serve_nonresource(self, http: web.BaseRequest) -> web.StreamResponse:
        if "//" in http.path or http.raw_path.startswith("//"):
            return _page_not_found()
        if http.method not in ("GET", "HEAD") and http.path not in (GROUPS_PATH, *HEALTH_PATHS):
            raise apierrors.method_not_allowed()
        accept = http.headers.get("Accept", "")
        if http.path == METRICS_PATH:
            text = self._metrics.text(self._object_counts())
            return web.Response(body=text.encode(), headers={"Content-Type": METRICS_TYPE})
        if (download := self._downloads.get(http.path)) is not None:
            return web.Response(body=await download(), content_type="application/octet-stream")
        if http.path == VERSION_PATH:
            check_accepted(accept, ("application/json",))
        page = self._nonresource.response(http.path, http.query, accept)
        _check_page_method(http, page)
        tag = page.headers.get("ETag")
        if tag is not None and tag in http.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=page.headers)
        headers, body = {"Content-Type": page.content_type, **page.headers}, page.body
        # kube-apiserver's aggregator answers for the groups: it has no indented JSON, and refuses few.
        form = error_representation(accept, {}).content_type
        has_forms = http.path != GROUPS_PATH or form != PLAIN_JSON.content_type or ";as=" in accept
        if page.is_object and page.content_type == PLAIN_JSON.content_type and has_forms:
            agent = http.headers.get("User-Agent", "")
            representation = negotiate(accept, http.query, now=self._clock.now, agent=agent, views=False)
            headers["Content-Type"], body = representation.content_type, representation.format(body)
        if (trail := http.get(AUDIT_TRAIL)) is not None and page.is_object:
            trail.set_response_body(page.body)
        return web.Response(body=body, status=page.code, headers=headers)

    def _object_counts(self) -> dict[str, int]:
        store = self._registry.store
        kinds = {kind.resource.qualified_name: kind.resource for kind in self._catalog if kind.resource.is_stored}
        return {name: store.count(collection_prefix(*item.group_resource)) for name, item in kinds.items()}

    async def _serve_resource(self, request: ApiRequest) -> web.StreamResponse:
        info, served_kind = request.info, request.served_kind
        if bool(info.namespace) > served_kind.resource.namespaced:
            # Before all else: rights in a namespace would reach an object of the cluster, also by its subresources.
            if served_kind.custom:
                return _page_not_found()
            raise apierrors.no_such_resource()
        is_part = info.subresource in ("", "status") or served_kind.strategy.part(info.subresource) is not None
        if not is_part or info.plural != served_kind.resource.plural:
            return await self._serve_subresource(request)
        if info.subresource == "status" and not served_kind.has_status:
            raise self._no_subresource(served_kind, info)
        if (
            served_kind.resource.namespaced
            and not info.namespace
            and request.verb not in (RequestVerb.LIST, RequestVerb.WATCH)
        ):
            raise apierrors.no_such_resource() if info.name else apierrors.method_not_allowed()
        if info.subresource and request.verb is RequestVerb.DELETE:
            raise apierrors.method_not_allowed()
        if request.verb is RequestVerb.DELETE_COLLECTION and request.verb not in served_kind.resource.verbs:
            raise apierrors.method_not_allowed()
        return await self._verb_handlers[request.verb](request)

    async def _serve_subresource(self, request: ApiRequest) -> web.StreamResponse:
        info, served_kind = request.info, request.served_kind
        if info.subresource in SPEC_SUBRESOURCES and served_kind.resource.subresource(info.subresource) is not None:
            if request.verb not in (RequestVerb.GET, RequestVerb.UPDATE, RequestVerb.PATCH):
                raise apierrors.method_not_allowed()
            return await self._verb_handlers[request.verb](request)
        handler = self._subresource_handler(served_kind, info)
        if handler is None:
            raise self._no_subresource(served_kind, info)
        name = "proxy" if info.is_proxy else info.subresource
        if name in CONNECTIONS:
            await self._admit_connection(request, name)
        return await handler(request)

    async def _admit_connection(self, request: ApiRequest, subresource: str) -> None:
        """Let webhooks and policies refuse a connection to an object. Raises `StatusError`."""
        served_kind, info = request.served_kind, request.info
        kind = f"{served_kind.resource.kind}{CONNECTIONS[subresource]}Options"
        options: JSON = {"kind": kind, "apiVersion": "v1"}
        for name in request.http.query:
            values = request.http.query.getall(name)
            flags = {"true": True, "1": True, "false": False, "0": False}
            options[name] = values if name in ("command", "ports") else flags.get(values[0], values[0])
        context = WriteContext(user=request.user, subresource=subresource)
        await self._registry.admit_subresource(context, served_kind, info.key, options, WriteOperation.CONNECT)

    @staticmethod
    def _no_subresource(served_kind: ServedKind, info: RequestInfo) -> StatusError:
        return (
            apierrors.not_found(served_kind.resource, info.name) if served_kind.custom else apierrors.no_such_resource()
        )

    def _subresource_handler(self, served_kind: ServedKind, info: RequestInfo) -> SubresourceHandler | None:
        """The handler of a subresource: the resource's own, or the generic one if the resource has the subresource."""
        name = "proxy" if info.is_proxy else info.subresource
        own = self._subresource_handlers.get((info.group, info.plural, name))
        if own is None and served_kind.resource.subresource(name) is not None:
            return self._subresource_handlers.get(("", "", name))
        return own

    # Reading

    async def _get(self, request: ApiRequest) -> web.StreamResponse:
        representation = self._representation(request)
        check_name(request.info.name)
        version = request.query.get("resourceVersion", "")
        if version and _object_version(request.served_kind, version) > self._registry.store.revision:
            raise apierrors.resource_version_too_large(int(version), self._registry.store.revision)
        record = self._registry.get(request.served_kind, request.info.key)
        data = request.served_kind.served_bytes(record.data)
        return api_response(
            request, representation, representation.encode_object(request.served_kind.object_kind, data)
        )

    async def _list(self, request: ApiRequest) -> web.StreamResponse:
        representation = self._representation(request)
        selection = Selection.from_query(request.query, request.served_kind.selectable_fields)
        page = list_page(self._registry.store, request.served_kind, request.info.namespace, request.query, selection)
        return self._list_response(request, representation, page)

    def _list_response(self, request: ApiRequest, representation: Representation, page: ListPage) -> web.StreamResponse:
        items = [request.served_kind.served_bytes(record.data) for record in page.records]
        representation = for_long_list(representation, request.http.headers.get("Accept", ""), len(items))
        body = representation.encode_list(request.served_kind.object_kind, items, page.metadata)
        return api_response(request, representation, body)

    async def _watch(self, request: ApiRequest) -> web.StreamResponse:
        representation = self._representation(request, watch=True)
        query = dict(request.query)
        if request.info.name:  # the deprecated /watch/.../NAME
            query["fieldSelector"] = f"metadata.name={request.info.name}"
        check_list_options(query, watch=True)
        selection = Selection.from_query(query, request.served_kind.selectable_fields)
        if query.get("resourceVersion"):
            parse_resource_version(query["resourceVersion"])  # refuse it before the response begins
        response = web.StreamResponse(headers={"Content-Type": representation.stream_type, "Cache-Control": NO_CACHE})
        # The response starts now, so that each line is sent when it is written.
        await response.prepare(request.http)
        spec = WatchRequest(request.served_kind, request.info.namespace, selection, representation, query)
        # A client may disconnect at any time.
        with suppress(ConnectionError):
            async for piece in watch_lines(self._registry.store, spec, self._clock):
                await response.write(piece)
        return response

    # Writing

    async def _create(self, request: ApiRequest) -> web.StreamResponse:
        if request.info.name and not request.served_kind.custom:
            raise apierrors.method_not_allowed()
        representation = self._representation(request)
        check_write_options(request.verb, request.query)
        raw = await request.read_body()
        body = request.checked_object(raw, request.served_kind)
        ensure_metadata(body)
        _record_object(request, body)
        check_namespace(request.served_kind, request.info.namespace, body["metadata"])
        result = await self._registry.create(request.write_context(), request.served_kind, request.info.namespace, body)
        return _write_response(request, representation, result)

    async def _update(self, request: ApiRequest) -> web.StreamResponse:
        representation = self._representation(request)
        check_write_options(request.verb, request.query)
        raw = await request.read_body()
        body = request.checked_object(raw, request.served_kind)
        ensure_metadata(body)
        _record_object(request, body)
        check_object_key(request.served_kind, request.info.key, body)
        context = msgspec.structs.replace(
            request.write_context(),
            is_put=True,
            expected_uid=body["metadata"].get("uid") or "",
            check_create=partial(self._check_create, request),
        )
        upsert = allows_create_on_update(request.served_kind) and not request.info.subresource
        result = await self._registry.update(
            context, request.served_kind, request.info.key, lambda old: deep_copy(body), upsert=upsert
        )
        return _write_response(request, representation, result)

    async def _patch(self, request: ApiRequest) -> web.StreamResponse:
        representation, media = self._representation(request), request.media_type
        raw = await request.read_body()
        if request.trail is not None:
            request.trail.set_patch(raw)
        if media == APPLY_PATCH:
            return _write_response(request, representation, await self._apply(request, raw))
        context = request.write_context()
        transform = patch_function(
            request.served_kind, media, raw, validation=context.field_validation, warn=request.warnings.append
        )
        check_write_options(request.verb, request.query)
        result = await self._registry.update(context, request.served_kind, request.info.key, transform)
        return _write_response(request, representation, result)

    async def _apply(self, request: ApiRequest, raw: bytes) -> WriteResult:
        check_write_options(RequestVerb.PATCH, request.query, apply=True)
        body, force = read_applied(raw), query_flag(request.query, "force")
        context = msgspec.structs.replace(request.write_context(), check_create=partial(self._check_create, request))
        report_applied_duplicates(body, context.field_validation, request.warnings.append)
        return await self._registry.apply(context, request.served_kind, request.info.key, body.object, force=force)

    def _check_create(self, request: ApiRequest) -> None:
        """Check that the user of an update may create the object, which does not exist. Raises `StatusError` (403)."""
        attributes = access_attributes(request.user, request.http.method, request.info, request.query)
        attributes = msgspec.structs.replace(attributes, verb=RequestVerb.CREATE)
        decision = self._authorizer.decide(attributes)
        if not decision.allowed:
            raise forbidden_error(attributes, decision.reason)

    async def _delete(self, request: ApiRequest) -> web.StreamResponse:
        representation = self._representation(request)
        options = await self._deletion_options(request)
        context = WriteContext(dry_run=options.dry_run, user=request.user)
        result = await self._registry.delete(context, request.served_kind, request.info.key, options)
        return _write_response(request, representation, result)

    async def _delete_collection(self, request: ApiRequest) -> web.StreamResponse:
        representation = self._representation(request)
        options = await self._deletion_options(request)
        selection = Selection.from_query(request.query, request.served_kind.selectable_fields)
        page = list_page(self._registry.store, request.served_kind, request.info.namespace, request.query, selection)
        warnings = await self._registry.delete_all(request.served_kind, page.records, options, request.user)
        request.warnings.extend(warnings)
        # As they were before: kube-apiserver returns the list that it has deleted.
        return self._list_response(request, representation, page)

    async def _deletion_options(self, request: ApiRequest) -> DeletionOptions:
        raw = await request.read_body()
        body = _sent_options(raw, request.http.headers.get("Content-Type", "")) if raw else None
        if request.trail is not None and body is not None:
            request.trail.set_options(body)
        return deletion_options(body, request.query)

    def _representation(self, request: ApiRequest, *, watch: bool = False) -> Representation:
        accept, agent = request.http.headers.get("Accept", ""), request.http.headers.get("User-Agent", "")
        return negotiate(
            accept,
            request.query,
            now=self._clock.now,
            agent=agent,
            watch=watch,
            routed=not request.served_kind.custom,
            listing=request.verb in (RequestVerb.LIST, RequestVerb.WATCH),
        )


def _allowed_verb(method: str, verb: RequestVerb | None, info: RequestInfo, *, is_custom: bool) -> RequestVerb:
    """The verb of a request for a resource. Raises `StatusError` if kube-apiserver has no route for the method."""
    if info.is_proxy:
        return verb or RequestVerb.GET  # every method is passed on
    if is_custom and verb is None and method in ("PUT", "PATCH"):
        raise apierrors.bad_request("name must be provided")
    if verb is None or (method == "HEAD" and not is_custom):
        raise apierrors.method_not_allowed()
    return verb


def _check_page_method(http: web.BaseRequest, page: NonResourceResponse) -> None:
    """Refuse HEAD for pages that kube-apiserver routes by method. Raises `StatusError` (405)."""
    path = http.path.rstrip("/")
    is_routed = path == VERSION_PATH or (path.startswith("/api") and path != GROUPS_PATH)
    if http.method == "HEAD" and is_routed and page.code == 200:
        raise apierrors.method_not_allowed()


def _labels(info: RequestInfo, verb: RequestVerb, served_kind: ServedKind) -> RequestLabels:
    name = info.subresource.partition("/")[0]
    subresource = name if served_kind.resource.subresource(name) is not None else ""
    scope = "resource" if info.name else "namespace" if info.namespace else "cluster"
    return RequestLabels(verb.upper(), info.group, info.version, info.plural, subresource, scope)


def _sent_options(raw: bytes, content_type: str) -> JSON:
    """The options in the body of a deletion. kube-apiserver has no code for those that it cannot decode."""
    try:
        return read_object(raw, content_type, "DeleteOptions").object
    except StatusError as error:
        if error.code != 400:
            raise
        raise apierrors.untyped_error(decoding_text(error)) from error


def _decoded_path(http: web.BaseRequest) -> str:
    """The path, with a replacement character for what is no UTF-8, as in Go's responses; aiohttp leaves it encoded."""
    return unquote(http.rel_url.raw_path) if "%" in http.path else http.path


def _object_version(served_kind: ServedKind, text: str) -> int:
    """The resourceVersion of a request for one object. kube-apiserver has no cache of events, and so another error."""
    try:
        return parse_resource_version(text)
    except StatusError as error:
        if served_kind.resource.plural == "events" and not served_kind.custom:
            raise apierrors.bad_request(f"invalid resource version: {error.message}") from error
        raise


def _attributes(http: web.BaseRequest, user: UserInfo, info: RequestInfo | None) -> AccessAttributes:
    if info is None or not info.plural:
        return AccessAttributes(user, http.method.lower(), path=http.path)
    return access_attributes(user, http.method, info, http.query)


async def read_body(http: web.BaseRequest) -> bytes:
    """The body of a request. Raises `StatusError`: 413 if it is too long, 504 if it does not arrive."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await http.read()
    except TimeoutError:
        raise apierrors.request_timeout() from None
    except (web.RequestPayloadError, ConnectionError) as error:
        raise apierrors.bad_request(f"the body of the request is incomplete: {error}") from error
    except web.HTTPRequestEntityTooLarge:
        raise apierrors.body_too_large(MAX_BODY_BYTES) from None


def _record_object(request: ApiRequest, body: JSON) -> None:
    """Record the object that the client sent, with its defaults as kube-apiserver decodes it."""
    if request.trail is None:
        return
    if request.trail.level.has_request_body:
        resource = request.served_kind.resource
        body = {"kind": resource.kind, "apiVersion": resource.api_version, **deep_copy(body)}
        with suppress(StatusError):
            default_and_prune(request.write_context(), request.served_kind, body)
    request.trail.set_request_object(body)


def _write_response(request: ApiRequest, representation: Representation, result: WriteResult) -> web.Response:
    request.warnings.extend(result.warnings)
    if result.is_status:
        status = msgspec.json.decode(result.data)
        if request.trail is not None:
            request.trail.set_status(status)
        return api_response(request, representation, representation.encode_status(status))
    body = representation.encode_object(request.served_kind.object_kind, result.data)
    return api_response(request, representation, body, 201 if result.created else 200)


def api_response(request: ApiRequest, representation: Representation, body: bytes, code: int = 200) -> web.Response:
    """A response with an encoded body, and the request's warnings."""
    if request.trail is not None:
        request.trail.set_response_body(body)
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
    if (trail := http.get(AUDIT_TRAIL)) is not None:
        trail.set_status(status)
    response = web.Response(body=encoded, status=code, content_type=representation.content_type)
    retry = (status.get("details") or {}).get("retryAfterSeconds")
    if retry:
        response.headers["Retry-After"] = str(retry)
    _add_warnings(response, warnings)
    return response


def _page_not_found() -> web.Response:
    return web.Response(status=404, text="404 page not found\n", headers=NO_SNIFFING)


async def _chunks(body: bytes) -> AsyncIterator[memoryview]:
    """A long response in pieces, so that other requests are served meanwhile and the body is not copied."""
    view = memoryview(body)
    for start in range(0, len(body), RESPONSE_CHUNK_BYTES):
        yield view[start : start + RESPONSE_CHUNK_BYTES]


def _add_warnings(response: web.Response, warnings: list[str]) -> None:
    for value in warning_headers(warnings):
        response.headers.add("Warning", value)
