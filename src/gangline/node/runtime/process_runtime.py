"""Containers as processes of this machine: no image, no mounts; paths are rewritten where the node can see them."""

import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from gangline.kube.config.access import PlaneAccess
from gangline.node.checkpoint import StateFolder
from gangline.node.environment import expand
from gangline.node.network.namespaces import nsenter_prefix
from gangline.node.pods.probes import ContainerTarget
from gangline.node.resources import DeviceManager
from gangline.node.runtime import mpi, mpi_agent
from gangline.node.runtime.container_config import ContainerConfig
from gangline.node.runtime.images import ImageMappings, MappedImage, check_command
from gangline.node.runtime.paths import ARTIFACTS_VARIABLE, PathMapping, ensure_artifacts_folder, volume_variable
from gangline.node.runtime.process import MARK_VARIABLE, ProcessSpec
from gangline.node.settings import NodeSettings

LOOPBACK_INTERFACE = "lo" if sys.platform == "linux" else "lo0"


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
    ) -> None:
        self._folder, self._state, self._settings = folder, state, settings
        self._images, self._devices, self._access = images, devices, access

    async def ensure_image(self, image: str, policy: str) -> None:
        """Images are not pulled."""

    def process_spec(self, made: ContainerConfig) -> ProcessSpec:
        image = self._images.resolve(made.spec.image)
        reals = {each.container_path: each.host_path for each in made.mounts}
        paths = PathMapping({**image.folders, **reals, made.spec.termination_message_path: made.files.message_file})
        # Literal values only: what a Secret or ConfigMap holds is nobody's path to rewrite.
        env = {
            name: paths.translate(value) if name in made.literal_variables else value
            for name, value in made.env.items()
        }
        words = (*(made.spec.command or image.command), *made.spec.args)
        command = tuple(paths.translate(expand(word, env)) for word in words)
        folder = self._folder / paths.translate(expand(made.spec.working_dir, env))
        check_command(command, image, folder)
        return ProcessSpec(
            command,
            self._environment(made, image, env),
            folder,
            max_log_bytes=self._settings.max_log_bytes,
            max_log_files=self._settings.max_log_files,
            paths=paths,
            isolation=made.isolation,
        )

    def _environment(self, made: ContainerConfig, image: MappedImage, env: Mapping[str, str]) -> dict[str, str]:
        """The machine's, then ours, then the image's, then the pod's own: the last word wins."""
        # Whichever cluster the user works with, it is not the pod's.
        machine = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        path = os.pathsep.join((*image.path_prefixes, env.get("PATH", machine.get("PATH", os.defpath))))
        return {
            **machine,
            "HOSTNAME": made.hostname,
            **self._node_env(made, env),
            **image.env,
            **env,
            "PATH": path,
        }

    def _node_env(self, made: ContainerConfig, env: Mapping[str, str]) -> dict[str, str]:
        given = {volume_variable(each.volume): str(each.host_path) for each in made.mounts}
        given |= self._devices.device_env(made.record.devices)
        given["GANGLINE_TERMINATION_LOG"] = str(made.files.message_file)
        artifacts = ensure_artifacts_folder(self._settings.artifacts, made.pod)
        given |= {ARTIFACTS_VARIABLE: str(artifacts)} if artifacts is not None else {}
        temporary = made.mount_at("/tmp")  # noqa: S108 - a mount point
        given["TMPDIR"] = str(temporary.host_path) if temporary is not None else made.record.scratch
        if self._access is not None:
            given |= self._plane_env(made, self._access)
        isolation = made.isolation
        loopback = LOOPBACK_INTERFACE if isolation is None else ""
        root = os.geteuid() == 0
        return given | mpi.mpi_env(env, loopback=loopback, own_name=isolation is not None, root=root)

    def _plane_env(self, made: ContainerConfig, access: PlaneAccess) -> dict[str, str]:
        """How the pod reaches the plane: never by the way of the user, which may lead to another cluster."""
        if made.isolation is not None:
            access = made.isolation.inner_access(access)
        file = self._state.pod(made.pod.metadata.key, made.pod.metadata.uid).write_kubeconfig(
            access, made.pod.metadata.namespace
        )
        agent_file = self._state.write_script("agent", agent_script())
        return {"KUBECONFIG": str(file), "GANGLINE_KUBECONFIG": str(file), "GANGLINE_AGENT": str(agent_file)}

    def target(self, made: ContainerConfig, spec: ProcessSpec, ports: Mapping[str, int], pid: int) -> ContainerTarget:
        env = {**spec.env, MARK_VARIABLE: made.record.id}
        if made.isolation is None:
            return ContainerTarget(env, spec.folder, ports, spec.paths)
        prefix = nsenter_prefix(pid, spec.folder)
        return ContainerTarget(
            env,
            spec.folder,
            ports,
            spec.paths,
            host=made.isolation.address,
            prefix=prefix,
            terminal_prefix=prefix,
        )

    async def remove_lost(self, marks: Iterable[str]) -> None:
        """They are found by their marks; see `node.end_strays`."""


def agent_script() -> str:
    """An executable for `GANGLINE_AGENT`: the interpreter's path may be too long for a first line."""
    words = (sys.executable, "-I", "-S", str(Path(mpi_agent.__file__)))
    return f'#!/bin/sh\nexec {" ".join(map(shlex.quote, words))} "$@"\n'
