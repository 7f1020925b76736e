"""Probes and hooks: is it well, tell it something. Effects, and the counting of thresholds."""

import asyncio
import os
import signal
import socket
import ssl
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import aiohttp
import msgspec

from gangline.base.clock import Clock
from gangline.base.tasks import time_limit
from gangline.node.runtime.paths import Paths
from gangline.node.runtime.process import ProcessSpec, StartFailed, found_program
from gangline.node.types import Action, ExecAction, HttpAction, Probe, TcpAction

HOST = "127.0.0.1"
LONGEST = 10_000
"""Of a command's output, what is kept for the message."""


class Target(msgspec.Struct, frozen=True):
    """The container that an action is about."""

    env: Mapping[str, str]
    folder: Path
    # Ports by name, as they really are on this machine.
    ports: Mapping[str, int] = {}
    # What the container's paths are on this machine.
    paths: Paths = Paths({})
    # Where it listens.
    host: str = HOST
    # What to write before a command so that it runs in the container, without and with a terminal.
    prefix: tuple[str, ...] = ()
    # Makes a socket from which it is reached; None: any does.
    tcp_socket: Callable[[], socket.socket] | None = None
    terminal_prefix: tuple[str, ...] = ()

    def words(self, command: Sequence[str], *, tty: bool = False) -> tuple[str, ...]:
        """A command, as it is run on this machine."""
        before = self.terminal_prefix if tty else self.prefix
        return (*before, *map(self.paths.mapped, command))

    def port(self, written: int | str) -> int:
        """A port by name or number. Raises KeyError for a name that the container does not have."""
        if isinstance(written, int):
            return self.ports.get(str(written), written)
        return int(written) if written.isdigit() else self.ports[written]


class Counter:
    """Turns single results into a state, by thresholds. Pure."""

    def __init__(self, *, success: int, failure: int) -> None:
        self._success, self._failure = success, failure
        self._row = 0
        self._last: bool | None = None

    def take(self, *, passed: bool) -> bool | None:
        """Note a result. True or False once enough of them came in a row; None before."""
        self._row = self._row + 1 if passed == self._last else 1
        self._last = passed
        return passed if self._row >= (self._success if passed else self._failure) else None


async def probing(probe: Probe, target: Target, clock: Clock, tell: Callable[[bool, str], None]) -> None:
    """Probe for ever, telling the state whenever it is known, with the last message."""
    await clock.sleep(timedelta(seconds=probe.initial_delay_seconds))
    counter = Counter(success=probe.success_threshold, failure=probe.failure_threshold)
    while True:
        message = await attempt(probe, target, timedelta(seconds=probe.timeout_seconds), clock)
        state = counter.take(passed=not message)
        if state is not None:
            tell(state, message)
        await clock.sleep(timedelta(seconds=probe.period_seconds))


async def attempt(action: Action, target: Target, timeout: timedelta, clock: Clock) -> str:
    """Do it once. Gives why it failed; nothing when it went well."""
    try:
        async with time_limit(timeout, clock):
            if action.exec is not None:
                return await _run(action.exec, target)
            if action.http_get is not None:
                return await _get(action.http_get, target)
            if action.tcp_socket is not None:
                return await _connect(action.tcp_socket, target)
            if action.sleep is not None:
                await clock.sleep(timedelta(seconds=action.sleep.seconds))
    except TimeoutError:
        return f"timed out after {timeout.total_seconds():g}s"
    except KeyError as error:
        return f"the container has no port {error}"
    return ""


async def _run(action: ExecAction, target: Target) -> str:
    command = target.words(action.command)
    try:
        program = found_program(ProcessSpec(command, target.env, target.folder))
        process = await asyncio.create_subprocess_exec(
            *command,
            executable=program,
            env=dict(target.env),
            cwd=target.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except (StartFailed, OSError) as error:
        return str(error)
    try:
        output, _ = await process.communicate()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
    return "" if process.returncode == 0 else (output[:LONGEST].decode(errors="replace") or "command failed")


async def _get(action: HttpAction, target: Target) -> str:
    scheme, host = action.scheme.lower(), action.host or target.host
    url = f"{scheme}://{host}:{target.port(action.port)}/{action.path.lstrip('/')}"
    headers = {"User-Agent": "kube-probe/1.34", **{each.name: each.value for each in action.http_headers}}
    # As the kubelet: certificates are not looked at, a pod's own is rarely known to anybody.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        make = target.tcp_socket
        connector = aiohttp.TCPConnector(socket_factory=None if make is None else lambda _: make())
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(url, headers=headers, ssl=context, allow_redirects=False) as answer,
        ):
            if 200 <= answer.status < 400:
                return ""
            return f"HTTP probe failed with statuscode: {answer.status}"
    except (aiohttp.ClientError, OSError) as error:
        return f'Get "{url}": {error}'


async def _connect(action: TcpAction, target: Target) -> str:
    host, port = action.host or target.host, target.port(action.port)
    try:
        _, writer = await connected(target, host, port)
    except OSError as error:
        return f"dial tcp {host}:{port}: {error.strerror or error}"
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return ""


async def connected(
    target: Target, host: str, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to a port of the container. Raises OSError."""
    if target.tcp_socket is None:
        return await asyncio.open_connection(host, port)
    made = target.tcp_socket()
    made.setblocking(False)  # noqa: FBT003
    try:
        await asyncio.get_running_loop().sock_connect(made, (host, port))
    except BaseException:
        made.close()
        raise
    return await asyncio.open_connection(sock=made)
