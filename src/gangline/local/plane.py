"""The API server with everything that keeps its objects in order: garbage collector, namespaces, custom resources.

No node: what is created here is stored, and pods wait. `cluster.py` adds the node.
"""

import asyncio
import errno
import os
import secrets
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from aiohttp import web

from gangline.apiserver.http.authentication import MASTERS_GROUP, Authenticator, UserInfo
from gangline.apiserver.http.body import MAX_BODY_BYTES
from gangline.apiserver.http.handler import ApiHandler
from gangline.apiserver.http.nonresource import NonResourceHandler
from gangline.apiserver.http.subresources import subresource_handlers
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.served_kinds import builtin_catalog
from gangline.apiserver.store.store import Store
from gangline.apiserver.streaming.handlers import StreamsByNode, stream_handlers
from gangline.base.certs import PlaneCertificates, ensure_certificates
from gangline.base.clock import Clock
from gangline.base.errors import InputError
from gangline.kube.config.connection import Connection
from gangline.kube.config.credentials import StaticToken
from gangline.kube.config.tls import TLS, Pem
from gangline.local.bootstrap import ensure_api_service, ensure_system_classes
from gangline.local.controllers.crds import CrdController
from gangline.local.controllers.garbage_collector import GarbageCollector
from gangline.local.controllers.namespaces import NamespaceController
from gangline.local.listen import ListenAddress, host_port

ADMIN_USER = UserInfo("admin", (MASTERS_GROUP, "system:authenticated"))
SHUTDOWN_SECONDS = 0.5
MAX_HEADER_BYTES = 2**20
"""Bytes of a URL or of a header, as Go's server takes them: selectors can name thousands of values."""
NO_NODES: StreamsByNode = {}


class PlaneSettings(msgspec.Struct, frozen=True):
    """Where the API server listens and keeps its state."""

    host: str = "127.0.0.1"
    port: int = 0
    certificates: Path | None = None
    """The folder of its certificates. None: plain HTTP, for tests on loopback."""
    token: str = ""
    """The administrator's; made up when empty."""
    warn_on_inert_kinds: bool = True
    """Whether whoever creates an object that nothing acts on is warned. A real API server never does."""
    users: Mapping[str, UserInfo] = {}
    """Others who may knock, by their tokens."""
    controllers_enabled: bool = True
    """Whether objects are kept in order (garbage collector, namespaces, custom resources). Off: they stay as they are."""


class ControlPlane(msgspec.Struct, frozen=True):
    """A running API server."""

    url: str
    token: str
    registry: Registry
    certificates: PlaneCertificates | None = None

    @property
    def connection(self) -> Connection:
        """How our own client reaches it."""
        tls = None
        if self.certificates is not None:
            tls = TLS(ca=Pem("the local plane's CA", file=self.certificates.ca))
        return Connection(
            server=self.url,
            tls=tls,
            context="gangline",
            credentials=StaticToken(self.token, "the local plane"),
        )


@asynccontextmanager
async def control_plane(
    store: Store, settings: PlaneSettings, clock: Clock, nodes: StreamsByNode = NO_NODES
) -> AsyncIterator[ControlPlane]:
    """The API server on a store, until the block ends. It answers when the block begins.

    `nodes` serve logs and commands of their pods; they may be added while the server runs.
    """
    token = settings.token or secrets.token_urlsafe(24)
    place = ListenAddress(settings.host)
    issued = (
        ensure_certificates(settings.certificates, place.certificate_hosts(), clock.now())
        if settings.certificates
        else None
    )
    catalog = builtin_catalog()
    registry = Registry(store, catalog, clock, warn_on_inert_kinds=settings.warn_on_inert_kinds)
    roots = NonResourceHandler(host_port(place.reachable_host, settings.port))
    namespaces = NamespaceController(registry, issued.ca if issued else None)
    customs = CrdController(registry, roots, clock)
    api = ApiHandler(
        registry,
        Authenticator({**settings.users, token: ADMIN_USER}),
        clock,
        roots,
        subresources={**subresource_handlers(registry), **stream_handlers(registry, nodes, clock)},
    )
    await namespaces.create_initial()
    await ensure_system_classes(registry)
    customs.serve_established()
    async with _serve_http(api, settings, issued) as url, asyncio.TaskGroup() as group:
        await ensure_api_service(registry, urlsplit(url).port or 443)
        work = (GarbageCollector(registry).run, namespaces.run, customs.run) if settings.controllers_enabled else ()
        tasks = [group.create_task(each()) for each in work]
        try:
            yield ControlPlane(url, token, registry, issued)
        finally:
            for task in tasks:
                task.cancel()
            # Watches end as they do after their time, so that clients see no broken connection.
            store.end_watches()


@asynccontextmanager
async def _serve_http(api: ApiHandler, settings: PlaneSettings, issued: PlaneCertificates | None) -> AsyncIterator[str]:
    loop = asyncio.get_running_loop()

    def request(*parts: object) -> web.BaseRequest:
        return web.BaseRequest(*parts, loop, client_max_size=MAX_BODY_BYTES)  # type: ignore[arg-type,misc]

    server = web.Server(
        api,
        request_factory=request,
        access_log=None,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
    )
    runner = web.ServerRunner(server, shutdown_timeout=SHUTDOWN_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.host, settings.port, ssl_context=_tls_context(issued))
        try:
            await site.start()
        except OSError as error:
            where = host_port(settings.host, settings.port)
            why = os.strerror(error.errno) if error.errno else str(error)
            option = "--bind" if error.errno == errno.EADDRNOTAVAIL else "--port"
            raise InputError(f"{where}: cannot listen there: {why}; choose another with {option}") from error
        reached = host_port(ListenAddress(settings.host).reachable_host, runner.addresses[0][1])
        yield f"{'https' if issued else 'http'}://{reached}"
    finally:
        await runner.cleanup()


def _tls_context(issued: PlaneCertificates | None) -> ssl.SSLContext | None:
    if issued is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(issued.server.certificate, issued.server.key)
    # A client may show a certificate of ours instead of a token.
    context.load_verify_locations(issued.ca)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context
