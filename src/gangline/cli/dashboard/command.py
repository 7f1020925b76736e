"""`gangline dashboard`: a link to the dashboard that runs already, or a dashboard of any cluster."""

import asyncio
import ipaddress
import signal
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from gangline.base.errors import InputError
from gangline.base.options import value_option
from gangline.cli.connect.server import ServerOptions, ServerTarget, find_server
from gangline.cli.dashboard.local import open_in_browser, running_dashboard
from gangline.cli.errors import single_error
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.server_options import server_options

if TYPE_CHECKING:
    from gangline.kube.config.connection import Connection

LOOPBACK = "127.0.0.1"


class DashboardRequest(NamedTuple):
    """The options of `gangline dashboard`."""

    bind: str = LOOPBACK
    port: int = 0
    login: str = "link"
    allowed_hosts: tuple[str, ...] = ()
    history: Path | None = None
    record: bool = False
    open_page: bool = False

    @property
    def is_default(self) -> bool:
        """Whether a dashboard that runs already will do."""
        return self._replace(open_page=False) == DashboardRequest()

    def check(self) -> None:
        """Raise `InputError` for options that cannot be used together."""
        try:
            is_loopback = ipaddress.ip_address(self.bind).is_loopback
        except ValueError:
            raise InputError(
                f"--bind {self.bind}: is not an IP address; write 192.0.2.10, or 0.0.0.0 for all"
            ) from None
        if self.login == "link" and not is_loopback:
            raise InputError(
                f"--bind {self.bind}: others would look with your credentials; add --login token, and each uses a token"
            )
        if self.record and self.history is None:
            raise InputError("--record: where to? add --history FOLDER")
        if self.login == "token" and self.open_page:
            raise InputError("--open: is for your own machine; leave it out with --login token")


@cli_command()
@click.option("--open", "open_page", is_flag=True, help="Open the page in a browser.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on.  [default: a free one]")
@value_option("--bind", LOOPBACK, "Address to listen on; other machines need --login token.", metavar="ADDRESS")
@click.option(
    "--login",
    type=click.Choice(["link", "token"]),
    default="link",
    show_default=True,
    help="Who may look: link is you, with your own credentials; token is whoever has a token of the cluster, with its rights.",
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="A name by which browsers reach the dashboard; requests to unknown names are refused.",
)
@click.option(
    "--history",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Folder of a recorded history: jobs stay visible after they are deleted.",
)
@click.option(
    "--record",
    is_flag=True,
    help="Record the cluster into the folder of --history, with your rights, or in a pod those of its account.",
)
@server_options
def dashboard(
    open_page: bool,
    port: int,
    bind: str,
    login: str,
    allowed_hosts: tuple[str, ...],
    history: Path | None,
    record: bool,
    server: ServerOptions,
) -> int:
    r"""Show jobs, teams, logs and curves in a browser, live; of this machine or of any cluster.

    \b
      gangline dashboard                     a link to what runs on this machine; else what earlier runs left
      gangline dashboard --open              the same, in a browser
      gangline dashboard --context prod      a cluster, until interrupted
      gangline dashboard --context prod --history past --record
      gangline dashboard --bind 0.0.0.0 --port 8080 --login token --allow-host gangline.example.com

    The page has no rights of its own: it shows and does what you may do. A link works once; run the command again for
    another. `gangline up` and `gangline run` have a dashboard already, and this prints a link to it.

    Exit codes: 0 done, or interrupted; 1 an error, such as a port that is taken.
    """
    request = DashboardRequest(bind, port, login, allowed_hosts, history, record, open_page)
    request.check()
    connection, target = _connection(request, server)
    if target is not None and target.archive is not None:
        return _show_archive(request, target)
    running = running_dashboard(target.plane_folder or target.run_folder) if target is not None else None
    if running is not None and request.is_default:
        from gangline.base.clock import SystemClock

        _show(running.new_link(SystemClock().now()), open_page=open_page)
        return 0
    with single_error():
        asyncio.run(_serve(request, connection, server.namespace or ""))
    return 0


def _connection(request: DashboardRequest, server: ServerOptions) -> "tuple[Connection, ServerTarget | None]":
    """The server to show. With tokens of viewers, a pod needs nothing but the address of its cluster."""
    import os

    if request.login == "token" and not any(server.kubeconfig_flags.values()) and not os.environ.get("KUBECONFIG"):
        from gangline.kube.config.connection import in_cluster_connection, in_cluster_server

        if os.environ.get("KUBERNETES_SERVICE_HOST"):
            # Viewers bring their own tokens; that of the pod is for the recorder alone.
            return (in_cluster_connection if request.record else in_cluster_server)(environ=os.environ), None
    target = find_server(server)
    return target.connection, target


def _show_archive(request: DashboardRequest, target: ServerTarget) -> int:
    """Serve what earlier runs left, until interrupted. Nothing of it can be changed. Raises `InputError`."""
    if request.login == "token" or request.record:
        raise InputError("no server is running; start one: gangline up --detach, or name a cluster with --context")
    from gangline.base.clock import SystemClock
    from gangline.cli.connect.archived_runs import known_definitions
    from gangline.local.archive.server import archive_plane
    from gangline.local.home import PlaneHome
    from gangline.local.plane import AuthorizationMode, PlaneSettings

    assert target.archive is not None
    home = PlaneHome(target.archive)

    async def serve() -> None:
        settings = PlaneSettings(authorization_mode=AuthorizationMode.READ_ONLY)
        async with archive_plane(home, known_definitions(), SystemClock(), settings=settings) as plane:
            click.echo("no server is running; showing what earlier runs left, until interrupted", err=True)
            past = request._replace(history=request.history or (home.history if home.history.is_dir() else None))
            await _serve(past, plane.connection, "", read_only=True)

    with single_error():
        asyncio.run(serve())
    return 0


async def _serve(
    request: DashboardRequest, connection: "Connection", namespace: str, *, read_only: bool = False
) -> None:
    from gangline.base.clock import SystemClock
    from gangline.base.log import configure_logging
    from gangline.base.tasks import run_until_first
    from gangline.cli.dashboard.tools import dashboard_tools
    from gangline.dashboard.app import serve_dashboard
    from gangline.dashboard.doorway import listening_socket, socket_url
    from gangline.dashboard.links import DashboardAddress, new_secret
    from gangline.dashboard.settings import DashboardSettings, LoginMethod
    from gangline.dashboard.tools import NO_TOOLS

    configure_logging("WARNING")
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    settings = DashboardSettings(
        connection=connection,
        login=LoginMethod(request.login),
        allowed_hosts=request.allowed_hosts,
        history=request.history,
        namespace=namespace,
        tools=NO_TOOLS if read_only else dashboard_tools(),
    )
    with listening_socket(request.bind, request.port) as opened:
        address = DashboardAddress(socket_url(opened), new_secret())
        async with serve_dashboard(settings, opened, address.secret):
            if settings.login is LoginMethod.LINK:
                _show(address.new_link(SystemClock().now(), None), open_page=request.open_page)
            else:
                click.echo(f"dashboard: {address.url}", err=True)
            recording = []
            if request.record and request.history is not None:
                from gangline.cli.dashboard.recording import record_cluster

                recording = [record_cluster(connection, request.history, SystemClock(), namespace)]
            await run_until_first(stop.wait(), *recording)


def _show(link: str, *, open_page: bool) -> None:
    click.echo(f"dashboard: {link}", err=True)
    if open_page:
        open_in_browser(link, lambda text: click.echo(text, err=True))
