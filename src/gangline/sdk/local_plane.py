"""An embedded control plane in a child process, which ends when its standard input is closed."""

import asyncio
import atexit
import logging
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec

from gangline.base.clock import SystemClock
from gangline.base.errors import GanglineError
from gangline.base.invocation import own_command_line


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
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "gangline.sdk.local_plane",
                folder.name,
                str((work or Path.cwd()).absolute()),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # So that Ctrl-C reaches only the program, which decides about its jobs.
            start_new_session=True,
        )
        assert process.stdout is not None
        if process.stdout.readline() != b"ready\n":
            process.kill()
            process.wait()
            folder.cleanup()
            raise PlaneStartError(f"the control plane of this machine did not start; try: {own_command_line('up')}")
        plane = cls(process, folder)
        atexit.register(plane.close)
        return plane

    def close(self) -> None:
        """End the plane and all processes of its jobs. Idempotent."""
        atexit.unregister(self.close)
        if self._process.returncode is None:
            self._process.communicate()
        self._folder.cleanup()


async def main(folder: Path, work: Path) -> None:
    """The child process: run the plane until standard input is closed."""
    # No logs: the events of the jobs say what happens.
    logging.getLogger().addHandler(logging.NullHandler())
    from gangline.local.cluster import LocalSettings
    from gangline.operator.assembly import embedded_plane

    closed = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin, closed.set)
    async with embedded_plane(LocalSettings(folder=work, logs=folder / "pods"), SystemClock()) as plane:
        (folder / "kubeconfig").write_bytes(msgspec.json.encode(plane.access.kubeconfig()))
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await closed.wait()
    # A program that was killed does not remove the folder, which has the credentials of the plane.
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
