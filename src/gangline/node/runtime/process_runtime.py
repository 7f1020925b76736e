"""Containers as processes of this machine: no image, no mounts; paths are rewritten where the node can see them."""

import os
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from gangline.kube.config.access import Access
from gangline.node.checkpoint import StateFolder
from gangline.node.environment import expand
from gangline.node.network.namespaces import entering
from gangline.node.pods.probes import Target
from gangline.node.resources import Devices
from gangline.node.runtime import mpi, mpi_agent
from gangline.node.runtime.artifacts import VARIABLE, folder_of
from gangline.node.runtime.container_config import Furnished
from gangline.node.runtime.images import Image, Images, check_command
from gangline.node.runtime.paths import Paths, variable
from gangline.node.runtime.process import MARK, ProcessSpec
from gangline.node.settings import NodeSettings

LOOPBACK = "lo" if sys.platform == "linux" else "lo0"


class Native:
    """The runtime that needs no other program."""

    def __init__(
        self,
        folder: Path,
        state: StateFolder,
        settings: NodeSettings,
        images: Images,
        devices: Devices,
        access: Access | None,
    ) -> None:
        self._folder, self._state, self._settings = folder, state, settings
        self._images, self._devices, self._access = images, devices, access

    async def fetched(self, image: str, policy: str) -> None:
        """Images are not pulled."""

    def process(self, made: Furnished) -> ProcessSpec:
        image = self._images.of(made.spec.image)
        reals = {each.path: each.real for each in made.mounts}
        paths = Paths({**image.folders, **reals, made.spec.termination_message_path: made.files.message})
        # Literal values only: what a Secret or ConfigMap holds is nobody's path to rewrite.
        env = {
            name: paths.mapped(value) if name in made.literal else value for name, value in made.env.items()
        }
        words = (*(made.spec.command or image.command), *made.spec.args)
        command = tuple(paths.mapped(expand(word, env)) for word in words)
        folder = self._folder / paths.mapped(expand(made.spec.working_dir, env))
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

    def _environment(self, made: Furnished, image: Image, env: Mapping[str, str]) -> dict[str, str]:
        """The machine's, then ours, then the image's, then the pod's own: the last word wins."""
        # Whichever cluster the user works with, it is not the pod's.
        machine = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
        path = os.pathsep.join((*image.path, env.get("PATH", machine.get("PATH", os.defpath))))
        return {
            **machine,
            "HOSTNAME": made.hostname,
            **self._given(made, env),
            **image.env,
            **env,
            "PATH": path,
        }

    def _given(self, made: Furnished, env: Mapping[str, str]) -> dict[str, str]:
        given = {variable(each.volume): str(each.real) for each in made.mounts}
        given |= self._devices.variables(made.record.devices)
        given["GANGLINE_TERMINATION_LOG"] = str(made.files.message)
        artifacts = folder_of(self._settings.artifacts, made.pod)
        given |= {VARIABLE: str(artifacts)} if artifacts is not None else {}
        temporary = made.at("/tmp")  # noqa: S108 - a mount point
        given["TMPDIR"] = str(temporary.real) if temporary is not None else made.record.scratch
        if self._access is not None:
            given |= self._way_back(made, self._access)
        isolation = made.isolation
        loopback = LOOPBACK if isolation is None else ""
        root = os.geteuid() == 0
        return given | mpi.variables(env, loopback=loopback, own_name=isolation is not None, root=root)

    def _way_back(self, made: Furnished, access: Access) -> dict[str, str]:
        """How the pod reaches the plane: never by the way of the user, which may lead to another cluster."""
        if made.isolation is not None:
            access = made.isolation.seen(access)
        file = self._state.pod(made.pod.metadata.key, made.pod.metadata.uid).kubeconfig(
            access, made.pod.metadata.namespace
        )
        agent_file = self._state.script("agent", agent_script())
        return {"KUBECONFIG": str(file), "GANGLINE_KUBECONFIG": str(file), "GANGLINE_AGENT": str(agent_file)}

    def target(self, made: Furnished, spec: ProcessSpec, ports: Mapping[str, int], pid: int) -> Target:
        env = {**spec.env, MARK: made.record.id}
        if made.isolation is None:
            return Target(env, spec.folder, ports, spec.paths)
        prefix = entering(pid, spec.folder)
        return Target(
            env,
            spec.folder,
            ports,
            spec.paths,
            host=made.isolation.address,
            prefix=prefix,
            terminal_prefix=prefix,
        )

    async def discard(self, marks: Iterable[str]) -> None:
        """They are found by their marks; see `node.end_strays`."""


def agent_script() -> str:
    """An executable for `GANGLINE_AGENT`: the interpreter's path may be too long for a first line."""
    words = (sys.executable, "-I", "-S", str(Path(mpi_agent.__file__)))
    return f'#!/bin/sh\nexec {" ".join(map(shlex.quote, words))} "$@"\n'
