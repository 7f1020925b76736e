"""Run a program to its end and collect what it prints. Whatever happens, nothing of it is left running."""

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta

import msgspec

from gangline.base.clock import Clock


class ExternalProgram(msgspec.Struct, frozen=True):
    """What to run. A bare command is looked up on the PATH of `environ`."""

    command: str
    args: tuple[str, ...]
    environ: Mapping[str, str]
    interactive: bool
    """It may ask on the terminal: it shares our standard input and error, and our process group."""

    def __repr__(self) -> str:
        return f"Program({self.command!r})"


class ProgramResult(msgspec.Struct, frozen=True):
    """How it ended."""

    exit_code: int | None
    """None: it was ended because it took too long."""
    stdout: bytes
    stderr: bytes | None
    """None: it was interactive, so a person has read it already."""

    def __repr__(self) -> str:
        return f"Outcome(code={self.exit_code})"


async def run_program(program: ExternalProgram, patience: timedelta, clock: Clock) -> ProgramResult:
    """Start it and wait for its end, at most `patience`.

    When it takes too long or this call is cancelled it is killed, with its children unless it is interactive.
    Raises `OSError` when it cannot be started.
    """
    process = await _start_process(program)
    late = False

    def give_up() -> None:
        nonlocal late
        late = True
        _kill(process, program)

    timer = clock.call_later(patience, give_up)
    try:
        stdout, stderr = await process.communicate()
    except asyncio.CancelledError:
        await _kill_and_wait(process, program)
        raise
    finally:
        timer.cancel()
    return ProgramResult(None if late else process.returncode, stdout, stderr)


async def _start_process(program: ExternalProgram) -> Process:
    starting = asyncio.get_running_loop().create_task(
        asyncio.create_subprocess_exec(
            program.command,
            *program.args,
            env=program.environ,
            stdin=None if program.interactive else DEVNULL,
            stdout=PIPE,
            stderr=None if program.interactive else PIPE,
            # Its own session, so that children end with it; one that asks must keep the terminal.
            start_new_session=not program.interactive,
        )
    )
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        # A start cancelled half-way would kill the program alone, then hang on pipes its children hold.
        with suppress(OSError):
            await _kill_and_wait(await starting, program)
        raise


async def _kill_and_wait(process: Process, program: ExternalProgram) -> None:
    _kill(process, program)
    # Not wait(): it would hang on a full pipe.
    await process.communicate()


def _kill(process: Process, program: ExternalProgram) -> None:
    with suppress(ProcessLookupError):
        if program.interactive:
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
