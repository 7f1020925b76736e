"""The gang scheduler as a process: probes and metrics, definitions, the election, then scheduling."""

import asyncio
import logging
import socket
from datetime import timedelta
from typing import Any

import msgspec

from gangline import __version__
from gangline.api.meta import Key
from gangline.api.scheduling import PODGROUPS, QUEUES
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.base.tasks import run_until_first, unwrap_exception_group
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.options import WriteOptions
from gangline.kube.transport.http import HttpTransport
from gangline.kube.transport.raw.pool import raw_pool
from gangline.operator.definitions import CRDS, DefinitionWaiter, apply_crds
from gangline.runtime.events import EventRecorder
from gangline.runtime.health import HealthServer
from gangline.runtime.leader_election import DEFAULT_LEASE_SETTINGS, LeaderElector, LeaseSettings, unique_identity
from gangline.runtime.manager import Manager, stop_on_signals
from gangline.runtime.metrics import MeteredTransport, PrometheusMetrics
from gangline.scheduler.prometheus import PrometheusSchedulerMetrics
from gangline.scheduler.scheduler import CONTROLLER, SCHEME, PrepareConnections, Scheduler
from gangline.scheduler.settings import FIELD_MANAGER, SchedulerProcessSettings

log = logging.getLogger(__name__)

EVENT_DELAY = timedelta(seconds=1)
"""Events are for people, who are slower than pods."""


class RequiredResource(msgspec.Struct, frozen=True):
    """What a scheduler needs to be served."""

    resource: Resource[Any]


REQUIRED_RESOURCES = (RequiredResource(PODGROUPS), RequiredResource(QUEUES))


async def run_scheduler(
    connection: Connection,
    settings: SchedulerProcessSettings,
    clock: Clock,
    *,
    lease: LeaseSettings = DEFAULT_LEASE_SETTINGS,
) -> None:
    """Run until a signal, then go down in order and return. Raises `InputError`, and whatever ends the manager."""
    metrics = PrometheusMetrics()
    health = HealthServer(
        metrics=metrics, metrics_address=settings.metrics_address, probe_address=settings.probe_address
    )
    stop = asyncio.Event()
    async with (
        HttpTransport(connection, agent=FIELD_MANAGER) as transport,
        raw_pool(transport, connection, agent=FIELD_MANAGER) as quick,
    ):
        metered = MeteredTransport(quick, metrics, host=connection.server, clock=clock)
        client = Client(
            metered,
            scheme=SCHEME.with_resources(CRDS),
            clock=clock,
            options=WriteOptions(field_manager=FIELD_MANAGER),
        )
        process = SchedulerProcess(connection, settings, client, metrics, clock, lease, prepare=quick.prewarm)
        for name, check in process.readiness_checks.items():
            health.add_readyz_check(name, check)
        # Probes answer from the beginning: a scheduler that waits for something is alive, and not ready.
        async with health:
            log.info("scheduler starts", extra=process.log_fields | {"server": connection.server})
            with stop_on_signals(stop):
                await process.run(stop)


class SchedulerProcess:
    """What happens from start to end, one step after the other."""

    def __init__(
        self,
        connection: Connection,
        settings: SchedulerProcessSettings,
        client: Client,
        metrics: PrometheusMetrics,
        clock: Clock,
        lease: LeaseSettings = DEFAULT_LEASE_SETTINGS,
        *,
        prepare: PrepareConnections | None = None,
    ) -> None:
        self._settings, self._client, self._metrics, self._clock = settings, client, metrics, clock
        self._prepare_request = prepare
        self._lease = (
            Key(settings.lease_namespace or connection.namespace, settings.lease) if settings.leader_elect else None
        )
        self._scheduler_metrics = PrometheusSchedulerMetrics(metrics.registry)
        self._definitions = DefinitionWaiter(client, REQUIRED_RESOURCES, clock)
        self._scheduler: Scheduler | None = None
        self._recorder = EventRecorder(
            client,
            CONTROLLER,
            socket.gethostname(),
            clock,
            scheme=client.scheme,
            delay=EVENT_DELAY,
            count=metrics.count_event,
        )
        self._manager = self._build_manager(lease)
        self.readiness_checks = {
            "definitions": self._definitions.readiness_problem,
            "caches": self._sync_problem,
        }

    @property
    def log_fields(self) -> dict[str, str]:
        """What it is about to do, for the log."""
        scheduler = self._settings.scheduler
        ways = [way for way, on in (("bind", scheduler.bind_pods), ("pin", scheduler.pin_pods)) if on]
        return {
            "version": __version__,
            "scheduler": scheduler.name,
            "commit": ",".join(ways),
            "lease": str(self._lease or "none"),
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Do all of it until the event is set."""
        with unwrap_exception_group():
            await run_until_first(self._prepare(), stop.wait())
        if not stop.is_set():
            await self._manager.run(stop, signals=False)

    async def _prepare(self) -> None:
        if self._settings.install_crds:
            await apply_crds(self._client, ())
        await self._definitions.wait_until_served()

    def _build_manager(self, lease: LeaseSettings) -> Manager:
        leader = None
        if self._lease is not None:
            report = self._metrics.leader_gauge(self._settings.lease)
            leader = LeaderElector(self._client, self._lease, unique_identity(), self._clock, lease, report=report)
        manager = Manager(self._client, self._clock, leader=leader, recorder=self._recorder, metrics=self._metrics)
        manager.add_runnable(self._run_term)
        return manager

    async def _run_term(self) -> None:
        """One term. What is known starts anew, from a list taken now that we lead."""
        term = Scheduler(
            self._client,
            self._clock,
            self._recorder,
            self._settings.scheduler,
            self._scheduler_metrics,
            prepare=self._prepare_request,
        )
        self._scheduler = term
        await term.run()

    def _sync_problem(self) -> str:
        """A scheduler that waits for its turn is as ready as it can be. One that need not wait has yet to begin."""
        if self._scheduler is not None:
            return self._scheduler.unsynced_message()
        return "" if self._lease is not None else "nothing listed yet"
