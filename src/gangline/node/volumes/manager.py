"""Volumes as folders: prepared before a pod's containers start, removed with the pod. Folders of claims are kept."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from gangline.api.core import ConfigMap, Secret, ServiceAccount
from gangline.api.meta import JSON, Key
from gangline.api.quantity import Quantity
from gangline.api.scheme import Resource
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.kube.paths import object_path
from gangline.kube.transport.api import Request
from gangline.node.checkpoint import PodFolder, StateFolder
from gangline.node.environment import ConfigRefs, Configuration
from gangline.node.pod_types import RunPod, Volume
from gangline.node.volumes.atomic_writer import write_files
from gangline.node.volumes.files import (
    SECRET_FILE_MODE,
    VolumeFile,
    VolumeMissing,
    has_token,
    volume_files,
    volume_refs,
)
from gangline.node.volumes.mounts import prepare_host_path

CLAIMS: Resource[JSON] = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", dict[str, Any])
SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts", ServiceAccount)


class VolumeManager:
    """Creates and updates the folders of pods' volumes."""

    def __init__(self, client: Client, state: StateFolder, allocatable: Mapping[str, Quantity]) -> None:
        self._client, self._state, self.allocatable = client, state, allocatable

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
        configuration = await self.read_configuration(pod.metadata.namespace, volume_refs(pod))
        paths: dict[str, Path] = {}
        for volume in pod.spec.volumes:
            files = volume_files(volume, pod, configuration)
            own_folder = folder.volumes_folder / volume.name
            if own_folder.is_symlink():
                raise VolumeMissing(f'volume "{volume.name}": its folder was replaced by a link')
            if files is not None:
                write_files(own_folder, [*files, *await self._request_tokens(volume, pod)])
                paths[volume.name] = own_folder
            elif volume.host_path is not None:
                paths[volume.name] = prepare_host_path(volume.host_path)
            elif volume.persistent_volume_claim is not None:
                claim = Key(pod.metadata.namespace, volume.persistent_volume_claim.claim_name)
                paths[volume.name] = await self._prepare_claim(claim)
            elif volume.empty_dir is not None:
                own_folder.mkdir(parents=True, exist_ok=True)
                paths[volume.name] = own_folder
            else:
                raise VolumeMissing(f'volume "{volume.name}": its type is not supported on this node')
        return paths

    async def refresh(self, pod: RunPod, folder: PodFolder, configuration: Configuration) -> None:
        """Update the volumes that are made of objects, except those with a token. Raises `VolumeMissing`."""
        for volume in pod.spec.volumes:
            files = volume_files(volume, pod, configuration)
            if files is not None and not has_token(volume):
                write_files(folder.volumes_folder / volume.name, files)

    async def _prepare_claim(self, key: Key) -> Path:
        """The folder of a claim, which is bound if it is not yet. The folder outlives the pod."""
        claim = await self._get_or_none(CLAIMS, key)
        if claim is None:
            raise VolumeMissing(f'persistentvolumeclaim "{key.name}" not found')
        folder = self._state.claim_folder(key)
        if folder.is_symlink():
            raise VolumeMissing(f'persistentvolumeclaim "{key.name}": its folder was replaced by a link')
        folder.mkdir(parents=True, exist_ok=True)
        await bind_claim(self._client, claim)
        return folder

    async def _request_tokens(self, volume: Volume, pod: RunPod) -> list[VolumeFile]:
        """Token files of the pod's service account; none where the server does not issue tokens."""
        paths = [
            source.service_account_token.path
            for source in (volume.projected.sources if volume.projected is not None else ())
            if source.service_account_token is not None
        ]
        if not paths:
            return []
        account = Key(pod.metadata.namespace, pod.spec.service_account_name or "default")
        reference = {"kind": "Pod", "apiVersion": "v1", "name": pod.metadata.name, "uid": pod.metadata.uid}
        body = msgspec.json.encode(
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"boundObjectRef": reference}}
        )
        request = Request("POST", object_path(SERVICE_ACCOUNTS, account, "token"), (), body, "application/json")
        try:
            response = msgspec.json.decode(await self._client.requests.call(request))
        except NotFound:
            return []
        return [VolumeFile(path, str(response["status"]["token"]).encode(), SECRET_FILE_MODE) for path in paths]

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
