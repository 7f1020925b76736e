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
from gangline.node.runtime.paths import PathMapping
from gangline.node.runtime.process import ProcessSpec, StartFailed, resolve_program
from gangline.node.types import Action, ExecAction, HttpAction, Probe, TcpAction

LOOPBACK = "127.0.0.1"
MAX_OUTPUT_BYTES = 10_000
"""Of a command's output, what is kept for the message."""


class ContainerTarget(msgspec.Struct, frozen=True):
    """The container that an action is about."""

    env: Mapping[str, str]
    folder: Path
    # Ports by name, as they really are on this machine.
    ports: Mapping[str, int] = {}
    # What the container's paths are on this machine.
    paths: PathMapping = PathMapping({})
    # Where it listens.
    host: str = LOOPBACK
    # What to write before a command so that it runs in the container, without and with a terminal.
    prefix: tuple[str, ...] = ()
    # Makes a socket from which it is reached; None: any does.
    tcp_socket: Callable[[], socket.socket] | None = None
    terminal_prefix: tuple[str, ...] = ()

    def command_line(self, command: Sequence[str], *, tty: bool = False) -> tuple[str, ...]:
        """A command, as it is run on this machine."""
        before = self.terminal_prefix if tty else self.prefix
        return (*before, *map(self.paths.translate, command))

    def port(self, written: int | str) -> int:
        """A port by name or number. Raises KeyError for a name that the container does not have."""
        if isinstance(written, int):
            return self.ports.get(str(written), written)
        return int(written) if written.isdigit() else self.ports[written]


class ThresholdCounter:
    """Turns single results into a state, by thresholds. Pure."""

    def __init__(self, *, success: int, failure: int) -> None:
        self._success, self._failure = success, failure
        self._streak = 0
        self._last: bool | None = None

    def add(self, *, passed: bool) -> bool | None:
        """Note a result. True or False once enough of them came in a row; None before."""
        self._streak = self._streak + 1 if passed == self._last else 1
        self._last = passed
        return passed if self._streak >= (self._success if passed else self._failure) else None


async def run_probe(probe: Probe, target: ContainerTarget, clock: Clock, tell: Callable[[bool, str], None]) -> None:
    """Probe for ever, telling the state whenever it is known, with the last message."""
    await clock.sleep(timedelta(seconds=probe.initial_delay_seconds))
    counter = ThresholdCounter(success=probe.success_threshold, failure=probe.failure_threshold)
    while True:
        message = await run_action(probe, target, timedelta(seconds=probe.timeout_seconds), clock)
        state = counter.add(passed=not message)
        if state is not None:
            tell(state, message)
        await clock.sleep(timedelta(seconds=probe.period_seconds))


async def run_action(action: Action, target: ContainerTarget, timeout: timedelta, clock: Clock) -> str:
    """Do it once. Gives why it failed; nothing when it went well."""
    try:
        async with time_limit(timeout, clock):
            if action.exec is not None:
                return await _run_exec(action.exec, target)
            if action.http_get is not None:
                return await _run_http_get(action.http_get, target)
            if action.tcp_socket is not None:
                return await _run_tcp_connect(action.tcp_socket, target)
            if action.sleep is not None:
                await clock.sleep(timedelta(seconds=action.sleep.seconds))
    except TimeoutError:
        return f"timed out after {timeout.total_seconds():g}s"
    except KeyError as error:
        return f"the container has no port {error}"
    return ""


async def _run_exec(action: ExecAction, target: ContainerTarget) -> str:
    command = target.command_line(action.command)
    try:
        program = resolve_program(ProcessSpec(command, target.env, target.folder))
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
    return "" if process.returncode == 0 else (output[:MAX_OUTPUT_BYTES].decode(errors="replace") or "command failed")


async def _run_http_get(action: HttpAction, target: ContainerTarget) -> str:
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


async def _run_tcp_connect(action: TcpAction, target: ContainerTarget) -> str:
    host, port = action.host or target.host, target.port(action.port)
    try:
        _, writer = await connect(target, host, port)
    except OSError as error:
        return f"dial tcp {host}:{port}: {error.strerror or error}"
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return ""


async def connect(target: ContainerTarget, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
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
