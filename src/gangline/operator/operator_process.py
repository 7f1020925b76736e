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
from gangline.base.tasks import run_until_first, unwrap_exception_group
from gangline.jobs.framework import Framework
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.discovery import server_version
from gangline.kube.errors import Forbidden
from gangline.kube.transport.http import HttpTransport
from gangline.kube.transport.raw.pool import raw_pool
from gangline.operator import conflicting_operators, gang_schedulers
from gangline.operator.definitions import DefinitionWaiter, apply_crds
from gangline.operator.engine import JobEngine, enabled_frameworks, scheme_of
from gangline.operator.metrics import JobMetrics
from gangline.operator.request_gate import RequestGate
from gangline.operator.settings import OperatorProcessSettings
from gangline.runtime.health import HealthServer
from gangline.runtime.leader_election import LeaderElector, unique_identity
from gangline.runtime.manager import Manager, stop_on_signals
from gangline.runtime.metrics import MeteredTransport, PrometheusMetrics
from gangline.runtime.rate_limits import RateLimiter

log = logging.getLogger(__name__)


USER_AGENT = "gangline-operator"
EMBEDDED_VERSION_MARK = "+gangline-"
"""In the version of every embedded server."""


async def run_operator(
    connection: Connection,
    settings: OperatorProcessSettings,
    clock: Clock,
    wanted: Sequence[Framework[Any]] | None = None,
) -> None:
    """Run until a signal, then go down in order and return. `wanted`: these frameworks instead of our own.

    Raises `InputError` for settings that cannot be used, `OperatorConflict` when another operator is there, and whatever
    ends the manager.
    """
    chosen = enabled_frameworks(settings.operator) if wanted is None else wanted
    metrics = PrometheusMetrics()
    health = HealthServer(
        metrics=metrics, metrics_address=settings.metrics_address, probe_address=settings.probe_address
    )
    stop = asyncio.Event()
    async with (
        HttpTransport(connection, agent=USER_AGENT) as transport,
        raw_pool(transport, connection, agent=USER_AGENT) as quick,
    ):
        metered = MeteredTransport(RequestGate(quick, clock), metrics, host=connection.server, clock=clock)
        pace = rate_limit(settings, clock)
        settings = await settings_for_server(
            settings, Client(metered, scheme=scheme_of(chosen), clock=clock, limit=pace)
        )
        scheme = scheme_of(chosen, settings.operator.site.gang_schedulers)
        client = Client(metered, scheme=scheme, clock=clock, limit=pace)
        process = OperatorProcess(connection, settings, chosen, client, metrics, clock)
        for name, check in process.readiness_checks.items():
            health.add_readyz_check(name, check)
        # Probes answer from the beginning: an operator that waits for something is alive, and not ready.
        async with health:
            log.info("operator starts", extra=process.log_fields | {"server": connection.server})
            with stop_on_signals(stop):
                await process.run(stop)


async def settings_for_server(settings: OperatorProcessSettings, client: Client) -> OperatorProcessSettings:
    """The settings for the server at hand.

    On an embedded plane members share one machine, and its ports; and their pods are labelled for old SDKs too.
    """
    site = await gang_schedulers.with_served_versions(client, settings.operator.site)
    try:
        embedded = EMBEDDED_VERSION_MARK in await server_version(client)
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
        settings: OperatorProcessSettings,
        wanted: Sequence[Framework[Any]],
        client: Client,
        metrics: PrometheusMetrics,
        clock: Clock,
    ) -> None:
        self._settings, self._client, self._clock = settings, client, clock
        where = settings.lease_namespace or settings.operator.namespace or connection.namespace
        self._lease = Key(where, settings.lease) if settings.leader_elect else None
        self._pod = Key(connection.namespace, settings.pod or socket.gethostname())
        self._frameworks = wanted
        self._kinds = tuple(framework.facts for framework in wanted)
        self._definitions = DefinitionWaiter(client, self._kinds, clock)
        self._manager = self._build_manager(metrics)
        self.readiness_checks = {
            "definitions": self._definitions.readiness_problem,
            "caches": self._manager.unsynced_caches,
        }

    @property
    def log_fields(self) -> dict[str, str]:
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
        with unwrap_exception_group():
            await run_until_first(self._prepare(), stop.wait())
        if not stop.is_set():
            await self._manager.run(stop, signals=False)

    async def _prepare(self) -> None:
        """Return when the engine may begin."""
        if self._settings.install_crds:
            await self._check_conflicts()
            await apply_crds(self._client, self._kinds)
        await self._definitions.wait_until_served()
        await self._check_gang_schedulers()
        await self._check_conflicts()

    async def _check_gang_schedulers(self) -> None:
        await gang_schedulers.check_with_retry(self._client, self._settings.operator.site, self._clock)

    async def _check_conflicts(self) -> None:
        if self._settings.take_over:
            return
        me = conflicting_operators.OperatorIdentity(self._pod, self._client.options.field_manager, self._lease)
        await conflicting_operators.ensure_no_conflict(
            self._client, self._kinds, self._settings.operator.namespace, me, self._clock
        )

    def _build_manager(self, metrics: PrometheusMetrics) -> Manager:
        settings, clock = self._settings, self._clock
        leader = None
        if self._lease is not None:
            report = metrics.leader_gauge(settings.lease)
            leader = LeaderElector(self._client, self._lease, unique_identity(), clock, report=report)
        manager = Manager(self._client, clock, leader=leader, metrics=metrics, grace=settings.grace)
        engine = JobEngine(
            manager,
            self._client,
            settings.operator,
            socket.gethostname(),
            clock,
            metrics=JobMetrics(metrics.registry),
            count=metrics.count_event,
        )
        engine.add_frameworks(self._frameworks)
        return manager


def rate_limit(settings: OperatorProcessSettings, clock: Clock) -> RateLimiter | None:
    """The client-side limit asked for. Without a burst, as many at once as there may be in a second."""
    if settings.qps <= 0:
        return None
    return RateLimiter(clock, rate=settings.qps, burst=settings.burst or math.ceil(settings.qps))
