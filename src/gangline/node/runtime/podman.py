"""Containers as containers: the real image, through the command line of podman or docker.

The shim supervises the program's client in the foreground: its output is the container's, its exit code too, and a
TERM is handed on. Only killing needs the program itself, because a client that is killed leaves its container behind.
The machine's network is shared, so that addresses are what they are for processes.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from gangline.api.quantity import Quantity
from gangline.node.environment import expand
from gangline.node.pods.probes import ContainerTarget
from gangline.node.resources import GPU
from gangline.node.runtime.api import ImageMissing
from gangline.node.runtime.container_config import ContainerConfig
from gangline.node.runtime.paths import ARTIFACTS_MOUNT, ARTIFACTS_VARIABLE, ensure_artifacts_folder, volume_variable
from gangline.node.runtime.process import MARK_VARIABLE, ProcessSpec
from gangline.node.settings import NodeSettings

CLIENT_VARIABLES = (
    "PATH",
    "HOME",
    "TMPDIR",
    "DOCKER_",
    "CONTAINER",
    "XDG_",
    "LD_",
    "SSL_",
    "HTTP",
    "NO_PROXY",
)
"""Variables (or how they begin) that mean something to the client itself. The others are handed on by name."""


class ContainerEngineRuntime:
    """The runtime for real images."""

    def __init__(self, program: str, kind: str, settings: NodeSettings) -> None:
        self._program, self._engine, self._settings = program, kind, settings

    async def ensure_image(self, image: str, policy: str) -> None:
        there = (await self._run_program("image", "inspect", image))[0] == 0
        if there and policy != "Always":
            return
        if policy == "Never":
            raise ImageMissing(f'image "{image}" is not here, and its pull policy is Never')
        code, said = await self._run_program("pull", "--quiet", image)
        if code:
            raise ImageMissing(f'pulling image "{image}": {(said.splitlines() or ["failed"])[-1]}')

    def process_spec(self, made: ContainerConfig) -> ProcessSpec:
        machine, env = dict(os.environ), self._environment(made)
        handed = {name: value for name, value in env.items() if not name.upper().startswith(CLIENT_VARIABLES)}
        name = engine_container_name(made.record.id)
        return ProcessSpec(
            (self._program, *self._run_arguments(made, name, env, handed)),
            {**machine, **handed},
            Path("/"),
            max_log_bytes=self._settings.max_log_bytes,
            max_log_files=self._settings.max_log_files,
            kill=(self._program, "kill", name),
            inspect=(self._program, "inspect", "--format", "{{.State.OOMKilled}}", name),
            remove=(self._program, "rm", "--force", name),
        )

    def _run_arguments(
        self, made: ContainerConfig, name: str, env: Mapping[str, str], handed: Mapping[str, str]
    ) -> tuple[str, ...]:
        words = ["run", "--name", name, "--network", "host", "--hostname", made.hostname]
        for each, value in env.items():
            # Not written where everybody can read it, if it can be helped.
            words += ["--env", each if each in handed else f"{each}={value}"]
        for mount in made.mounts:
            words += [
                "--volume",
                f"{mount.host_path}:{mount.container_path}{':ro' if mount.read_only else ''}",
            ]
        words += ["--volume", f"{made.files.message_file}:{made.spec.termination_message_path}"]
        artifacts = ensure_artifacts_folder(self._settings.artifacts, made.pod)
        words += ["--volume", f"{artifacts}:{ARTIFACTS_MOUNT}"] if artifacts is not None else []
        words += self._limit_arguments(made)
        if made.spec.working_dir:
            words += ["--workdir", expand(made.spec.working_dir, env)]
        command = [expand(word, env) for word in made.spec.command]
        if command:
            words += ["--entrypoint", command[0]]
        arguments = [expand(word, env) for word in made.spec.args]
        return (*words, made.spec.image, *command[1:], *arguments)

    def _limit_arguments(self, made: ContainerConfig) -> list[str]:
        limits = {name: Quantity.of(amount) for name, amount in made.spec.resources.limits.items()}
        words = []
        if "memory" in limits:
            words += ["--memory", str(limits["memory"].value())]
        if "cpu" in limits:
            words += ["--cpus", f"{limits['cpu'].nanos / 10**9:g}"]
        numbers = made.record.devices.get(GPU, ())
        if numbers and self._engine == "docker":
            words += ["--gpus", f'"device={",".join(map(str, numbers))}"']
        elif numbers:
            words += [word for each in numbers for word in ("--device", f"{GPU}={each}")]
        return words

    def _environment(self, made: ContainerConfig) -> dict[str, str]:
        volumes = {volume_variable(each.volume): each.container_path for each in made.mounts}
        return {
            "HOSTNAME": made.hostname,
            **volumes,
            "GANGLINE_TERMINATION_LOG": made.spec.termination_message_path,
            **(
                {ARTIFACTS_VARIABLE: ARTIFACTS_MOUNT}
                if ensure_artifacts_folder(self._settings.artifacts, made.pod) is not None
                else {}
            ),
            **made.env,
            MARK_VARIABLE: made.record.id,
        }

    def target(self, made: ContainerConfig, spec: ProcessSpec, ports: Mapping[str, int], pid: int) -> ContainerTarget:
        name = engine_container_name(made.record.id)
        prefix = (self._program, "exec", "--interactive", name)
        terminal = (self._program, "exec", "--interactive", "--tty", name)
        return ContainerTarget(dict(os.environ), Path("/"), ports, prefix=prefix, terminal_prefix=terminal)

    async def remove_lost(self, marks: Iterable[str]) -> None:
        for mark in marks:
            await self._run_program("rm", "--force", engine_container_name(mark))

    async def _run_program(self, *words: str) -> tuple[int, str]:
        """Run the program; gives its exit code and what it said."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            self._program,
            *words,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=pipe,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            said, _ = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        return process.returncode or 0, said.decode(errors="replace").strip()


def engine_container_name(mark: str) -> str:
    """By it a run is found again."""
    return f"gangline-{mark}"
