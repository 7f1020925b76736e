"""Containers as processes of this machine: without image and mounts; paths are rewritten where the node sees them."""

import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from gangline.base.host_features import LOOPBACK_INTERFACE
from gangline.kube.config.access import PlaneAccess
from gangline.node.checkpoint import StateFolder
from gangline.node.environment import expand
from gangline.node.network.namespaces import nsenter_prefix
from gangline.node.pod_types import RunPod
from gangline.node.resources import DeviceManager
from gangline.node.runtime.images import ImageMappings, ImageNeed, LocalCommand, image_need
from gangline.node.runtime.mpi import agent_script, mpi_env
from gangline.node.runtime.paths import (
    ARTIFACTS_VARIABLE,
    TOKEN_MOUNT,
    PathMapping,
    ensure_artifacts_folder,
    volume_variable,
)
from gangline.node.runtime.process import MARK_VARIABLE
from gangline.node.runtime.runtime import ContainerConfig, ContainerTarget, Interaction, ProcessSpec, StartFailed
from gangline.node.settings import NodeSettings

KUBECONFIG_VARIABLES = ("KUBECONFIG", "GANGLINE_KUBECONFIG")


class ProcessRuntime:
    """The runtime that needs no other program."""

    def __init__(
        self,
        folder: Path,
        state: StateFolder,
        settings: NodeSettings,
        images: ImageMappings,
        devices: DeviceManager,
        access: PlaneAccess | None,
        hides_gpus: Callable[[RunPod], bool] = lambda _: False,
    ) -> None:
        """`hides_gpus` tells whether the containers of a pod that requested no GPU must see none."""
        self._folder, self._state, self._settings = folder, state, settings
        self._images, self._devices, self._access = images, devices, access
        self._hides_gpus = hides_gpus

    async def prepare(self, config: ContainerConfig) -> ContainerConfig:
        """Do nothing: images are not pulled."""
        return config

    def process_spec(self, config: ContainerConfig) -> ProcessSpec:
        command, paths = self._local_command(config)
        need = image_need(command)
        if need is not None:
            raise StartFailed(need.message())
        return ProcessSpec(
            command.words,
            self._environment(config, command),
            command.folder,
            max_log_bytes=self._settings.max_log_bytes,
            max_log_files=self._settings.max_log_files,
            paths=paths,
            isolation=config.isolation,
            interaction=Interaction.of(config.spec),
        )

    def image_need(self, config: ContainerConfig) -> ImageNeed | None:
        """What the container needs and only its image has; None if it can run as a process."""
        return image_need(self._local_command(config)[0])

    def _local_command(self, config: ContainerConfig) -> tuple[LocalCommand, PathMapping]:
        image = self._images.resolve(config.spec.image)
        mounts = {mount.container_path: mount.host_path for mount in config.mounts}
        paths = PathMapping(
            {**image.folders, **mounts, config.spec.termination_message_path: config.files.message_file}
        )
        # Literal values only: values of Secrets and ConfigMaps are not rewritten.
        env = {
            name: paths.translate(value) if name in config.literal_variables else value
            for name, value in config.env.items()
        }
        own_words = config.spec.command or image.command
        words = tuple(paths.translate(expand(word, env)) for word in (*own_words, *config.spec.args))
        folder = self._folder / paths.translate(expand(config.spec.working_dir, env))
        return LocalCommand(words, image, folder, env, names_command=bool(own_words)), paths

    def _environment(self, config: ContainerConfig, command: LocalCommand) -> dict[str, str]:
        """The machine's variables, then the node's, then the image's, then the pod's: later ones win."""
        # The user's cluster is not the pod's.
        machine = {name: value for name, value in os.environ.items() if name not in KUBECONFIG_VARIABLES}
        node_env = self._node_env(config, command.env)
        # As container engines set it; without a terminal a program has none to ask.
        terminal = {"TERM": "xterm"} if config.spec.tty else {}
        own = {"HOSTNAME": config.hostname, **terminal, **node_env}
        variables = {**machine, **own, **command.image.env, **command.env}
        return {**variables, "PATH": command.path}

    def _node_env(self, config: ContainerConfig, env: Mapping[str, str]) -> dict[str, str]:
        variables = {volume_variable(mount.volume): str(mount.host_path) for mount in config.named_mounts}
        devices = config.record.devices
        variables |= self._devices.device_env(devices, os.environ, hide=self._hides_gpus(config.pod))
        variables["GANGLINE_TERMINATION_LOG"] = str(config.files.message_file)
        artifacts = ensure_artifacts_folder(self._settings.artifacts, config.pod)
        variables |= {ARTIFACTS_VARIABLE: str(artifacts)} if artifacts is not None else {}
        temporary = config.mount_at("/tmp")  # noqa: S108 - a mount point
        variables["TMPDIR"] = str(temporary.host_path) if temporary is not None else config.record.scratch
        if self._access is not None:
            # All replicas of a job of the embedded plane are on this machine.
            variables |= local_rank_env(env, own_gpus=any(devices.values()))
            variables |= self._plane_env(config, self._access)
        loopback = LOOPBACK_INTERFACE if config.isolation is None else ""
        own_name, root = config.isolation is not None, os.geteuid() == 0
        return variables | mpi_env(env, loopback=loopback, own_name=own_name, root=root)

    def _plane_env(self, config: ContainerConfig, access: PlaneAccess) -> dict[str, str]:
        """Variables by which the pod reaches the plane. The user's kubeconfig may lead to another cluster."""
        if config.isolation is not None:
            access = config.isolation.inner_access(access)
        metadata, mount = config.pod.metadata, config.mount_at(TOKEN_MOUNT)
        token_file = mount.host_path / "token" if mount is not None else None
        file = self._state.pod(metadata.key, metadata.uid).write_kubeconfig(config.spec.name, access, token_file)
        agent_file = self._state.write_script("agent", agent_script())
        return {"KUBECONFIG": str(file), "GANGLINE_KUBECONFIG": str(file), "GANGLINE_AGENT": str(agent_file)}

    def target(self, config: ContainerConfig, spec: ProcessSpec, ports: Mapping[str, int], pid: int) -> ContainerTarget:
        env = {**spec.env, MARK_VARIABLE: config.record.id}
        if config.isolation is None:
            return ContainerTarget(env, spec.folder, ports, spec.paths)
        prefix = nsenter_prefix(pid, spec.folder)
        return ContainerTarget(
            env, spec.folder, ports, spec.paths, host=config.isolation.address, prefix=prefix, terminal_prefix=prefix
        )

    async def remove_lost(self, run_ids: Iterable[str]) -> None:
        """Do nothing: lost processes are found by their environment; see `process.end_strays`."""


def local_rank_env(env: Mapping[str, str], *, own_gpus: bool) -> dict[str, str]:
    """The rank among the processes of this machine that see the same GPUs, as torchrun sets it.

    A process with GPUs of its own is alone with them.
    """
    rank, size = env.get("RANK", ""), env.get("WORLD_SIZE", "")
    if not rank.isdecimal() or not size.isdecimal():
        return {}
    return {"LOCAL_RANK": "0" if own_gpus else rank, "LOCAL_WORLD_SIZE": "1" if own_gpus else size}
