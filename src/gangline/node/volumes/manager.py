"""Volumes as folders: prepared before a pod's containers start, removed with the pod. Folders of claims are kept."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gangline.api.core import ConfigMap, Secret
from gangline.api.meta import JSON, Key
from gangline.api.quantity import Quantity
from gangline.api.scheme import Resource
from gangline.base.files import private_folder
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.node.checkpoint import PodFolder, StateFolder
from gangline.node.environment import ConfigRefs, Configuration
from gangline.node.pod_types import RunPod
from gangline.node.volumes.atomic_writer import write_files
from gangline.node.volumes.files import VolumeMissing, volume_files, volume_refs
from gangline.node.volumes.mounts import prepare_host_path
from gangline.node.volumes.tokens import TokenManager

CLAIMS: Resource[JSON] = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", dict[str, Any])
ROOT_CA = "kube-root-ca.crt"
"""The ConfigMap in every namespace that has the API server's CA."""


class VolumeManager:
    """Creates and updates the folders of pods' volumes."""

    def __init__(
        self,
        client: Client,
        state: StateFolder,
        allocatable: Mapping[str, Quantity],
        tokens: TokenManager,
        root_ca: Callable[[], str] | None = None,
    ) -> None:
        """`root_ca` is the API server's CA, where the node knows it: pods then start without reading it."""
        self._client, self._state, self.allocatable = client, state, allocatable
        self.tokens, self._root_ca = tokens, root_ca

    def watched_refs(self, pod: RunPod) -> ConfigRefs:
        """The ConfigMaps and Secrets of the pod's volumes that have to be read from the API."""
        refs = volume_refs(pod)
        known = frozenset({ROOT_CA}) if self._root_ca is not None else frozenset()
        return ConfigRefs(refs.config_maps - known, refs.secrets)

    def with_root_ca(self, configuration: Configuration) -> Configuration:
        """The configuration with the ConfigMap of the CA, where the node knows it."""
        if self._root_ca is None:
            return configuration
        root_ca = ConfigMap(data={"ca.crt": self._root_ca()})
        return msgspec.structs.replace(configuration, config_maps={**configuration.config_maps, ROOT_CA: root_ca})

    async def read_configuration(self, namespace: str, refs: ConfigRefs) -> Configuration:
        """Read the ConfigMaps and Secrets; those that do not exist are left out."""
        maps = {name: await self._get_or_none(ConfigMap, Key(namespace, name)) for name in refs.config_maps}
        secrets = {name: await self._get_or_none(Secret, Key(namespace, name)) for name in refs.secrets}
        return Configuration(
            {name: config_map for name, config_map in maps.items() if config_map is not None},
            {name: secret for name, secret in secrets.items() if secret is not None},
            self.allocatable,
        )

    async def prepare(self, pod: RunPod, folder: PodFolder) -> dict[str, Path]:
        """A folder (or file) for each volume, by name. Idempotent. Raises `VolumeMissing`."""
        read = await self.read_configuration(pod.metadata.namespace, self.watched_refs(pod))
        configuration = self.with_root_ca(read)
        paths: dict[str, Path] = {}
        for volume in pod.spec.volumes:
            files = volume_files(volume, pod, configuration)
            own_folder = folder.volumes_folder / volume.name
            if own_folder.is_symlink():
                raise VolumeMissing(f'volume "{volume.name}": its folder was replaced by a link')
            if files is not None:
                write_files(own_folder, [*files, *await self.tokens.files(volume, pod)])
                paths[volume.name] = own_folder
            elif volume.host_path is not None:
                paths[volume.name] = prepare_host_path(volume.host_path)
            elif volume.persistent_volume_claim is not None:
                claim = Key(pod.metadata.namespace, volume.persistent_volume_claim.claim_name)
                paths[volume.name] = await self._prepare_claim(claim)
            elif volume.empty_dir is not None:
                private_folder(own_folder.parent)
                own_folder.mkdir(exist_ok=True)
                paths[volume.name] = own_folder
            else:
                raise VolumeMissing(f'volume "{volume.name}": its type is not supported on this node')
        return paths

    async def refresh(self, pod: RunPod, folder: PodFolder, configuration: Configuration) -> None:
        """Update the volumes that are made of objects. Raises `VolumeMissing` and `KubeError`."""
        for volume in pod.spec.volumes:
            files = volume_files(volume, pod, self.with_root_ca(configuration))
            if files is not None:
                files = [*files, *await self.tokens.files(volume, pod)]
                write_files(folder.volumes_folder / volume.name, files)

    async def _prepare_claim(self, key: Key) -> Path:
        """The folder of a claim, which is bound if it is not yet. The folder outlives the pod."""
        claim = await self._get_or_none(CLAIMS, key)
        if claim is None:
            raise VolumeMissing(f'persistentvolumeclaim "{key.name}" not found')
        folder = self._state.claim_folder(key)
        if folder.is_symlink():
            raise VolumeMissing(f'persistentvolumeclaim "{key.name}": its folder was replaced by a link')
        private_folder(folder)
        await bind_claim(self._client, claim)
        return folder

    async def _get_or_none(self, kind: Any, key: Key) -> Any:
        try:
            return await self._client.get(kind, key)
        except NotFound:
            return None


async def bind_claim(client: Client, claim: JSON) -> None:
    """Mark a claim as bound: on one machine its storage is a folder, which is always there. Idempotent."""
    if claim.get("status", {}).get("phase") == "Bound":
        return
    metadata, spec = claim["metadata"], claim.get("spec", {})
    status = {
        "phase": "Bound",
        "accessModes": spec.get("accessModes", []),
        "capacity": spec.get("resources", {}).get("requests", {}),
    }
    key = Key(metadata.get("namespace", ""), metadata["name"])
    await client.patch(CLAIMS, key, {"status": status}, subresource="status")
