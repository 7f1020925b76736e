"""Keeps volumes that are made of objects as their objects are, while a pod runs."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Never

from gangline.api.core import ConfigMap, Secret
from gangline.api.meta import Key, Selector
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.kube.errors import KubeError
from gangline.node.checkpoint import PodFolder
from gangline.node.environment import ConfigMissing, Configuration
from gangline.node.types import RunPod
from gangline.node.volumes.volumes import VolumeManager, VolumeMissing, volume_refs
from gangline.runtime.informer import Informer

log = logging.getLogger(__name__)


class VolumeRefresher:
    """Follows the ConfigMaps and Secrets of one pod's volumes, one watch each, and its own labels and annotations."""

    def __init__(
        self,
        client: Client,
        volumes: VolumeManager,
        pod: Callable[[], RunPod],
        folder: PodFolder,
        clock: Clock,
    ) -> None:
        """`pod` gives the pod as it is now: labels and annotations may be files too."""
        self._volumes, self._pod, self._folder = volumes, pod, folder
        wanted, namespace = volume_refs(pod()), pod().metadata.namespace

        def informers(kind: type[Any], names: frozenset[str]) -> dict[str, Informer[Any]]:
            return {
                name: Informer(client, kind, Selector(namespace, fields=f"metadata.name={name}"), clock=clock)
                for name in names
            }

        self._maps = informers(ConfigMap, wanted.config_maps)
        self._secrets = informers(Secret, wanted.secrets)
        self._namespace = namespace
        self._stale = asyncio.Event()

    def mark_stale(self) -> None:
        """The pod itself has changed."""
        self._stale.set()

    async def run(self) -> Never:
        """Until cancelled. What cannot be had any more stays as it was."""
        async with asyncio.TaskGroup() as group:
            for informer in (*self._maps.values(), *self._secrets.values()):
                group.create_task(self._watch(informer))
            while True:
                await self._stale.wait()
                self._stale.clear()
                await self._refresh()

    async def _watch(self, informer: Informer[Any]) -> None:
        with informer.subscribe(lambda _: self._stale.set()):
            await informer.run()

    async def _refresh(self) -> None:
        everyone = (*self._maps.values(), *self._secrets.values())
        # Half of the truth is not written.
        for each in everyone:
            await each.wait_for_sync()
        given = Configuration(
            {name: found for name, each in self._maps.items() if (found := each.cache.get(self._key(name)))},
            {name: found for name, each in self._secrets.items() if (found := each.cache.get(self._key(name)))},
            self._volumes.allocatable,
        )
        try:
            await self._volumes.refresh(self._pod(), self._folder, given)
        except (VolumeMissing, ConfigMissing, KubeError, OSError) as error:
            log.warning("volume stays as it was", extra={"pod": str(self._folder.key), "error": str(error)})

    def _key(self, name: str) -> Key:
        return Key(self._namespace, name)
