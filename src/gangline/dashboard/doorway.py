"""The door of a dashboard that opens with the first visit: until then there is only a listening socket.

So a `gangline run` prints the address of its dashboard and pays nothing for it. Imports little, for the same reason.
"""

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gangline.base.errors import InputError
from gangline.base.tasks import background_tasks
from gangline.dashboard.links import DashboardAddress, new_secret

if TYPE_CHECKING:
    from gangline.dashboard.settings import DashboardSettings

LOOPBACK = "127.0.0.1"
BACKLOG = 128


def listening_socket(host: str = LOOPBACK, port: int = 0) -> socket.socket:
    """A socket that listens. Raises `InputError` if the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.settimeout(0)
        opened.bind((host, port))
        opened.listen(BACKLOG)
    except OSError as error:
        opened.close()
        problem = os.strerror(error.errno) if error.errno else str(error)
        remedy = "address with --bind" if error.errno == errno.EADDRNOTAVAIL else "port for the dashboard"
        raise InputError(f"{host}:{port}: cannot listen there: {problem}; choose another {remedy}") from error
    return opened


def socket_url(opened: socket.socket) -> str:
    """The URL by which this machine itself reaches a listening socket."""
    host, port = opened.getsockname()[:2]
    host = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)  # noqa: S104 - names an address, binds nothing
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@asynccontextmanager
async def dashboard_on_demand(
    settings: "Callable[[], DashboardSettings]", port: int = 0
) -> AsyncIterator[DashboardAddress]:
    """A dashboard for this machine alone, until the block ends. `settings` is called when someone visits it.

    Raises `InputError` if the port is taken.
    """
    with listening_socket(port=port) as opened:
        address = DashboardAddress(socket_url(opened), new_secret())
        async with background_tasks(_serve_when_visited(opened, address, settings)):
            yield address


async def _serve_when_visited(
    opened: socket.socket, address: DashboardAddress, settings: "Callable[[], DashboardSettings]"
) -> None:
    await _visited(opened)
    from gangline.dashboard.app import serve_dashboard

    async with serve_dashboard(settings(), opened, address.secret):
        await asyncio.Event().wait()


async def _visited(opened: socket.socket) -> None:
    """Wait until someone connects; the connection stays in the socket's queue."""
    loop, visited = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(opened.fileno(), visited.set)
    try:
        await visited.wait()
    finally:
        loop.remove_reader(opened.fileno())
