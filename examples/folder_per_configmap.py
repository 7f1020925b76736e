"""A controller that is not a job: a folder on disk, and a Secret that tells where, for every labelled ConfigMap."""

import asyncio
import os
import shutil
import sys
from datetime import timedelta
from pathlib import Path

from gangline.api.core import ConfigMap, Secret
from gangline.api.meta import Key, Selector
from gangline.base.clock import SystemClock
from gangline.kube.client import ApiWriter, Client
from gangline.kube.config.connection import Connection, load_connection
from gangline.kube.transport.http import HttpTransport
from gangline.runtime.cache import Cache
from gangline.runtime.leader_election import LeaderElector, unique_identity
from gangline.runtime.manager import Manager
from gangline.runtime.sources import InformerSource, own_key

LABEL = FINALIZER = "example.dev/folder"


class Folders:
    def __init__(self, maps: Cache[ConfigMap], writer: ApiWriter, root: Path) -> None:
        self._maps, self._writer, self._root = maps, writer, root

    async def reconcile(self, key: Key) -> timedelta | None:
        found, folder = self._maps.get(key), self._root / key.namespace / key.name
        if found is None:
            return None
        held, leaving = list(found.metadata.finalizers), found.metadata.deletion_timestamp is not None
        if leaving:  # the folder is outside the cluster: nobody else removes it
            shutil.rmtree(folder, ignore_errors=True)
        if leaving == (FINALIZER in held):  # hold it before the folder is made; let it go when that is gone
            left = [each for each in held if each != FINALIZER] if leaving else [*held, FINALIZER]
            guard = {"resourceVersion": found.metadata.resource_version}
            await self._writer.patch(ConfigMap, key, {"metadata": {**guard, "finalizers": left}})
        elif not leaving:
            folder.mkdir(parents=True, exist_ok=True)
            owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": key.name, "uid": found.metadata.uid}
            about = {**key._asdict(), "ownerReferences": [owner]}
            body = {"metadata": about, "stringData": {"path": str(folder)}}
            await self._writer.apply(Secret, body, owner="folders")  # inside: goes with its owner by itself
        return None


async def main(connection: Connection, root: Path, namespace: str) -> None:
    clock, lease = SystemClock(), Key(namespace, "folders")
    async with HttpTransport(connection) as transport:
        client = Client(transport, clock=clock)
        manager = Manager(client, clock, leader=LeaderElector(client, lease, unique_identity(), clock))
        maps = manager.informer(ConfigMap, Selector(namespace=namespace, labels=LABEL))
        manager.new_controller("folders", Folders(maps.cache, client, root), [InformerSource(maps, own_key)])
        await manager.run(signals=False)


if __name__ == "__main__":  # python folder_per_configmap.py FOLDER NAMESPACE; run two, and one leads
    asyncio.run(main(load_connection(environ=os.environ, home=Path.home()), Path(sys.argv[1]), sys.argv[2]))
