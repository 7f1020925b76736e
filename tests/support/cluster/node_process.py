"""A node as a process of its own, for tests that kill it: ADDRESS of the API, STATE folder."""

import asyncio
import sys
from pathlib import Path

from gangline.api.core import Pod
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.transport.http import HttpTransport
from gangline.node.kubelet import LocalKubelet
from gangline.runtime.informer import Informer


async def main(address: str, state: Path) -> None:
    clock = SystemClock()
    async with HttpTransport(Connection(server=address)) as transport, asyncio.TaskGroup() as group:
        client = Client(transport, clock=clock)
        pods = Informer(client, Pod, clock=clock)
        group.create_task(pods.run())
        group.create_task(LocalKubelet(client, pods, folder=state, logs=state, clock=clock).run())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
