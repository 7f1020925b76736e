"""One pod as one process: started, waited for, stopped with all its children."""

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import msgspec

from gangline.base.clock import Clock


class ProcessSpec(msgspec.Struct, frozen=True):
    """What to run."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    folder: Path
    log: Path


class PodProcess:
    """A process in its own group, so that stopping it leaves no child behind."""

    def __init__(self, spec: ProcessSpec, clock: Clock) -> None:
        self._spec, self._clock = spec, clock
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it. Raises OSError when the command cannot be run."""
        self._spec.log.parent.mkdir(parents=True, exist_ok=True)
        with self._spec.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._spec.command,
                env=dict(self._spec.env),
                cwd=self._spec.folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def exit_code(self) -> int:
        """Wait for the end: the code as a shell tells it, 128 + signal when killed."""
        assert self._process is not None
        code = await self._process.wait()
        return 128 - code if code < 0 else code

    async def stop(self, grace: timedelta) -> None:
        """Ask, wait, then kill. Returns when nothing of it is left. Cancelled while waiting, it kills at once."""
        if self._process is None or self._process.returncode is not None:
            return
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace.total_seconds()):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            self._signal(signal.SIGKILL)
        await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
