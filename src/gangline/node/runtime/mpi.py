"""What MPI must be told where several pods are one machine. Pure.

Launchers take pods for machines. They would then bind every pod's first process to the same core, spin on it while
they wait, and mistake two pods' shared memory for each other's.
"""

from collections.abc import Mapping

AGENT_VARIABLES = (
    "OMPI_MCA_plm_rsh_agent",
    "PRTE_MCA_plm_ssh_agent",
    "PRTE_MCA_plm_rsh_agent",
    "HYDRA_LAUNCHER_EXEC",
    "I_MPI_HYDRA_BOOTSTRAP_EXEC",
)
"""Whoever names a launch agent is about to start MPI."""

SHARED_CORES_ENV = {
    # Processes of all pods share the cores.
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}
SHARED_HOST_ENV = {
    # Pods have one host name, and segments of shared memory are named after it.
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
    """Defaults for a container that starts MPI; nothing for all others.

    `loopback` is the interface that pods share, empty where each has its own; `own_name` says whether each has its
    own host name.
    """
    if not any(name in declared for name in AGENT_VARIABLES):
        return {}
    # Open MPI 5 finds its own way: told to use this interface, its daemons refuse.
    interfaces = ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include")
    lo = dict.fromkeys(interfaces, loopback) if loopback else {}
    return {**SHARED_CORES_ENV, **lo, **({} if own_name else SHARED_HOST_ENV), **(ROOT_ENV if root else {})}
