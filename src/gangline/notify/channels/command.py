"""Delivers notifications by a command on this machine: the JSON on its standard input, the main fields as variables."""

import asyncio
import os
import signal
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Self

import msgspec

from gangline.base.clock import Clock
from gangline.base.host_features import signal_group
from gangline.base.tasks import time_limit
from gangline.notify.plan.retries import Attempt, Delivered, RetryLater
from gangline.notify.plan.routes import NotificationRoute
from gangline.notify.plan.templates import generic_message, template_fields
from gangline.notify.plan.transitions import Transition

VARIABLE_PREFIX = "GANGLINE_NOTIFY_"


class CommandChannel:
    """The channel of a route with a command. A command that exits with another code than 0 is run again later."""

    def __init__(self, route: NotificationRoute, clock: Clock) -> None:
        self._route, self._clock = route, clock

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    async def deliver(self, transition: Transition) -> Attempt:
        """Run the command once, and end it with all that it started if it takes too long."""
        fields = template_fields(transition)
        # A variable cannot contain a NUL.
        variables = {f"{VARIABLE_PREFIX}{name.upper()}": text.replace("\0", " ") for name, text in fields.items()}
        try:
            process = await asyncio.create_subprocess_exec(
                *self._route.command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env={**os.environ, **variables},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "has a NUL in it"
            return RetryLater(f"{self._route.command[0]}: {reason}")
        try:
            async with time_limit(timedelta(seconds=self._route.timeout_seconds), self._clock):
                # A command need not read its input.
                with suppress(BrokenPipeError, ConnectionResetError):
                    await process.communicate(msgspec.json.encode(generic_message(transition)) + b"\n")
                code = await process.wait()
        except TimeoutError:
            return RetryLater(f"the command did not end within {self._route.timeout_seconds:g} s")
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    signal_group(process.pid, signal.SIGKILL)
                await asyncio.shield(process.wait())
        return Delivered() if code == 0 else RetryLater(f"the command ended with code {code}")
