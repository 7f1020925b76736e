"""An API server in memory for tests of the node: a `Transport`, and the same over HTTP for a node in another process.

Strict where a node could be wrong: versions move on every change and on nothing else, a stale one is a Conflict, a
bound pod is deleted in two steps, a status can only be patched as a status. No validation, no selectors.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from copy import deepcopy
from datetime import timedelta
from typing import Any

import msgspec
from aiohttp import web

from gangline.api.meta import JSON, Key
from gangline.base.clock import Clock, SystemClock
from gangline.kube.client import Client
from gangline.kube.errors import Unreachable
from gangline.kube.transport.api import Request, Response, WebSocket
from support.builders.objects import pod_body
from support.servers.memory import apply_merge_patch

ObjectSlot = tuple[str, str, str]
FIXED_TIMESTAMP = "2026-01-01T00:00:00Z"


class NodeApi:
    """Objects and their history."""

    def __init__(self) -> None:
        self.objects: dict[ObjectSlot, JSON] = {}
        self.history: list[tuple[int, ObjectSlot, str, JSON]] = []
        # Nobody gets an answer.
        self.is_down = False
        # How many of the next pod status writes meet a Conflict, somebody having been faster.
        self.status_conflicts = 0
        self._changed = asyncio.Event()

    def client(self, clock: Clock | None = None) -> Client:
        return Client(self, clock=clock or SystemClock())

    # For tests

    def stored_pod(self, name: str, namespace: str = "default") -> JSON:
        return self.objects["pods", namespace, name]

    def status_history(self, name: str) -> list[JSON]:
        """Every status the pod ever had, oldest first."""
        found = [body.get("status", {}) for _, slot, _, body in self.history if slot == ("pods", "default", name)]
        return [each for at, each in enumerate(found) if at == 0 or found[at - 1] != each]

    async def wait_until(self, holds: Callable[[], bool], seconds: float = 60.0) -> None:
        """Wait until `holds` is true; it is called after every change."""
        async with asyncio.timeout(seconds):
            while not holds():
                moved = self._changed
                await moved.wait()

    async def wait_phase(self, name: str, *phases: str, seconds: float = 60.0) -> JSON:
        """Wait until a pod is in one of the phases; gives its status."""

        def reached() -> bool:
            found = self.objects.get(("pods", "default", name), {})
            return found.get("status", {}).get("phase") in phases

        try:
            await self.wait_until(reached, seconds)
        except TimeoutError:
            raise AssertionError(f"{name}: {self.objects.get(('pods', 'default', name), {}).get('status')}") from None
        status: JSON = self.stored_pod(name)["status"]
        return status

    async def wait_deleted(self, name: str, seconds: float = 60.0) -> None:
        await self.wait_until(lambda: ("pods", "default", name) not in self.objects, seconds)

    # Transport

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        if self.is_down:
            raise Unreachable("the API is down")
        code, body = self._handle(request)
        return Response(code, msgspec.json.encode(body))

    @asynccontextmanager
    async def stream(self, request: Request, *, idle: timedelta | None = None) -> AsyncIterator["_NodeApiWatch"]:
        if self.is_down:
            raise Unreachable("the API is down")
        yield _NodeApiWatch(self, request)

    def frames(self, request: Request, protocols: tuple[str, ...]) -> AbstractAsyncContextManager[WebSocket]:
        raise NotImplementedError

    def _handle(self, request: Request) -> tuple[int, JSON]:
        plural, namespace, name, sub = parse_path(request.path)
        body = msgspec.json.decode(request.body) if request.body else {}
        slot = (plural, namespace, name)
        if request.method == "POST" and not name:
            return self._create((plural, namespace, body["metadata"]["name"]), body)
        if not name:
            items = [b for (p, n, _), b in self.objects.items() if p == plural and namespace in ("", n)]
            return 200, {"metadata": {"resourceVersion": str(len(self.history))}, "items": items}
        if slot not in self.objects:
            return error_status(404, "NotFound", f'{plural} "{name}" not found')
        if request.method == "GET":
            return 200, self.objects[slot]
        if request.method == "PATCH":
            return self._patch(slot, body, sub)
        return self._delete(slot, body)

    def _create(self, slot: ObjectSlot, body: JSON) -> tuple[int, JSON]:
        if slot in self.objects:
            return error_status(409, "AlreadyExists", "exists")
        metadata = {"uid": str(uuid.uuid4()), "creationTimestamp": FIXED_TIMESTAMP, **body["metadata"]}
        if slot[1]:
            metadata["namespace"] = slot[1]
        made = {**body, "metadata": metadata}
        if slot[0] == "pods":
            made.setdefault("status", {"phase": "Pending"})
        return 201, self._store(slot, "ADDED", made)

    def _patch(self, slot: ObjectSlot, body: JSON, sub: str) -> tuple[int, JSON]:
        before = self.objects[slot]
        if sub == "status" and slot[0] == "pods" and self.status_conflicts:
            self.status_conflicts -= 1
            before = self._store(
                slot,
                "MODIFIED",
                apply_merge_patch(before, {"metadata": {"labels": {"race": str(self.status_conflicts)}}}),
            )
        wanted = body.get("metadata", {}).get("resourceVersion")
        if wanted and wanted != before["metadata"]["resourceVersion"]:
            return error_status(409, "Conflict", "the object has been modified")
        body = {"status": body["status"]} if sub == "status" else {k: v for k, v in body.items() if k != "status"}
        after = apply_merge_patch(before, body)
        return 200, before if after == before else self._store(slot, "MODIFIED", after)

    def _delete(self, slot: ObjectSlot, options: JSON) -> tuple[int, JSON]:
        found = self.objects[slot]
        uid = options.get("preconditions", {}).get("uid")
        if uid and uid != found["metadata"]["uid"]:
            return error_status(409, "Conflict", "another uid")
        grace = options.get("gracePeriodSeconds")
        if slot[0] == "pods" and grace != 0 and found["spec"].get("nodeName"):
            default = found["spec"].get("terminationGracePeriodSeconds", 30)
            mark = {
                "deletionTimestamp": FIXED_TIMESTAMP,
                "deletionGracePeriodSeconds": default if grace is None else grace,
            }
            return 200, self._store(slot, "MODIFIED", apply_merge_patch(found, {"metadata": mark}))
        del self.objects[slot]
        return 200, self._record(slot, "DELETED", found)

    def _store(self, slot: ObjectSlot, what: str, body: JSON) -> JSON:
        noted = self._record(slot, what, body)
        self.objects[slot] = noted
        return noted

    def _record(self, slot: ObjectSlot, what: str, body: JSON) -> JSON:
        version = len(self.history) + 1
        noted = {**deepcopy(body), "metadata": {**body["metadata"], "resourceVersion": str(version)}}
        self.history.append((version, slot, what, noted))
        self._changed.set()
        self._changed = asyncio.Event()
        return noted

    async def changes(self, plural: str, since: int) -> AsyncIterator[bytes]:
        at = since
        while True:
            while at >= len(self.history):
                await self._changed.wait()
            version, slot, what, body = self.history[at]
            at = version
            if slot[0] == plural:
                yield msgspec.json.encode({"type": what, "object": body}) + b"\n"


class _NodeApiWatch:
    def __init__(self, api: NodeApi, request: Request) -> None:
        self.response = Response(200)
        self._api, self._plural = api, parse_path(request.path)[0]
        self._since = int(dict(request.query)["resourceVersion"])

    def chunks(self) -> AsyncIterator[bytes]:
        return self._api.changes(self._plural, self._since)


def parse_path(path: str) -> tuple[str, str, str, str]:
    """Plural, namespace, name, subresource."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    plural, name, sub = [*parts, "", "", ""][:3]
    return plural, namespace, name, sub


def error_status(code: int, reason: str, message: str) -> tuple[int, JSON]:
    return code, {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}


@asynccontextmanager
async def serve_http(api: NodeApi) -> AsyncIterator[str]:
    """Serve the same objects over HTTP to other processes; gives the URL."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        asked = Request(request.method, request.path, tuple(request.query.items()), await request.read())
        if request.query.get("watch") == "true":
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            async with api.stream(asked) as stream:
                async for chunk in stream.chunks():
                    await response.write(chunk)
            return response
        answer = await api.send(asked)
        return web.Response(body=answer.body, status=answer.status, content_type="application/json")

    runner = web.ServerRunner(web.Server(handle, handler_cancellation=True, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def default_key(name: str) -> Key:
    return Key("default", name)


def command_pod(
    name: str,
    *command: str,
    node: str = "local",
    restart: str = "Never",
    container: JSON | None = None,
    **spec: Any,
) -> JSON:
    """A bound pod with one container, `main`."""
    main = {"name": "main", "image": "none", "command": list(command), **(container or {})}
    return pod_body(name, "default", **{"nodeName": node, "restartPolicy": restart, "containers": [main], **spec})


def shell_command(script: str) -> tuple[str, str, str]:
    return "sh", "-c", script
