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
from gangline.base.tasks import first_of, unwrapped
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.options import WriteOptions
from gangline.kube.transport.http import HttpTransport
from gangline.kube.transport.raw.pool import express
from gangline.operator.definitions import CRDS, Definitions, install
from gangline.runtime.events import Recorder
from gangline.runtime.health import Health
from gangline.runtime.leader import DEFAULT_SETTINGS, Leader, LeaseSettings, unique_identity
from gangline.runtime.manager import Manager, stopped_by_signals
from gangline.runtime.metrics import MeteredTransport, Metrics
from gangline.scheduler.prometheus import SchedulerMetrics
from gangline.scheduler.scheduler import CONTROLLER, SCHEME, Prepare, Scheduler
from gangline.scheduler.settings import MANAGER, ProcessSettings

log = logging.getLogger(__name__)

LATER = timedelta(seconds=1)
"""Events are for people, who are slower than pods."""


class GangKind(msgspec.Struct, frozen=True):
    """What a scheduler needs to be served."""

    resource: Resource[Any]


GANG_KINDS = (GangKind(PODGROUPS), GangKind(QUEUES))


async def run_scheduler(
    connection: Connection,
    settings: ProcessSettings,
    clock: Clock,
    *,
    lease: LeaseSettings = DEFAULT_SETTINGS,
) -> None:
    """Run until a signal, then go down in order and return. Raises `InputError`, and whatever ends the manager."""
    metrics = Metrics()
    health = Health(
        metrics=metrics, metrics_address=settings.metrics_address, probe_address=settings.probe_address
    )
    stop = asyncio.Event()
    async with (
        HttpTransport(connection, agent=MANAGER) as transport,
        express(transport, connection, agent=MANAGER) as quick,
    ):
        metered = MeteredTransport(quick, metrics, host=connection.server, clock=clock)
        client = Client(
            metered, scheme=SCHEME.extended(CRDS), clock=clock, options=WriteOptions(field_manager=MANAGER)
        )
        process = SchedulerProcess(connection, settings, client, metrics, clock, lease, prepare=quick.prepare)
        for name, check in process.checks.items():
            health.add_ready(name, check)
        # Probes answer from the beginning: a scheduler that waits for something is alive, and not ready.
        async with health:
            log.info("scheduler starts", extra=process.described | {"server": connection.server})
            with stopped_by_signals(stop):
                await process.run(stop)


class SchedulerProcess:
    """What happens from start to end, one step after the other."""

    def __init__(
        self,
        connection: Connection,
        settings: ProcessSettings,
        client: Client,
        metrics: Metrics,
        clock: Clock,
        lease: LeaseSettings = DEFAULT_SETTINGS,
        *,
        prepare: Prepare | None = None,
    ) -> None:
        self._settings, self._client, self._metrics, self._clock = settings, client, metrics, clock
        self._ahead = prepare
        self._lease = (
            Key(settings.lease_namespace or connection.namespace, settings.lease)
            if settings.leader_elect
            else None
        )
        self._meters = SchedulerMetrics(metrics.registry)
        self._definitions = Definitions(client, GANG_KINDS, clock)
        self._term: Scheduler | None = None
        self._recorder = Recorder(
            client,
            CONTROLLER,
            socket.gethostname(),
            clock,
            scheme=client.scheme,
            delay=LATER,
            count=metrics.event,
        )
        self._manager = self._assembled(lease)
        self.checks = {"definitions": self._definitions.problem, "caches": self._unsynced}

    @property
    def described(self) -> dict[str, str]:
        """What it is about to do, for the log."""
        scheduler = self._settings.scheduler
        ways = [way for way, on in (("bind", scheduler.binds), ("pin", scheduler.pins)) if on]
        return {
            "version": __version__,
            "scheduler": scheduler.name,
            "commit": ",".join(ways),
            "lease": str(self._lease or "none"),
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Do all of it until the event is set."""
        with unwrapped():
            await first_of(self._prepare(), stop.wait())
        if not stop.is_set():
            await self._manager.run(stop, signals=False)

    async def _prepare(self) -> None:
        if self._settings.install_crds:
            await install(self._client, ())
        await self._definitions.served()

    def _assembled(self, lease: LeaseSettings) -> Manager:
        leader = None
        if self._lease is not None:
            report = self._metrics.leader(self._settings.lease)
            leader = Leader(self._client, self._lease, unique_identity(), self._clock, lease, report=report)
        manager = Manager(
            self._client, self._clock, leader=leader, recorder=self._recorder, metrics=self._metrics
        )
        manager.add_runnable(self._schedule)
        return manager

    async def _schedule(self) -> None:
        """One term. What is known starts anew, from a list taken now that we lead."""
        term = Scheduler(
            self._client,
            self._clock,
            self._recorder,
            self._settings.scheduler,
            self._meters,
            prepare=self._ahead,
        )
        self._term = term
        await term.run()

    def _unsynced(self) -> str:
        """A scheduler that waits for its turn is as ready as it can be. One that need not wait has yet to begin."""
        if self._term is not None:
            return self._term.unsynced()
        return "" if self._lease is not None else "nothing listed yet"
