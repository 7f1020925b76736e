"""The gang scheduler as a process: definitions, the election, then scheduling."""

import socket
from datetime import timedelta

from gangline import __version__
from gangline.api.meta import Key
from gangline.api.scheduling import PODGROUPS, QUEUES
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.options import WriteOptions
from gangline.kube.transport.traced import traced
from gangline.operator.definitions import CRDS, DefinitionWaiter, apply_crds
from gangline.operator.process import ControllerProcess, api_transport, leader_elector, protect_metrics, serve_process
from gangline.operator.settings import ProcessSettings
from gangline.runtime.events import EventRecorder
from gangline.runtime.health import HealthServer
from gangline.runtime.leader_election import DEFAULT_LEASE_SETTINGS, LeadershipFence, LeaseSettings
from gangline.runtime.manager import Manager
from gangline.runtime.metrics import MeteredTransport, PrometheusMetrics
from gangline.runtime.startup import StartupTransport
from gangline.scheduler.prometheus import PrometheusSchedulerMetrics
from gangline.scheduler.scheduler import CONTROLLER, SCHEME, PrepareConnections, Scheduler
from gangline.scheduler.settings import FIELD_MANAGER, LEASE_NAME, SchedulerSettings

EVENT_DELAY = timedelta(seconds=1)
"""Events wait this long, so that binding pods comes first."""
REQUIRED_RESOURCES = (PODGROUPS, QUEUES)


class SchedulerProcessSettings(ProcessSettings, frozen=True, kw_only=True):
    """The settings of a scheduler that runs as a process of its own."""

    scheduler: SchedulerSettings = SchedulerSettings()
    leader_elect: bool = True
    lease: str = LEASE_NAME


async def run_scheduler(
    connection: Connection,
    settings: SchedulerProcessSettings,
    clock: Clock,
    *,
    lease: LeaseSettings = DEFAULT_LEASE_SETTINGS,
) -> None:
    """Run until a signal, then shut down in order and return. Raises `InputError`, and any error that ends the manager."""
    metrics = PrometheusMetrics()
    metrics.set_build_info("scheduler", __version__)
    health = HealthServer(
        metrics=metrics, metrics_address=settings.metrics_address, probe_address=settings.probe_address
    )
    async with api_transport(connection, FIELD_MANAGER) as pool:
        transport = traced(MeteredTransport(pool, metrics, host=connection.server, clock=clock))
        protect_metrics(health, settings, transport, clock)
        client = Client(
            transport,
            scheme=SCHEME.with_resources(CRDS),
            clock=clock,
            options=WriteOptions(field_manager=FIELD_MANAGER),
        )

        async def build() -> SchedulerProcess:
            return SchedulerProcess(connection, settings, client, metrics, clock, lease, prepare=pool.prewarm)

        await serve_process(health, connection, build)


class SchedulerProcess(ControllerProcess):
    """The gang scheduler: waits for definitions, then schedules while it leads."""

    started_event = "scheduler starts"

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
        self._settings, self._clock = settings, clock
        start = StartupTransport(client.transport, clock)
        self._start_client = client.with_transport(start)
        self._prepare_connections = prepare
        namespace = settings.lease_namespace or connection.namespace
        self._lease = Key(namespace, settings.lease) if settings.leader_elect else None
        self._scheduler_metrics = PrometheusSchedulerMetrics(metrics.registry, clock)
        self._definitions = DefinitionWaiter(self._start_client, REQUIRED_RESOURCES, clock)
        # The scheduler of the current term of leadership.
        self._scheduler: Scheduler | None = None
        leader = leader_elector(client, self._lease, metrics, clock, lease)
        self._client = client.with_transport(LeadershipFence(client.transport, leader))
        self._recorder = EventRecorder(
            self._client,
            CONTROLLER,
            socket.gethostname(),
            clock,
            scheme=client.scheme,
            delay=EVENT_DELAY,
            count=metrics.count_event,
        )
        self.manager = Manager(self._client, clock, leader=leader, recorder=self._recorder, metrics=metrics)
        self.manager.add_runnable(self._run_term)
        self.readiness_checks = {
            "server": start.readiness_problem,
            "definitions": self._definitions.readiness_problem,
            "caches": self._sync_problem,
        }

    @property
    def log_fields(self) -> dict[str, str]:
        scheduler = self._settings.scheduler
        ways = [way for way, on in (("bind", scheduler.bind_pods), ("pin", scheduler.pin_pods)) if on]
        return {
            "version": __version__,
            "scheduler": scheduler.name,
            "commit": ",".join(ways),
            "namespace": ",".join(scheduler.namespaces) or "all",
            "lease": str(self._lease or "none"),
        }

    async def prepare(self) -> None:
        if self._settings.install_crds:
            await apply_crds(self._start_client, ())
        await self._definitions.wait_until_served()

    async def _run_term(self) -> None:
        """Schedule for one term of leadership, with caches that are listed anew."""
        scheduler = Scheduler(
            self._client,
            self._clock,
            self._recorder,
            self._settings.scheduler,
            self._scheduler_metrics,
            prepare=self._prepare_connections,
        )
        self._scheduler = scheduler
        await scheduler.run()

    def _sync_problem(self) -> str:
        """Why the scheduler is not ready; empty if it is. One that waits for leadership is ready."""
        if self._scheduler is not None:
            return self._scheduler.unsynced_message()
        return "" if self._lease is not None else "nothing listed yet"
