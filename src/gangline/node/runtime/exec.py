"""Executes commands beside a container's process: with the same environment, folder and mapped paths."""

import asyncio
import os
import signal
import sys
import termios
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import psutil

from gangline.base.clock import Clock, Timer
from gangline.base.host_features import signal_group
from gangline.kube.podstreams import ExecFailed
from gangline.node.runtime import controlling_tty
from gangline.node.runtime.process import MARK_VARIABLE, mark_process, resolve_program
from gangline.node.runtime.runtime import ContainerTarget, ProcessSpec, StartFailed

CHUNK_BYTES = 32 * 1024
DRAIN_TIMEOUT = timedelta(seconds=1)
"""How long output is read after the command ended: a background process of the command may hold its pipes."""


class ExecProcess:
    """A `RunningCommand`, as a child of this process."""

    def __init__(self, process: asyncio.subprocess.Process, pipes: "_ExecPipes", clock: Clock) -> None:
        self._process, self._pipes, self._clock = process, pipes, clock
        # Outputs whose reader has read everything and waits for more.
        self._waiting_outputs: set[int] = set()

    async def read(self, output: int) -> bytes:
        reader = self._pipes.readers.get(output)
        if reader is None:
            return b""
        self._waiting_outputs.add(output)
        try:
            return await reader.read(CHUNK_BYTES)
        except OSError:
            # A terminal that no process uses any more ends with this error.
            return b""
        finally:
            self._waiting_outputs.discard(output)

    async def write(self, data: bytes) -> None:
        if self._pipes.writer is not None and not self._pipes.writer.is_closing():
            with suppress(ConnectionError):
                self._pipes.writer.write(data)
                await self._pipes.writer.drain()

    async def close_input(self) -> None:
        if self._pipes.writer is None or self._pipes.writer.is_closing():
            return
        if self._pipes.terminal is not None:
            # A terminal has no end of file of its own: send Ctrl-D.
            self._pipes.writer.write(b"\x04")
        else:
            self._pipes.writer.close()

    async def resize(self, width: int, height: int) -> None:
        if self._pipes.terminal is not None:
            termios.tcsetwinsize(self._pipes.terminal, (height, width))

    async def wait(self) -> int:
        code = await self._process.wait()
        self._schedule_drain()
        return 128 - code if code < 0 else code

    def _schedule_drain(self) -> None:
        self._pipes.drain_timer = self._clock.call_later(DRAIN_TIMEOUT, self._close_if_drained)

    def _close_if_drained(self) -> None:
        """Close the pipes, unless a slow reader has not read all output yet."""
        readers = self._pipes.readers.items()
        if all(output in self._waiting_outputs or reader.at_eof() for output, reader in readers):
            self._pipes.close()
        else:
            self._schedule_drain()

    async def kill(self) -> None:
        """Kill the command and its descendants, in any process group. Does nothing if the command has ended."""
        if self._process.returncode is None:
            descendants = _descendants(self._process.pid)
            signal_group(self._process.pid, signal.SIGKILL)
            for descendant in descendants:
                with suppress(psutil.Error):
                    descendant.kill()
            await self._process.wait()


def _descendants(pid: int) -> list[psutil.Process]:
    # Not only the process group: an MPI daemon gives each of its processes its own group.
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


@asynccontextmanager
async def exec_command(
    target: ContainerTarget, command: Sequence[str], clock: Clock, *, stdin: bool, tty: bool
) -> AsyncIterator[ExecProcess]:
    """Run a command in its own session; leaving the block kills it. Raises `ExecFailed`.

    Background processes of the command keep running, as in a container, and end with the container, whose id is in
    their environment.
    """
    async with AsyncExitStack() as stack:
        pipes = _ExecPipes()
        stack.callback(pipes.close)
        stdio = await pipes.open(stdin=stdin, tty=tty)
        try:
            process = await _start_process(target, target.command_line(command, tty=tty), stdio, tty=tty)
        finally:
            for descriptor in set(stdio):
                os.close(descriptor)
        running = ExecProcess(process, pipes, clock)
        stack.push_async_callback(running.kill)
        yield running


async def _start_process(
    target: ContainerTarget, command: tuple[str, ...], stdio: tuple[int, int, int], *, tty: bool
) -> asyncio.subprocess.Process:
    env = {**({"TERM": "xterm"} if tty else {}), **target.env}
    try:
        program = resolve_program(ProcessSpec(command, env, target.folder))
    except StartFailed as error:
        raise ExecFailed(str(error), 127) from error
    words = command
    if tty:
        words = (sys.executable, "-I", "-S", str(Path(controlling_tty.__file__)), program, *command)
        program = sys.executable
    try:
        process = await asyncio.create_subprocess_exec(
            *words,
            executable=program,
            env=env,
            cwd=target.folder,
            stdin=stdio[0],
            stdout=stdio[1],
            stderr=stdio[2],
            start_new_session=True,
        )
    except OSError as error:
        raise ExecFailed(f'exec: "{command[0]}": {error.strerror}', 126) from error
    if MARK_VARIABLE in target.env:
        mark_process(process.pid, target.env[MARK_VARIABLE])
    return process


class _ExecPipes:
    """Our ends of a command's pipes or of its terminal.

    Not the pipes of `asyncio.subprocess`: those report the end of a command only when its last descendant has closed
    them.
    """

    def __init__(self) -> None:
        self.readers: dict[int, asyncio.StreamReader] = {}
        self.writer: asyncio.StreamWriter | None = None
        self.terminal: int | None = None
        self.drain_timer: Timer | None = None
        self._transports: list[asyncio.ReadTransport] = []

    async def open(self, *, stdin: bool, tty: bool) -> tuple[int, int, int]:
        """Open the pipes. Returns the command's stdin, stdout and stderr, to be closed once the command has them."""
        if tty:
            self.terminal, slave = os.openpty()
            await self._open_reader(1, os.dup(self.terminal))
            if stdin:
                await self._open_writer(os.dup(self.terminal))
            return slave, slave, slave
        out, stdout = os.pipe()
        await self._open_reader(1, out)
        err, stderr = os.pipe()
        await self._open_reader(2, err)
        if not stdin:
            return os.open(os.devnull, os.O_RDONLY), stdout, stderr
        input_, writable = os.pipe()
        await self._open_writer(writable)
        return input_, stdout, stderr

    async def _open_reader(self, output: int, descriptor: int) -> None:
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", buffering=0)
        )
        self.readers[output] = reader
        self._transports.append(transport)

    async def _open_writer(self, descriptor: int) -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(descriptor, "wb", buffering=0)
        )
        self.writer = asyncio.StreamWriter(transport, protocol, None, loop)

    def close(self) -> None:
        """Close all pipes; readers see the end. Idempotent."""
        if self.drain_timer is not None:
            self.drain_timer.cancel()
        for transport in self._transports:
            transport.close()
        # Closing would wait until the rest is read.
        if self.writer is not None and (not self.writer.is_closing() or self.writer.transport.get_write_buffer_size()):
            self.writer.transport.abort()
        if self.terminal is not None:
            os.close(self.terminal)
            self.terminal = None
