"""The embedded control plane with a node, in one async context manager."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, closing
from functools import partial
from pathlib import Path

import msgspec

from gangline.api import core
from gangline.api.core import Pod
from gangline.api.meta import JSON
from gangline.api.scheme import Scheme
from gangline.apiserver.admission.service_account import ServiceAccountAdmission
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.service_allocator import SERVICE_CIDR
from gangline.apiserver.store.paths import collection_prefix
from gangline.apiserver.store.sqlite import SqliteJournal
from gangline.apiserver.store.store import Store
from gangline.base.certificates.folder import RECORD_NAME
from gangline.base.clock import Clock
from gangline.base.host_features import SERVICE_RANGE, raise_open_files_limit
from gangline.kube.client import Client
from gangline.kube.config.access import PlaneAccess
from gangline.kube.config.connection import Connection
from gangline.kube.podstreams import PodStreams
from gangline.kube.transport.api import Request
from gangline.kube.transport.http import HttpTransport
from gangline.local.bootstrap import first_address
from gangline.local.controllers.claims import CLAIMS, ClaimProtectionController, terminating_claims
from gangline.local.controllers.default_scheduler import DefaultScheduler, FreedCapacity, unbound_pods
from gangline.local.controllers.pod_access import PodAccessController
from gangline.local.paths import home_folder
from gangline.local.plane import PlaneSettings, control_plane
from gangline.local.pod_metrics import PodMetrics
from gangline.local.pod_tokens import InProcessTokens
from gangline.node.api.server import NodeInspection
from gangline.node.api.usage_meter import UsageMeter
from gangline.node.checkpoint import StateFolder
from gangline.node.kubelet import DEFAULT_NAME, LocalKubelet
from gangline.node.logs import NodeLogReader
from gangline.node.network.cluster_ips import ClusterIpProxy
from gangline.node.network.loopback_addresses import can_bind
from gangline.node.network.setup import set_up_network
from gangline.node.settings import ISOLATED_NETWORK, NodeSettings
from gangline.node.streams import NodeStreams
from gangline.node.volumes.tokens import TokenRequester
from gangline.runtime.events import EventRecorder
from gangline.runtime.manager import ControllerOptions, Manager
from gangline.runtime.sources import InformerSource, KeySource, own_key

SHARED_CERTIFICATES = "run-certificates"


def temporary_plane() -> PlaneSettings:
    """Settings of a plane that ends with its process, as of a run: such planes share certificates, in the state folder."""
    return PlaneSettings(certificate_cache=home_folder() / SHARED_CERTIFICATES / RECORD_NAME)


class LocalSettings(msgspec.Struct, frozen=True):
    """The folders of a local cluster, and the settings of its parts."""

    folder: Path
    """Where pods run."""
    logs: Path
    """The node's state folder, with the logs of pods."""
    state: Path | None = None
    """The folder of the store. None: in memory, lost when the block ends."""
    plane: PlaneSettings = PlaneSettings()
    node: NodeSettings = NodeSettings()
    default_scheduler_enabled: bool = True
    """Whether pods of default-scheduler are bound here. Off leaves them to another scheduler."""
    node_enabled: bool = True
    """Whether there is a node, with the controllers around it. Off: pods stay pending, and quotas are not counted."""

    @property
    def plane_with_certificates(self) -> PlaneSettings:
        """The settings of the API server. It always has TLS here: pods get kubeconfigs, and Go clients send tokens only by TLS."""
        folder = self.plane.certificates or self.logs / "certificates"
        return msgspec.structs.replace(self.plane, certificates=folder, service_cidr=self.service_cidr)

    @property
    def service_cidr(self) -> str:
        """The range of cluster IPs: where pods share this machine's network, one that they reach."""
        reachable = (
            self.node_enabled and self.node.network != ISOLATED_NETWORK and can_bind(first_address(SERVICE_RANGE))
        )
        return SERVICE_RANGE if reachable and self.plane.service_cidr == SERVICE_CIDR else self.plane.service_cidr


class LocalCluster(msgspec.Struct, frozen=True):
    """A running local cluster."""

    url: str
    client: Client
    connection: Connection
    store: Store
    """The server's objects; readable also after the plane has ended."""
    inner_connection: Connection
    """How a client in this process and event loop reaches the server: without TLS."""
    access: PlaneAccess
    """How other clients reach the plane: `access.kubeconfig()`."""


@asynccontextmanager
async def local_cluster(settings: LocalSettings, scheme: Scheme, clock: Clock) -> AsyncIterator[LocalCluster]:
    """API server, scheduler, network and node, until the block ends; then no process is left."""
    raise_open_files_limit()
    journal = SqliteJournal(settings.state) if settings.state is not None else None
    nodes: dict[str, PodStreams] = {}
    meter = UsageMeter(settings.logs, clock)
    async with (
        Store(journal) as store,
        control_plane(
            store,
            settings.plane_with_certificates,
            clock,
            nodes,
            aggregated=[PodMetrics(store, meter, settings.node.name)] if settings.node_enabled else [],
        ) as plane,
        HttpTransport(plane.inner_connection) as transport,
        asyncio.TaskGroup() as group,
    ):
        client = Client(transport, scheme=scheme, clock=clock)
        access = PlaneAccess(plane.url, plane.token, plane.certificates.ca if plane.certificates is not None else None)
        pod_access = PodAccessController(plane.registry, clock)
        # Without that plugin pods have no token, and all rights are the user's to grant.
        gives_pods_accounts = ServiceAccountAdmission.name not in settings.plane.disabled_admission_plugins
        if gives_pods_accounts:
            await pod_access.ensure_role()
        tokens = InProcessTokens(plane.issuer)
        running = [
            *([group.create_task(pod_access.run())] if gives_pods_accounts else []),
        ]
        if settings.node_enabled:
            running.append(group.create_task(_count_quotas(plane.registry, clock)))
            running.append(group.create_task(_run_controllers(client, settings, nodes, access, tokens, meter, clock)))
        try:
            yield LocalCluster(plane.url, client, plane.connection, store, plane.inner_connection, access)
        finally:
            for task in running:
                task.cancel()


async def _count_quotas(registry: Registry, clock: Clock) -> None:
    """Run the quota controller once there is a quota."""
    store, prefix = registry.store, collection_prefix("", "resourcequotas")
    with store.watch(prefix, after=store.revision) as changes:
        if not store.has(prefix):
            await anext(changes, None)
    # Loaded here: most planes have no quota.
    from gangline.local.controllers.quotas import QuotaController

    await QuotaController(registry, clock).run()


async def _run_controllers(
    client: Client,
    settings: LocalSettings,
    nodes: dict[str, PodStreams],
    access: PlaneAccess,
    tokens: TokenRequester,
    meter: UsageMeter,
    clock: Clock,
) -> None:
    recorder = EventRecorder(client, "gangline.dev/node", DEFAULT_NAME, clock)
    manager = Manager(client, clock, recorder=recorder)
    pods, machines = manager.informer(Pod), manager.informer(core.Node)
    with ExitStack() as stack:
        setup = stack.enter_context(set_up_network(manager, client, pods, settings.logs, settings.node, access))
        node = LocalKubelet(
            client,
            pods,
            folder=settings.folder,
            logs=settings.logs,
            clock=clock,
            settings=settings.node,
            ports=setup.ports,
            recorder=recorder,
            # Pods are their service accounts: the administrator's token stays here.
            access=msgspec.structs.replace(access, token=""),
            tokens=tokens,
            network=setup.network,
        )
        inspection = NodeInspection(node.name, meter, partial(_pods_of_node, client, node.name))
        streams = nodes[node.name] = NodeStreams(node, NodeLogReader(settings.logs, clock), clock, inspection)
        sources: list[KeySource] = []
        if settings.service_cidr == SERVICE_RANGE:
            services = manager.informer(core.Service)
            cluster_ips = stack.enter_context(closing(ClusterIpProxy(services.cache, pods.cache, streams.connect_pod)))
            sources = [InformerSource(services, own_key)]
            manager.new_controller("cluster-ips", cluster_ips, sources, ControllerOptions(workers=1))
        if settings.default_scheduler_enabled:
            scheduler = DefaultScheduler(pods.cache, machines.cache, client, clock)
            sources = [
                InformerSource(pods, own_key),
                FreedCapacity(pods),
                # All unbound pods may fit a node that has changed.
                InformerSource(machines, lambda _: unbound_pods(pods.cache)),
            ]
            manager.new_controller("binder", scheduler, sources, ControllerOptions(workers=1))
        claims = manager.informer(CLAIMS)
        protection = ClaimProtectionController(claims.cache, client, StateFolder(settings.logs))
        sources = [InformerSource(claims, own_key), InformerSource(pods, terminating_claims(claims.cache))]
        manager.new_controller("claims", protection, sources, ControllerOptions(workers=1))
        manager.add_runnable(node.run)
        await manager.run(signals=False)


async def _pods_of_node(client: Client, name: str) -> JSON:
    """The PodList of a node, complete: caches hold only what controllers need."""
    request = Request("GET", "/api/v1/pods", (("fieldSelector", f"spec.nodeName={name}"),))
    listed: JSON = msgspec.json.decode(await client.requests.call(request))
    return listed
