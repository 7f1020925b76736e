"""A process is alive and not ready while the server does not answer its first request, and can be stopped."""

import asyncio
import os
import signal

import aiohttp

from gangline.kube.config.connection import Connection
from gangline.operator.process import ControllerProcess, serve_process
from gangline.runtime.health import HealthServer

NOWHERE = Connection(server="http://nowhere")


async def probe(health: HealthServer, path: str) -> tuple[int, str]:
    url = f"http://{health.addresses['health-probe-bind-address']}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def test_while_the_server_is_asked_what_it_has_a_process_is_alive_and_not_ready() -> None:
    health = HealthServer(metrics_address="0", probe_address="127.0.0.1:0")
    asked = asyncio.Event()

    async def build() -> ControllerProcess:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError("not reached")

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(serve_process(health, NOWHERE, build))
        await asked.wait()
        assert await probe(health, "/healthz") == (200, "ok")
        status, text = await probe(health, "/readyz")
        os.kill(os.getpid(), signal.SIGTERM)
    assert status == 503
    assert "[-]start failed: the server was not asked what it has yet" in text
