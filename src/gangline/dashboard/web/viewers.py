"""The viewers that are connected now, and which of them a request belongs to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiohttp import web

from gangline.base.clock import Clock
from gangline.base.invocation import with_own_command
from gangline.dashboard.live.viewer import Viewer
from gangline.dashboard.settings import DashboardSettings, LoginMethod
from gangline.dashboard.web.guard import Refused
from gangline.dashboard.web.sessions import SessionTable, token_viewer
from gangline.kube.config.connection import Connection
from gangline.kube.errors import Unauthorized

BEARER = "Bearer "
NO_SESSION = {
    LoginMethod.LINK: with_own_command(
        "there is no session; open the link that the command printed, or get a new one: gangline dashboard"
    ),
    LoginMethod.TOKEN: "there is no session; log in with a token of the cluster, such as kubectl create token NAME prints",
}


class _OpenViewer:
    def __init__(self, viewer: Viewer) -> None:
        self.viewer = viewer
        self.users = 0
        self.used_at = viewer.clock.monotonic()
        # Whether the server no longer accepts its credentials, or never did.
        self.is_rejected = False


class Who(NamedTuple):
    """The viewer of a request: the name and the credentials."""

    viewer: str
    connection: Connection


class ViewerTable:
    """Opens the connection of a viewer with the first request, and closes it when it was not used for a while."""

    def __init__(self, settings: DashboardSettings, clock: Clock, group: asyncio.TaskGroup, link_secret: str) -> None:
        self.settings, self.clock, self._group = settings, clock, group
        self.sessions = SessionTable(settings.connection, settings.limits, clock, link_secret)
        self._open: dict[str, _OpenViewer] = {}

    def cookie_name(self, request: web.Request) -> str:
        """Browsers send a cookie to every port of a host, so that each dashboard has a cookie of its own name."""
        return f"gangline-session-{request.url.port or 0}"

    def identify(self, request: web.Request) -> Who:
        """Who sends a request. Raises `Refused` (401) without a session."""
        header = request.headers.get("Authorization", "")
        if self.settings.login is LoginMethod.TOKEN and header.startswith(BEARER):
            return Who(*token_viewer(self.settings.connection, header.removeprefix(BEARER)))
        session = self.sessions.find(request.cookies.get(self.cookie_name(request), ""))
        if session is None:
            raise Refused(401, NO_SESSION[self.settings.login])
        return Who(session.viewer, session.connection)

    @asynccontextmanager
    async def use(self, who: Who) -> AsyncIterator[Viewer]:
        """The viewer, connected, until the block ends. If the server no longer accepts its credentials, its sessions end."""
        entry = self._open.get(who.viewer)
        if entry is None:
            # Entering does not wait for the server.
            viewer = Viewer(who.connection, self.clock, self._group, self.settings.history)
            await viewer.__aenter__()
            entry = self._open.setdefault(who.viewer, _OpenViewer(viewer))
            if entry.viewer is not viewer:
                await viewer.__aexit__(None, None, None)
        entry.users += 1
        try:
            if self.settings.login is LoginMethod.TOKEN:
                # Nothing is watched or kept for a token that the server does not know.
                await entry.viewer.rights.user()
            yield entry.viewer
        except Unauthorized:
            if self.settings.login is LoginMethod.TOKEN:
                self.sessions.end_viewer(who.viewer)
                entry.is_rejected = True
            raise
        finally:
            entry.users -= 1
            entry.used_at = self.clock.monotonic()
            if entry.is_rejected and not entry.users and self._open.get(who.viewer) is entry:
                del self._open[who.viewer]
                await entry.viewer.__aexit__(None, None, None)

    async def close_unused(self) -> None:
        """Close the connections of viewers who have not sent a request for a while."""
        idle = self.settings.limits.viewer_idle.total_seconds()
        now = self.clock.monotonic()
        for name, entry in list(self._open.items()):
            if not entry.users and not entry.viewer.is_used and now - entry.used_at >= idle:
                del self._open[name]
                await entry.viewer.__aexit__(None, None, None)

    async def run(self) -> None:
        """Close unused connections now and then, until cancelled."""
        while True:
            await self.clock.sleep(self.settings.limits.viewer_idle / 4)
            await self.close_unused()

    async def close(self) -> None:
        """Close all connections."""
        entries, self._open = list(self._open.values()), {}
        for entry in entries:
            await entry.viewer.__aexit__(None, None, None)
