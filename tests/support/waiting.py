"""Polling, for what tells nobody when it changes: files, processes, objects on a server.

Where there is a watch, wait by it instead (`Informer.wait_until`, `NodeApi.wait_until`).
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")

WAIT_SECONDS = 60.0  # what is waited for takes milliseconds, but the machine may be busy
POLL_SECONDS = 0.02


@overload
async def wait_until(holds: Callable[[], Awaitable[T | None]], *, seconds: float = WAIT_SECONDS) -> T: ...


@overload
async def wait_until(holds: Callable[[], object], *, seconds: float = WAIT_SECONDS) -> object: ...


async def wait_until(holds: Callable[[], Any], *, seconds: float = WAIT_SECONDS) -> Any:
    """Call `holds`, a function or a coroutine function, until its result is true; returns that result.

    Raises TimeoutError when it takes too long.
    """
    async with asyncio.timeout(seconds):
        while True:
            result = holds()
            if inspect.isawaitable(result):
                result = await result
            if result:
                return result
            await asyncio.sleep(POLL_SECONDS)


def wait_until_blocking(holds: Callable[[], T | None], complaint: str = "", *, seconds: float = WAIT_SECONDS) -> T:
    """Call `holds` until its result is true; returns that result. Fails with the complaint when it takes too long."""
    deadline = time.monotonic() + seconds
    while not (result := holds()):
        assert time.monotonic() < deadline, complaint or f"not so after {seconds:.0f} seconds"
        time.sleep(POLL_SECONDS)
    return result
