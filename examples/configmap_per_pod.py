"""A complete controller: one ConfigMap for every Pod with the label example.dev/notes. Run two: one leads."""

import asyncio
import os
import sys
from datetime import timedelta
from pathlib import Path

from gangline.api.core import ConfigMap, Pod
from gangline.api.meta import Key, Selector
from gangline.base.clock import SystemClock
from gangline.kube.client import ApiWriter, Client
from gangline.kube.config.connection import load_connection
from gangline.kube.transport.http import HttpTransport
from gangline.runtime.cache import Cache
from gangline.runtime.leader_election import LeaderElector, LeaseSettings, unique_identity
from gangline.runtime.manager import Manager
from gangline.runtime.sources import InformerSource, own_key

LABEL = "example.dev/notes"


class Notes:
    """Compares what is with what should be; whatever woke it, it only looks."""

    def __init__(self, pods: Cache[Pod], maps: Cache[ConfigMap], writer: ApiWriter) -> None:
        self._pods, self._maps, self._writer = pods, maps, writer

    async def reconcile(self, key: Key) -> timedelta | None:
        pod, there = self._pods.get(key), self._maps.get(key)
        if pod is not None and there is None:
            owner = {"apiVersion": "v1", "kind": "Pod", "name": key.name, "uid": pod.metadata.uid}
            metadata = {"name": key.name, "labels": {LABEL: ""}, "ownerReferences": [owner]}
            await self._writer.create(ConfigMap, {"metadata": metadata}, namespace=key.namespace)
        elif pod is None and there is not None:
            await self._writer.delete(ConfigMap, key, uid=there.metadata.uid)
        return None


async def main(namespace: str, lease: timedelta) -> None:
    clock, where = SystemClock(), Selector(namespace=namespace, labels=LABEL)
    async with HttpTransport(load_connection(environ=os.environ, home=Path.home())) as transport:
        client = Client(transport, clock=clock)
        settings = LeaseSettings(lease=lease, renew_deadline=lease * 2 / 3, retry=lease / 8)
        identity = os.environ.get("POD_NAME") or unique_identity()
        leader = LeaderElector(client, Key(namespace, "notes"), identity, clock, settings)
        manager = Manager(client, clock, leader=leader)
        pods, maps = manager.informer(Pod, where), manager.informer(ConfigMap, where)
        sources = [InformerSource(pods, own_key), InformerSource(maps, own_key)]
        manager.new_controller("notes", Notes(pods.cache, maps.cache, client), sources)
        await manager.run()


if __name__ == "__main__":
    asyncio.run(main((sys.argv[1:] or ["default"])[0], timedelta(seconds=float(os.environ.get("LEASE", "15")))))
