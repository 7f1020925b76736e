"""The settings of a dashboard."""

from datetime import timedelta
from enum import StrEnum
from pathlib import Path

import msgspec

from gangline.dashboard.tools import NO_TOOLS, DashboardTools
from gangline.kube.config.connection import Connection

STATIC_FOLDER = Path(__file__).parent / "static"


class LoginMethod(StrEnum):
    """How a viewer gets a session."""

    LINK = "link"
    """By a link that works once. The session uses the credentials of the dashboard's own connection: for one's own machine."""
    TOKEN = "token"  # noqa: S105 - a name
    """By a token of the cluster: typed in, or sent by a proxy in front. The dashboard's connection has no credentials."""


class DashboardLimits(msgspec.Struct, frozen=True):
    """What one dashboard holds at most."""

    sessions: int = 1000
    """The one unused for longest makes room."""
    session_idle: timedelta = timedelta(hours=12)
    streams: int = 500
    """Open connections that wait for changes, of all viewers together."""
    streams_per_view: int = 200
    """Of one view, such as the page of one job."""
    log_streams_per_viewer: int = 8
    """Pages of one viewer that follow logs. Each has a request to the API server for every container."""
    viewer_idle: timedelta = timedelta(minutes=1)
    """How long the connection of a viewer stays open after its last request."""
    write_timeout: timedelta = timedelta(seconds=60)
    """A connection that takes nothing for so long is closed."""
    heartbeat: timedelta = timedelta(seconds=15)


class DashboardSettings(msgspec.Struct, frozen=True):
    """What a dashboard shows, to whom, and where."""

    connection: Connection
    login: LoginMethod = LoginMethod.LINK
    allowed_hosts: tuple[str, ...] = ()
    """Names in the Host header that are served besides addresses and localhost."""
    history: Path | None = None
    """The folder of the recorded history; None: there is none."""
    namespace: str = ""
    """The namespace that a page shows first; empty: all."""
    limits: DashboardLimits = DashboardLimits()
    tools: DashboardTools = NO_TOOLS
    static: Path = STATIC_FOLDER
