"""The interface of container runtimes: the configuration of a container, its process, and how to reach it."""

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from gangline.base.errors import GanglineError
from gangline.node.checkpoint import RunFiles, RunRecord
from gangline.node.network.namespaces import Isolation
from gangline.node.pod_types import RunContainer, RunPod
from gangline.node.ports import LOOPBACK
from gangline.node.runtime.paths import TOKEN_MOUNT, PathMapping


class ImageMissing(GanglineError):
    """The image is not available (yet). The message says why."""


class StartFailed(GanglineError):
    """The command cannot be run. The message says why, in one line."""


class ContainerMount(msgspec.Struct, frozen=True):
    """A volume mounted in a container."""

    volume: str
    # The path inside the container, and the path on this machine.
    container_path: str
    host_path: Path
    read_only: bool = False


class ContainerConfig(msgspec.Struct, frozen=True):
    """One run of a container, independent of the runtime: references are resolved, no path is mapped yet."""

    spec: RunContainer
    pod: RunPod
    files: RunFiles
    record: RunRecord
    # Command and arguments stay as written: the runtime expands `$(VAR)`, because it knows the final values.
    env: Mapping[str, str]
    mounts: tuple[ContainerMount, ...] = ()
    # Set where the pod has its own network.
    isolation: Isolation | None = None

    @property
    def hostname(self) -> str:
        return self.pod.spec.hostname or self.pod.metadata.name

    @property
    def literal_variables(self) -> frozenset[str]:
        """Variables whose value is written in the pod, not read from another object."""
        return frozenset(variable.name for variable in self.spec.env if variable.value_from is None)

    @property
    def named_mounts(self) -> tuple[ContainerMount, ...]:
        """The mounts whose volumes the pod's author named: all but the token of the service account."""
        return tuple(mount for mount in self.mounts if mount.container_path != TOKEN_MOUNT)

    def mount_at(self, path: str) -> ContainerMount | None:
        """The mount at exactly this path."""
        return next((mount for mount in self.mounts if mount.container_path.rstrip("/") == path), None)


class Interaction(msgspec.Struct, frozen=True):
    """The input or the terminal that a container has, to which clients can attach."""

    stdin: bool = False
    # The input ends with the first client that has attached.
    once: bool = False
    tty: bool = False

    @classmethod
    def of(cls, spec: RunContainer) -> "Interaction | None":
        """That of a container; None if it has neither."""
        return cls(spec.stdin or spec.tty, spec.stdin_once, spec.tty) if spec.stdin or spec.tty else None


class ProcessSpec(msgspec.Struct, frozen=True):
    """The process that a shim runs."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path
    # The `cgroup.procs` files to enter before the command starts.
    cgroup: tuple[Path, ...] = ()
    interaction: Interaction | None = None
    max_log_bytes: int = 10 * 2**20
    max_log_files: int = 5
    # The mapping of command and environment, for other commands that run beside this one.
    paths: PathMapping = PathMapping({})
    # Namespaces to enter before the command starts.
    isolation: Isolation | None = None
    # For a command that is only the client of a container: commands that kill the container, report (by `true` on
    # standard output) whether it ran out of memory, and remove it.
    kill: tuple[str, ...] = ()
    inspect: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


class ContainerTarget(msgspec.Struct, frozen=True):
    """How to execute, probe or dial a running container."""

    env: Mapping[str, str]
    folder: Path
    # Real ports on this machine, by name.
    ports: Mapping[str, int] = {}
    # Paths of the container on this machine.
    paths: PathMapping = PathMapping({})
    # The address that the container listens on; and that of its pod, on which it may listen instead.
    host: str = LOOPBACK
    address: str = LOOPBACK
    # Words before a command that make it run in the container, without and with a terminal.
    prefix: tuple[str, ...] = ()
    # Creates a socket that reaches the container; None where any socket does.
    tcp_socket: Callable[[], socket.socket] | None = None
    terminal_prefix: tuple[str, ...] = ()
    # Where the shim serves clients that attach, if the container has an input or a terminal.
    attach_socket: str = ""

    def command_line(self, command: Sequence[str], *, tty: bool = False) -> tuple[str, ...]:
        """A command of the container, as this machine runs it."""
        prefix = self.terminal_prefix if tty else self.prefix
        return (*prefix, *map(self.paths.translate, command))

    def port(self, written: int | str) -> int:
        """The real port for a name or number in the spec. Raises KeyError for a name that the container lacks."""
        if isinstance(written, int):
            return self.ports.get(str(written), written)
        return int(written) if written.isdigit() else self.ports[written]


async def connect(target: ContainerTarget, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to a port of the container. Raises OSError."""
    if target.tcp_socket is None:
        return await asyncio.open_connection(host, port)
    connection = target.tcp_socket()
    connection.setblocking(False)  # noqa: FBT003
    try:
        await asyncio.get_running_loop().sock_connect(connection, (host, port))
    except BaseException:
        connection.close()
        raise
    return await asyncio.open_connection(sock=connection)


class ContainerRuntime(Protocol):
    """Turns a container into a process that a shim supervises. Holds no state of a container."""

    async def prepare(self, config: ContainerConfig) -> ContainerConfig:
        """Pull the image if its policy asks for that, and record the engine that runs it.

        Raises `ImageMissing` and `StartFailed`.
        """
        ...

    def process_spec(self, config: ContainerConfig) -> ProcessSpec:
        """The process that the shim runs. Raises `StartFailed`."""
        ...

    def target(self, config: ContainerConfig, spec: ProcessSpec, ports: Mapping[str, int], pid: int) -> ContainerTarget:
        """How to run a command beside the process."""
        ...

    async def remove_lost(self, run_ids: Iterable[str]) -> None:
        """Remove what is left of runs that no shim supervises any more."""
        ...
