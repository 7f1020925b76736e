"""Serves a recorded moment to kubectl and other clients. Slow to import."""

import asyncio
import os
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import click
import yaml

from gangline.base.errors import InputError
from gangline.base.files import write_private
from gangline.cli.connect.archived_runs import known_definitions
from gangline.cli.connect.past import PastView
from gangline.history.objectstore import open_history
from gangline.history.reader import HistoryReader
from gangline.kube.config.access import PlaneAccess
from gangline.local.archive.past import past_plane
from gangline.local.paths import home_folder
from gangline.local.plane import PlaneSettings


@asynccontextmanager
async def past_server(view: PastView) -> AsyncIterator[Path]:
    """The kubeconfig of a server of a moment, which ends with the block."""
    with tempfile.TemporaryDirectory(prefix="gangline-past-") as name:
        folder = Path(name)
        settings = PlaneSettings(certificates=folder / "certificates")
        reader = HistoryReader(open_history(view.history), view.server)
        async with past_plane(reader, view.moment, known_definitions(), home_folder(), settings) as plane:
            assert plane.certificates is not None
            access = PlaneAccess(plane.url, plane.token, plane.certificates.ca)
            kubeconfig = folder / "kubeconfig"
            write_private(kubeconfig, yaml.safe_dump(access.kubeconfig(), sort_keys=False).encode())
            yield kubeconfig


def serve_past(view: PastView) -> int:
    """Serve until interrupted."""

    async def serve() -> int:
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        async with past_server(view) as kubeconfig:
            click.echo(
                f"serving the state at {view.moment.astimezone():%Y-%m-%d %H:%M:%S}, until interrupted", err=True
            )
            click.echo(f"kubectl --kubeconfig {shlex.quote(str(kubeconfig))} get pods -A")
            await stop.wait()
        return 0

    return asyncio.run(serve())


def run_kubectl(view: PastView, command: Sequence[str]) -> int:
    """Run kubectl on the moment, and return its exit code. Raises `InputError` if there is no kubectl."""
    program = shutil.which(command[0])
    if program is None:
        raise InputError(f"{command[0]}: is not installed; write gangline at TIME get ... instead")

    async def run() -> int:
        async with past_server(view) as kubeconfig:
            environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
            arguments = [program, *command[1:]]
            done = await asyncio.to_thread(subprocess.run, arguments, env=environment, check=False)
            return int(done.returncode)

    return asyncio.run(run())
