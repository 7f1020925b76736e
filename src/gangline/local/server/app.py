"""The Kubernetes protocol over HTTP: enough for our own client, operator and node.

Thin on purpose: docs/adr/0008-walking-skeleton.md says what is missing.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
from aiohttp import web

from gangline import __version__
from gangline.api.meta import JSON, Key
from gangline.api.scheme import Resource, Scheme
from gangline.local.server.objects import Objects, Refused, merge, store_path, versioned
from gangline.local.store.store import Compacted, Record, Store

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Routes of every kind in a scheme."""

    def __init__(self, store: Store, objects: Objects, scheme: Scheme) -> None:
        self._store, self._objects, self._scheme = store, objects, scheme

    def app(self) -> web.Application:
        app = web.Application(middlewares=[answers_with_status], client_max_size=3 * 2**20)
        app.router.add_get("/version", self._version)
        app.router.add_get("/healthz", self._healthy)
        for resource in self._scheme:
            self._route(app, resource)
        return app

    def _route(self, app: web.Application, resource: Resource[Any]) -> None:
        root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        scoped = f"{root}/namespaces/{{namespace}}" if resource.namespaced else root
        collection, item = f"{scoped}/{resource.plural}", f"{scoped}/{resource.plural}/{{name}}"
        if resource.namespaced:
            app.router.add_get(f"{root}/{resource.plural}", self._bound(self._read, resource))
        app.router.add_get(collection, self._bound(self._read, resource))
        app.router.add_post(collection, self._bound(self._create, resource))
        app.router.add_get(item, self._bound(self._get, resource))
        app.router.add_patch(item, self._bound(self._patch, resource))
        app.router.add_patch(f"{item}/{{subresource}}", self._bound(self._patch, resource))
        app.router.add_delete(item, self._bound(self._delete, resource))
        if resource.kind == "Pod":
            app.router.add_post(f"{item}/binding", self._bound(self._bind, resource))

    def _bound(
        self,
        method: Callable[[web.Request, Resource[Any]], Awaitable[web.StreamResponse]],
        resource: Resource[Any],
    ) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            return await method(request, resource)

        return handle

    async def _version(self, request: web.Request) -> web.StreamResponse:
        return answer({"major": "1", "minor": "34", "gitVersion": f"v1.34.0+gangline-{__version__}"})

    async def _healthy(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    async def _get(self, request: web.Request, resource: Resource[Any]) -> web.StreamResponse:
        return answer(versioned(await self._objects.get(resource, key(request))))

    async def _read(self, request: web.Request, resource: Resource[Any]) -> web.StreamResponse:
        if request.query.get("watch") in ("true", "1"):
            return await self._watch(request, resource)
        snapshot = await self._store.range(store_path(resource, request.match_info.get("namespace", "")))
        body = {
            "apiVersion": resource.api_version,
            "kind": f"{resource.kind}List",
            "metadata": {"resourceVersion": str(snapshot.revision)},
            "items": [versioned(record) for record in snapshot.records],
        }
        return answer(body)

    async def _watch(self, request: web.Request, resource: Resource[Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        prefix = store_path(resource, request.match_info.get("namespace", ""))
        # A client that leaves in the middle of a write is no error.
        with suppress(ConnectionResetError):
            await self._tell(response, prefix, int(request.query.get("resourceVersion") or 0))
        return response

    async def _tell(self, response: web.StreamResponse, prefix: str, after: int) -> None:
        try:
            async for record in self._store.watch(prefix, after=after):
                await response.write(msgspec.json.encode(change(record)) + b"\n")
        except Compacted as error:
            status = {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "code": 410,
                "reason": "Expired",
            }
            line = {"type": "ERROR", "object": {**status, "message": str(error)}}
            await response.write(msgspec.json.encode(line) + b"\n")

    async def _create(self, request: web.Request, resource: Resource[Any]) -> web.StreamResponse:
        made = await self._objects.create(
            resource, request.match_info.get("namespace", ""), await body(request)
        )
        return answer(made, 201)

    async def _patch(self, request: web.Request, resource: Resource[Any]) -> web.StreamResponse:
        patch = await body(request)
        expected = patch.get("metadata", {}).pop("resourceVersion", "")
        if request.match_info.get("subresource") == "status":
            patch = {"status": patch.get("status", {})}
        changed = await self._objects.change(
            resource, key(request), lambda value: merge(value, patch), expected
        )
        return answer(changed)

    async def _bind(self, request: web.Request, resource: Resource[Any]) -> web.StreamResponse:
        target = (await body(request))["target"]["name"]

        def bound(value: JSON) -> None:
            value["spec"]["nodeName"] = target

        await self._objects.change(resource, key(request), bound, "")
        return answer({"kind": "Status", "apiVersion": "v1", "status": "Success"}, 201)

    async def _delete(self, request: web.Request, resource: Resource[Any]) -> web.StreamResponse:
        options = await body(request)
        uid = options.get("preconditions", {}).get("uid", "")
        return answer(
            await self._objects.delete(resource, key(request), uid, options.get("gracePeriodSeconds"))
        )


def key(request: web.Request) -> Key:
    return Key(request.match_info.get("namespace", ""), request.match_info["name"])


async def body(request: web.Request) -> JSON:
    raw = await request.read()
    decoded: JSON = msgspec.json.decode(raw, type=dict[str, Any]) if raw else {}
    return decoded


def change(record: Record) -> JSON:
    """A record as a watch tells it."""
    if record.value is None:
        return {"type": "DELETED", "object": versioned(record)}
    return {"type": "ADDED" if record.before is None else "MODIFIED", "object": versioned(record)}


def answer(value: JSON, code: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=code, content_type="application/json")


@web.middleware
async def answers_with_status(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every refusal is a Status object, as Kubernetes clients expect."""
    try:
        return await handler(request)
    except Refused as refusal:
        value = {"kind": "Status", "apiVersion": "v1", "metadata": {}, **msgspec.to_builtins(refusal.status)}
        return answer(value, refusal.status.code)
    except web.HTTPException as error:
        value = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": error.status}
        return answer({**value, "reason": error.reason, "message": error.text or error.reason}, error.status)
