"""One container of a pod: carries out what was planned for it, and remembers what became of it."""

import asyncio
import logging
import tempfile
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from gangline.api.quantity import Quantity
from gangline.base.tasks import time_limit
from gangline.kube.errors import KubeError
from gangline.node.checkpoint import KillReason, PodFolder, RunFiles, RunRecord
from gangline.node.context import NodeContext, spawn_supervised
from gangline.node.environment import ConfigMissing
from gangline.node.logs import tail_text
from gangline.node.network.namespaces import Isolation
from gangline.node.network.service_ports import PortTaken
from gangline.node.pods.plan import (
    PORT_CLASH,
    Activity,
    ContainerExit,
    ContainerObservation,
    ContainerRun,
    ContainerWaiting,
    Role,
    StartContainer,
    StopContainer,
)
from gangline.node.pods.probes import ContainerTarget, run_action, run_probe
from gangline.node.resources import MemoryCgroup
from gangline.node.runtime.api import ImageMissing
from gangline.node.runtime.container_config import ContainerConfig, PodSandbox, resolve_config
from gangline.node.runtime.process import (
    ProcessSpec,
    StartFailed,
    SupervisedProcess,
    adopt,
    launch,
    wait_for_start,
)
from gangline.node.types import Probe, RunContainer, RunContainerStatus, RunPod
from gangline.node.volumes.volumes import VolumeMissing

log = logging.getLogger(__name__)

LOST_CONTAINER = KillReason("ContainerStatusUnknown", "The container could not be located when the node was started")
HOOK_TIMEOUT = timedelta(minutes=10)


class ContainerRunner:
    """A container's runs, one at a time. `seen()` is what the planner gets; `start` and `stop` do what it says."""

    def __init__(
        self,
        spec: RunContainer,
        role: Role,
        pod: RunPod,
        folder: PodFolder,
        tools: NodeContext,
        group: asyncio.TaskGroup,
        wake: Callable[[], None],
    ) -> None:
        self.spec, self.role = spec, role
        # Both are there once the pod is prepared; volumes are by name.
        self.volumes: Mapping[str, Path] = {}
        self.isolation: Isolation | None = None
        self.prepared = asyncio.Event()
        self._pod, self._folder, self._context, self._group, self._wake = pod, folder, tools, group, wake
        self._runs: list[ContainerRun] = []
        self._activity = Activity.IDLE
        self._waiting: ContainerWaiting | None = None
        self._started = self._ready = self._init_done = False
        self._unhealthy_reason = ""
        # Of the run that is alive.
        self._process: SupervisedProcess | None = None
        self._target: ContainerTarget | None = None
        self._record = RunRecord("", 0)
        self._exited = asyncio.Event()

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int | None:
        """Of the process that is alive."""
        return self._process.pid if self._process is not None else None

    @property
    def target(self) -> ContainerTarget | None:
        """Environment, folder and ports of the process that is alive."""
        return self._target

    @property
    def latest_files(self) -> RunFiles | None:
        """Those of its newest run."""
        return self._folder.run_files(self.spec.name, self._runs[-1].attempt) if self._runs else None

    def observation(self) -> ContainerObservation:
        return ContainerObservation(
            name=self.spec.name,
            role=self.role,
            image=self.spec.image,
            runs=tuple(self._runs[-2:]),
            activity=self._activity,
            started=self._started,
            ready=self._ready,
            init_done=self._init_done or self._started,
            unhealthy_reason=self._unhealthy_reason,
            waiting=self._waiting,
        )

    # What an earlier node left

    def recover(self, status: RunContainerStatus | None) -> None:
        """Find the runs of an earlier node again; what lives is adopted. Called once, before anything else."""
        for files in self._folder.runs(self.spec.name):
            record = files.run_record()
            if record is not None:
                self._recover_run(files, record)
        if self.is_running and status is not None:
            self._ready = status.ready
        if not self._runs and status is not None:
            self._runs = _runs_from_status(status, self._context.clock.now())

    @property
    def has_run(self) -> bool:
        return bool(self._runs)

    def mark_init_done(self) -> None:
        """Containers after it have run, so it had made way for them."""
        self._init_done = True

    def _recover_run(self, files: RunFiles, record: RunRecord) -> None:
        ended, running = files.exit_record(), files.start_record()
        run = ContainerRun(attempt=record.attempt, id=record.id, streak=record.streak)
        if running is not None:
            run = msgspec.structs.replace(run, started_at=datetime.fromtimestamp(running.at, UTC))
        if ended is not None:
            self._runs.append(self._with_exit(run, files, at=ended.finished_at))
            return
        process = adopt(files, self._context.clock)
        if process is not None:
            self._context.devices.restore(record.devices)
            self._runs.append(run)
            self._on_started(process, record, None)
        elif files.is_alive():
            self._activity = Activity.STARTING
            spawn_supervised(self._group, lambda: self._recover_starting(files, record), f"adopt {self.spec.name}")
        elif running is not None:
            files.write_kill_reason(LOST_CONTAINER)
            files.remove_scratch()
            self._runs.append(self._with_exit(run, files, at=self._context.clock.now()))
        else:
            # It never began: as if nobody had tried.
            files.remove()

    async def _recover_starting(self, files: RunFiles, record: RunRecord) -> None:
        await wait_for_start(files, self._context.clock)
        self._activity = Activity.IDLE
        self._recover_run(files, record)
        self._wake()

    # Starting

    def start(self, step: StartContainer) -> None:
        """Begin; `seen()` tells how it went."""
        self._activity = Activity.STARTING
        spawn_supervised(self._group, lambda: self._start(step), f"start {self.spec.name}")

    async def _start(self, step: StartContainer) -> None:
        tools, now = self._context, self._context.clock.now
        run = ContainerRun(attempt=step.attempt, id=uuid.uuid4().hex, streak=step.streak)
        files = self._folder.run_files(self.spec.name, step.attempt)
        self._waiting = None
        try:
            await self._launch(run, files)
        except (ConfigMissing, VolumeMissing) as error:
            self._set_waiting("CreateContainerConfigError", str(error))
        except KubeError as error:
            self._set_waiting("CreateContainerConfigError", f"the API did not answer: {error}")
        except ImageMissing as error:
            self._set_waiting("ErrImagePull", str(error))
        except PortTaken as error:
            self._record_failed_start(run, ContainerExit(128, now(), reason=PORT_CLASH, message=str(error)))
        except (StartFailed, OSError) as error:
            tools.record_event(self._pod, "Warning", "Failed", f"Error: {error}")
            self._record_failed_start(run, ContainerExit(128, now(), reason="StartError", message=str(error)))
        finally:
            if self._activity is Activity.STARTING:
                self._activity = Activity.IDLE
            self._wake()

    async def _launch(self, run: ContainerRun, files: RunFiles) -> None:
        tools = self._context
        devices = tools.devices.allocate(self.spec.resources.limits)
        if devices is None:
            raise ConfigMissing("the node has too few of an extended resource left")
        # Made by the shim, which also removes it: nothing is left behind, whoever dies when.
        scratch = str(Path(tempfile.gettempdir()) / f"gangline-{run.id[:16]}")
        try:
            record = RunRecord(run.id, run.attempt, run.streak, devices, scratch)
            made = await self._resolve_config(files, record)
            await tools.runtime.ensure_image(self.spec.image, self.spec.image_pull_policy)
            spec = msgspec.structs.replace(tools.runtime.process_spec(made), cgroup=self._create_cgroup(run))
            process = await self._launch_with_ports(spec, record, files)
        except BaseException:
            tools.devices.free(devices)
            raise
        self._runs.append(msgspec.structs.replace(run, started_at=tools.clock.now()))
        tools.record_event(self._pod, "Normal", "Started", f"Started container {self.spec.name}")
        self._on_started(process, record, self._make_target(made, spec, process.pid))

    async def _resolve_config(self, files: RunFiles, record: RunRecord) -> ContainerConfig:
        place = PodSandbox(self._folder, self.volumes, self.isolation)
        return await resolve_config(self.spec, self._pod, files, record, place, self._context.volumes)

    async def _launch_with_ports(self, spec: ProcessSpec, record: RunRecord, files: RunFiles) -> SupervisedProcess:
        """Start it, with the pod's ports free for it."""
        tools = self._context
        if self.role is not Role.MAIN:
            return await launch(spec, record, files, tools.clock)
        tools.ports.hand_over(self._pod)
        tools.port_squatters.occupy(self._pod.metadata.key, tools.ports.pod_ports(self._pod).values())
        try:
            return await launch(spec, record, files, tools.clock)
        except BaseException:
            tools.port_squatters.release(self._pod.metadata.key)
            tools.ports.take_back(self._pod)
            raise

    def _make_target(self, made: ContainerConfig, spec: ProcessSpec, pid: int) -> ContainerTarget:
        target = self._context.runtime.target(made, spec, self._ports_by_name(), pid)
        return msgspec.structs.replace(target, tcp_socket=self._context.network.tcp_socket)

    def _set_waiting(self, reason: str, message: str) -> None:
        until = self._context.clock.now() + self._context.settings.retry_interval
        if self._waiting is None or self._waiting.message != message:
            self._context.record_event(self._pod, "Warning", "Failed", f"Error: {message}")
        self._waiting = ContainerWaiting(reason, message, until)

    def _record_failed_start(self, run: ContainerRun, ended: ContainerExit) -> None:
        self._runs.append(msgspec.structs.replace(run, exit=ended))

    def _ports_by_name(self) -> dict[str, int]:
        """Ports by name: what the address book gave, else what the container says."""
        written = {each.name: each.container_port for each in self.spec.ports if each.name}
        return {**written, **self._context.ports.pod_ports(self._pod)}

    # Running

    def _on_started(self, process: SupervisedProcess, record: RunRecord, target: ContainerTarget | None) -> None:
        self._process, self._target, self._record = process, target, record
        self._exited.clear()
        self._unhealthy_reason = ""
        adopted = target is None
        self._started = adopted or (self.spec.startup_probe is None and self.spec.lifecycle.post_start is None)
        self._ready = self._started and self.spec.readiness_probe is None
        limit = self._memory_limit()
        if limit and self._context.settings.cgroup is None:
            self._context.memory_limits[process.pid] = limit
        spawn_supervised(self._group, lambda: self._watch_process(process), f"watch {self.spec.name}")

    async def _watch_process(self, process: SupervisedProcess) -> None:
        async with asyncio.TaskGroup() as beside:
            care = spawn_supervised(beside, lambda: self._run_probes(process), f"probe {self.spec.name}")
            await process.wait()
            care.cancel()
        self._on_exit(process)

    async def _run_probes(self, process: SupervisedProcess) -> None:
        """Hook and probes of a running process, in their order."""
        spec, clock = self.spec, self._context.clock
        target = self._target
        if target is None:
            # Adopted: it has started long ago, and its environment must be found out again.
            await self.prepared.wait()
            made = await self._resolve_config(process.files, self._record)
            target = self._target = self._make_target(made, self._context.runtime.process_spec(made), process.pid)
        elif await self._complete_startup(target):
            self._started, self._ready = True, spec.readiness_probe is None
            self._wake()
        else:
            return
        async with asyncio.TaskGroup() as group:
            if spec.readiness_probe is not None:
                group.create_task(run_probe(spec.readiness_probe, target, clock, self._on_readiness))
            if spec.liveness_probe is not None:
                group.create_task(run_probe(spec.liveness_probe, target, clock, self._on_liveness))

    async def _complete_startup(self, target: ContainerTarget) -> bool:
        """Whether a new process came through its hook and its startup probe."""
        hook, probe = self.spec.lifecycle.post_start, self.spec.startup_probe
        if hook is not None:
            problem = await run_action(hook, target, HOOK_TIMEOUT, self._context.clock)
            if problem:
                self._mark_unhealthy("PostStartHook", f"PostStartHook failed: {problem}")
                return False
        if probe is not None:
            await self._await_startup_probe(probe, target)
        return True

    async def _await_startup_probe(self, probe: Probe, target: ContainerTarget) -> None:
        passed = asyncio.Event()

        def tell(well: bool, message: str) -> None:
            if well:
                passed.set()
            else:
                self._mark_unhealthy("Startup", f"Startup probe failed: {message}")

        async with asyncio.TaskGroup() as group:
            task = group.create_task(run_probe(probe, target, self._context.clock, tell))
            await passed.wait()
            task.cancel()

    def _on_readiness(self, well: bool, message: str) -> None:
        if not well and self._ready:
            self._context.record_event(self._pod, "Warning", "Unhealthy", f"Readiness probe failed: {message}")
        if well != self._ready:
            self._ready = well
            self._wake()

    def _on_liveness(self, well: bool, message: str) -> None:
        if not well:
            self._mark_unhealthy("Liveness", f"Liveness probe failed: {message}")

    def _mark_unhealthy(self, what: str, message: str) -> None:
        if not self._unhealthy_reason:
            self._unhealthy_reason = message
            reason = "FailedPostStartHook" if what == "PostStartHook" else "Unhealthy"
            self._context.record_event(self._pod, "Warning", reason, message)
            self._wake()

    # Ending

    def stop(self, step: StopContainer) -> None:
        """Begin to end it."""
        assert self._process is not None
        self._activity = Activity.STOPPING
        grace = step.grace
        probes = (self.spec.liveness_probe, self.spec.startup_probe)
        if step.reason:
            own = [each.termination_grace_period_seconds for each in probes if each is not None]
            grace = next((timedelta(seconds=each) for each in own if each is not None), grace)
            self._context.record_event(self._pod, "Normal", "Killing", f"{step.reason}, will be restarted")
        process = self._process
        spawn_supervised(self._group, lambda: self.terminate(process, grace), f"stop {self.spec.name}")

    def kill_now(self) -> None:
        """Nobody waits any more: kill it now."""
        if self._process is not None:
            self._process.kill()

    def freeze(self, *, frozen: bool) -> None:
        """Let it stand still, or go on."""
        if self._process is not None:
            self._process.freeze(frozen=frozen)

    async def terminate(self, process: SupervisedProcess, grace: timedelta) -> None:
        """Hook, TERM, wait, KILL; returns when nothing is left. Who calls it watches the process too."""
        hook = self.spec.lifecycle.pre_stop
        try:
            if grace > timedelta():
                async with time_limit(grace, self._context.clock):
                    if hook is not None and self._target is not None:
                        await self._run_pre_stop()
                    process.terminate()
                    await self._exited.wait()
        except TimeoutError:
            pass
        process.kill()
        await self._exited.wait()

    async def _run_pre_stop(self) -> None:
        hook, target = self.spec.lifecycle.pre_stop, self._target
        assert hook is not None
        assert target is not None
        problem = await run_action(hook, target, HOOK_TIMEOUT, self._context.clock)
        if problem:
            self._context.record_event(self._pod, "Warning", "FailedPreStopHook", f"PreStopHook failed: {problem}")

    async def shut_down(self, grace: timedelta) -> None:
        """The node ends: end the process without telling anybody. Nobody else watches it any more."""
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(grace.total_seconds()):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def abandon(self) -> None:
        """The node ends and the process does not."""
        if self._process is not None:
            self._process.abandon()

    def _on_exit(self, process: SupervisedProcess) -> None:
        run = self._runs[-1]
        said = process.files.exit_record()
        if said is None:
            # Its shim was killed, and could not clean up.
            process.files.remove_scratch()
        if self._was_oom_killed(run) or (said is not None and said.oom):
            process.files.write_kill_reason(KillReason("OOMKilled"))
        clash = self._context.ports.take_back(self._pod) if self.role is Role.MAIN else ""
        if self.role is Role.MAIN:
            self._context.port_squatters.release(self._pod.metadata.key)
        if clash and (said is None or said.code):
            process.files.write_kill_reason(KillReason(PORT_CLASH, clash))
        self._runs[-1] = self._with_exit(run, process.files, at=self._context.clock.now())
        self._context.memory_limits.pop(process.pid, None)
        self._context.devices.free(self._record.devices)
        self._process, self._target = None, None
        self._init_done |= self._started
        self._started = self._ready = False
        self._unhealthy_reason = ""
        self._activity = Activity.IDLE
        self._exited.set()
        self._wake()

    def oom_kill(self, pid: int, size: int) -> bool:
        """Kill it if it is that process, which has so many bytes. Gives whether it was."""
        if self._process is None or self._process.pid != pid:
            return False
        self._process.files.write_kill_reason(KillReason("OOMKilled", f"peak memory {-(-size // 2**20)}Mi"))
        self._process.kill()
        return True

    def _with_exit(self, run: ContainerRun, files: RunFiles, *, at: datetime) -> ContainerRun:
        """The run with how it ended, from what shim and node wrote down."""
        said, note = files.exit_record(), files.kill_reason()
        if said is not None and said.failed:
            return msgspec.structs.replace(run, exit=ContainerExit(128, at, 0, "StartError", f"exec: {said.failed}"))
        # Without a word from the shim it was killed, and the process with it.
        code = said.code if said is not None else -9
        number = -code if code < 0 else 0
        code = 128 + number if number else code
        if note is not None and note.reason == "OOMKilled":
            code, number = 137, 9
        reason = note.reason if note is not None else ("Completed" if code == 0 else "Error")
        message = files.termination_message() or (note.message if note is not None else "")
        if not message and code and self.spec.termination_message_policy == "FallbackToLogsOnError":
            message = tail_text(files.log_file)
        return msgspec.structs.replace(run, exit=ContainerExit(code, at, number, reason, message))

    # Memory

    def _memory_limit(self) -> int:
        text = self.spec.resources.limits.get("memory")
        return Quantity.of(text).value() if text is not None else 0

    def _create_cgroup(self, run: ContainerRun) -> tuple[Path, ...]:
        parent, limit = self._context.settings.cgroup, self._memory_limit()
        return (MemoryCgroup(parent, run.id).create(limit),) if parent is not None and limit else ()

    def _was_oom_killed(self, run: ContainerRun) -> bool:
        parent = self._context.settings.cgroup
        if parent is None or not self._memory_limit():
            return False
        group = MemoryCgroup(parent, run.id)
        killed = group.has_oom_kill()
        group.remove()
        return killed


def _runs_from_status(status: RunContainerStatus, now: datetime) -> list[ContainerRun]:
    """What the API remembers of a container whose files are gone. What ran then does not run now."""
    told: list[ContainerRun] = []
    for state, number in (
        (status.last_state, status.restart_count - 1),
        (status.state, status.restart_count),
    ):
        identity = status.container_id.removeprefix("process://")
        if state.terminated is not None:
            end = state.terminated
            ended = ContainerExit(end.exit_code, end.finished_at or now, end.signal, end.reason, end.message)
            told.append(ContainerRun(max(number, 0), identity, number, end.started_at, ended))
        elif state.running is not None:
            ended = ContainerExit(137, now, 0, LOST_CONTAINER.reason, LOST_CONTAINER.message)
            told.append(ContainerRun(number, identity, number, state.running.started_at or now, ended))
    return told
