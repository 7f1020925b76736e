"""What a container is to have, before anybody decides how to run it: references resolved, nothing mapped yet."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from gangline.node.checkpoint import PodFolder, RunFiles, RunRecord
from gangline.node.environment import container_env, environment_refs, expand
from gangline.node.network.namespaces import Isolation
from gangline.node.types import RunContainer, RunPod
from gangline.node.volumes.volumes import VolumeManager, copy_sub_path, resolve_mount


class ContainerMount(msgspec.Struct, frozen=True):
    """A volume in a container."""

    volume: str
    # As the container is to see it, and where it really is.
    container_path: str
    host_path: Path
    read_only: bool = False


class ContainerConfig(msgspec.Struct, frozen=True):
    """One run of a container, as every runtime needs it."""

    spec: RunContainer
    pod: RunPod
    files: RunFiles
    record: RunRecord
    # Command and arguments as written: `$(VAR)` is expanded by the runtime, which knows the last value of each.
    env: Mapping[str, str]
    mounts: tuple[ContainerMount, ...] = ()
    # Where a pod has a network of its own.
    isolation: Isolation | None = None

    @property
    def hostname(self) -> str:
        return self.pod.spec.hostname or self.pod.metadata.name

    @property
    def literal_variables(self) -> frozenset[str]:
        """Variables whose value is written in the pod, not taken from an object."""
        return frozenset(each.name for each in self.spec.env if each.value_from is None)

    def mount_at(self, path: str) -> ContainerMount | None:
        """The mount at exactly this path."""
        return next((each for each in self.mounts if each.container_path.rstrip("/") == path), None)


class PodSandbox(msgspec.Struct, frozen=True):
    """What a pod was given before its containers start."""

    folder: PodFolder
    # By name.
    volumes: Mapping[str, Path]
    isolation: Isolation | None = None


async def resolve_config(
    spec: RunContainer,
    pod: RunPod,
    files: RunFiles,
    record: RunRecord,
    place: PodSandbox,
    reader: VolumeManager,
) -> ContainerConfig:
    """Read anew for every run, as Kubernetes does. Raises `ConfigMissing`, `VolumeMissing` and `KubeError`."""
    given = await reader.read_configuration(pod.metadata.namespace, environment_refs(spec))
    if place.isolation is not None:
        given = msgspec.structs.replace(given, address=place.isolation.address)
    env = container_env(spec, pod, given)
    mounts = []
    for number, each in enumerate(spec.volume_mounts):
        sub_path = each.sub_path or expand(each.sub_path_expr, env)
        real = resolve_mount(each, place.volumes, sub_path)
        if sub_path:
            real = copy_sub_path(real, place.folder.volumes_folder, f"{spec.name}.{record.attempt}.{number}")
        mounts.append(ContainerMount(each.name, each.mount_path, real, each.read_only))
    return ContainerConfig(spec, pod, files, record, env, tuple(mounts), place.isolation)
