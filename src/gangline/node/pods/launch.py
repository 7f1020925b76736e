"""Starts the process of a container: resolves its configuration, acquires what the run needs, and releases it later."""

import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gangline.node.checkpoint import KillReason, PodFolder, RunFiles, RunRecord
from gangline.node.environment import HOST_IP, ConfigMissing, container_env, environment_refs, expand
from gangline.node.network.namespaces import Isolation
from gangline.node.pod_types import RunContainer, RunPod
from gangline.node.pods.context import NodeContext
from gangline.node.pods.plan import PORT_CLASH, ContainerRun, Role
from gangline.node.pods.recovery import OOM_KILLED
from gangline.node.resources import MemoryCgroup, memory_limit
from gangline.node.runtime.process import SupervisedProcess, attach_socket, end_strays, launch
from gangline.node.runtime.runtime import ContainerConfig, ContainerMount, ContainerTarget, ProcessSpec
from gangline.node.volumes.manager import VolumeManager
from gangline.node.volumes.mounts import copy_sub_path, resolve_mount


class PodSandbox(msgspec.Struct, frozen=True):
    """What a pod has before its containers start: folder, volumes (by name) and namespaces."""

    folder: PodFolder
    volumes: Mapping[str, Path] = {}
    isolation: Isolation | None = None
    address: str = HOST_IP


class LaunchedContainer(msgspec.Struct, frozen=True):
    """A process that was just started."""

    record: RunRecord
    process: SupervisedProcess
    target: ContainerTarget


class ContainerLauncher:
    """Starts runs of one container. Devices, ports and memory limit of a run are held from `launch` to `release`."""

    def __init__(self, spec: RunContainer, role: Role, pod: RunPod, context: NodeContext) -> None:
        self._spec, self._role, self._pod, self._context = spec, role, pod, context
        self._memory_limit = memory_limit(spec.resources.limits)

    async def launch(self, run: ContainerRun, files: RunFiles, sandbox: PodSandbox) -> LaunchedContainer:
        """Start the process. If that fails, nothing stays acquired.

        Raises `ConfigMissing`, `VolumeMissing`, `KubeError`, `ImageMissing`, `PortTaken`, `StartFailed` and OSError.
        """
        context = self._context
        devices = context.devices.allocate(self._spec.resources.limits)
        if devices is None:
            raise ConfigMissing("the node has too few of an extended resource left")
        # The shim creates and removes this folder: nothing is left behind, whichever process dies first.
        scratch = str(Path(tempfile.gettempdir()) / f"gangline-{run.id[:16]}")
        record = RunRecord(run.id, run.attempt, run.streak, devices, scratch)
        try:
            config = await context.runtime.prepare(await self._resolve_config(files, record, sandbox))
            record = config.record
            spec = msgspec.structs.replace(context.runtime.process_spec(config), cgroup=self._create_cgroup(run.id))
            process = await self._launch_with_ports(spec, record, files)
        except BaseException:
            context.devices.free(devices)
            raise
        return LaunchedContainer(record, process, self._target(config, spec, process.pid, sandbox))

    async def adopted_target(
        self, process: SupervisedProcess, record: RunRecord, sandbox: PodSandbox
    ) -> ContainerTarget:
        """The target of a process of an earlier node, whose configuration is resolved again. Raises as `launch`."""
        config = await self._resolve_config(process.files, record, sandbox)
        return self._target(config, self._context.runtime.process_spec(config), process.pid, sandbox)

    def watch_memory(self, process: SupervisedProcess) -> None:
        """Have the node's watchdog enforce the memory limit, unless a cgroup does."""
        if self._memory_limit and self._context.settings.cgroup is None:
            self._context.memory_limits[process.pid] = self._memory_limit
            self._context.shims[process.shim_pid] = process.pid

    def resize(self, spec: RunContainer, process: SupervisedProcess | None, record: RunRecord) -> None:
        """Take changed resources, for the living process, if there is one, and for the next."""
        self._spec, self._memory_limit = spec, memory_limit(spec.resources.limits)
        if process is None:
            return
        if self._context.settings.cgroup is not None:
            if self._memory_limit:
                MemoryCgroup(self._context.settings.cgroup, record.id).set_limit(self._memory_limit)
            return
        self._context.memory_limits.pop(process.pid, None)
        self.watch_memory(process)

    def release(self, process: SupervisedProcess, record: RunRecord) -> None:
        """Release what a run had that has ended, and record on disk why it ended, where the node knows."""
        files, exit_record = process.files, process.files.exit_record()
        if exit_record is None:
            # The shim was killed and could not clean up.
            files.remove_scratch()
        if self._remove_cgroup(record.id) or (exit_record is not None and exit_record.oom):
            files.write_kill_reason(KillReason(OOM_KILLED))
        if self._role is Role.MAIN:
            clash = self._context.ports.take_back(self._pod)
            self._context.faults.port_squatters.release(self._pod.metadata.key)
            if clash and (exit_record is None or exit_record.code):
                files.write_kill_reason(KillReason(PORT_CLASH, clash))
        self._context.memory_limits.pop(process.pid, None)
        self._context.shims.pop(process.shim_pid, None)
        self._context.devices.free(record.devices)

    async def end_lost(self, record: RunRecord) -> None:
        """End what a shim that was killed has left of a run. Returns when no process is left."""
        await end_strays({record.id}, self._context.clock)
        await self._context.runtime.remove_lost({record.id})

    async def _resolve_config(self, files: RunFiles, record: RunRecord, sandbox: PodSandbox) -> ContainerConfig:
        return await resolve_config(self._spec, self._pod, files, record, sandbox, self._context.volumes)

    async def _launch_with_ports(self, spec: ProcessSpec, record: RunRecord, files: RunFiles) -> SupervisedProcess:
        """Start the process; a main container gets the pod's ports."""
        ports, squatters, key = self._context.ports, self._context.faults.port_squatters, self._pod.metadata.key
        if self._role is not Role.MAIN:
            return await launch(spec, record, files, self._context.clock)
        ports.hand_over(self._pod)
        squatters.occupy(key, ports.pod_ports(self._pod).values())
        try:
            return await launch(spec, record, files, self._context.clock)
        except BaseException:
            squatters.release(key)
            ports.take_back(self._pod)
            raise

    def _target(self, config: ContainerConfig, spec: ProcessSpec, pid: int, sandbox: PodSandbox) -> ContainerTarget:
        written = {port.name: port.container_port for port in self._spec.ports if port.name}
        # A real port that the node allocated wins over the number in the spec.
        ports = {**written, **self._context.ports.pod_ports(self._pod)}
        target = self._context.runtime.target(config, spec, ports, pid)
        return msgspec.structs.replace(
            target,
            address=sandbox.address,
            tcp_socket=self._context.network.tcp_socket,
            attach_socket=attach_socket(config.record),
        )

    def _create_cgroup(self, run_id: str) -> tuple[Path, ...]:
        parent = self._context.settings.cgroup
        if parent is None or not self._memory_limit:
            return ()
        return (MemoryCgroup(parent, run_id).create(self._memory_limit),)

    def _remove_cgroup(self, run_id: str) -> bool:
        """Remove the run's cgroup. Returns whether the kernel killed one of its processes for its memory."""
        parent = self._context.settings.cgroup
        if parent is None or not self._memory_limit:
            return False
        cgroup = MemoryCgroup(parent, run_id)
        killed = cgroup.has_oom_kill()
        cgroup.remove()
        return killed


async def resolve_config(
    spec: RunContainer, pod: RunPod, files: RunFiles, record: RunRecord, sandbox: PodSandbox, reader: VolumeManager
) -> ContainerConfig:
    """The configuration of one run. ConfigMaps and Secrets are read for every run, as Kubernetes does.

    Raises `ConfigMissing`, `VolumeMissing` and `KubeError`.
    """
    configuration = await reader.read_configuration(pod.metadata.namespace, environment_refs(spec))
    configuration = msgspec.structs.replace(configuration, address=sandbox.address)
    env = container_env(spec, pod, configuration)
    mounts = []
    for number, mount in enumerate(spec.volume_mounts):
        sub_path = mount.sub_path or expand(mount.sub_path_expr, env)
        host_path = resolve_mount(mount, sandbox.volumes, sub_path)
        if sub_path:
            copy_name = f"{spec.name}.{record.attempt}.{number}"
            host_path = copy_sub_path(host_path, sandbox.folder.volumes_folder, copy_name)
        mounts.append(ContainerMount(mount.name, mount.mount_path, host_path, mount.read_only))
    return ContainerConfig(spec, pod, files, record, env, tuple(mounts), sandbox.isolation)
