"""The dashboard of a plane or a run on this machine: its link is printed, and it loads with the first visit."""

import os
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gangline.base.clock import SystemClock
from gangline.dashboard.doorway import dashboard_on_demand
from gangline.dashboard.links import DashboardAddress, read_address, remove_address

if TYPE_CHECKING:
    from gangline.dashboard.settings import DashboardSettings
    from gangline.kube.config.connection import Connection

REACH_SECONDS = 2.0


@asynccontextmanager
async def local_dashboard(
    connection: "Connection", folder: Path, port: int = 0, history: Path | None = None
) -> AsyncIterator[str]:
    """A dashboard for this user, until the block ends; yields the first link. `folder`: where other commands find it."""

    def settings() -> "DashboardSettings":
        from gangline.cli.dashboard.tools import dashboard_tools
        from gangline.dashboard.settings import DashboardSettings

        return DashboardSettings(connection=connection, history=history, tools=dashboard_tools())

    async with dashboard_on_demand(settings, port) as address:
        address.save(folder)
        try:
            yield address.new_link(SystemClock().now(), None)
        finally:
            remove_address(folder)


def running_dashboard(folder: Path | None) -> DashboardAddress | None:
    """The dashboard of a plane's or run's folder, if it answers."""
    address = read_address(folder) if folder is not None else None
    return address if address is not None and _answers(address) else None


def _answers(address: DashboardAddress) -> bool:
    import socket
    from urllib.parse import urlsplit

    parts = urlsplit(address.url)
    try:
        socket.create_connection((parts.hostname, parts.port or 80), REACH_SECONDS).close()
    except OSError:
        return False
    return True


def open_in_browser(link: str, say: Callable[[str], object]) -> None:
    """Open a link in the user's browser; if there is none, say so.

    The link goes by a file that only this user can read: other users see the arguments of a browser's process.
    """
    import html
    import webbrowser

    descriptor, name = tempfile.mkstemp(prefix="gangline-dashboard-", suffix=".html")
    with os.fdopen(descriptor, "w") as file:
        file.write(f'<meta http-equiv="refresh" content="0; url={html.escape(link)}">\n')
    try:
        opened = webbrowser.open(f"file://{name}")
    except OSError:
        opened = False
    if not opened:
        Path(name).unlink(missing_ok=True)
        say("no browser can be opened here; open the address above yourself")
