"""The API server with the controllers of its objects: garbage collector, namespaces, custom resources.

There is no node: pods are stored and stay pending. `cluster.py` adds the node.
"""

import asyncio
import errno
import os
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from gangline.apiserver.admission.certificates import REQUESTS
from gangline.apiserver.admission.plugins import default_admission
from gangline.apiserver.admission.webhooks.calls import WebhookCaller
from gangline.apiserver.aggregation.api_services import API_SERVICES
from gangline.apiserver.aggregation.proxy import AggregationProxy
from gangline.apiserver.audit.log import AuditLog, AuditSettings
from gangline.apiserver.audit.request import AuditedRequest
from gangline.apiserver.auth.authentication import Authenticator
from gangline.apiserver.auth.authorizer import AlwaysAllow, Authorizer, ReadOnly
from gangline.apiserver.auth.default_roles import ensure_default_roles
from gangline.apiserver.auth.rbac import RbacAuthorizer
from gangline.apiserver.auth.role_index import RoleIndex
from gangline.apiserver.auth.service_account_tokens import ServiceAccountTokens
from gangline.apiserver.auth.signing_key import SigningKey
from gangline.apiserver.auth.token_requests import TokenIssuer
from gangline.apiserver.http.body import MAX_BODY_BYTES
from gangline.apiserver.http.handler import AggregatedGroup, ApiHandler
from gangline.apiserver.http.nonresource import STORE_CHECK, NonResourceHandler
from gangline.apiserver.http.subresources import subresource_handlers
from gangline.apiserver.proxy.handlers import proxy_handlers, unverified_tls
from gangline.apiserver.proxy.remote_kubelet import ReachableNodes
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.served_kinds import builtin_catalog
from gangline.apiserver.registry.service_allocator import SERVICE_CIDR
from gangline.apiserver.serving.connections import ConnectionLimits
from gangline.apiserver.serving.hosts import AllowedHosts
from gangline.apiserver.serving.server import ConnectionGuard, GuardedServer, GuardedSite
from gangline.apiserver.store.backup import encode_backup
from gangline.apiserver.store.paths import collection_prefix
from gangline.apiserver.store.store import Store
from gangline.apiserver.streaming.handlers import StreamsByNode, stream_handlers
from gangline.apiserver.users import AUTHENTICATED_GROUP, MASTERS_GROUP, UserInfo
from gangline.base.certificates.folder import CertificateFiles
from gangline.base.certificates.keeper import CertificateKeeper
from gangline.base.clock import Clock, SystemClock
from gangline.base.errors import InputError
from gangline.kube.config.connection import Connection, SocketOpener
from gangline.kube.config.credentials import StaticToken
from gangline.kube.config.tls import TLS, Pem
from gangline.local.bootstrap import ensure_api_service, ensure_system_classes, first_address, publish_api_endpoints
from gangline.local.controllers.crds import CrdController
from gangline.local.controllers.garbage_collector import GarbageCollector
from gangline.local.controllers.legacy_tokens import LegacyTokenController
from gangline.local.controllers.namespace_deletion import NamespaceDeleter
from gangline.local.controllers.namespaces import PROXY_CLIENT, NamespaceController
from gangline.local.controllers.role_aggregation import RoleAggregationController
from gangline.local.listen import ListenAddress, host_port, machine_names
from gangline.local.paths import BACKUP_PATH
from gangline.node.network.bridge import GATEWAY
from gangline.node.ports import LOOPBACK

ADMIN_USER = UserInfo("admin", (MASTERS_GROUP, AUTHENTICATED_GROUP))
SHUTDOWN_SECONDS = 0.5
MAX_HEADER_BYTES = 2**20
"""The longest URL or header, as in Go's server: selectors can have thousands of values."""
MAX_HEADERS = 4096
LINGERING_SECONDS = 1.0
"""How long the rest of a body is read that nobody needs, before the connection is closed."""
NO_NODES: StreamsByNode = {}
MACHINE_CLOCK = SystemClock()


class AuthorizationMode(StrEnum):
    """Who decides what users may do, as in kube-apiserver's `--authorization-mode`."""

    RBAC = "RBAC"
    ALWAYS_ALLOW = "AlwaysAllow"
    READ_ONLY = "ReadOnly"
    """Nobody may write: not kube-apiserver's, but that of a server of the past."""


class PlaneSettings(msgspec.Struct, frozen=True):
    """The settings of the API server."""

    host: str = LOOPBACK
    port: int = 0
    certificates: Path | None = None
    """The folder of its certificates. None: plain HTTP, for tests that hand out no kubeconfig."""
    certificate_cache: Path | None = None
    """The file from which a plane whose folder is empty takes its certificates, so that it need not issue them."""
    token: str = ""
    """The administrator's token; a random one when empty."""
    service_cidr: str = SERVICE_CIDR
    """The range of cluster IPs that services get."""
    warn_on_inert_kinds: bool = True
    """Whether a client that creates an object that no controller acts on is warned. A real API server never warns."""
    users: Mapping[str, UserInfo] = {}
    """Other users, by token."""
    authorization_mode: AuthorizationMode = AuthorizationMode.RBAC
    disabled_admission_plugins: tuple[str, ...] = ()
    """Admission plugins that are off, by kube-apiserver's names."""
    audit: AuditSettings | None = None
    """The audit log. None: requests are not recorded."""
    service_account_key: Path | None = None
    """The file of the key that signs tokens of service accounts, created if missing. None: in memory."""
    connections: ConnectionLimits = ConnectionLimits()
    allowed_hosts: tuple[str, ...] = ()
    """Names in the Host header that are served besides localhost, the names of the machine and those of Kubernetes."""
    controllers_enabled: bool = True
    """Whether the controllers of garbage, namespaces, CRDs and aggregated roles run. Off: objects stay as they are."""


class ControlPlane(msgspec.Struct, frozen=True):
    """A running API server."""

    url: str
    token: str
    registry: Registry
    issuer: TokenIssuer
    open_socket: SocketOpener
    """Connects to the server from inside its process."""
    certificates: CertificateFiles | None = None

    @property
    def connection(self) -> Connection:
        """How a client reaches the server."""
        tls = None
        if self.certificates is not None:
            tls = TLS(ca=Pem("the local plane's CA", file=self.certificates.ca))
        return Connection(
            server=self.url, tls=tls, context="gangline", credentials=StaticToken(self.token, "the local plane")
        )

    @property
    def inner_connection(self) -> Connection:
        """How a client in the same process and event loop reaches the server: without TLS, which costs start-up time."""
        return msgspec.structs.replace(self.connection, tls=None, open_socket=self.open_socket)


@asynccontextmanager
async def control_plane(
    store: Store,
    settings: PlaneSettings,
    clock: Clock,
    nodes: StreamsByNode = NO_NODES,
    *,
    aggregated: Sequence[AggregatedGroup] = (),
    certificate_clock: Clock = MACHINE_CLOCK,
) -> AsyncIterator[ControlPlane]:
    """The API server of a store, until the block ends. It serves requests when the block begins.

    `nodes` serve logs and exec of their pods; they may be added while the server runs. `aggregated` are groups that are
    served besides those of the store. Certificates follow the clock of the machine, as the clients do that verify them.
    """
    token = settings.token or secrets.token_urlsafe(24)
    address = ListenAddress(settings.host)
    keeper = _certificate_keeper(settings, address, certificate_clock)
    certificates = keeper.files if keeper is not None else None
    catalog = builtin_catalog()
    roles = RoleIndex(store)
    authorizer = _authorizer(settings.authorization_mode, roles)
    webhooks = WebhookCaller(store, clock)
    admission = default_admission(
        store, catalog, clock, authorizer, roles, webhooks, settings.disabled_admission_plugins
    )
    registry = Registry(
        store,
        catalog,
        clock,
        admission=admission,
        warn_on_inert_kinds=settings.warn_on_inert_kinds,
        service_cidr=settings.service_cidr,
    )
    key = SigningKey(settings.service_account_key)
    issuer = TokenIssuer(store, key, clock)
    health_checks = {STORE_CHECK: lambda: store.health.problem}
    others = [resource for group in aggregated for resource in group.resources]
    roots = NonResourceHandler(host_port(address.reachable_host, settings.port), key, health_checks, others)
    namespaces = NamespaceController(registry, clock, certificates.ca if certificates else None)
    collector = GarbageCollector(registry, clock)
    crds = CrdController(registry, roots, clock, collector.wait_until_settled)
    legacy_tokens = LegacyTokenController(registry, issuer, certificates.ca if certificates else None, clock)
    service_accounts = ServiceAccountTokens(store, key, clock, legacy_tokens.record_use)
    kubelet_tls = partial(kubelet_client_tls, certificates)
    remote = AggregationProxy(store, partial(_proxy_certificate, keeper))
    api = ApiHandler(
        registry,
        Authenticator(
            {**settings.users, token: ADMIN_USER},
            service_accounts,
            certificate_clock.now,
            # Who allows everything must know to whom, as kube-apiserver has it.
            anonymous=settings.authorization_mode is not AuthorizationMode.ALWAYS_ALLOW,
        ),
        authorizer,
        clock,
        roots,
        subresources={
            **subresource_handlers(registry, issuer),
            **stream_handlers(registry, ReachableNodes(nodes, store, kubelet_tls), clock),
            **proxy_handlers(registry, nodes, kubelet_tls),
        },
        audit_log=AuditLog(settings.audit, clock) if settings.audit else None,
        hosts=AllowedHosts((*address.certificate_hosts(), *machine_names(), *settings.allowed_hosts)),
        downloads={BACKUP_PATH: lambda: asyncio.to_thread(encode_backup, store.snapshot())},
        aggregated=aggregated,
        remote=remote,
    )
    await namespaces.create_initial()
    await ensure_system_classes(registry)
    await ensure_default_roles(store, registry.timestamp())
    crds.serve_established()
    async with _serve_http(api, settings, keeper) as (url, open_socket), asyncio.TaskGroup() as group:
        await ensure_api_service(registry, urlsplit(url).port or 443, settings.service_cidr)
        if address.advertised_host:
            await publish_api_endpoints(registry, address.advertised_host, urlsplit(url).port or 443)
        controllers = (
            collector,
            namespaces,
            NamespaceDeleter(registry, clock),
            crds,
            RoleAggregationController(registry, clock),
            legacy_tokens,
        )
        tasks = [group.create_task(controller.run()) for controller in controllers if settings.controllers_enabled]
        if settings.controllers_enabled:
            tasks.append(group.create_task(_check_api_services(registry, remote, roots, clock)))
        if keeper is not None:
            tasks.append(group.create_task(keeper.run(namespaces.publish_ca)))
            if settings.controllers_enabled:
                tasks.append(group.create_task(_sign_certificates(registry, authorizer, keeper, clock)))
        try:
            yield ControlPlane(url, token, registry, issuer, open_socket, certificates)
        finally:
            for task in tasks:
                task.cancel()
            # Watches end as after their timeout, so that clients see no broken connection.
            store.end_watches()
            await webhooks.close()
            await remote.close()


def _proxy_certificate(keeper: CertificateKeeper | None) -> tuple[str, str] | None:
    if keeper is None:
        return None
    pair = keeper.client_pair(PROXY_CLIENT)
    return str(pair.certificate), str(pair.key)


async def _check_api_services(
    registry: Registry, remote: AggregationProxy, roots: NonResourceHandler, clock: Clock
) -> None:
    """Check the servers of other groups once there is one."""
    await _first_object(registry.store, collection_prefix(*API_SERVICES))
    # Loaded here: most planes have none.
    from gangline.local.controllers.api_services import ApiServiceController

    await ApiServiceController(registry, remote, roots.set_remote, clock).run()


async def _first_object(store: Store, prefix: str) -> None:
    """Wait until there is an object of a resource."""
    with store.watch(prefix, after=store.revision) as changes:
        if not store.has(prefix):
            await anext(changes, None)


async def _sign_certificates(
    registry: Registry, authorizer: Authorizer, keeper: CertificateKeeper, clock: Clock
) -> None:
    """Sign certificates once somebody asks for one."""
    await _first_object(registry.store, collection_prefix(*REQUESTS))
    # Loaded here: most planes sign none, and cryptography takes long.
    from gangline.local.controllers.certificates import CertificateController

    await CertificateController(registry, authorizer, keeper.signer, clock).run()


def kubelet_client_tls(certificates: CertificateFiles | None) -> ssl.SSLContext:
    """TLS to kubelets: they may verify us by the plane's CA; what they serve is signed by themselves."""
    if certificates is None:
        return unverified_tls()
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(certificates.admin.certificate, certificates.admin.key)
    return context


def _authorizer(mode: AuthorizationMode, roles: RoleIndex) -> Authorizer:
    match mode:
        case AuthorizationMode.ALWAYS_ALLOW:
            return AlwaysAllow()
        case AuthorizationMode.READ_ONLY:
            return ReadOnly()
        case AuthorizationMode.RBAC:
            return RbacAuthorizer(roles)


def _certificate_keeper(settings: PlaneSettings, address: ListenAddress, clock: Clock) -> CertificateKeeper | None:
    if settings.certificates is None:
        return None
    # Pods with their own network reach the server at the gateway.
    hosts = (*address.certificate_hosts(), GATEWAY)
    if address.advertised_host:
        hosts += (first_address(settings.service_cidr),)
    return CertificateKeeper(settings.certificates, hosts, clock, cache=settings.certificate_cache)


@asynccontextmanager
async def _serve_http(
    api: ApiHandler, settings: PlaneSettings, keeper: CertificateKeeper | None
) -> AsyncIterator[tuple[str, SocketOpener]]:
    """Serve until the block ends; yields the URL, and the way in from this process.

    Raises `InputError` when the address cannot be used.
    """
    loop = asyncio.get_running_loop()

    def request(*parts: object) -> web.BaseRequest:
        return AuditedRequest(*parts, loop, client_max_size=MAX_BODY_BYTES)  # type: ignore[arg-type,misc]

    guard = ConnectionGuard(settings.connections, MACHINE_CLOCK)
    server = GuardedServer(
        api,
        guard,
        request_factory=request,
        access_log=None,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
        max_headers=MAX_HEADERS,
        lingering_time=LINGERING_SECONDS,
        auto_decompress=False,  # as kube-apiserver: a compressed body is not JSON
    )
    runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()

    async def open_socket() -> socket.socket:
        if runner.server is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        ours, its = socket.socketpair()
        try:
            await loop.connect_accepted_socket(server, its)
        except BaseException:
            ours.close()
            raise
        return ours

    try:
        # A client may authenticate by a certificate of the plane's CA instead of a token.
        tls = keeper.server_context(client_certificates=True) if keeper is not None else None
        site = GuardedSite(runner, guard, settings.host, settings.port, tls)
        try:
            await site.start()
        except OSError as error:
            address = host_port(settings.host, settings.port)
            problem = os.strerror(error.errno) if error.errno else str(error)
            option = "--bind" if error.errno == errno.EADDRNOTAVAIL else "--port"
            raise InputError(f"{address}: cannot listen there: {problem}; choose another with {option}") from error
        authority = host_port(ListenAddress(settings.host).reachable_host, runner.addresses[0][1])
        yield f"{'https' if keeper else 'http'}://{authority}", open_socket
    finally:
        await runner.cleanup()
        api.close()
