"""`gangline up` and `gangline down`: a control plane on this machine that stays."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click

from gangline.base.errors import InputError

PATIENCE = 60.0
"""Seconds to wait for a plane to come up or go down."""


def home_folder(given: Path | None) -> Path:
    """The folder asked for, else the user's state folder."""
    if given is not None:
        return given.absolute()
    if os.environ.get("GANGLINE_HOME"):
        return Path(os.environ["GANGLINE_HOME"]).absolute()
    import platformdirs

    return Path(platformdirs.user_state_dir("gangline", appauthor=False))


folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    help="Folder of the plane; by default the user's state folder.",
)


@click.command()
@folder_option
@click.option("--port", type=int, default=0, help="Port of the API server; chosen once and kept by default.")
@click.option(
    "--capacity", multiple=True, metavar="NAME=AMOUNT", help="A resource to offer, such as nvidia.com/gpu=4."
)
@click.option(
    "--default-scheduler",
    "scheduler",
    type=click.Choice(["fit", "none"]),
    default="fit",
    help="Who binds pods of default-scheduler: the plane, to a node that fits, or nobody here.",
)
@click.option("--detach", is_flag=True, help="Return when the plane is ready, and leave it running.")
def up(folder: Path | None, port: int, capacity: tuple[str, ...], scheduler: str, detach: bool) -> int:
    """Start a control plane on this machine: API server, node, operator. State survives a restart."""
    from gangline.local.home import Home

    home = Home(home_folder(folder))
    home.prepare()
    running = home.running()
    if running is not None:
        raise InputError(
            f"{home.folder}: a plane is running already (process {running}); stop it with gangline down"
        )
    home.forget()
    if detach:
        offered = [part for amount in capacity for part in ("--capacity", amount)]
        return _detached(home.folder, ["--port", str(port), "--default-scheduler", scheduler, *offered])
    return asyncio.run(_up(home.folder, port, capacity, binds=scheduler == "fit"))


async def _up(folder: Path, port: int, capacity: tuple[str, ...], *, binds: bool) -> int:
    from gangline.base.clock import SystemClock
    from gangline.local.certs import authority
    from gangline.local.cluster import LocalSettings
    from gangline.local.home import HOST, Home
    from gangline.local.node.resources import parse_capacity
    from gangline.local.node.settings import NodeSettings
    from gangline.local.plane import PlaneSettings
    from gangline.operator.wire import embedded

    home, clock = Home(folder), SystemClock()
    plane = PlaneSettings(host=HOST, port=home.port(port), certificates=home.certificates, token=home.token())
    settings = LocalSettings(
        folder=Path.cwd(),
        logs=home.pods,
        state=home.state,
        plane=plane,
        node=NodeSettings(capacity=parse_capacity(capacity)),
        binds=binds,
    )
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    # Claimed until all of it has ended: `gangline down` then returns when nothing is left, ports included.
    with home.claimed():
        async with embedded(settings, clock) as cluster:
            issued = authority(home.certificates, (HOST,), clock.now())
            home.write_kubeconfig(cluster.url, issued.ca)
            home.announce()
            click.echo(f"control plane ready: {cluster.url}", err=True)
            click.echo(f"kubectl --kubeconfig {home.kubeconfig} get pods -A", err=True)
            await stop.wait()
    return 0


def _detached(folder: Path, options: list[str]) -> int:
    from gangline.local.home import Home

    home = Home(folder)
    command = [sys.executable, "-m", "gangline", "up", "--dir", str(folder), *options]
    with home.log.open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, close_fds=True
        )
    end = time.monotonic() + PATIENCE
    while home.running() != process.pid:
        if process.poll() is not None or time.monotonic() > end:
            last = home.log.read_text(errors="replace").strip().splitlines()[-1:]
            raise InputError(f"{home.folder}: the plane did not start: {' '.join(last)}; see {home.log}")
        time.sleep(0.05)
    click.echo(f"control plane ready (process {process.pid})", err=True)
    click.echo(f"kubectl --kubeconfig {home.kubeconfig} get pods -A", err=True)
    return 0


@click.command()
@folder_option
def down(folder: Path | None) -> int:
    """Stop the control plane of this machine. What it stored stays."""
    from gangline.local.home import Home

    home = Home(home_folder(folder))
    pid = home.running()
    if pid is None:
        click.echo(f"no plane is running in {home.folder}", err=True)
        return 0
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + PATIENCE
    while home.running() == pid:
        if time.monotonic() > end:
            raise InputError(f"{home.folder}: process {pid} does not end; look at {home.log}")
        time.sleep(0.05)
    click.echo("stopped", err=True)
    return 0
