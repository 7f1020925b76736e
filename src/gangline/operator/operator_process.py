"""The operator as a process: probes and metrics, definitions, a look for others, the election, then the job engine."""

import asyncio
import logging
import math
import socket
from collections.abc import Sequence
from typing import Any

import msgspec

from gangline import __version__
from gangline.api.meta import Key
from gangline.base.clock import Clock
from gangline.base.tasks import first_of, unwrapped
from gangline.jobs.framework import Framework
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.discovery import version
from gangline.kube.errors import Forbidden
from gangline.kube.transport.http import HttpTransport
from gangline.kube.transport.raw.pool import express
from gangline.operator import conflicting_operators, gang_schedulers
from gangline.operator.definitions import Definitions, install
from gangline.operator.engine import Engine, frameworks, scheme_of
from gangline.operator.metrics import JobMetrics
from gangline.operator.request_gate import Gate
from gangline.operator.settings import ProcessSettings
from gangline.runtime.health import Health
from gangline.runtime.leader import Leader, unique_identity
from gangline.runtime.limits import RateLimit
from gangline.runtime.manager import Manager, stopped_by_signals
from gangline.runtime.metrics import MeteredTransport, Metrics

log = logging.getLogger(__name__)


AGENT = "gangline-operator"
EMBEDDED = "+gangline-"
"""In the version of every embedded server."""


async def run_operator(
    connection: Connection,
    settings: ProcessSettings,
    clock: Clock,
    wanted: Sequence[Framework[Any]] | None = None,
) -> None:
    """Run until a signal, then go down in order and return. `wanted`: these frameworks instead of our own.

    Raises `InputError` for settings that cannot be used, `RivalFound` when another operator is there, and whatever
    ends the manager.
    """
    chosen = frameworks(settings.operator) if wanted is None else wanted
    metrics = Metrics()
    health = Health(
        metrics=metrics, metrics_address=settings.metrics_address, probe_address=settings.probe_address
    )
    stop = asyncio.Event()
    async with (
        HttpTransport(connection, agent=AGENT) as transport,
        express(transport, connection, agent=AGENT) as quick,
    ):
        metered = MeteredTransport(Gate(quick, clock), metrics, host=connection.server, clock=clock)
        pace = limit(settings, clock)
        settings = await fitted(settings, Client(metered, scheme=scheme_of(chosen), clock=clock, limit=pace))
        scheme = scheme_of(chosen, settings.operator.site.offered)
        client = Client(metered, scheme=scheme, clock=clock, limit=pace)
        process = OperatorProcess(connection, settings, chosen, client, metrics, clock)
        for name, check in process.checks.items():
            health.add_ready(name, check)
        # Probes answer from the beginning: an operator that waits for something is alive, and not ready.
        async with health:
            log.info("operator starts", extra=process.described | {"server": connection.server})
            with stopped_by_signals(stop):
                await process.run(stop)


async def fitted(settings: ProcessSettings, client: Client) -> ProcessSettings:
    """The settings for the server at hand.

    On an embedded plane members share one machine, and its ports; and their pods are labelled for old SDKs too.
    """
    site = await gang_schedulers.discovered(client, settings.operator.site)
    try:
        embedded = EMBEDDED in await version(client)
    except Forbidden:
        embedded = False
    if embedded:
        site = msgspec.structs.replace(site, shared_host=True, legacy_labels=True)
    return msgspec.structs.replace(settings, operator=msgspec.structs.replace(settings.operator, site=site))


class OperatorProcess:
    """What happens from start to end, one step after the other."""

    def __init__(
        self,
        connection: Connection,
        settings: ProcessSettings,
        wanted: Sequence[Framework[Any]],
        client: Client,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._settings, self._client, self._clock = settings, client, clock
        where = settings.lease_namespace or settings.operator.namespace or connection.namespace
        self._lease = Key(where, settings.lease) if settings.leader_elect else None
        self._pod = Key(connection.namespace, settings.pod or socket.gethostname())
        self._frameworks = wanted
        self._kinds = tuple(framework.facts for framework in wanted)
        self._definitions = Definitions(client, self._kinds, clock)
        self._manager = self._assembled(metrics)
        self.checks = {"definitions": self._definitions.problem, "caches": self._manager.unsynced}

    @property
    def described(self) -> dict[str, str]:
        """What it is about to do, for the log."""
        operator = self._settings.operator
        return {
            "version": __version__,
            "kinds": ",".join(kind.kind for kind in self._kinds),
            "namespace": operator.namespace or "all",
            "lease": str(self._lease or "none"),
        }

    async def run(self, stop: asyncio.Event) -> None:
        """Do all of it until the event is set."""
        with unwrapped():
            await first_of(self._prepare(), stop.wait())
        if not stop.is_set():
            await self._manager.run(stop, signals=False)

    async def _prepare(self) -> None:
        """Return when the engine may begin."""
        if self._settings.install_crds:
            await self._alone()
            await install(self._client, self._kinds)
        await self._definitions.served()
        await self._grouped()
        await self._alone()

    async def _grouped(self) -> None:
        await gang_schedulers.installed(self._client, self._settings.operator.site, self._clock)

    async def _alone(self) -> None:
        if self._settings.take_over:
            return
        me = conflicting_operators.Identity(self._pod, self._client.options.field_manager, self._lease)
        await conflicting_operators.alone(
            self._client, self._kinds, self._settings.operator.namespace, me, self._clock
        )

    def _assembled(self, metrics: Metrics) -> Manager:
        settings, clock = self._settings, self._clock
        leader = None
        if self._lease is not None:
            report = metrics.leader(settings.lease)
            leader = Leader(self._client, self._lease, unique_identity(), clock, report=report)
        manager = Manager(self._client, clock, leader=leader, metrics=metrics, grace=settings.grace)
        engine = Engine(
            manager,
            self._client,
            settings.operator,
            socket.gethostname(),
            clock,
            metrics=JobMetrics(metrics.registry),
            count=metrics.event,
        )
        engine.add(self._frameworks)
        return manager


def limit(settings: ProcessSettings, clock: Clock) -> RateLimit | None:
    """The client-side limit asked for. Without a burst, as many at once as there may be in a second."""
    if settings.qps <= 0:
        return None
    return RateLimit(clock, rate=settings.qps, burst=settings.burst or math.ceil(settings.qps))
