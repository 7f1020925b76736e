"""Volumes as folders: made before a pod's containers start, removed with the pod, claims kept."""

import base64
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gangline.api.core import ConfigMap, Secret, ServiceAccount
from gangline.api.meta import JSON, Key
from gangline.api.quantity import Quantity
from gangline.api.scheme import Resource
from gangline.base.errors import GanglineError
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.kube.paths import object_path
from gangline.kube.transport.api import Request
from gangline.node.checkpoint import PodFolder, StateFolder
from gangline.node.environment import ConfigRefs, Configuration, field_value, resource_value
from gangline.node.types import (
    DownwardItem,
    HostPath,
    KeyToPath,
    ProjectedVolume,
    RunPod,
    SecretVolume,
    Volume,
    VolumeMount,
)

CLAIMS: Resource[JSON] = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", dict[str, Any])
SERVICE_ACCOUNTS = Resource("", "v1", "ServiceAccount", "serviceaccounts", ServiceAccount)
# What Kubernetes gives files when nobody says otherwise; ours keeps secrets to the user.
DEFAULT_FILE_MODE, SECRET_FILE_MODE = 0o644, 0o600


class VolumeMissing(GanglineError):
    """A volume cannot be made (yet). The message says what is missing."""


class VolumeFile(msgspec.Struct, frozen=True):
    """A file in a volume."""

    path: str
    content: bytes
    mode: int


# What files a volume has: pure


def volume_refs(pod: RunPod) -> ConfigRefs:
    """The ConfigMaps and Secrets that a pod's volumes need."""
    maps: set[str] = set()
    secrets: set[str] = set()
    for volume in pod.spec.volumes:
        sources = volume.projected.sources if volume.projected is not None else ()
        for config in (volume.config_map, *(each.config_map for each in sources)):
            maps |= {config.name} if config is not None else set()
        for secret in (volume.secret, *(each.secret for each in sources)):
            secrets |= {_secret_name(secret)} if secret is not None else set()
    return ConfigRefs(frozenset(maps), frozenset(secrets))


def volume_files(volume: Volume, pod: RunPod, given: Configuration) -> list[VolumeFile] | None:
    """The files of a volume that is made of objects; None for all others. Raises `VolumeMissing`."""
    if volume.config_map is not None:
        data = _config_map_data(volume.config_map.name, given, optional=volume.config_map.optional)
        mode = volume.config_map.default_mode
        return _selected_files(
            data,
            volume.config_map.items,
            DEFAULT_FILE_MODE if mode is None else mode,
            volume.config_map.optional,
        )
    if volume.secret is not None:
        mode = volume.secret.default_mode
        data = _secret_data(volume.secret, given)
        return _selected_files(
            data, volume.secret.items, SECRET_FILE_MODE if mode is None else mode, volume.secret.optional
        )
    if volume.downward_api is not None:
        mode = volume.downward_api.default_mode
        return _downward_files(volume.downward_api.items, pod, given, DEFAULT_FILE_MODE if mode is None else mode)
    if volume.projected is not None:
        return _projected_files(volume.projected, pod, given)
    return None


def _projected_files(volume: ProjectedVolume, pod: RunPod, given: Configuration) -> list[VolumeFile]:
    mode = DEFAULT_FILE_MODE if volume.default_mode is None else volume.default_mode
    files: list[VolumeFile] = []
    for source in volume.sources:
        if source.config_map is not None:
            data = _config_map_data(source.config_map.name, given, optional=source.config_map.optional)
            files += _selected_files(data, source.config_map.items, mode, source.config_map.optional)
        if source.secret is not None:
            data = _secret_data(source.secret, given)
            files += _selected_files(data, source.secret.items, mode, source.secret.optional)
        if source.downward_api is not None:
            files += _downward_files(source.downward_api.items, pod, given, mode)
    return files


def _config_map_data(name: str, given: Configuration, *, optional: bool) -> dict[str, bytes]:
    found = given.config_maps.get(name)
    if found is None:
        if optional:
            return {}
        raise VolumeMissing(f'configmap "{name}" not found')
    plain = {key: value.encode() for key, value in found.data.items()}
    return {**plain, **{key: base64.b64decode(value) for key, value in found.binary_data.items()}}


def _secret_data(source: SecretVolume, given: Configuration) -> dict[str, bytes]:
    found = given.secrets.get(_secret_name(source))
    if found is None:
        if source.optional:
            return {}
        raise VolumeMissing(f'secret "{_secret_name(source)}" not found')
    return {key: base64.b64decode(value) for key, value in found.data.items()}


def _secret_name(source: SecretVolume) -> str:
    return source.secret_name or source.name


def _selected_files(
    data: Mapping[str, bytes], items: Iterable[KeyToPath], mode: int, optional: bool
) -> list[VolumeFile]:
    chosen = list(items)
    if not chosen:
        return [VolumeFile(key, content, mode) for key, content in data.items()]
    files = []
    for each in chosen:
        if each.key in data:
            files.append(VolumeFile(each.path, data[each.key], mode if each.mode is None else each.mode))
        elif not optional:
            raise VolumeMissing(f"references non-existent config key: {each.key}")
    return files


def _downward_files(items: Iterable[DownwardItem], pod: RunPod, given: Configuration, mode: int) -> list[VolumeFile]:
    return [
        VolumeFile(each.path, _downward_value(each, pod, given).encode(), mode if each.mode is None else each.mode)
        for each in items
    ]


def _downward_value(found: DownwardItem, pod: RunPod, given: Configuration) -> str:
    if found.field_ref is not None:
        return field_value(pod, found.field_ref.field_path)
    assert found.resource_field_ref is not None
    return resource_value(pod, pod.spec.containers[0], found.resource_field_ref, given.allocatable)


# Folders


class VolumeManager:
    """Makes and removes the folders of pods' volumes."""

    def __init__(self, client: Client, state: StateFolder, allocatable: Mapping[str, Quantity]) -> None:
        self._client, self._state, self.allocatable = client, state, allocatable

    async def read_configuration(self, namespace: str, wanted: ConfigRefs) -> Configuration:
        """Read what is wanted; what does not exist is left out."""
        maps = {name: await self._get_or_none(ConfigMap, Key(namespace, name)) for name in wanted.config_maps}
        secrets = {name: await self._get_or_none(Secret, Key(namespace, name)) for name in wanted.secrets}
        return Configuration(
            {name: found for name, found in maps.items() if found is not None},
            {name: found for name, found in secrets.items() if found is not None},
            self.allocatable,
        )

    async def prepare(self, pod: RunPod, folder: PodFolder) -> dict[str, Path]:
        """A folder (or file) for each volume, by name. Idempotent. Raises `VolumeMissing`."""
        given = await self.read_configuration(pod.metadata.namespace, volume_refs(pod))
        made: dict[str, Path] = {}
        for volume in pod.spec.volumes:
            files = volume_files(volume, pod, given)
            own = folder.volumes_folder / volume.name
            if files is not None:
                write_files(own, [*files, *await self._request_tokens(volume, pod)])
                made[volume.name] = own
            elif volume.host_path is not None:
                made[volume.name] = prepare_host_path(volume.host_path)
            elif volume.persistent_volume_claim is not None:
                made[volume.name] = await self._prepare_claim(
                    Key(pod.metadata.namespace, volume.persistent_volume_claim.claim_name)
                )
            elif volume.empty_dir is not None:
                own.mkdir(parents=True, exist_ok=True)
                made[volume.name] = own
            else:
                raise VolumeMissing(f'volume "{volume.name}": its type is not supported on this node')
        return made

    async def refresh(self, pod: RunPod, folder: PodFolder, given: Configuration) -> None:
        """Make the volumes that are made of objects as the objects are now. Raises `VolumeMissing`."""
        for volume in pod.spec.volumes:
            files = volume_files(volume, pod, given)
            if files is not None and not has_token(volume):
                write_files(folder.volumes_folder / volume.name, files)

    async def _prepare_claim(self, key: Key) -> Path:
        """The folder of a claim, which is bound if it is not yet. Stays when the pod goes."""
        claim = await self._get_or_none(CLAIMS, key)
        if claim is None:
            raise VolumeMissing(f'persistentvolumeclaim "{key.name}" not found')
        folder = self._state.claims_folder / f"{key.namespace}_{key.name}"
        folder.mkdir(parents=True, exist_ok=True)
        await bind_claim(self._client, claim)
        return folder

    async def _request_tokens(self, volume: Volume, pod: RunPod) -> list[VolumeFile]:
        """Tokens of the pod's service account, where the server gives them out."""
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
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"boundObjectRef": reference},
            }
        )
        request = Request("POST", object_path(SERVICE_ACCOUNTS, account, "token"), (), body, "application/json")
        try:
            answer = msgspec.json.decode(await self._client.requests.call(request))
        except NotFound:
            return []
        return [VolumeFile(path, str(answer["status"]["token"]).encode(), SECRET_FILE_MODE) for path in paths]

    async def _get_or_none(self, kind: Any, key: Key) -> Any:
        try:
            return await self._client.get(kind, key)
        except NotFound:
            return None


async def bind_claim(client: Client, claim: JSON) -> None:
    """Say that a claim has its storage: there is nothing to wait for on one machine. Idempotent."""
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


def has_token(volume: Volume) -> bool:
    """Whether a volume holds a token: that is asked for once, when the pod starts."""
    sources = volume.projected.sources if volume.projected is not None else ()
    return any(each.service_account_token is not None for each in sources)


DATA_LINK = "..data"
"""In a volume made of objects: a link to the folder that has the files. Names beside it lead through it."""


def write_files(folder: Path, files: Iterable[VolumeFile]) -> None:
    """Make the folder hold these files, all at once, as the kubelet does: who reads sees the old or the new.

    Raises `VolumeMissing` for a path that leaves it. Does nothing when it holds them already.
    """
    wanted = list(files)
    current = folder / DATA_LINK
    if current.is_dir() and _folder_contents(current) == {each.path: (each.content, each.mode) for each in wanted}:
        return
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    try:
        _write_folder(fresh, wanted)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    link = folder / f"{DATA_LINK}_new"
    link.unlink(missing_ok=True)
    link.symlink_to(fresh.name)
    old = current.readlink() if current.is_symlink() else None
    link.replace(current)
    _update_links(folder, {each.path.partition("/")[0] for each in wanted})
    if old is not None:
        shutil.rmtree(folder / old, ignore_errors=True)


def _folder_contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """What a folder of files holds, by path."""
    found = (Path(root) / name for root, _, names in os.walk(folder) for name in names)
    return {str(file.relative_to(folder)): (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) for file in found}


def _update_links(folder: Path, names: set[str]) -> None:
    """What users see: a name for every file and folder of the data, and none that it has no more."""
    for name in names:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"{DATA_LINK}/{name}")
    for link in folder.iterdir():
        if link.is_symlink() and link.name not in (*names, DATA_LINK):
            link.unlink()


def copy_sub_path(real: Path, volumes: Path, name: str) -> Path:
    """What a mount with a sub path leads to. Of a volume made of objects: a copy, for such a mount stays as it was."""
    if not real.is_relative_to(volumes):
        return real
    volume = volumes / real.relative_to(volumes).parts[0]
    if not (volume / DATA_LINK).is_symlink():
        return real
    copy = volumes / "..frozen" / name
    if copy.exists():
        return copy
    copy.parent.mkdir(parents=True, exist_ok=True)
    if real.is_dir():
        shutil.copytree(real, copy)
    else:
        shutil.copy(real, copy)
    return copy


def _write_folder(folder: Path, files: Iterable[VolumeFile]) -> None:
    for file in files:
        path = path_within(folder, file.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        # Never readable to others, not even for a moment.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as target:
            target.write(file.content)
            os.fchmod(descriptor, file.mode)


def path_within(folder: Path, path: str) -> Path:
    """A path inside a folder. Raises `VolumeMissing` for one that would leave it."""
    found = Path(os.path.normpath(folder / path))
    if not found.is_relative_to(folder):
        raise VolumeMissing(f"path {path!r} leaves its volume")
    return found


def prepare_host_path(volume: HostPath) -> Path:
    """The machine's own path, checked or made as its type says. Raises `VolumeMissing`."""
    path = Path(volume.path)
    match volume.type:
        case "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True, mode=0o755)
        case "FileOrCreate":
            path.touch(mode=0o644)
    checks = {
        "Directory": path.is_dir,
        "DirectoryOrCreate": path.is_dir,
        "File": path.is_file,
        "FileOrCreate": path.is_file,
        "Socket": path.is_socket,
        "CharDevice": path.is_char_device,
        "BlockDevice": path.is_block_device,
    }
    if volume.type in checks and not checks[volume.type]():
        kind = volume.type.removesuffix("OrCreate").lower()
        raise VolumeMissing(f"hostPath type check failed: {volume.path} is not a {kind}")
    return path


def resolve_mount(mount: VolumeMount, volumes: Mapping[str, Path], sub_path: str) -> Path:
    """Where a mount leads. Raises `VolumeMissing`."""
    try:
        volume = volumes[mount.name]
    except KeyError:
        raise VolumeMissing(f'volume "{mount.name}" is not one of the pod\'s') from None
    if not sub_path:
        return volume
    path = path_within(volume, sub_path)
    if not path.exists():
        path.mkdir(parents=True)
    return path


def disk_usage(folder: Path) -> int:
    """Bytes on disk under a folder. What vanishes meanwhile is not counted."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(root) / name).lstat().st_blocks * 512
            except OSError:
                continue
    return total


def eviction_message(pod: RunPod, volumes: Mapping[str, Path]) -> str:
    """Why a pod must go because an emptyDir grew too large; nothing if none did."""
    for volume in pod.spec.volumes:
        limit = Quantity.of(volume.empty_dir.size_limit) if volume.empty_dir is not None else Quantity(0)
        if limit and volume.name in volumes and disk_usage(volumes[volume.name]) > limit.value():
            return f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{limit}". '
    return ""
