"""The part of kubelet's API that others use: logs for a kube-apiserver, and what the node proxy shows."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import datetime, timedelta

import msgspec
from aiohttp import web

from gangline.api.meta import JSON, Key
from gangline.base.errors import InputError
from gangline.base.metrics_text import METRICS_TYPE
from gangline.kube.podstreams import LogOptions, NoLogs
from gangline.node.api.metrics_text import node_metrics, resource_metrics, usage_summary
from gangline.node.api.usage_meter import UsageMeter
from gangline.node.logs import NodeLogReader


def log_options(query: Mapping[str, str], now: datetime) -> LogOptions:
    """The options in the query of `pods/log` or `/containerLogs`. Raises `InputError`."""
    since = None
    if "sinceTime" in query:
        try:
            since = datetime.fromisoformat(query["sinceTime"])
        except ValueError:
            raise InputError(f"sinceTime: {query['sinceTime']!r} is not a time; write 2026-01-02T15:04:05Z") from None
    elif "sinceSeconds" in query:
        since = now - timedelta(seconds=_int_parameter(query, "sinceSeconds") or 0)
    return LogOptions(
        follow=_bool_parameter(query, "follow"),
        previous=_bool_parameter(query, "previous"),
        timestamps=_bool_parameter(query, "timestamps"),
        tail=_int_parameter(query, "tailLines"),
        since=since,
        limit_bytes=_int_parameter(query, "limitBytes"),
    )


def _bool_parameter(query: Mapping[str, str], name: str) -> bool:
    return query.get(name, "") in ("true", "True", "1")


def _int_parameter(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not text.isdecimal():
        raise InputError(f"{name}: {text!r} is not a number")
    return int(text)


class NodeInspection(msgspec.Struct, frozen=True):
    """What the node tells about itself beside logs."""

    name: str
    meter: UsageMeter
    pods: Callable[[], Awaitable[JSON]]
    """Reads the PodList of the node."""


class NodeApi:
    """Serves `/containerLogs/NAMESPACE/POD/CONTAINER` and `/healthz`; with an inspection also `/pods`, metrics and usage."""

    def __init__(
        self, reader: NodeLogReader, now: Callable[[], datetime], inspection: NodeInspection | None = None
    ) -> None:
        self._reader, self._now, self._inspection = reader, now, inspection

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        """The response to a request."""
        if http.method not in ("GET", "HEAD"):
            return web.Response(status=405, text="Method Not Allowed\n")
        match http.path.strip("/").split("/"):
            case ["healthz"]:
                return web.Response(text="ok")
            case ["containerLogs", namespace, pod, container]:
                return await self._serve_logs(http, Key(namespace, pod), container)
            case parts if self._inspection is not None:
                return await _inspect(self._inspection, parts)
        return _not_found()

    async def _serve_logs(self, http: web.BaseRequest, pod: Key, container: str) -> web.StreamResponse:
        try:
            options = log_options(http.query, self._now())
        except InputError as error:
            return web.Response(status=400, text=str(error))
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        try:
            log = self._reader.read(pod, container, options)
        except NoLogs as error:
            return web.Response(status=404, text=str(error))
        async with aclosing(log) as parts:
            # Headers at once: a container may print nothing for a long time.
            await response.prepare(http)
            async for part in parts:
                await response.write(part)
        await response.write_eof()
        return response


def _not_found() -> web.Response:
    return web.Response(status=404, text="404 page not found\n")


async def _inspect(inspection: NodeInspection, path: Sequence[str]) -> web.Response:
    match path:
        case ["pods"] | ["runningpods"]:
            return _json_response(await inspection.pods())
        case ["stats", "summary"]:
            return _json_response(usage_summary(inspection.name, await inspection.meter.measure()))
        case ["metrics", "resource"]:
            return _text_response(resource_metrics(await inspection.meter.measure()))
        case ["metrics"]:
            return _text_response(node_metrics(inspection.name, await inspection.pods()))
    return _not_found()


def _json_response(body: JSON) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")


def _text_response(text: str) -> web.Response:
    return web.Response(body=text.encode(), headers={"Content-Type": METRICS_TYPE})


@asynccontextmanager
async def serve_node_api(
    api: NodeApi, host: str, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve until the block ends; yields the port. A kube-apiserver requires TLS, and accepts any certificate."""
    server = web.Server(api.handle, handler_cancellation=True, access_log=None)
    runner = web.ServerRunner(server, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def connect_in_process(api: NodeApi) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the API from inside its process. It ends with the first request that says so."""
    ours, its = socket.socketpair()
    try:
        server = web.Server(api.handle, handler_cancellation=True, access_log=None)
        await asyncio.get_running_loop().connect_accepted_socket(server, its)
        return await asyncio.open_connection(sock=ours)
    except BaseException:
        ours.close()
        raise
