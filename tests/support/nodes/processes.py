"""Programs of a cluster: started with their output in a log, waited for, and reaped by the first process."""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from support.nodes.layout import Layout

START_SECONDS = 180


class ClusterError(Exception):
    """A part of the cluster did not start. Has the end of its log."""


def start(layout: Layout, log: str, command: Sequence[str | Path]) -> "subprocess.Popen[bytes]":
    """Start a part of the cluster, in a session of its own."""
    with (layout.logs / f"{log}.log").open("ab") as out:
        return subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env=layout.service_env(),
        )


def run(layout: Layout, *command: str | Path) -> None:
    """Run a command to its end. Raises ClusterError with its words."""
    words = list(map(str, command))
    done = subprocess.run(words, env=layout.service_env(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ClusterError(f"{' '.join(words)}: {done.stderr.strip()}")


def succeeds(layout: Layout, *command: str | Path) -> bool:
    """Whether a command ends well."""
    words = list(map(str, command))
    return subprocess.run(words, env=layout.service_env(), capture_output=True, check=False).returncode == 0


def wait_for(what: str, ready: Callable[[], bool], log: Path, process: "subprocess.Popen[bytes] | None" = None) -> None:
    """Poll until ready. Raises ClusterError with the end of the log if it takes too long or the process ends."""
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        ended = process is not None and process.poll() is not None
        if ended or time.monotonic() > deadline:
            tail = "\n".join(log.read_text(errors="replace").splitlines()[-15:]) if log.exists() else ""
            raise ClusterError(f"{what} {'has ended' if ended else f'is not ready after {START_SECONDS} s'}:\n{tail}")
        time.sleep(0.1)


def reap_for_ever() -> None:
    """The duty of a first process: wait for everything that ends."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(1)
