"""What this operating system has beyond what every Unix has: the one place that asks which system it is.

Without Linux's own features the node finds processes with psutil, measures memory itself, and refuses networks for
pods. docs/macos.md lists the differences.
"""

import os
import resource
import sys
from contextlib import suppress

from gangline.base.errors import InputError

POD_RANGE = "127.64.0.0/10"
"""Loopback addresses of pods that share the machine's network. Linux answers on all of 127.0.0.0/8 without set-up."""
SERVICE_RANGE = "127.16.0.0/12"
"""Cluster IPs of services, where pods share the machine's network."""

PORTABLE_VARIABLE = "GANGLINE_PORTABLE"
"""Set to anything but an empty text, it switches Linux's own features off. For tests, and to look for faults."""
LOOPBACK_INTERFACE = "lo" if sys.platform == "linux" else "lo0"
MAX_OPEN_FILES = 10240
"""macOS allows no more than this, whatever the hard limit is."""
MIN_OPEN_FILES = 128
"""A control plane with one pod opens about 40; a request or a replica a few more."""


def has_linux_features() -> bool:
    """Whether /proc, /dev/shm, CPU affinity and namespaces may be used."""
    return sys.platform == "linux" and not os.environ.get(PORTABLE_VARIABLE)


def usable_cpus() -> int:
    """The CPUs that this process may use: a container or taskset may allow fewer than the machine has."""
    if sys.platform == "linux" and has_linux_features():
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def signal_group(group: int, number: int) -> None:
    """Send a signal to a process group. Does nothing if it has ended: macOS then says EPERM while nobody reaped it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def raise_open_files_limit() -> None:
    """Allow this process and its children as many open files as is usual on a server; never fewer than before.

    A terminal of macOS starts programs with a limit of 256, which fifty replicas exceed. Raises `InputError` if a
    control plane cannot work with what is allowed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if allowed != resource.RLIM_INFINITY and allowed < MIN_OPEN_FILES:
        raise InputError(
            f"only {allowed} open files are allowed here, and a control plane needs at least {MIN_OPEN_FILES}; "
            "start gangline from a shell with a higher limit (ulimit -n)"
        )
