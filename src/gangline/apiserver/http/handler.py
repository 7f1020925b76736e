"""The Kubernetes API over HTTP: requests in, answers out, nothing decided here that is not about HTTP."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress

import msgspec
from aiohttp import web

from gangline.api.meta import JSON
from gangline.apiserver import refusals
from gangline.apiserver.apply.managed import manager_name
from gangline.apiserver.errors import Refused, Undeclared
from gangline.apiserver.http.access_reviews import Question, Reviews
from gangline.apiserver.http.authentication import Authenticator, User, authorize, authorize_path
from gangline.apiserver.http.body import LIMIT, check_fields, check_kind, read_object, read_yaml
from gangline.apiserver.http.impersonation import acting
from gangline.apiserver.http.list import listing, wanted_version
from gangline.apiserver.http.negotiation import Form, FormError, error_form, negotiate
from gangline.apiserver.http.nonresource import RootPaths
from gangline.apiserver.http.patch import APPLY_PATCH, patching
from gangline.apiserver.http.query import check_list_options, check_options
from gangline.apiserver.http.routes import Target, Verb, target, verb
from gangline.apiserver.http.watch import Watching, watching
from gangline.apiserver.patch.json_patch import copied
from gangline.apiserver.registry.catalog import Catalog, Entry
from gangline.apiserver.registry.deletion import delete_options
from gangline.apiserver.registry.metadata import check_namespace, check_place, metadata_of
from gangline.apiserver.registry.registry import Call, Outcome, Registry
from gangline.apiserver.registry.selection import Selection
from gangline.apiserver.registry.traits import made_by_put
from gangline.base.clock import Clock

log = logging.getLogger(__name__)

PIECE = 2**18
"""The most bytes of an answer that are encrypted and sent at once."""
UNCACHED = "no-cache, private"

Subresource = Callable[["Asked"], Awaitable[web.StreamResponse]]


class Asked(msgspec.Struct, frozen=True):
    """One request for a resource, understood."""

    http: web.BaseRequest
    user: User
    target: Target
    verb: Verb
    entry: Entry
    query: Mapping[str, str]
    warnings: list[str]

    def call(self) -> Call:
        """How a write is to be done."""
        return Call(
            manager=manager_name(self.query.get("fieldManager", ""), self.http.headers.get("User-Agent", "")),
            dry_run=bool(self.query.get("dryRun")),
            subresource=self.target.subresource,
            validation=self.query.get("fieldValidation", ""),
        )

    async def raw(self) -> bytes:
        return await read_raw(self.http)

    @property
    def media(self) -> str:
        """The content type, without parameters."""
        return self.http.headers.get("Content-Type", "").partition(";")[0].strip()

    def body(self, raw: bytes) -> JSON:
        """The object sent, in whatever format the client says. Raises `Refused`."""
        return read_object(raw, self.http.headers.get("Content-Type", ""), self.entry.kind)


class Api:
    """Answers requests. Give it to an `aiohttp.web.Server`."""

    def __init__(
        self,
        registry: Registry,
        authenticator: Authenticator,
        clock: Clock,
        roots: RootPaths,
        *,
        subresources: Mapping[tuple[str, str, str], Subresource] | None = None,
    ) -> None:
        """`subresources` are by group, plural and name."""
        self._registry, self._authenticator, self._clock = registry, authenticator, clock
        self._catalog: Catalog = registry.catalog
        self._roots = roots
        self._subresources = dict(subresources or {})
        self._reviews = Reviews(authenticator)
        self._verbs: Mapping[Verb, Subresource] = {
            Verb.GET: self._get,
            Verb.LIST: self._list,
            Verb.WATCH: self._watch,
            Verb.CREATE: self._create,
            Verb.UPDATE: self._update,
            Verb.PATCH: self._patch,
            Verb.DELETE: self._delete,
            Verb.DELETE_COLLECTION: self._delete_collection,
        }

    async def __call__(self, http: web.BaseRequest) -> web.StreamResponse:
        response = await self._answered(http)
        if not response.prepared:
            response.headers.setdefault("Cache-Control", UNCACHED)
        return response

    async def _answered(self, http: web.BaseRequest) -> web.StreamResponse:
        warnings: list[str] = []
        try:
            return await self._answer(http, warnings)
        except (Refused, FormError) as refusal:
            return self._refuse(http, refusal.code, refusal.status, warnings)
        except Exception:
            # The one place where a bug of ours becomes an answer: the others must not suffer for one request.
            log.exception("request failed", extra={"method": http.method, "path": http.path})
            broken = refusals.internal("see the server's log")
            return self._refuse(http, broken.code, broken.status, warnings)

    # Routing

    async def _answer(self, http: web.BaseRequest, warnings: list[str]) -> web.StreamResponse:
        peer = http.transport.get_extra_info("peercert") if http.transport is not None else None
        user = self._authenticator.user(http.headers.get("Authorization"), peer)
        user = acting(user, http.headers.items())
        found = target(http.path)
        if found is None or not found.plural:
            authorize_path(user, http.method, http.path)
            return self._document(http)
        asked_verb = verb(http.method, found, http.query)
        if asked_verb is None:
            raise refusals.method_not_allowed()
        if found in self._reviews:
            return await self._review(http, user, asked_verb, found)
        authorize(user, asked_verb, found)
        entry = self._catalog.find(found.group, found.version, found.plural)
        if entry is None:
            return self._unknown(found)
        if entry.deprecation:
            warnings.append(entry.deprecation)
        asked = Asked(http, user, found, asked_verb, entry, http.query, warnings)
        return await self._serve(asked)

    def _unknown(self, found: Target) -> web.StreamResponse:
        builtin = any(e.group == found.group and not e.custom for e in self._catalog)
        if not builtin:
            # CRD groups are served by another part of kube-apiserver, which answers in plain text.
            return _no_page()
        raise refusals.no_such_resource()

    def _nowhere(self) -> web.StreamResponse:
        raise refusals.no_such_resource()

    async def _review(
        self, http: web.BaseRequest, user: User, asked: Verb, found: Target
    ) -> web.StreamResponse:
        self._reviews.admit(user, asked, found)
        accept, agent = http.headers.get("Accept", ""), http.headers.get("User-Agent", "")
        form = negotiate(accept, http.query, now=self._clock.now, agent=agent, views=False)
        body = read_object(await read_raw(http), http.headers.get("Content-Type", ""))
        manager = manager_name(http.query.get("fieldManager", ""), agent)
        answer = self._reviews.answer(Question(user, found, body, manager, self._registry.stamp()))
        return web.Response(body=form.encode_status(answer), status=201, content_type=form.content_type)

    def _document(self, http: web.BaseRequest) -> web.StreamResponse:
        if http.method not in ("GET", "HEAD"):
            raise refusals.method_not_allowed()
        found = self._roots.answer(http.path, http.query, http.headers.get("Accept", ""))
        tag = found.headers.get("ETag")
        if tag is not None and tag in http.headers.get("If-None-Match", ""):
            return web.Response(status=304, headers=found.headers)
        headers = {"Content-Type": found.content_type, **found.headers}
        return web.Response(body=found.body, status=found.code, headers=headers)

    async def _serve(self, asked: Asked) -> web.StreamResponse:
        where, entry = asked.target, asked.entry
        if where.subresource not in ("", "status"):
            special = self._special(entry, where.subresource)
            if special is None:
                raise refusals.no_such_resource()
            return await special(asked)
        if where.subresource == "status" and not entry.has_status:
            if entry.custom:
                raise refusals.not_found(entry, where.name)
            raise refusals.no_such_resource()
        if bool(where.namespace) > entry.served.namespaced:
            return _no_page() if entry.custom else self._nowhere()
        if entry.served.namespaced and not where.namespace and asked.verb not in (Verb.LIST, Verb.WATCH):
            raise refusals.no_such_resource() if where.name else refusals.method_not_allowed()
        if where.subresource == "status" and asked.verb is Verb.DELETE:
            raise refusals.method_not_allowed()
        if asked.verb is Verb.DELETE_COLLECTION and asked.verb not in entry.served.verbs:
            raise refusals.method_not_allowed()
        return await self._verbs[asked.verb](asked)

    def _special(self, entry: Entry, name: str) -> Subresource | None:
        """The handler of a subresource: its own, or the one for all resources that have it."""
        own = self._subresources.get((entry.group, entry.plural, name))
        if own is None and entry.served.subresource(name) is not None:
            return self._subresources.get(("", "", name))
        return own

    # Reading

    async def _get(self, asked: Asked) -> web.StreamResponse:
        form = self._form(asked)
        version = asked.query.get("resourceVersion", "")
        if version and wanted_version(version) > self._registry.store.revision:
            raise refusals.too_large_version(int(version), self._registry.store.revision)
        record = self._registry.get(asked.entry, asked.target.key)
        return self._give(asked, form, form.encode_object(asked.entry.shown, asked.entry.show(record.data)))

    async def _list(self, asked: Asked) -> web.StreamResponse:
        form = self._form(asked)
        chosen = Selection.of(asked.query, asked.entry.fields)
        page = listing(self._registry.store, asked.entry, asked.target.namespace, asked.query, chosen)
        items = [asked.entry.show(record.data) for record in page.records]
        return self._give(asked, form, form.encode_list(asked.entry.shown, items, page.metadata))

    async def _watch(self, asked: Asked) -> web.StreamResponse:
        form = self._form(asked, watch=True)
        query = dict(asked.query)
        if asked.target.name:  # the deprecated /watch/.../NAME
            query["fieldSelector"] = f"metadata.name={asked.target.name}"
        check_list_options(query, watch=True)
        chosen = Selection.of(query, asked.entry.fields)
        if query.get("resourceVersion"):
            wanted_version(query["resourceVersion"])  # refused before the answer begins
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": UNCACHED})
        # Lines go out as they are written, not when a buffer is full.
        await response.prepare(asked.http)
        spec = Watching(asked.entry, asked.target.namespace, chosen, form, query)
        # A client that leaves in the middle of a line is no error.
        with suppress(ConnectionResetError):
            async for piece in watching(self._registry.store, spec, self._clock):
                await response.write(piece)
        return response

    # Writing

    async def _create(self, asked: Asked) -> web.StreamResponse:
        if asked.target.name:
            raise refusals.method_not_allowed()
        form = self._form(asked)
        check_options(asked.verb, asked.query)
        raw = await asked.raw()
        body = asked.body(raw)
        self._check(asked, body, raw)
        check_namespace(asked.entry, asked.target.namespace, metadata_of(body))
        outcome = await self._registry.create(asked.call(), asked.entry, asked.target.namespace, body)
        return self._outcome(asked, form, outcome)

    async def _update(self, asked: Asked) -> web.StreamResponse:
        form = self._form(asked)
        check_options(asked.verb, asked.query)
        raw = await asked.raw()
        body = asked.body(raw)
        self._check(asked, body, raw)
        check_place(asked.entry, asked.target.key, body)
        call = msgspec.structs.replace(asked.call(), put=True, uid=body["metadata"].get("uid") or "")
        upsert = made_by_put(asked.entry) and not asked.target.subresource
        outcome = await self._registry.change(
            call, asked.entry, asked.target.key, lambda old: copied(body), upsert=upsert
        )
        return self._outcome(asked, form, outcome)

    async def _patch(self, asked: Asked) -> web.StreamResponse:
        form, media = self._form(asked), asked.media
        raw = await asked.raw()
        if media == APPLY_PATCH:
            return self._outcome(asked, form, await self._apply(asked, raw))
        call = asked.call()
        transform = patching(asked.entry, media, raw, validation=call.validation, warn=asked.warnings.append)
        check_options(asked.verb, asked.query)
        try:
            outcome = await self._registry.change(call, asked.entry, asked.target.key, transform)
        except Undeclared as refusal:
            raise refusals.invalid_patch(raw.decode(errors="replace"), refusal.message) from refusal
        return self._outcome(asked, form, outcome)

    async def _apply(self, asked: Asked, raw: bytes) -> Outcome:
        check_options(Verb.PATCH, asked.query, apply=True)
        config = read_yaml(raw)
        force = asked.query.get("force") in ("true", "1")
        return await self._registry.apply(asked.call(), asked.entry, asked.target.key, config, force=force)

    async def _delete(self, asked: Asked) -> web.StreamResponse:
        form = self._form(asked)
        raw = await asked.raw()
        options = delete_options(asked.body(raw) if raw else None, asked.query)
        call = Call(dry_run=options.dry_run)
        outcome = await self._registry.delete(call, asked.entry, asked.target.key, options)
        return self._outcome(asked, form, outcome)

    async def _delete_collection(self, asked: Asked) -> web.StreamResponse:
        form = self._form(asked)
        raw = await asked.raw()
        options = delete_options(asked.body(raw) if raw else None, asked.query)
        chosen = Selection.of(asked.query, asked.entry.fields)
        records = await self._registry.delete_all(asked.entry, asked.target.namespace, chosen, options)
        metadata: JSON = {"resourceVersion": str(self._registry.store.revision)}
        return self._give(asked, form, form.encode_list(asked.entry.shown, records, metadata))

    # Answers

    def _check(self, asked: Asked, body: JSON, raw: bytes) -> None:
        check_kind(asked.entry, body)
        check_fields(asked.entry, body, raw, asked.query.get("fieldValidation", ""), asked.warnings.append)

    def _form(self, asked: Asked, *, watch: bool = False) -> Form:
        headers = asked.http.headers
        return negotiate(
            headers.get("Accept", ""),
            asked.query,
            now=self._clock.now,
            agent=headers.get("User-Agent", ""),
            watch=watch,
        )

    def _outcome(self, asked: Asked, form: Form, outcome: Outcome) -> web.StreamResponse:
        asked.warnings.extend(outcome.warnings)
        if outcome.status:
            return self._give(asked, form, form.encode_status(msgspec.json.decode(outcome.data)))
        body = form.encode_object(asked.entry.shown, outcome.data)
        return self._give(asked, form, body, 201 if outcome.created else 200)

    def _give(self, asked: Asked, form: Form, body: bytes, code: int = 200) -> web.Response:
        response = web.Response(
            body=body if len(body) <= PIECE else _pieces(body),
            status=code,
            headers={"Content-Type": form.content_type, "Content-Length": str(len(body))},
        )
        _warn(response, asked.warnings)
        return response

    def _refuse(self, http: web.BaseRequest, code: int, status: JSON, warnings: list[str]) -> web.Response:
        form = error_form(
            http.headers.get("Accept", ""), http.query, agent=http.headers.get("User-Agent", "")
        )
        response = web.Response(body=form.encode_status(status), status=code, content_type=form.content_type)
        retry = (status.get("details") or {}).get("retryAfterSeconds")
        if retry:
            response.headers["Retry-After"] = str(retry)
        _warn(response, warnings)
        return response


async def read_raw(http: web.BaseRequest) -> bytes:
    """The body of a request. Raises `Refused` (413)."""
    try:
        return await http.read()
    except web.HTTPRequestEntityTooLarge:
        raise refusals.too_large_body(LIMIT) from None


def _no_page() -> web.Response:
    return web.Response(status=404, text="404 page not found\n")


async def _pieces(body: bytes) -> AsyncIterator[memoryview]:
    """A long answer bit by bit: others get their turn, and no copy of all of it is made on the way."""
    view = memoryview(body)
    for start in range(0, len(body), PIECE):
        yield view[start : start + PIECE]


def _warn(response: web.Response, warnings: list[str]) -> None:
    for text in dict.fromkeys(warnings):
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{escaped}"')
