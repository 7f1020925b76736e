"""What an MPI launcher reads: its hosts, and how to start a command in one of them. Text in the forms MPIs know."""

import shlex
from collections.abc import Iterable

KUBECTL_FOLDER, CONFIG_FOLDER = "/opt/kube", "/etc/mpi"
EXEC_SCRIPT, HOSTFILE, DISCOVERY_SCRIPT, HYDRA_HOSTFILE = (
    "kubexec.sh",
    "hostfile",
    "discover_hosts.sh",
    "hydra-hostfile",
)


def config_path(name: str) -> str:
    """The path of one of the files in a container."""
    return f"{CONFIG_FOLDER}/{name}"


def hostfile(hosts: Iterable[str], slots: int) -> str:
    """All hosts there will be, for Open MPI and Intel MPI."""
    return "".join(f"{host} slots={slots}\n" for host in hosts)


def hydra_hostfile(hosts: Iterable[str], slots: int) -> str:
    """The same for MPICH."""
    return "".join(f"{host}:{slots}\n" for host in hosts)


def discovery_script(launcher: str, running: Iterable[str], slots: int) -> str:
    """A script that prints the hosts of the moment, for elastic Horovod. `launcher` is empty unless it works too."""
    first = f"\necho {launcher}:{slots}\n" if launcher else ""
    return "#!/bin/sh" + first + "".join(f"\necho {host}:{slots}" for host in sorted(running))


def kubectl_script(container: str) -> str:
    """Runs a command in a pod by the kubectl that the init container brought."""
    chosen = f" --container {container}" if container else ""
    return (
        f'#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n{KUBECTL_FOLDER}/kubectl exec ${{POD_NAME}}{chosen} -- /bin/sh -c "$*"'
    )


def agent_script(agent: str, container: str) -> str:
    """Runs a command in a pod by an agent that takes the pod and the command. MPICH puts options before the host."""
    chosen = f" --container {shlex.quote(container)}" if container else ""
    return (
        '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nPOD_NAME=$1\nshift\n'
        f'exec {agent}{chosen} "$POD_NAME" "$@"\n'
    )
