"""What the API server asks of a node about a pod: its logs, commands in it, connections to it.

The server knows nodes by name and by this protocol alone; it starts before they do.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol

import msgspec

from gangline.api.meta import Key
from gangline.base.errors import GanglineError


class NoLogs(GanglineError):
    """The container, or the run that was asked for, has no log (yet)."""


class LogOptions(msgspec.Struct, frozen=True):
    """As `kubectl logs` has them."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    # Counted in lines, from the end.
    tail: int | None = None
    since: datetime | None = None
    limit_bytes: int | None = None


class ContainerRef(msgspec.Struct, frozen=True):
    """A container of one very pod."""

    key: Key
    uid: str
    container: str


class ContainerNotRunning(GanglineError):
    """There is no such container at work on the node."""


class ExecFailed(GanglineError):
    """The command cannot be run. The code is what a shell would say: 127 not found, 126 not allowed."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code


class RunningCommand(Protocol):
    """A command at work in a container. Its outputs are read to their end by whoever has it."""

    async def read(self, output: int) -> bytes:
        """The next piece of output 1 or 2, empty at its end. With a terminal all comes as 1."""
        ...

    async def write(self, data: bytes) -> None:
        """To its standard input. What a command that reads no more is sent is lost, as in a pipe."""
        ...

    def close_input(self) -> None:
        """No more input. Idempotent."""
        ...

    def resize(self, width: int, height: int) -> None:
        """The size of its terminal, if it has one."""
        ...

    async def wait(self) -> int:
        """Its exit code, 128 and more for a signal. The outputs end soon after."""
        ...


class PodStreams(Protocol):
    """One node."""

    def logs(self, place: ContainerRef, run: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """The log of one run of a container; following, until it ends. Raises `NoLogs` at once."""
        ...

    def attach(self, place: ContainerRef, run: str) -> AsyncGenerator[tuple[bytes, bytes], None]:
        """What one run of a container prints from now on, until it ends: `stdout` or `stderr`, and the text."""
        ...

    def run_command(
        self, place: ContainerRef, command: Sequence[str], *, stdin: bool, tty: bool
    ) -> AbstractAsyncContextManager[RunningCommand]:
        """Run a command in a container; leaving the block early kills it. Raises `ContainerNotRunning`, `ExecFailed`."""
        ...

    async def connect(self, place: ContainerRef, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to a port of a pod (of any of its containers). Raises `ContainerNotRunning` and OSError."""
        ...
