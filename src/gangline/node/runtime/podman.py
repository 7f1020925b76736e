"""Containers of real images, run by the command line of podman or docker.

The shim supervises the client in the foreground, which has the container's output and exit code and forwards TERM. Only
a kill needs another command, because a killed client leaves its container behind. Containers share the machine's
network, so addresses are the same as for processes.
"""

import asyncio
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from gangline.api.quantity import Quantity
from gangline.kube.config.access import PlaneAccess
from gangline.node.checkpoint import RunRecord
from gangline.node.devices.gpus import AMD, NVIDIA, RESOURCES
from gangline.node.environment import expand
from gangline.node.runtime.paths import ARTIFACTS_MOUNT, ARTIFACTS_VARIABLE, ensure_artifacts_folder, volume_variable
from gangline.node.runtime.process import MARK_VARIABLE
from gangline.node.runtime.runtime import ContainerConfig, ContainerTarget, ImageMissing, Interaction, ProcessSpec
from gangline.node.settings import NodeSettings

CLIENT_VARIABLES = ("PATH", "HOME", "TMPDIR", "DOCKER_", "CONTAINER", "XDG_", "LD_", "SSL_", "HTTP", "NO_PROXY")
"""Prefixes of variables that configure the client itself. All others reach the container by name only."""


class ContainerEngineRuntime:
    """The runtime for real images: podman or docker."""

    def __init__(self, program: str, kind: str, settings: NodeSettings, access: PlaneAccess | None = None) -> None:
        """`access` is how pods reach the plane."""
        self._program, self._engine, self._settings = program, kind, settings
        self._access = access

    async def prepare(self, config: ContainerConfig) -> ContainerConfig:
        await self._ensure_image(config.spec.image, config.spec.image_pull_policy)
        return msgspec.structs.replace(config, record=msgspec.structs.replace(config.record, engine=self._engine))

    async def _ensure_image(self, image: str, policy: str) -> None:
        present = (await self._run_program("image", "inspect", image))[0] == 0
        if present and policy != "Always":
            return
        if policy == "Never":
            raise ImageMissing(f'image "{image}" is not here, and its pull policy is Never')
        code, output = await self._run_program("pull", "--quiet", image)
        if code:
            raise ImageMissing(f'pulling image "{image}": {(output.splitlines() or ["failed"])[-1]}')

    def process_spec(self, config: ContainerConfig) -> ProcessSpec:
        machine, env = dict(os.environ), self._environment(config)
        by_name = {name: value for name, value in env.items() if not name.upper().startswith(CLIENT_VARIABLES)}
        name = engine_container_name(config.record.id)
        return ProcessSpec(
            (self._program, *self._run_arguments(config, name, env, by_name)),
            {**machine, **by_name},
            Path("/"),
            max_log_bytes=self._settings.max_log_bytes,
            max_log_files=self._settings.max_log_files,
            interaction=Interaction.of(config.spec),
            kill=(self._program, "kill", name),
            inspect=(self._program, "inspect", "--format", "{{.State.OOMKilled}}", name),
            remove=(self._program, "rm", "--force", name),
        )

    def _run_arguments(
        self, config: ContainerConfig, name: str, env: Mapping[str, str], by_name: Mapping[str, str]
    ) -> tuple[str, ...]:
        interactive = ["--interactive"] if config.spec.stdin or config.spec.tty else []
        terminal = ["--tty"] if config.spec.tty else []
        words = ["run", *interactive, *terminal, "--name", name, "--network", "host", "--hostname", config.hostname]
        for variable, value in env.items():
            # By name where possible: other users can read command lines.
            words += ["--env", variable if variable in by_name else f"{variable}={value}"]
        for mount in config.mounts:
            words += ["--volume", f"{mount.host_path}:{mount.container_path}{':ro' if mount.read_only else ''}"]
        words += ["--volume", f"{config.files.message_file}:{config.spec.termination_message_path}"]
        artifacts = ensure_artifacts_folder(self._settings.artifacts, config.pod)
        words += ["--volume", f"{artifacts}:{ARTIFACTS_MOUNT}"] if artifacts is not None else []
        words += self._limit_arguments(config)
        if config.spec.working_dir:
            words += ["--workdir", expand(config.spec.working_dir, env)]
        command = [expand(word, env) for word in config.spec.command]
        if command:
            words += ["--entrypoint", command[0]]
        arguments = [expand(word, env) for word in config.spec.args]
        return (*words, config.spec.image, *command[1:], *arguments)

    def _limit_arguments(self, config: ContainerConfig) -> list[str]:
        limits = {name: Quantity.of(amount) for name, amount in config.spec.resources.limits.items()}
        words = []
        if "memory" in limits:
            words += ["--memory", str(limits["memory"].value())]
        if "cpu" in limits:
            words += ["--cpus", f"{limits['cpu'].nanos / 10**9:g}"]
        return words + self._device_arguments(config.record)

    def _device_arguments(self, record: RunRecord) -> list[str]:
        """The GPUs of the container: NVIDIA's by the engine's own names for them, AMD's by their device files."""
        gpus = {(RESOURCES.get(gpu.vendor), gpu.id): gpu for gpu in self._settings.gpus}
        ids = [str(id_) for id_ in record.devices.get(RESOURCES[NVIDIA], ())]
        # The beginning of a UUID selects a GPU in CUDA's variable only.
        names = [
            gpu.uuid if (gpu := gpus.get((RESOURCES[NVIDIA], id_))) and not id_.isdecimal() else id_ for id_ in ids
        ]
        words: list[str] = []
        if names and self._engine == "docker":
            words += ["--gpus", f'"device={",".join(names)}"']
        elif names:
            words += [word for name in names for word in ("--device", f"{RESOURCES[NVIDIA]}={name}")]
        amd_ids = [(RESOURCES[AMD], str(id_)) for id_ in record.devices.get(RESOURCES[AMD], ())]
        files = [gpus[id_].device_file for id_ in amd_ids if id_ in gpus and gpus[id_].device_file]
        return words + [word for file in ("/dev/kfd", *files) if files for word in ("--device", file)]

    def _environment(self, config: ContainerConfig) -> dict[str, str]:
        artifacts = ensure_artifacts_folder(self._settings.artifacts, config.pod)
        volumes = {volume_variable(mount.volume): mount.container_path for mount in config.named_mounts}
        return {
            "HOSTNAME": config.hostname,
            **volumes,
            "GANGLINE_TERMINATION_LOG": config.spec.termination_message_path,
            **({ARTIFACTS_VARIABLE: ARTIFACTS_MOUNT} if artifacts is not None else {}),
            **(self._access.in_cluster_env() if self._access is not None else {}),
            **config.env,
            MARK_VARIABLE: config.record.id,
        }

    def target(self, config: ContainerConfig, spec: ProcessSpec, ports: Mapping[str, int], pid: int) -> ContainerTarget:
        name = engine_container_name(config.record.id)
        prefix = (self._program, "exec", "--interactive", name)
        terminal = (self._program, "exec", "--interactive", "--tty", name)
        return ContainerTarget(dict(os.environ), Path("/"), ports, prefix=prefix, terminal_prefix=terminal)

    async def remove_lost(self, run_ids: Iterable[str]) -> None:
        for run_id in run_ids:
            await self._run_program("rm", "--force", engine_container_name(run_id))

    async def _run_program(self, *words: str) -> tuple[int, str]:
        """Run the engine's command line. Returns its exit code and its output."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            self._program, *words, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=asyncio.subprocess.STDOUT
        )
        try:
            output, _ = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        return process.returncode or 0, output.decode(errors="replace").strip()


def engine_container_name(run_id: str) -> str:
    """The engine's name of a run's container."""
    return f"gangline-{run_id}"
