"""The files of volumes that are made of ConfigMaps, Secrets and pod fields. Pure."""

import base64
from collections.abc import Iterable, Mapping

import msgspec

from gangline.base.errors import GanglineError
from gangline.node.environment import ConfigRefs, Configuration, field_value, resource_value
from gangline.node.pod_types import DownwardItem, KeyToPath, Projection, RunPod, SecretVolume, Volume

# Kubernetes' default mode of a file; Secrets are readable by the user only.
DEFAULT_FILE_MODE, SECRET_FILE_MODE = 0o644, 0o600


class VolumeMissing(GanglineError):
    """A volume cannot be prepared (yet). The message says what is missing."""


class VolumeFile(msgspec.Struct, frozen=True):
    """A file in a volume."""

    path: str
    content: bytes
    mode: int


def volume_refs(pod: RunPod) -> ConfigRefs:
    """The ConfigMaps and Secrets that a pod's volumes need."""
    maps: set[str] = set()
    secrets: set[str] = set()
    for volume in pod.spec.volumes:
        sources = volume.projected.sources if volume.projected is not None else ()
        for config in (volume.config_map, *(source.config_map for source in sources)):
            maps |= {config.name} if config is not None else set()
        for secret in (volume.secret, *(source.secret for source in sources)):
            secrets |= {_secret_name(secret)} if secret is not None else set()
    return ConfigRefs(frozenset(maps), frozenset(secrets))


def is_made_of_objects(volume: Volume) -> bool:
    """Whether `volume_files` has files for the volume."""
    return bool(volume.config_map or volume.secret or volume.projected or volume.downward_api)


def volume_files(volume: Volume, pod: RunPod, configuration: Configuration) -> list[VolumeFile] | None:
    """The files of a volume that is made of objects; None for all others. Raises `VolumeMissing`."""
    if volume.projected is not None:
        sources = volume.projected.sources
        mode = _mode_or(volume.projected.default_mode, DEFAULT_FILE_MODE)
    elif (single := volume.config_map or volume.secret or volume.downward_api) is not None:
        sources = (Projection(config_map=volume.config_map, secret=volume.secret, downward_api=volume.downward_api),)
        mode = _mode_or(single.default_mode, DEFAULT_FILE_MODE if volume.secret is None else SECRET_FILE_MODE)
    else:
        return None
    return [file for source in sources for file in _source_files(source, pod, configuration, mode)]


def _source_files(source: Projection, pod: RunPod, configuration: Configuration, mode: int) -> list[VolumeFile]:
    files: list[VolumeFile] = []
    if source.config_map is not None:
        data = _config_map_data(source.config_map.name, configuration, optional=source.config_map.optional)
        files += _selected_files(data, source.config_map.items, mode, optional=source.config_map.optional)
    if source.secret is not None:
        data = _secret_data(source.secret, configuration)
        files += _selected_files(data, source.secret.items, mode, optional=source.secret.optional)
    if source.downward_api is not None:
        files += _downward_files(source.downward_api.items, pod, configuration, mode)
    return files


def _mode_or(mode: int | None, default: int) -> int:
    return default if mode is None else mode


def _config_map_data(name: str, configuration: Configuration, *, optional: bool) -> dict[str, bytes]:
    config_map = configuration.config_maps.get(name)
    if config_map is None:
        if optional:
            return {}
        raise VolumeMissing(f'configmap "{name}" not found')
    plain = {key: value.encode() for key, value in config_map.data.items()}
    return {**plain, **{key: base64.b64decode(value) for key, value in config_map.binary_data.items()}}


def _secret_data(source: SecretVolume, configuration: Configuration) -> dict[str, bytes]:
    secret = configuration.secrets.get(_secret_name(source))
    if secret is None:
        if source.optional:
            return {}
        raise VolumeMissing(f'secret "{_secret_name(source)}" not found')
    return {key: base64.b64decode(value) for key, value in secret.data.items()}


def _secret_name(source: SecretVolume) -> str:
    return source.secret_name or source.name


def _selected_files(
    data: Mapping[str, bytes], items: Iterable[KeyToPath], mode: int, *, optional: bool
) -> list[VolumeFile]:
    """The files for some keys of an object; for all keys where no items are listed."""
    selected = list(items)
    if not selected:
        return [VolumeFile(key, content, mode) for key, content in data.items()]
    files = []
    for item in selected:
        if item.key in data:
            files.append(VolumeFile(item.path, data[item.key], _mode_or(item.mode, mode)))
        elif not optional:
            raise VolumeMissing(f"references non-existent config key: {item.key}")
    return files


def _downward_files(
    items: Iterable[DownwardItem], pod: RunPod, configuration: Configuration, mode: int
) -> list[VolumeFile]:
    return [
        VolumeFile(item.path, _downward_value(item, pod, configuration).encode(), _mode_or(item.mode, mode))
        for item in items
    ]


def _downward_value(item: DownwardItem, pod: RunPod, configuration: Configuration) -> str:
    if item.field_ref is not None:
        return field_value(pod, item.field_ref.field_path)
    assert item.resource_field_ref is not None
    return resource_value(pod, pod.spec.containers[0], item.resource_field_ref, configuration.allocatable)
