"""The sample controller on a real API server: its leader is killed, the second one takes over."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gangline.api.core import ConfigMap, Lease, Pod
from gangline.api.meta import Key, Selector
from gangline.base.clock import SystemClock
from gangline.base.tasks import run_all
from gangline.kube.client import Client
from gangline.kube.config.connection import load_connection
from gangline.kube.errors import NotFound
from gangline.kube.transport.http import HttpTransport
from gangline.runtime.informer import Delta, Informer
from support.servers.real import RealServer

EXAMPLE = Path(__file__).parents[2] / "examples" / "configmap_per_pod.py"
LABEL = "example.dev/notes"


@pytest.fixture
async def client(real_server: RealServer) -> AsyncIterator[Client]:
    connection = load_connection(kubeconfig=str(real_server.kubeconfig), environ={}, home=Path("/nowhere"))
    async with HttpTransport(connection) as transport:
        yield Client(transport)


@contextmanager
def controller(server: RealServer, namespace: str, name: str) -> Iterator["subprocess.Popen[bytes]"]:
    env = {**os.environ, "KUBECONFIG": str(server.kubeconfig), "POD_NAME": name, "LEASE": "5"}
    process = subprocess.Popen([sys.executable, str(EXAMPLE), namespace], env=env)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def create_pods(client: Client, namespace: str, names: list[str]) -> None:
    spec = {"containers": [{"name": "main", "image": "none"}]}
    await run_all(
        client.create(Pod, {"metadata": {"name": name, "labels": {LABEL: ""}}, "spec": spec}, namespace=namespace)
        for name in names
    )


class Seen:
    """Everything that happened to the ConfigMaps of a namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        where = Selector(namespace=namespace, labels=LABEL)
        self.maps = Informer(client, ConfigMap, where, clock=SystemClock())
        self.created: list[str] = []
        self._changed = asyncio.Event()

    def tell(self, delta: Delta[ConfigMap]) -> None:
        if delta.before is None:
            self.created.append(delta.newest.metadata.name)
        self._changed.set()

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not true():
                self._changed.clear()
                await self._changed.wait()

    def names(self) -> set[str]:
        return {found.metadata.name for found in self.maps.cache}


async def leader(client: Client, namespace: str) -> str:
    clock, key = SystemClock(), Key(namespace, "notes")
    leases = Informer(client, Lease, Selector(namespace=namespace, fields="metadata.name=notes"), clock=clock)
    held: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def tell(delta: Delta[Lease]) -> None:
        if delta.newest.metadata.key == key and delta.newest.spec.holder_identity and not held.done():
            held.set_result(delta.newest.spec.holder_identity)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        running = group.create_task(leases.run())
        with leases.subscribe(tell):
            name = await held
        running.cancel()
    return name


async def test_second_controller_takes_over_and_no_configmap_is_lost_or_doubled(
    real_server: RealServer, real_namespace: str, client: Client
) -> None:
    first, second = ([f"{part}-{number}" for number in range(30)] for part in ("before", "after"))
    seen = Seen(client, real_namespace)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(seen.maps.run())
        with (
            seen.maps.subscribe(seen.tell),
            controller(real_server, real_namespace, "one") as one,
            controller(real_server, real_namespace, "two") as two,
        ):
            processes = {"one": one, "two": two}
            await create_pods(client, real_namespace, first)
            holder = await leader(client, real_namespace)
            # Killed in the middle of its work: some ConfigMaps are there, others are not.
            await seen.until(lambda: len(seen.names()) >= 5)
            processes.pop(holder).kill()
            await create_pods(client, real_namespace, second)
            await seen.until(lambda: seen.names() == {*first, *second})
            (survivor,) = processes.values()
            await client.delete(Pod, Key(real_namespace, "after-0"), grace=None)
            await seen.until(lambda: "after-0" not in seen.names())
            survivor.send_signal(signal.SIGTERM)
            assert survivor.wait(60) == 0
        watching.cancel()
    assert sorted(seen.created) == sorted([*first, *second])
    lease = await client.get(Lease, Key(real_namespace, "notes"))
    assert lease.spec.holder_identity == ""
    with pytest.raises(NotFound):
        await client.get(ConfigMap, Key(real_namespace, "after-0"))
