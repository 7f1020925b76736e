"""What the operator and the gang scheduler have in common as processes: connection, probes, election, start and stop."""

import asyncio
import logging
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar

from gangline.api.meta import Key
from gangline.base.certificates.serving import tls_from_folder, tls_of_our_own
from gangline.base.clock import Clock, SystemClock, seconds_since_boot
from gangline.base.errors import InputError
from gangline.base.tasks import run_until_first, unwrap_exception_group
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.transport.api import Transport
from gangline.kube.transport.http import HttpTransport
from gangline.kube.transport.raw.pool import RawPool, raw_pool
from gangline.operator.settings import ProcessSettings
from gangline.runtime.health import HealthServer
from gangline.runtime.leader_election import DEFAULT_LEASE_SETTINGS, LeaderElector, LeaseSettings, unique_identity
from gangline.runtime.manager import Manager, stop_on_signals
from gangline.runtime.metrics import PrometheusMetrics
from gangline.runtime.metrics_guard import MetricsGuard

log = logging.getLogger(__name__)


class ControllerProcess(ABC):
    """A process that prepares itself, and then runs a manager until it is stopped.

    A subclass sets `manager` and `readiness_checks` in its constructor.
    """

    manager: Manager
    readiness_checks: Mapping[str, Callable[[], str]]
    started_event: ClassVar[str]
    """The event of the log line at the start."""

    @property
    @abstractmethod
    def log_fields(self) -> dict[str, str]:
        """The fields of the log line at the start."""

    @abstractmethod
    async def prepare(self) -> None:
        """Return when the manager may run."""

    async def run(self, stop: asyncio.Event) -> None:
        """Prepare, then run the manager, until the event is set."""
        with unwrap_exception_group():
            await run_until_first(self.prepare(), stop.wait())
        if not stop.is_set():
            await self.manager.run(stop, signals=False)


async def serve_process(
    health: HealthServer, connection: Connection, build: Callable[[], Awaitable[ControllerProcess]]
) -> None:
    """Build a process and run it until a signal, with probes and metrics.

    Probes answer from the beginning: a process that still waits for something is alive, and not ready.
    """
    stop, is_built = asyncio.Event(), False
    health.add_readyz_check("start", lambda: "" if is_built else "the server was not asked what it has yet")
    async with health:
        with stop_on_signals(stop):
            process = await _unless_stopped(build(), stop)
            if process is None:
                return
            for name, check in process.readiness_checks.items():
                health.add_readyz_check(name, check)
            health.watch_work(process.manager.activities)
            is_built = True
            log.info(process.started_event, extra=process.log_fields | {"server": connection.server})
            await process.run(stop)


async def _unless_stopped(building: Awaitable[ControllerProcess], stop: asyncio.Event) -> ControllerProcess | None:
    """The process that is built; None if the event is set first."""
    built: list[ControllerProcess] = []

    async def build() -> None:
        built.append(await building)

    with unwrap_exception_group():
        await run_until_first(build(), stop.wait())
    return built[0] if built else None


def protect_metrics(health: HealthServer, settings: ProcessSettings, transport: Transport, clock: Clock) -> None:
    """Let the API server decide who reads the metrics, if the settings say so. Raises `InputError`."""
    folder = settings.metrics_cert_path
    if folder and not settings.metrics_secure:
        raise InputError("--metrics-cert-path: is for metrics that are served by TLS; add --metrics-secure")
    if settings.metrics_secure:
        if folder:
            tls = tls_from_folder(Path(folder), "--metrics-cert-path")
        else:
            tls = tls_of_our_own(("localhost", socket.gethostname()))
        health.protect_metrics(MetricsGuard(Client(transport, clock=clock), tls, clock))


@asynccontextmanager
async def api_transport(connection: Connection, agent: str) -> AsyncIterator[RawPool]:
    """A transport to the server, on raw connections where possible."""
    async with HttpTransport(connection, agent=agent) as http, raw_pool(http, connection, agent=agent) as pool:
        yield pool


def leader_elector(
    client: Client,
    lease: Key | None,
    metrics: PrometheusMetrics,
    clock: Clock,
    settings: LeaseSettings = DEFAULT_LEASE_SETTINGS,
) -> LeaderElector | None:
    """The election for a Lease; None without a Lease: then the process acts at once."""
    if lease is None:
        return None
    report = metrics.leader_gauge(lease.name)
    since_boot = seconds_since_boot if isinstance(clock, SystemClock) else None
    return LeaderElector(client, lease, unique_identity(), clock, settings, report=report, since_boot=since_boot)
