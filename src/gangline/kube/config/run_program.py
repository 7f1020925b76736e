"""Run a program to its end and collect its output. No process is left running, whatever happens."""

import asyncio
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta

import msgspec

from gangline.base.clock import Clock
from gangline.base.host_features import signal_group


class ExternalProgram(msgspec.Struct, frozen=True):
    """A program to run. A command without a slash is looked up on the PATH of `environ`."""

    command: str
    args: tuple[str, ...]
    environ: Mapping[str, str]
    interactive: bool
    """The program may use the terminal: it shares our standard input, standard error and process group."""

    def __repr__(self) -> str:
        return f"ExternalProgram({self.command!r})"


class ProgramResult(msgspec.Struct, frozen=True):
    """The exit code and output of a program."""

    exit_code: int | None
    """None: the program was killed because it took too long."""
    stdout: bytes
    stderr: bytes | None
    """None: the program was interactive, so the user has seen it."""

    def __repr__(self) -> str:
        return f"ProgramResult(exit_code={self.exit_code})"


async def run_program(program: ExternalProgram, patience: timedelta, clock: Clock) -> ProgramResult:
    """Start a program and wait for its end, at most for `patience`. Raises OSError if it cannot be started.

    If it takes longer, or this call is cancelled, it is killed, and its children, too, unless it is interactive.
    """
    process = await _start_process(program)
    timed_out = False

    def time_out() -> None:
        nonlocal timed_out
        timed_out = True
        _kill(process, program)

    timer = clock.call_later(patience, time_out)
    try:
        stdout, stderr = await process.communicate()
    except asyncio.CancelledError:
        await _kill_and_wait(process, program)
        raise
    finally:
        timer.cancel()
    return ProgramResult(None if timed_out else process.returncode, stdout, stderr)


async def _start_process(program: ExternalProgram) -> Process:
    starting = asyncio.get_running_loop().create_task(
        asyncio.create_subprocess_exec(
            program.command,
            *program.args,
            env=program.environ,
            stdin=None if program.interactive else DEVNULL,
            stdout=PIPE,
            stderr=None if program.interactive else PIPE,
            # A session of its own, so that its children can be killed; an interactive one must keep the terminal.
            start_new_session=not program.interactive,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # Cancelling create_subprocess_exec kills only the program, then waits for pipes that its children keep open.
        with suppress(OSError):
            await _kill_and_wait(await starting, program)
        raise


async def _kill_and_wait(process: Process, program: ExternalProgram) -> None:
    _kill(process, program)
    # Not wait(), which blocks on a full pipe.
    await process.communicate()


def _kill(process: Process, program: ExternalProgram) -> None:
    if not program.interactive:
        signal_group(process.pid, signal.SIGKILL)
        return
    with suppress(ProcessLookupError):
        process.kill()
