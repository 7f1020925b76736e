"""Probes and lifecycle hooks of containers."""

import asyncio
import signal
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import aiohttp

from gangline.base.clock import Clock
from gangline.base.host_features import signal_group
from gangline.base.tasks import time_limit
from gangline.node.pod_types import Action, ExecAction, HttpAction, Probe, RunContainer, TcpAction
from gangline.node.runtime.process import resolve_program
from gangline.node.runtime.runtime import ContainerTarget, ProcessSpec, StartFailed, connect

MAX_OUTPUT_BYTES = 10_000
"""How much of a failed command's output becomes the message."""
HOOK_TIMEOUT = timedelta(minutes=10)

ProbeListener = Callable[[bool], None]
"""Called with whether the probe passes, after every result that decides it."""
FailureListener = Callable[[str, str], None]
"""Called with the reason of an Event and its message after every result that is a failure."""
UnhealthyListener = Callable[[str], None]
"""Called with the reason when a container must be restarted."""


class ThresholdCounter:
    """Turns single results into a state, by thresholds. Pure."""

    def __init__(self, *, success: int, failure: int) -> None:
        self._success, self._failure = success, failure
        self._streak = 0
        self._last: bool | None = None

    def add(self, *, passed: bool) -> bool | None:
        """Count a result. Returns the state once enough equal results came in a row; None before."""
        self._streak = self._streak + 1 if passed == self._last else 1
        self._last = passed
        return passed if self._streak >= (self._success if passed else self._failure) else None


class ContainerProbes:
    """The postStart hook and the probes of one process."""

    def __init__(
        self,
        spec: RunContainer,
        target: ContainerTarget,
        clock: Clock,
        on_readiness: ProbeListener,
        on_failure: FailureListener,
        on_unhealthy: UnhealthyListener,
    ) -> None:
        self._spec, self._target, self._clock = spec, target, clock
        self._on_readiness, self._on_failure, self._on_unhealthy = on_readiness, on_failure, on_unhealthy

    async def run_startup(self) -> bool:
        """Run the postStart hook, then the startup probe until it passes. False when the hook fails."""
        hook, probe = self._spec.lifecycle.post_start, self._spec.startup_probe
        if hook is not None:
            problem = await run_action(hook, self._target, HOOK_TIMEOUT, self._clock)
            if problem:
                self._on_failure("FailedPostStartHook", f"PostStartHook failed: {problem}")
                self._on_unhealthy(f"Container {self._spec.name} failed its PostStartHook")
                return False
        if probe is not None:
            await self._await_startup_probe(probe)
        return True

    async def run(self) -> None:
        """Run the readiness and the liveness probe until cancelled."""
        readiness, liveness = self._spec.readiness_probe, self._spec.liveness_probe
        async with asyncio.TaskGroup() as group:
            if readiness is not None:
                group.create_task(self._run_probe(readiness, "Readiness", self._on_readiness))
            if liveness is not None:
                group.create_task(self._run_probe(liveness, "Liveness", self._on_liveness))

    async def _run_probe(self, probe: Probe, name: str, on_state: ProbeListener) -> None:
        """Probe until cancelled. As a kubelet does, record an event for every failure, below the threshold, too."""

        def on_failure(message: str) -> None:
            self._on_failure("Unhealthy", f"{name} probe failed: {message}")

        await run_probe(probe, self._target, self._clock, on_state, on_failure)

    async def _await_startup_probe(self, probe: Probe) -> None:
        passed = asyncio.Event()

        def on_state(healthy: bool) -> None:
            if healthy:
                passed.set()
            else:
                self._on_unhealthy(f"Container {self._spec.name} failed startup probe")

        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._run_probe(probe, "Startup", on_state))
            await passed.wait()
            task.cancel()

    def _on_liveness(self, healthy: bool) -> None:
        if not healthy:
            self._on_unhealthy(f"Container {self._spec.name} failed liveness probe")


async def run_probe(
    probe: Probe,
    target: ContainerTarget,
    clock: Clock,
    on_state: ProbeListener,
    on_failure: Callable[[str], None] = lambda message: None,
) -> None:
    """Probe until cancelled. Report every failure, and the state after every result that decides it."""
    await clock.sleep(timedelta(seconds=probe.initial_delay_seconds))
    counter = ThresholdCounter(success=probe.success_threshold, failure=probe.failure_threshold)
    while True:
        message = await run_action(probe, target, timedelta(seconds=probe.timeout_seconds), clock)
        if message:
            on_failure(message)
        state = counter.add(passed=not message)
        if state is not None:
            on_state(state)
        await clock.sleep(timedelta(seconds=probe.period_seconds))


async def run_action(action: Action, target: ContainerTarget, timeout: timedelta, clock: Clock) -> str:
    """Run the action once. Returns why it failed; empty when it succeeded."""
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
        signal_group(process.pid, signal.SIGKILL)
        await process.wait()
    return "" if process.returncode == 0 else (output[:MAX_OUTPUT_BYTES].decode(errors="replace") or "command failed")


async def _run_http_get(action: HttpAction, target: ContainerTarget) -> str:
    scheme, host = action.scheme.lower(), action.host or target.host
    url = f"{scheme}://{host}:{target.port(action.port)}/{action.path.lstrip('/')}"
    headers = {"User-Agent": "kube-probe/1.34", **{header.name: header.value for header in action.http_headers}}
    # As the kubelet: certificates are not verified, because few clients know the CA of a pod's certificate.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        create_socket = target.tcp_socket
        connector = aiohttp.TCPConnector(socket_factory=None if create_socket is None else lambda _: create_socket())
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get(url, headers=headers, ssl=context, allow_redirects=False) as response,
        ):
            if 200 <= response.status < 400:
                return ""
            return f"HTTP probe failed with statuscode: {response.status}"
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
