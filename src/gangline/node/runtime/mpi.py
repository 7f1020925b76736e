"""Defaults for MPI where several pods share one machine, and the launch agent that replaces ssh.

MPI launchers take pods for machines. Without these defaults they bind the first process of every pod to the same core,
spin on it while they wait, and confuse the shared memory of two pods.
"""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

from gangline.node.runtime import mpi_agent

AGENT_VARIABLES = (
    "OMPI_MCA_plm_rsh_agent",
    "PRTE_MCA_plm_ssh_agent",
    "PRTE_MCA_plm_rsh_agent",
    "HYDRA_LAUNCHER_EXEC",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC",
)
"""A container that names a launch agent is about to start MPI."""

SHARED_CORES_ENV = {
    # All pods share the cores.
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
SHARED_HOST_ENV = {
    # All pods have one host name, after which segments of shared memory are named.
    "OMPI_MCA_btl": "tcp,self",
    "OMPI_MCA_coll": "^han",
}
ROOT_ENV = dict.fromkeys(
    (
        "OMPI_ALLOW_RUN_AS_ROOT",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
        "PRTE_ALLOW_RUN_AS_ROOT",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM",
    ),
    "1",
)


def mpi_env(declared: Mapping[str, str], *, loopback: str, own_name: bool, root: bool) -> dict[str, str]:
    """Default variables of a container that starts MPI; empty for all others.

    `loopback` is the interface that pods share, empty where each pod has its own; `own_name` says whether each pod
    has its own host name.
    """
    if not any(name in declared for name in AGENT_VARIABLES):
        return {}
    # Not for Open MPI 5: its daemons refuse this interface, and choose the right one by themselves.
    interfaces = ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include")
    lo = dict.fromkeys(interfaces, loopback) if loopback else {}
    return {**SHARED_CORES_ENV, **lo, **({} if own_name else SHARED_HOST_ENV), **(ROOT_ENV if root else {})}


def agent_script() -> str:
    """The executable for `GANGLINE_AGENT`. A shell script: the interpreter's path may be too long for a `#!` line."""
    words = (sys.executable, "-I", "-S", str(Path(mpi_agent.__file__)))
    return f'#!/bin/sh\nexec {" ".join(map(shlex.quote, words))} "$@"\n'
