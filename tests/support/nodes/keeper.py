"""The process outside of the namespaces that ends them and removes what they leave: control groups and the folder."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.nodes.layout import Layout, cgroup_prefix
from support.nodes.machine import remove_cgroups
from support.nodes.processes import ClusterError, start

END_SECONDS = 60


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """One starts or ends the cluster of a folder at a time."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder.parent, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def keep(layout: Layout) -> None:
    """Start the control plane in namespaces of its own, and clean up when it ends or SIGTERM comes."""
    private = [
        "unshare",
        "--mount",
        "--net",
        "--pid",
        "--fork",
        "--mount-proc",
        "--propagation",
        "slave",
        "--kill-child",
    ]
    module = [sys.executable, "-m", "support.nodes", "control-plane", str(layout.folder)]
    # Killed with us, however we end.
    shell = start(layout, "control-plane", ["setpriv", "--pdeathsig", "KILL", *private, *module])
    first = _only_child(shell)
    if first is None:
        return
    # Ending the first process of a pid namespace ends all others, and only then is it gone.
    signal.signal(signal.SIGTERM, lambda number, frame: os.kill(first, signal.SIGKILL))
    (layout.pids / "control-plane").write_text(str(first))
    if shell.wait() < 0:
        remove(layout.folder)
    # Else it did not start. Its logs say why, and whoever started it reads and removes them.


def _only_child(process: "subprocess.Popen[bytes]") -> int | None:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.poll() is None:
        if pids := children.read_text().split():
            return int(pids[0])
        time.sleep(0.01)
    return None


def start_keeper(layout: Layout) -> None:
    """Start the cluster in the background. Returns when all of it is ready. Raises ClusterError; nothing is left then."""
    layout.folder.mkdir(parents=True, exist_ok=True)
    layout.write()
    for folder in (layout.logs, layout.pids):
        folder.mkdir()
    words = [sys.executable, "-m", "support.nodes", "keeper", str(layout.folder)]
    keeper = start(layout, "keeper", words)
    (layout.pids / "keeper").write_text(str(keeper.pid))
    while not (layout.folder / "ready").exists():
        if keeper.poll() is not None:
            tail = (layout.logs / "control-plane.log").read_text(errors="replace").splitlines()[-15:]
            remove(layout.folder)
            raise ClusterError("\n".join(["the cluster did not start:", *tail]))
        time.sleep(0.1)


def keeper_pid(folder: Path) -> int | None:
    """The keeper of the cluster in this folder, if it runs."""
    return _running(folder, "keeper")


def _running(folder: Path, role: str) -> int | None:
    try:
        pid = int((folder / "pids" / role).read_text())
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None
    # The number may belong to somebody else by now.
    return pid if role.encode() in words and str(folder).encode() in words else None


def end(folder: Path) -> None:
    """End the cluster of this folder, whatever state it is in, and remove what it left."""
    for role, number in (("keeper", signal.SIGTERM), ("control-plane", signal.SIGKILL)):
        pid = _running(folder, role)
        if pid is None:
            continue
        os.kill(pid, number)
        deadline = time.monotonic() + END_SECONDS
        while _running(folder, role) is not None:
            if time.monotonic() > deadline:
                raise ClusterError(f"the cluster (pid {pid}) does not end")
            time.sleep(0.05)
    remove(folder)


def remove(folder: Path) -> None:
    """Remove the control groups and the files of a cluster that does not run. Raises ClusterError if they are no cluster's."""
    remove_cgroups(cgroup_prefix(folder))
    if not folder.exists():
        return
    if any(folder.iterdir()) and not (folder / "layout.json").exists():
        raise ClusterError(f"{folder} has files that are no cluster's; set GANGLINE_CLUSTER_DIR to another folder")
    shutil.rmtree(folder)
