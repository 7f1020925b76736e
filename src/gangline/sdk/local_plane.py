"""An embedded control plane in a child process, which ends when its standard input is closed."""

import asyncio
import atexit
import logging
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import msgspec

from gangline.base.clock import SystemClock
from gangline.base.errors import GanglineError
from gangline.base.files import last_lines, write_private
from gangline.base.invocation import own_command_line

START_TIMEOUT = timedelta(minutes=1)
"""How long a plane may take to start. It takes less than a second on an idle machine."""


class PlaneStartError(GanglineError):
    """The plane did not start."""


class PlaneProcess:
    """A running plane. It ends with `close`, or with this process, however that ends."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: "tempfile.TemporaryDirectory[str]") -> None:
        self._process, self._folder = process, folder
        self.kubeconfig = Path(folder.name) / "kubeconfig"

    @classmethod
    def start(cls, work: Path | None = None) -> "PlaneProcess":
        """Start a plane whose pods run in `work`, by default the current folder, and wait until it is ready.

        Raises `PlaneStartError`.
        """
        folder = tempfile.TemporaryDirectory(prefix="gangline-")
        module = ["-m", "gangline.sdk.local_plane", folder.name, str((work or Path.cwd()).absolute())]
        try:
            process = start_ready([sys.executable, *module], Path(folder.name) / "log")
        except PlaneStartError:
            folder.cleanup()
            raise
        plane = cls(process, folder)
        atexit.register(plane.close)
        return plane

    def close(self) -> None:
        """End the plane and all processes of its jobs. Idempotent."""
        atexit.unregister(self.close)
        if self._process.returncode is None:
            self._process.communicate()
        self._folder.cleanup()


def start_ready(command: Sequence[str], log: Path, timeout: timedelta = START_TIMEOUT) -> "subprocess.Popen[bytes]":
    """Start a process and wait until it prints "ready". Its errors go to `log`. Raises `PlaneStartError`."""
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            # So that Ctrl-C reaches only the program, which decides about its jobs.
            start_new_session=True,
        )
    assert process.stdout is not None
    answered = bool(select.select([process.stdout], [], [], timeout.total_seconds())[0])
    if answered and process.stdout.readline() == b"ready\n":
        return process
    process.kill()
    process.communicate()
    what = "did not start" if answered else f"was not ready after {timeout.total_seconds():g} s"
    lines = "".join(f"\n  {line}" for line in last_lines(log))
    hint = f"to see why, type: {own_command_line('up')}"
    raise PlaneStartError(f"the control plane of this machine {what}; {hint}{lines}")


async def main(folder: Path, work: Path) -> None:
    """The child process: run the plane until standard input is closed."""
    # No logs: the events of the jobs say what happens.
    logging.getLogger().addHandler(logging.NullHandler())
    from gangline.local.cluster import LocalSettings, temporary_plane
    from gangline.node.options import node_settings
    from gangline.operator.assembly import embedded_plane

    closed = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, closed.set)
    settings = LocalSettings(folder=work, logs=folder / "pods", plane=temporary_plane(), node=node_settings())
    async with embedded_plane(settings, SystemClock()) as plane:
        write_private(folder / "kubeconfig", msgspec.json.encode(plane.access.kubeconfig()))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await closed.wait()
    # A program that was killed does not remove the folder, which has the credentials of the plane.
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
