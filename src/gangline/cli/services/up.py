"""`gangline up` and `gangline down`: start and stop a lasting control plane on this machine."""

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import AsyncExitStack
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gangline.base.errors import InputError
from gangline.base.files import private_opener
from gangline.base.invocation import own_command
from gangline.base.options import value_option
from gangline.cli.dashboard.local import local_dashboard, open_in_browser
from gangline.cli.flags.access_options import AccessOptions, access_options
from gangline.cli.flags.audit_options import AuditOptions, audit_options
from gangline.cli.flags.backup_options import BackupOptions, backup_options
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.dashboard_options import DashboardOptions, dashboard_options
from gangline.cli.flags.durations import duration_option
from gangline.cli.flags.history_options import HistoryOptions, history_options
from gangline.cli.flags.node_options import NodeOptions, node_options
from gangline.cli.flags.notify_options import notification_settings, notify_option
from gangline.cli.flags.run_options import hang_watch_option, progress_option
from gangline.cli.services.up_request import UpRequest
from gangline.dashboard.links import read_address
from gangline.local.paths import home_folder

if TYPE_CHECKING:
    from gangline.local.home import PlaneHome

OPEN_BIND_WARNING = (
    "warning: the API server listens on {}: whoever reaches it and has the token runs commands here, as you; "
    "leave out --bind to keep it to this machine"
)
TIMEOUT_SECONDS = 60.0
"""How long to wait for a plane to stop."""

folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Folder for the state of the plane.  [default: GANGLINE_HOME, or ~/.local/state/gangline]",
)


@cli_command()
@folder_option
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port of the API server.  [default: a free one, kept for later starts]",
)
@value_option(
    "--bind", "127.0.0.1", "Address that the API server listens on; 0.0.0.0 lets other machines in.", metavar="ADDRESS"
)
@click.option(
    "--allow-host",
    "allowed_hosts",
    multiple=True,
    metavar="NAME",
    help="Another name by which clients reach the API server; requests to unknown names are refused.",
)
@node_options
@click.option(
    "--default-scheduler",
    "scheduler",
    type=click.Choice(["fit", "none"]),
    default="fit",
    show_default=True,
    help="Who places pods that name no scheduler: fit is the plane itself, none leaves them to a scheduler of yours.",
)
@click.option(
    "--operator",
    type=click.Choice(["gangline", "none"]),
    default="gangline",
    show_default=True,
    help="Who runs jobs: gangline, or with none an operator of yours, which brings its own definitions.",
)
@click.option(
    "--no-node",
    "runs_pods",
    flag_value=False,
    default=True,
    help="Do not run or place pods: leave that to kubelets and a scheduler of yours (--bind lets them in).",
)
@click.option(
    "--no-warnings",
    "warnings",
    flag_value=False,
    default=True,
    help="Do not warn clients of objects that nothing acts on, such as Deployments.",
)
@click.option(
    "--conformance",
    is_flag=True,
    help="Only what kube-apiserver has, answering as it does: no node, scheduler, operator, service account plugin, warnings.",
)
@click.option(
    "--gang",
    is_flag=True,
    help="Treat every job as a gang, whose pods start together or not at all.  [default: jobs with a schedulingPolicy]",
)
@click.option(
    "--authorization-mode",
    "authorization",
    type=click.Choice(["RBAC", "AlwaysAllow"]),
    default="RBAC",
    show_default=True,
    help="What users may do: RBAC allows what their roles allow, AlwaysAllow everything.",
)
@progress_option
@hang_watch_option
@duration_option("--hung-after", "60s", "Look into a job that has given no sign of life for this time, at least.")
@access_options
@audit_options
@backup_options
@dashboard_options
@history_options
@notify_option
@click.option("--detach", is_flag=True, help="Leave the plane running in the background, and return when it is ready.")
def up(
    folder: Path | None,
    port: int,
    bind: str,
    allowed_hosts: tuple[str, ...],
    scheduler: str,
    operator: str,
    runs_pods: bool,
    warnings: bool,
    conformance: bool,
    gang: bool,
    authorization: str,
    progress_endpoint: bool,
    hang_watch: bool,
    hung_after: timedelta,
    notify: tuple[str, ...],
    detach: bool,
    **others: Any,
) -> int:
    r"""Start a small Kubernetes on this machine that keeps running: API server, node, operator and scheduler.

    \b
      gangline up                                  until interrupted
      gangline up --detach                         in the background
      gangline up --detach --capacity nvidia.com/gpu=8 --gang
      gangline up --detach --backup /mnt/backups   all objects, every 10 minutes
      gangline up --detach --notify routes.yaml    tells others of jobs
      gangline up --operator none                  for an operator of yours
      kubectl --kubeconfig ~/.local/state/gangline/kubeconfig get pods -A

    All other commands use it as long as it runs. Jobs and their state survive a restart. For a single job it is not
    needed: `gangline run` starts a plane of its own.

    Exit codes: 0 done; 1 an error, such as a port that is taken.
    """
    from gangline.local.home import PlaneHome
    from gangline.local.listen import parse_listen_address

    address = parse_listen_address(bind)
    access, audit = AccessOptions.take_from(others), AuditOptions.take_from(others)
    backups, history = BackupOptions.take_from(others), HistoryOptions.take_from(others)
    dashboard = DashboardOptions.take_from(others)
    node = NodeOptions(**others)
    request = UpRequest(
        address.host,
        port,
        allowed_hosts,
        scheduler,
        gang,
        authorization,
        node,
        access,
        audit,
        backups,
        history,
        dashboard,
        progress_endpoint,
        notify,
        hang_watch,
        hung_after.total_seconds(),
        operator,
        runs_pods,
        warnings,
        conformance,
    )
    # Checked here, so that mistakes are not only in the log of the background process.
    request.check()
    home = PlaneHome(home_folder(folder))
    home.create_folder()
    audit.settings()
    running = home.lock.running_pid()
    if running is not None:
        raise InputError(f"{home.folder}: a plane is running already (process {running}); stop it with gangline down")
    home.lock.clear_ready()
    if address.is_open:
        click.echo(OPEN_BIND_WARNING.format(address.host), err=True)
    if detach:
        return _start_detached(home.folder, request)
    return asyncio.run(_run_plane(home.folder, request))


async def _run_plane(folder: Path, request: UpRequest) -> int:
    from gangline.base.clock import SystemClock
    from gangline.base.log import LogFormat, configure_logging
    from gangline.base.tasks import run_until_first
    from gangline.cli.run.kept_files import remove_empty_artifacts
    from gangline.local.backups import PeriodicBackups, check_restoration
    from gangline.local.cluster import local_cluster
    from gangline.local.history import StoreRecording
    from gangline.local.home import PlaneHome
    from gangline.operator.assembly import embedded_plane
    from gangline.operator.engine import enabled_frameworks, scheme_of
    from gangline.operator.settings import local_settings
    from gangline.why.verdicts import verdict_maker

    configure_logging("WARNING", LogFormat.TEXT, with_date=not sys.stderr.isatty())
    home, clock = PlaneHome(folder), SystemClock()
    local, notifications = request.local_settings(home), notification_settings(request.notify)
    stop, periodic = asyncio.Event(), None
    limits = request.history.limits()
    mirror = request.history.mirror(home.history)
    recording = (
        StoreRecording(home.history, home.pods, clock, limits=limits, mirror=mirror) if limits is not None else None
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # The lock is held until everything has stopped, so that `gangline down` returns only once the ports are free.
    with home.lock.acquire():
        check_restoration(home)
        hung_after = request.hung_after if request.hang_watch else None
        operator = local_settings(gang=request.gang, progress=request.progress_endpoint, hung_after=hung_after)
        plane = (
            embedded_plane(local, clock, operator, notifications=notifications)
            if request.runs_operator
            else local_cluster(local, scheme_of(enabled_frameworks(operator)), clock)
        )
        async with plane as cluster, AsyncExitStack() as opened:
            if recording is not None:
                recording.start(cluster.store, verdict_maker(cluster.client, clock))
            home.save_port(local.plane.port)
            home.write_kubeconfig(cluster.access)
            link = ""
            if request.dashboard.dashboard:
                link = await opened.enter_async_context(
                    local_dashboard(cluster.inner_connection, folder, request.dashboard.dashboard_port, home.history)
                )
            home.lock.mark_ready()
            click.echo(f"control plane ready: {cluster.url}", err=True)
            click.echo(_first_command(home.kubeconfig_file), err=True)
            if link:
                _show_dashboard(link, request.dashboard)
            if (settings := request.backups.settings()) is not None:
                periodic = PeriodicBackups(cluster.store, settings, clock)
            background = [part.run() for part in (periodic, recording) if part is not None]
            await run_until_first(stop.wait(), *background)
        if recording is not None:
            recording.finish()
        if periodic is not None:
            await periodic.write()
        remove_empty_artifacts(home)
    return 0


def _show_dashboard(link: str, options: DashboardOptions) -> None:
    click.echo(f"dashboard: {link}", err=True)
    if options.open_dashboard:
        open_in_browser(link, lambda text: click.echo(text, err=True))


def _start_detached(folder: Path, request: UpRequest) -> int:
    from gangline.base.clock import SystemClock
    from gangline.cli.services.plane_start import wait_until_ready
    from gangline.local.home import PlaneHome

    home = PlaneHome(folder)
    command = [sys.executable, "-m", "gangline", "up", "--dir", str(folder), *request.as_arguments()]
    with open(home.log_file, "ab", opener=private_opener) as log:
        os.fchmod(log.fileno(), 0o600)  # also of a log that an earlier version has made
        log_start = log.tell()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, close_fds=True
        )
    wait_until_ready(home, process, log_start)
    click.echo(f"control plane ready (process {process.pid})", err=True)
    click.echo(_first_command(home.kubeconfig_file), err=True)
    if request.dashboard.dashboard and (address := read_address(folder)) is not None:
        _show_dashboard(address.new_link(SystemClock().now()), request.dashboard)
    return 0


def _first_command(kubeconfig: Path) -> str:
    """What to type first: a command of kubectl if there is one, else of this gangline."""
    flag = f"--kubeconfig {shlex.quote(str(kubeconfig))}"
    return f"kubectl {flag} get pods -A" if shutil.which("kubectl") else f"{own_command()} get pods -A {flag}"


@cli_command()
@folder_option
def down(folder: Path | None) -> int:
    r"""Stop the control plane of this machine; its state is kept for the next `gangline up`.

    \b
      gangline down
      gangline down --dir /tmp/plane       one that was started with --dir

    Exit codes: 0 stopped, or none was running; 1 it does not stop.
    """
    from gangline.local.home import PlaneHome

    home = PlaneHome(home_folder(folder))
    pid = home.lock.running_pid()
    if pid is None:
        click.echo(f"no plane is running in {home.folder}", err=True)
        _show_survivors(home)
        return 0
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while home.lock.running_pid() == pid:
        if time.monotonic() > deadline:
            raise InputError(f"{home.folder}: process {pid} does not stop; see {home.log_file}")
        time.sleep(0.05)
    click.echo("stopped", err=True)
    return 0


def _show_survivors(home: "PlaneHome") -> None:
    """Tell of processes that a plane that was killed has left to the next one."""
    from gangline.cli.cleanup.processes import running_containers

    count = sum(1 for _ in running_containers(home.pods))
    if count:
        what = (
            "1 container that it started still runs" if count == 1 else f"{count} containers that it started still run"
        )
        folder = shlex.quote(str(home.folder))
        click.echo(f"{what}; to end what is left, start the plane and stop it:", err=True)
        for command in ("up --detach", "down"):
            click.echo(f"{own_command()} {command} --dir {folder}", err=True)
