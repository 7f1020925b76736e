"""The operator as a process: definitions, a check for other operators, the election, then the job engine."""

import asyncio
import logging
import math
import socket
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from gangline import __version__
from gangline.api.meta import Key
from gangline.base.clock import Clock
from gangline.health.settings import WatchSettings
from gangline.health.watch_list import Watcher, WatchList
from gangline.jobs.framework import Framework
from gangline.jobs.in_place_support import may_restart_in_place, offers_restart_in_place
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.discovery import server_version
from gangline.kube.errors import Forbidden
from gangline.kube.protobuf import ProtobufBodies
from gangline.kube.transport.traced import traced
from gangline.operator import conflicting_operators, gang_schedulers
from gangline.operator.definitions import DefinitionWaiter, apply_crds
from gangline.operator.engine import JobEngine, enabled_frameworks, scheme_of
from gangline.operator.metrics import JobMetrics, NotificationCounters
from gangline.operator.process import ControllerProcess, api_transport, leader_elector, protect_metrics, serve_process
from gangline.operator.progress.metrics import ProgressMetrics
from gangline.operator.progress.receiver import ProgressReceiver
from gangline.operator.request_gate import RequestGate
from gangline.operator.settings import NOTIFICATIONS_SUFFIX, OperatorProcessSettings
from gangline.runtime.health import HealthServer
from gangline.runtime.leader_election import LeadershipFence
from gangline.runtime.manager import Manager
from gangline.runtime.metrics import MeteredTransport, PrometheusMetrics
from gangline.runtime.rate_limits import RateLimiter
from gangline.runtime.startup import StartupTransport

if TYPE_CHECKING:
    from gangline.notify.plan.routes import NotificationSettings

log = logging.getLogger(__name__)

USER_AGENT = "gangline-operator"
EMBEDDED_VERSION_MARK = "+gangline-"
"""Part of the version of every embedded server."""


async def run_operator(
    connection: Connection,
    settings: OperatorProcessSettings,
    clock: Clock,
    frameworks: Sequence[Framework[Any]] | None = None,
) -> None:
    """Run until a signal, then shut down in order and return. `frameworks` are used instead of the built-in ones.

    Raises `InputError` for unusable settings, `OperatorConflict` if another operator serves the same jobs, and any
    error that ends the manager.
    """
    frameworks = enabled_frameworks(settings.operator) if frameworks is None else frameworks
    metrics = PrometheusMetrics()
    metrics.set_build_info("operator", __version__)
    health = HealthServer(
        metrics=metrics, metrics_address=settings.metrics_address, probe_address=settings.probe_address
    )
    async with api_transport(connection, USER_AGENT) as pool:
        transport = traced(MeteredTransport(pool, metrics, host=connection.server, clock=clock))
        protect_metrics(health, settings, transport, clock)
        start, limit = StartupTransport(transport, clock), rate_limit(settings, clock)

        async def build() -> OperatorProcess:
            asking = Client(start, scheme=scheme_of(frameworks), clock=clock, limit=limit)
            adapted = await settings_for_server(settings, asking)
            scheme = scheme_of(frameworks, adapted.operator.site.gang_schedulers)
            # For a server in Python protobuf is no gain.
            protobuf = None if adapted.operator.site.shared_host else ProtobufBodies()
            client = Client(transport, scheme=scheme, clock=clock, limit=limit, protobuf=protobuf)
            return OperatorProcess(connection, adapted, frameworks, client, metrics, clock)

        health.add_readyz_check("server", start.readiness_problem)
        await serve_process(health, connection, build)


async def settings_for_server(settings: OperatorProcessSettings, client: Client) -> OperatorProcessSettings:
    """The settings adapted to the server.

    On an embedded plane all replicas run on one machine and share its ports, and pods get legacy labels too. Pods restart
    in place there, and where kubelets restart all containers of a pod.
    """
    site = await gang_schedulers.with_served_versions(client, settings.operator.site)
    try:
        version = await server_version(client)
    except Forbidden:
        version = ""
    image = settings.operator.agent_image
    if EMBEDDED_VERSION_MARK in version:
        site = msgspec.structs.replace(site, shared_host=True, legacy_labels=True, restarts_in_place=True)
    elif image and may_restart_in_place(version):
        namespace = next(iter(settings.operator.namespaces), settings.lease_namespace or "default")
        offered = await offers_restart_in_place(client, namespace, image)
        log.info("server asked whether pods restart in place", extra={"offered": offered})
        site = msgspec.structs.replace(site, restarts_in_place=offered, in_place_image=image)
    return msgspec.structs.replace(settings, operator=msgspec.structs.replace(settings.operator, site=site))


class OperatorProcess(ControllerProcess):
    """The operator: waits for definitions, makes sure that it is alone, then runs the job engine while it leads."""

    started_event = "operator starts"

    def __init__(
        self,
        connection: Connection,
        settings: OperatorProcessSettings,
        frameworks: Sequence[Framework[Any]],
        client: Client,
        metrics: PrometheusMetrics,
        clock: Clock,
    ) -> None:
        start = StartupTransport(client.transport, clock)
        self._settings, self._client, self._clock = settings, client.with_transport(start), clock
        namespaces = settings.operator.namespaces
        served = namespaces[0] if len(namespaces) == 1 else ""
        namespace = settings.lease_namespace or served or connection.namespace
        # Those that could not be checked for another operator yet.
        self._unchecked_namespaces: set[str] = set()
        self._lease = Key(namespace, settings.lease) if settings.leader_elect else None
        self._journal_key = Key(namespace, settings.lease + NOTIFICATIONS_SUFFIX)
        self._pod = Key(connection.namespace, settings.pod or socket.gethostname())
        self._frameworks = frameworks
        self._kinds = tuple(framework.facts for framework in frameworks)
        self._definitions = DefinitionWaiter(self._client, [kind.resource for kind in self._kinds], clock)
        self._progress = ProgressReceiver(
            settings.progress, self._kinds, client, ProgressMetrics(metrics.registry), clock
        )
        self.manager = self._build_manager(client, metrics)
        self.readiness_checks = {
            "server": start.readiness_problem,
            "definitions": self._definitions.readiness_problem,
            "caches": self.manager.unsynced_caches,
        }

    @property
    def log_fields(self) -> dict[str, str]:
        return {
            "version": __version__,
            "kinds": ",".join(kind.kind for kind in self._kinds),
            "namespace": ",".join(self._settings.operator.namespaces) or "all",
            "lease": str(self._lease or "none"),
        }

    async def run(self, stop: asyncio.Event) -> None:
        # Every replica receives progress, and writes it whether it leads or not.
        async with self._progress.running():
            await super().run(stop)

    async def prepare(self) -> None:
        if self._settings.install_crds:
            await self._check_conflicts()
            await apply_crds(self._client, self._kinds)
        await self._definitions.wait_until_served()
        await gang_schedulers.check_with_retry(self._client, self._settings.operator.site, self._clock)
        await self._check_conflicts()

    async def _check_conflicts(self) -> None:
        if self._settings.take_over:
            return
        check = self._conflict_check()
        unchecked = await check.wait_for_any(self._settings.operator.namespaces or ("",))
        self._unchecked_namespaces = set(unchecked)

    async def _check_late_namespaces(self) -> None:
        """Check the namespaces that could not be read at the start, each as soon as it can be."""
        check = self._conflict_check()
        while self._unchecked_namespaces:
            refused = await check.wait_for_any(tuple(self._unchecked_namespaces))
            self._unchecked_namespaces.intersection_update(refused)

    def _conflict_check(self) -> conflicting_operators.ConflictCheck:
        identity = conflicting_operators.OperatorIdentity(self._pod, self._client.options.field_manager, self._lease)
        return conflicting_operators.ConflictCheck(self._client, self._kinds, identity, self._clock)

    def _build_manager(self, client: Client, metrics: PrometheusMetrics) -> Manager:
        leader = leader_elector(client, self._lease, metrics, self._clock)
        fenced = client.with_transport(RequestGate(LeadershipFence(client.transport, leader), self._clock))
        manager = Manager(fenced, self._clock, leader=leader, metrics=metrics, grace=self._settings.grace)
        watch_list = WatchList() if self._settings.operator.hang_watch is not None else None
        engine = JobEngine(
            manager,
            fenced,
            self._settings.operator,
            socket.gethostname(),
            self._clock,
            metrics=JobMetrics(metrics.registry, self._clock, lambda: leader is None or leader.is_leader),
            count=metrics.count_event,
            may_serve=lambda namespace: namespace not in self._unchecked_namespaces,
            watch_list=watch_list,
        )
        if watch_list is not None:
            manager.add_runnable(partial(watch_list.run, partial(self._watcher, watch_list, fenced), self._clock))
        manager.add_runnable(self._check_late_namespaces)
        self._progress.read_logs(manager, self._settings.operator.namespaces)
        engine.add_frameworks(self._frameworks)
        if self._settings.notifications is not None:
            self._add_notifier(self._settings.notifications, manager, fenced, metrics)
        return manager

    def _watcher(self, watch_list: WatchList, client: Client) -> Watcher:
        # Imported here: it is needed when the first job runs.
        from gangline.health.cluster_signs import ClusterSignReader
        from gangline.health.watcher import HangWatcher
        from gangline.stacks.cluster import ClusterStackSampler

        settings = self._settings.operator.hang_watch or WatchSettings()
        sampler = ClusterStackSampler(client, self._clock) if self._settings.operator.hang_stacks else None
        return HangWatcher(watch_list, ClusterSignReader(client, self._clock), sampler, self._clock, settings)

    def _add_notifier(
        self, notifications: "NotificationSettings", manager: Manager, client: Client, metrics: PrometheusMetrics
    ) -> None:
        # Imported here: most operators notify nobody.
        from gangline.notify.notifier import NotifierOptions
        from gangline.notify.setup import new_notifier, warn_of_unusable_files

        warn_of_unusable_files(notifications)
        namespaces = self._settings.operator.namespaces
        informers = [manager.informer(kind.model, namespaces=namespaces) for kind in self._kinds]
        options = NotifierOptions(metrics=NotificationCounters(metrics.registry))
        notifier = new_notifier(notifications, client, self._journal_key, informers, self._clock, options)
        manager.add_runnable(notifier.run)


def rate_limit(settings: OperatorProcessSettings, clock: Clock) -> RateLimiter | None:
    """The client-side rate limit, if there is one. Without a burst, as many requests at once as in one second."""
    if settings.qps <= 0:
        return None
    return RateLimiter(clock, rate=settings.qps, burst=settings.burst or math.ceil(settings.qps))
