"""What a container is to have, before anybody decides how to run it: references resolved, nothing mapped yet."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from gangline.node.checkpoint import PodFolder, Record, RunFiles
from gangline.node.environment import declared, expand, wanted
from gangline.node.network.namespaces import Isolation
from gangline.node.types import RunContainer, RunPod
from gangline.node.volumes.volumes import Volumes, frozen_mount, mounted


class Mount(msgspec.Struct, frozen=True):
    """A volume in a container."""

    volume: str
    # As the container is to see it, and where it really is.
    path: str
    real: Path
    read_only: bool = False


class Furnished(msgspec.Struct, frozen=True):
    """One run of a container, as every runtime needs it."""

    spec: RunContainer
    pod: RunPod
    files: RunFiles
    record: Record
    # Command and arguments as written: `$(VAR)` is expanded by the runtime, which knows the last value of each.
    env: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()
    # Where a pod has a network of its own.
    isolation: Isolation | None = None

    @property
    def hostname(self) -> str:
        return self.pod.spec.hostname or self.pod.metadata.name

    @property
    def literal(self) -> frozenset[str]:
        """Variables whose value is written in the pod, not taken from an object."""
        return frozenset(each.name for each in self.spec.env if each.value_from is None)

    def at(self, path: str) -> Mount | None:
        """The mount at exactly this path."""
        return next((each for each in self.mounts if each.path.rstrip("/") == path), None)


class Place(msgspec.Struct, frozen=True):
    """What a pod was given before its containers start."""

    folder: PodFolder
    # By name.
    volumes: Mapping[str, Path]
    isolation: Isolation | None = None


async def furnished(
    spec: RunContainer, pod: RunPod, files: RunFiles, record: Record, place: Place, reader: Volumes
) -> Furnished:
    """Read anew for every run, as Kubernetes does. Raises `ConfigMissing`, `VolumeMissing` and `KubeError`."""
    given = await reader.configuration(pod.metadata.namespace, wanted(spec))
    if place.isolation is not None:
        given = msgspec.structs.replace(given, address=place.isolation.address)
    env = declared(spec, pod, given)
    mounts = []
    for number, each in enumerate(spec.volume_mounts):
        sub_path = each.sub_path or expand(each.sub_path_expr, env)
        real = mounted(each, place.volumes, sub_path)
        if sub_path:
            real = frozen_mount(real, place.folder.volumes, f"{spec.name}.{record.attempt}.{number}")
        mounts.append(Mount(each.name, each.mount_path, real, each.read_only))
    return Furnished(spec, pod, files, record, env, tuple(mounts), place.isolation)
