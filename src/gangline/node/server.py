"""The part of the kubelet's API that a real kube-apiserver uses for `kubectl logs`."""

import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from datetime import datetime, timedelta

from aiohttp import web

from gangline.api.meta import Key
from gangline.base.errors import InputError
from gangline.kube.podstreams import LogOptions, NoLogs
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


class LogServer:
    """Serves `/containerLogs/NAMESPACE/POD/CONTAINER` and `/healthz`."""

    def __init__(self, reader: NodeLogReader, now: Callable[[], datetime]) -> None:
        self._reader, self._now = reader, now

    def app(self) -> web.Application:
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._handle_logs)
        app.router.add_get("/healthz", self._handle_healthz)
        return app

    async def _handle_healthz(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    async def _handle_logs(self, request: web.Request) -> web.StreamResponse:
        path = request.match_info
        try:
            options = log_options(request.query, self._now())
        except InputError as error:
            return web.Response(status=400, text=str(error))
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        try:
            log = self._reader.read(Key(path["namespace"], path["pod"]), path["container"], options)
        except NoLogs as error:
            return web.Response(status=404, text=str(error))
        async with aclosing(log) as parts:
            # Headers at once: a container may print nothing for a long time.
            await response.prepare(request)
            async for part in parts:
                await response.write(part)
        await response.write_eof()
        return response


@asynccontextmanager
async def serve_logs(
    server: LogServer, host: str, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve until the block ends; yields the port. A kube-apiserver requires TLS, and accepts any certificate."""
    runner = web.AppRunner(server.app(), handler_cancellation=True, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, ssl_context=tls).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
