"""The embedded control plane as one async context manager."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from aiohttp import web

from gangline.api.core import Pod, Service
from gangline.api.scheme import Scheme
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.kube.config import Connection
from gangline.kube.http import HttpTransport
from gangline.local.binder import Binder
from gangline.local.node.network import AddressBook
from gangline.local.node.node import Node
from gangline.local.server.app import Server
from gangline.local.server.objects import Objects
from gangline.local.store.memory import MemoryStore
from gangline.runtime.manager import ControllerOptions, Manager
from gangline.runtime.sources import Changes, itself


class LocalSettings(msgspec.Struct, frozen=True):
    """Where local pods run and where their logs go."""

    folder: Path
    logs: Path


class LocalCluster(msgspec.Struct, frozen=True):
    """A running plane."""

    url: str
    client: Client


@asynccontextmanager
async def local_cluster(settings: LocalSettings, scheme: Scheme, clock: Clock) -> AsyncIterator[LocalCluster]:
    """API server, binder, address book and node, until the block ends; then no process is left."""
    store = MemoryStore()
    async with (
        _serving(Server(store, Objects(store, clock), scheme)) as url,
        HttpTransport(Connection(server=url)) as transport,
        asyncio.TaskGroup() as group,
    ):
        client = Client(transport, scheme=scheme, clock=clock)
        running = group.create_task(_machinery(client, settings, clock))
        try:
            yield LocalCluster(url, client)
        finally:
            running.cancel()


async def _machinery(client: Client, settings: LocalSettings, clock: Clock) -> None:
    one = ControllerOptions(workers=1)
    manager = Manager(client, clock)
    pods, services = manager.informer(Pod), manager.informer(Service)
    node = Node(client, pods, folder=settings.folder, logs=settings.logs, clock=clock)
    manager.controller("binder", Binder(pods.cache, client), [Changes(pods, itself)], one)
    manager.controller("addresses", AddressBook(services.cache, client), [Changes(services, itself)], one)
    manager.add_runnable(node.run)
    await manager.run(signals=False)


@asynccontextmanager
async def _serving(server: Server) -> AsyncIterator[str]:
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()
