"""The streams of pods that a node offers to the API server: logs, attach, exec and port-forward.

The server knows a node only by its name and this protocol, because it starts before its nodes.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol

import msgspec

from gangline.api.meta import JSON, Key
from gangline.base.errors import GanglineError


class NoLogs(GanglineError):
    """The container, or the requested run of it, has no log (yet)."""


class LogOptions(msgspec.Struct, frozen=True):
    """The options of `kubectl logs`."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    # In lines, from the end.
    tail: int | None = None
    since: datetime | None = None
    # Where the client gave seconds instead of a time.
    since_seconds: int | None = None
    limit_bytes: int | None = None


class ContainerRef(msgspec.Struct, frozen=True):
    """A container of the pod with this uid."""

    key: Key
    uid: str
    container: str


class ContainerNotRunning(GanglineError):
    """The container does not run on the node."""


class ExecFailed(GanglineError):
    """The command cannot be started. The exit code is that of a shell: 127 not found, 126 not executable."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


class CommandFailed(GanglineError):
    """The command did not run, or nobody knows how it ended. The Status says what is known."""

    def __init__(self, message: str, status: JSON) -> None:
        super().__init__(message)
        self.status = status


class PortForwardFailed(GanglineError):
    """The node could not connect to the port, which it reports after the connection to the node was made."""


class CommandInput(Protocol):
    """The input of a program that runs in a container."""

    async def write(self, data: bytes) -> None:
        """Write to standard input. Data is lost if the command does not read it, as in a pipe."""
        ...

    async def close_input(self) -> None:
        """Close standard input. Idempotent."""
        ...

    async def resize(self, width: int, height: int) -> None:
        """Set the size of the terminal, if there is one."""
        ...


class RunningCommand(CommandInput, Protocol):
    """A command that runs in a container. The caller must read its outputs to their end."""

    async def read(self, output: int) -> bytes:
        """The next part of output 1 (stdout) or 2 (stderr); empty at its end. With a terminal everything is output 1."""
        ...

    async def wait(self) -> int:
        """Wait for the exit code: 128 plus its number for a signal. The outputs end soon after.

        Raises `CommandFailed`.
        """
        ...


class AttachedContainer(CommandInput, Protocol):
    """A container with an input or a terminal, to which a client has attached."""

    def outputs(self) -> AsyncGenerator[tuple[int, bytes], None]:
        """Parts of output 1 (stdout) or 2 (stderr) from now on, as they come, until the container ends."""
        ...


class PodStreams(Protocol):
    """The pod streams of one node."""

    @property
    def identifies_runs(self) -> bool:
        """Whether logs are read by the id of a run. A kubelet of another process finds the run itself."""
        ...

    def logs(self, place: ContainerRef, run: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """The log of one run of a container; with `follow`, until the run ends. Raises `NoLogs` at once."""
        ...

    def attach(self, place: ContainerRef, run: str) -> AsyncGenerator[tuple[bytes, bytes], None]:
        """The output of one run of a container from now on: pairs of `stdout` or `stderr`, and the data."""
        ...

    def attach_input(self, place: ContainerRef, *, tty: bool) -> AbstractAsyncContextManager[AttachedContainer]:
        """Attach to a container that has an input or a terminal. Raises `ContainerNotRunning`."""
        ...

    def run_command(
        self, place: ContainerRef, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> AbstractAsyncContextManager[RunningCommand]:
        """Run a command in a container; leaving the block kills it. Raises `ContainerNotRunning` and `ExecFailed`."""
        ...

    async def connect(self, place: ContainerRef, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a port of the pod. Raises `ContainerNotRunning` and OSError."""
        ...

    async def connect_api(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the HTTP API of the node: that of a kubelet. Raises OSError."""
        ...
