"""The application: which endpoint answers which request."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

import msgspec
from aiohttp import web

from gangline.apiserver.serving.connections import ConnectionLimits
from gangline.apiserver.serving.server import (
    ConnectionGuard,
    GuardedServer,
    GuardedSite,
    HttpHandler,
    mark_authenticated,
)
from gangline.base.clock import Clock, SystemClock
from gangline.base.invocation import with_own_command
from gangline.dashboard.live.viewer import Viewer
from gangline.dashboard.settings import DashboardSettings, LoginMethod
from gangline.dashboard.web.endpoints import ViewerEndpoints
from gangline.dashboard.web.guard import (
    Refused,
    RequestGuard,
    add_security_headers,
    error_view,
    json_response,
)
from gangline.dashboard.web.pages import StaticPages
from gangline.dashboard.web.sessions import token_viewer
from gangline.dashboard.web.viewers import ViewerTable, Who

SHUTDOWN_SECONDS = 0.5
MAX_BODY_BYTES = 4 * 1024 * 1024
CONNECTIONS = ConnectionLimits(
    unauthenticated=512,
    unauthenticated_per_address=512,
    authenticated=2048,
    authenticated_per_address=2048,
    header_seconds=10.0,
    idle_seconds=75.0,
)
"""A proxy has one address for all viewers."""
ViewerHandler = Callable[[web.Request, Viewer], Awaitable[web.StreamResponse]]
JOB_PATH = "/api/jobs/{namespace}/{plural}/{name}"


class TokenBody(msgspec.Struct, frozen=True):
    token: str


class Dashboard:
    """The endpoints, and the viewers who use them."""

    def __init__(self, settings: DashboardSettings, viewers: ViewerTable) -> None:
        self.settings, self.viewers = settings, viewers
        self._pages = StaticPages(settings.static)

    def routes(self) -> list[web.RouteDef]:
        """All endpoints."""
        endpoints = ViewerEndpoints(self.settings)
        reads = {
            "/api/session": endpoints.session,
            "/api/stream": endpoints.stream,
            "/api/jobs": endpoints.jobs,
            JOB_PATH: endpoints.job,
            f"{JOB_PATH}/why": endpoints.why,
            f"{JOB_PATH}/logs": endpoints.logs,
            f"{JOB_PATH}/logs/stream": endpoints.log_stream,
            f"{JOB_PATH}/logs/download": endpoints.download,
            f"{JOB_PATH}/curves": endpoints.curves,
            "/api/cluster": endpoints.cluster,
            "/api/sweeps": endpoints.sweeps,
            "/api/sweeps/{name}": endpoints.sweeps,
        }
        writes = {
            f"{JOB_PATH}/actions/{{action}}": endpoints.act,
            "/api/cluster/fit": endpoints.fit,
            "/api/submit": endpoints.submit,
        }
        return [
            *(web.get(path, self._as_viewer(handler)) for path, handler in reads.items()),
            *(web.post(path, self._as_viewer(handler)) for path, handler in writes.items()),
            web.get("/healthz", self._health),
            web.post("/api/login", self._login),
            web.post("/api/logout", self._logout),
            web.get("/{path:.*}", self._page),
        ]

    def _as_viewer(self, handler: ViewerHandler) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            try:
                who = self.viewers.identify(request)
            except Refused as error:
                view = error_view(error, self.settings.login)
                return json_response({"error": view}, view.code)
            async with self.viewers.use(who) as viewer:
                mark_authenticated(request)
                return await handler(request, viewer)

        return handle

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")

    # Sessions

    async def _login(self, request: web.Request) -> web.Response:
        if self.settings.login is not LoginMethod.TOKEN:
            raise Refused(404, "this dashboard is opened by a link; get a new one: gangline dashboard")
        try:
            token = msgspec.json.decode(await request.read(), type=TokenBody).token.strip()
        except msgspec.DecodeError:
            raise Refused(400, 'send {"token": "..."}') from None
        async with self.viewers.use(Who(*token_viewer(self.settings.connection, token))) as viewer:
            user = await viewer.rights.user()
        response = json_response({"user": user})
        self._set_cookie(request, response, self.viewers.sessions.login(token))
        return response

    async def _logout(self, request: web.Request) -> web.Response:
        name = self.viewers.cookie_name(request)
        self.viewers.sessions.end(request.cookies.get(name, ""))
        response = json_response({})
        response.del_cookie(name, path="/", httponly=True, samesite="Strict")
        return response

    def _set_cookie(self, request: web.Request, response: web.StreamResponse, value: str) -> None:
        secure = request.secure or request.headers.get("X-Forwarded-Proto") == "https"
        response.set_cookie(
            self.viewers.cookie_name(request), value, path="/", httponly=True, samesite="Strict", secure=secure
        )

    async def _page(self, request: web.Request) -> web.StreamResponse:
        """A file of the front end; with the key of a link, the beginning of a session."""
        if request.path.startswith("/api/"):
            raise Refused(404, f"{request.path}: no such endpoint")
        key = request.query.get("key")
        if key is None or self.settings.login is not LoginMethod.LINK:
            return self._pages.response(request)
        cookie = self.viewers.sessions.redeem(key)
        if (
            cookie is None
            and self.viewers.sessions.find(request.cookies.get(self.viewers.cookie_name(request), "")) is None
        ):
            text = with_own_command("This link was used already, or is too old. Get a new one: gangline dashboard\n")
            return web.Response(status=403, text=text)
        response = web.Response(status=303, headers={"Location": _without_key(request)})
        if cookie is not None:
            self._set_cookie(request, response, cookie)
        return response


def _without_key(request: web.Request) -> str:
    """Path and query of a request without the key. More than one slash at the beginning would name another host."""
    rest = request.rel_url.without_query_params("key")
    query = f"?{rest.raw_query_string}" if rest.raw_query_string else ""
    return "/" + rest.raw_path.lstrip("/\\") + query


def dashboard_app(dashboard: Dashboard) -> web.Application:
    """The application of a dashboard."""
    settings = dashboard.settings
    guard = RequestGuard(settings.allowed_hosts)
    app = web.Application(middlewares=[guard.middleware], client_max_size=MAX_BODY_BYTES)
    app.add_routes(dashboard.routes())
    app.on_response_prepare.append(add_security_headers)
    return app


def _guarded_server(app: web.Application, guard: ConnectionGuard) -> GuardedServer:
    """A server of an application with limited connections. It may be in the process that serves the API."""
    app.freeze()
    # A handler ends when its viewer leaves, so that nothing is watched for nobody.
    return GuardedServer(
        cast(HttpHandler, app._handle),  # noqa: SLF001 - an application has no other door for a server of one's own
        guard,
        request_factory=app._make_request,  # noqa: SLF001
        access_log=None,
        handler_cancellation=True,
    )


@asynccontextmanager
async def serve_dashboard(
    settings: DashboardSettings, opened: socket.socket, link_secret: str, clock: Clock | None = None
) -> AsyncIterator[Dashboard]:
    """Serve a dashboard on a listening socket until the block ends. `link_secret` signs the links that begin sessions."""
    async with asyncio.TaskGroup() as group:
        dashboard = Dashboard(settings, ViewerTable(settings, clock or SystemClock(), group, link_secret))
        guard = ConnectionGuard(CONNECTIONS, dashboard.viewers.clock)
        runner = web.ServerRunner(_guarded_server(dashboard_app(dashboard), guard), shutdown_timeout=SHUTDOWN_SECONDS)
        await runner.setup()
        closing = group.create_task(dashboard.viewers.run())
        try:
            await GuardedSite(runner, guard, "", 0, None, opened).start()
            yield dashboard
        finally:
            await runner.cleanup()
            closing.cancel()
            await dashboard.viewers.close()
