"""Updates the volumes of a running pod: when the objects they are made of change, and when a token is due."""

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
from gangline.node.pod_types import RunPod
from gangline.node.volumes.files import VolumeMissing
from gangline.node.volumes.manager import VolumeManager
from gangline.runtime.informer import Informer

log = logging.getLogger(__name__)

Informers = dict[str, Informer[Any]]


class VolumeRefresher:
    """Watches the ConfigMaps and Secrets of one pod's volumes, one watch each, and the pod's labels and annotations."""

    def __init__(
        self, client: Client, volumes: VolumeManager, pod: Callable[[], RunPod], folder: PodFolder, clock: Clock
    ) -> None:
        """`pod` returns the current pod: its labels and annotations may be files of a volume."""
        self._volumes, self._pod, self._folder, self._clock = volumes, pod, folder, clock
        self._namespace = pod().metadata.namespace

        def informers(kind: type[Any], names: frozenset[str]) -> Informers:
            return {
                name: Informer(client, kind, Selector(self._namespace, fields=f"metadata.name={name}"), clock=clock)
                for name in names
            }

        refs = volumes.watched_refs(pod())
        self._maps = informers(ConfigMap, refs.config_maps)
        self._secrets = informers(Secret, refs.secrets)
        self._stale = asyncio.Event()

    def mark_stale(self) -> None:
        """Refresh the volumes because the pod itself changed."""
        self._stale.set()

    async def run(self) -> Never:
        """Keep the volumes current until cancelled. Files of an object that is deleted stay as they were."""
        async with asyncio.TaskGroup() as group:
            for informer in (*self._maps.values(), *self._secrets.values()):
                group.create_task(self._watch(informer))
            while True:
                await self._wait_until_stale()
                await self._refresh()

    async def _wait_until_stale(self) -> None:
        delay = self._volumes.tokens.renewal_delay(self._pod())
        timer = self._clock.call_later(delay, self._stale.set) if delay is not None else None
        try:
            await self._stale.wait()
        finally:
            if timer is not None:
                timer.cancel()
        self._stale.clear()

    async def _watch(self, informer: Informer[Any]) -> None:
        with informer.subscribe(lambda _: self._stale.set()):
            await informer.run()

    async def _refresh(self) -> None:
        # All caches first: a volume made of some of its objects would be wrong.
        for informer in (*self._maps.values(), *self._secrets.values()):
            await informer.wait_for_sync()
        configuration = Configuration(
            self._cached_objects(self._maps), self._cached_objects(self._secrets), self._volumes.allocatable
        )
        try:
            await self._volumes.refresh(self._pod(), self._folder, configuration)
        except (VolumeMissing, ConfigMissing, KubeError, OSError) as error:
            log.warning("volume stays as it was", extra={"pod": str(self._folder.key), "error": str(error)})

    def _cached_objects(self, informers: Informers) -> dict[str, Any]:
        """The objects that exist, by name."""
        cached = {name: informer.cache.get(Key(self._namespace, name)) for name, informer in informers.items()}
        return {name: item for name, item in cached.items() if item is not None}
