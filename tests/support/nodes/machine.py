"""What this machine allows: whether nodes can run here, and the control groups that hold their pods."""

import os
import subprocess
import tempfile
import time
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
V1_CONTROLLERS = ("cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd")
V2_CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
REMOVE_SECONDS = 20

_PROBE = """
set -e
cd "$1"
mkdir -p lower upper work merged
mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work merged
ip link add gl-bridge type bridge
ip link add gl-a type veth peer name gl-b
"""


def obstacle(folder: Path, env: dict[str, str]) -> str | None:
    """Why no node can run here, in one line; None if nothing is in the way."""
    if os.geteuid() != 0:
        return "needs root"
    if any(folder.is_relative_to(fixed) for fixed in ("/var", "/run")):
        return f"{folder} is below /var or /run, which nodes have for themselves; set GANGLINE_CLUSTER_DIR"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        words = ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "sh", "-c", _PROBE, "sh", scratch]
        try:
            done = subprocess.run(words, env=env, capture_output=True, text=True, check=False, timeout=60)
        except FileNotFoundError:
            return "unshare (util-linux) is not there"
    if done.returncode:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return f"private namespaces with overlay mounts, bridges and veth links are not allowed: {why}"
    return _cgroup_obstacle()


def _cgroup_obstacle() -> str | None:
    name = f"gangline-probe-{os.getpid()}"
    try:
        make_cgroup(name)
    except OSError as error:
        return f"control groups cannot be made: {error}"
    finally:
        remove_cgroups(name)
    return None


def _is_v2() -> bool:
    return (CGROUPS / "cgroup.controllers").exists()


def make_cgroup(name: str) -> None:
    """A control group for the pods of one node, with the controllers that a kubelet needs. Raises OSError."""
    if _is_v2():
        (CGROUPS / "cgroup.subtree_control").write_text(" ".join(f"+{controller}" for controller in V2_CONTROLLERS))
        (CGROUPS / name).mkdir(exist_ok=True)
        return
    for controller in V1_CONTROLLERS:
        group = CGROUPS / controller / name
        group.mkdir(exist_ok=True)
        if controller == "cpuset":  # a new one has no cores and no memory
            for file in ("cpuset.cpus", "cpuset.mems"):
                (group / file).write_text((group.parent / file).read_text())


def remove_cgroups(prefix: str) -> None:
    """Remove the control groups whose name begins so, which have no processes any more."""
    # A runtime makes groups in every hierarchy that is mounted.
    roots = [CGROUPS] if _is_v2() else [path for path in CGROUPS.iterdir() if path.is_dir()]
    for group in (group for root in roots for group in root.glob(f"{prefix}*")):
        for folder, _, _ in os.walk(group, topdown=False):
            _remove_cgroup(Path(folder))


def _remove_cgroup(group: Path) -> None:
    deadline = time.monotonic() + REMOVE_SECONDS
    while True:
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:  # its last process is just ending
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return
