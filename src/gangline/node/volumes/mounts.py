"""Where the mounts of a container lead on this machine, and how much disk a volume uses."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from gangline.api.quantity import Quantity
from gangline.base.files import private_folder
from gangline.node.pod_types import HostPath, RunPod, VolumeMount
from gangline.node.volumes.atomic_writer import DATA_LINK
from gangline.node.volumes.beneath import resolve_beneath
from gangline.node.volumes.files import VolumeMissing


def prepare_host_path(volume: HostPath) -> Path:
    """The machine's own path, checked or created as its type says. Raises `VolumeMissing`."""
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
    """The path that a mount leads to; a missing sub path is created beneath its volume. Raises `VolumeMissing`."""
    try:
        volume = volumes[mount.name]
    except KeyError:
        raise VolumeMissing(f'volume "{mount.name}" is not one of the pod\'s') from None
    if not sub_path:
        return volume
    return resolve_beneath(volume, sub_path, create=True)


def copy_sub_path(real: Path, volumes: Path, name: str) -> Path:
    """The path of a mount with a sub path. In a volume made of objects it is a copy: such a mount is never updated."""
    volumes = volumes.resolve()
    if not real.is_relative_to(volumes):
        return real
    volume = volumes / real.relative_to(volumes).parts[0]
    if not (volume / DATA_LINK).is_symlink():
        return real
    copy = volumes / "..frozen" / name
    if copy.exists():
        return copy
    private_folder(copy.parent)
    if real.is_dir():
        shutil.copytree(real, copy, symlinks=True)
    else:
        shutil.copy(real, copy)
    return copy


def disk_usage(folder: Path) -> int:
    """Bytes on disk below a folder. Files that vanish meanwhile are not counted."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(root) / name).lstat().st_blocks * 512
            except OSError:
                continue
    return total


def eviction_message(pod: RunPod, volumes: Mapping[str, Path]) -> str:
    """Why the pod is evicted because an emptyDir exceeds its size limit; empty if none does."""
    for volume in pod.spec.volumes:
        limit = Quantity.of(volume.empty_dir.size_limit) if volume.empty_dir is not None else Quantity(0)
        if limit and volume.name in volumes and disk_usage(volumes[volume.name]) > limit.value():
            return f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{limit}". '
    return ""
