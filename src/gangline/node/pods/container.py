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
from gangline.node.checkpoint import Note, PodFolder, Record, RunFiles
from gangline.node.context import Tools, spawn
from gangline.node.environment import ConfigMissing
from gangline.node.logs import tail_text
from gangline.node.network.namespaces import Isolation
from gangline.node.network.service_ports import PortTaken
from gangline.node.pods.plan import CLASH, Activity, Ended, Role, Run, Seen, Start, Stop, Waiting
from gangline.node.pods.probes import Target, attempt, probing
from gangline.node.resources import Cgroup
from gangline.node.runtime.api import ImageMissing
from gangline.node.runtime.container_config import Furnished, Place, furnished
from gangline.node.runtime.process import ProcessSpec, StartFailed, Supervised, adopt, begun, launch
from gangline.node.types import Probe, RunContainer, RunPod, RunStatus
from gangline.node.volumes.volumes import VolumeMissing

log = logging.getLogger(__name__)

LOST = Note("ContainerStatusUnknown", "The container could not be located when the node was started")
HOOK_LIMIT = timedelta(minutes=10)


class ContainerLife:
    """A container's runs, one at a time. `seen()` is what the planner gets; `start` and `stop` do what it says."""

    def __init__(
        self,
        spec: RunContainer,
        role: Role,
        pod: RunPod,
        folder: PodFolder,
        tools: Tools,
        group: asyncio.TaskGroup,
        wake: Callable[[], None],
    ) -> None:
        self.spec, self.role = spec, role
        # Both are there once the pod is prepared; volumes are by name.
        self.volumes: Mapping[str, Path] = {}
        self.isolation: Isolation | None = None
        self.prepared = asyncio.Event()
        self._pod, self._folder, self._tools, self._group, self._wake = pod, folder, tools, group, wake
        self._runs: list[Run] = []
        self._activity = Activity.IDLE
        self._waiting: Waiting | None = None
        self._started = self._ready = self._passed = False
        self._unhealthy = ""
        # Of the run that is alive.
        self._process: Supervised | None = None
        self._target: Target | None = None
        self._record = Record("", 0)
        self._over = asyncio.Event()

    @property
    def alive(self) -> bool:
        return self._process is not None

    @property
    def pid(self) -> int | None:
        """Of the process that is alive."""
        return self._process.pid if self._process is not None else None

    @property
    def target(self) -> Target | None:
        """Environment, folder and ports of the process that is alive."""
        return self._target

    @property
    def files(self) -> RunFiles | None:
        """Those of its newest run."""
        return self._folder.of(self.spec.name, self._runs[-1].attempt) if self._runs else None

    def seen(self) -> Seen:
        return Seen(
            name=self.spec.name,
            role=self.role,
            image=self.spec.image,
            runs=tuple(self._runs[-2:]),
            activity=self._activity,
            started=self._started,
            ready=self._ready,
            passed=self._passed or self._started,
            unhealthy=self._unhealthy,
            waiting=self._waiting,
        )

    # What an earlier node left

    def recover(self, status: RunStatus | None) -> None:
        """Find the runs of an earlier node again; what lives is adopted. Called once, before anything else."""
        for files in self._folder.runs(self.spec.name):
            record = files.record()
            if record is not None:
                self._recover_run(files, record)
        if self.alive and status is not None:
            self._ready = status.ready
        if not self._runs and status is not None:
            self._runs = _told(status, self._tools.clock.now())

    @property
    def ran(self) -> bool:
        return bool(self._runs)

    def pass_on(self) -> None:
        """Containers after it have run, so it had made way for them."""
        self._passed = True

    def _recover_run(self, files: RunFiles, record: Record) -> None:
        ended, running = files.ended(), files.running()
        run = Run(attempt=record.attempt, id=record.id, streak=record.streak)
        if running is not None:
            run = msgspec.structs.replace(run, started=datetime.fromtimestamp(running.at, UTC))
        if ended is not None:
            self._runs.append(self._ended(run, files, at=ended.moment))
            return
        process = adopt(files, self._tools.clock)
        if process is not None:
            self._tools.devices.claim(record.devices)
            self._runs.append(run)
            self._begun(process, record, None)
        elif files.alive():
            self._activity = Activity.STARTING
            spawn(self._group, lambda: self._recover_later(files, record), f"adopt {self.spec.name}")
        elif running is not None:
            files.explain(LOST)
            files.tidy()
            self._runs.append(self._ended(run, files, at=self._tools.clock.now()))
        else:
            # It never began: as if nobody had tried.
            files.forget()

    async def _recover_later(self, files: RunFiles, record: Record) -> None:
        await begun(files, self._tools.clock)
        self._activity = Activity.IDLE
        self._recover_run(files, record)
        self._wake()

    # Starting

    def start(self, step: Start) -> None:
        """Begin; `seen()` tells how it went."""
        self._activity = Activity.STARTING
        spawn(self._group, lambda: self._start(step), f"start {self.spec.name}")

    async def _start(self, step: Start) -> None:
        tools, now = self._tools, self._tools.clock.now
        run = Run(attempt=step.attempt, id=uuid.uuid4().hex, streak=step.streak)
        files = self._folder.of(self.spec.name, step.attempt)
        self._waiting = None
        try:
            await self._launch(run, files)
        except (ConfigMissing, VolumeMissing) as error:
            self._hold("CreateContainerConfigError", str(error))
        except KubeError as error:
            self._hold("CreateContainerConfigError", f"the API did not answer: {error}")
        except ImageMissing as error:
            self._hold("ErrImagePull", str(error))
        except PortTaken as error:
            self._failed(run, Ended(128, now(), reason=CLASH, message=str(error)))
        except (StartFailed, OSError) as error:
            tools.tell(self._pod, "Warning", "Failed", f"Error: {error}")
            self._failed(run, Ended(128, now(), reason="StartError", message=str(error)))
        finally:
            if self._activity is Activity.STARTING:
                self._activity = Activity.IDLE
            self._wake()

    async def _launch(self, run: Run, files: RunFiles) -> None:
        tools = self._tools
        devices = tools.devices.take(self.spec.resources.limits)
        if devices is None:
            raise ConfigMissing("the node has too few of an extended resource left")
        # Made by the shim, which also removes it: nothing is left behind, whoever dies when.
        scratch = str(Path(tempfile.gettempdir()) / f"gangline-{run.id[:16]}")
        try:
            record = Record(run.id, run.attempt, run.streak, devices, scratch)
            made = await self._furnished(files, record)
            await tools.runtime.fetched(self.spec.image, self.spec.image_pull_policy)
            spec = msgspec.structs.replace(tools.runtime.process(made), cgroup=self._cgroup(run))
            process = await self._hand_over(spec, record, files)
        except BaseException:
            tools.devices.give_back(devices)
            raise
        self._runs.append(msgspec.structs.replace(run, started=tools.clock.now()))
        tools.tell(self._pod, "Normal", "Started", f"Started container {self.spec.name}")
        self._begun(process, record, self._aim(made, spec, process.pid))

    async def _furnished(self, files: RunFiles, record: Record) -> Furnished:
        place = Place(self._folder, self.volumes, self.isolation)
        return await furnished(self.spec, self._pod, files, record, place, self._tools.volumes)

    async def _hand_over(self, spec: ProcessSpec, record: Record, files: RunFiles) -> Supervised:
        """Start it, with the pod's ports free for it."""
        tools = self._tools
        if self.role is not Role.MAIN:
            return await launch(spec, record, files, tools.clock)
        tools.ports.hand_over(self._pod)
        tools.intruders.enter(self._pod.metadata.key, tools.ports.of(self._pod).values())
        try:
            return await launch(spec, record, files, tools.clock)
        except BaseException:
            tools.intruders.leave(self._pod.metadata.key)
            tools.ports.take_back(self._pod)
            raise

    def _aim(self, made: Furnished, spec: ProcessSpec, pid: int) -> Target:
        target = self._tools.runtime.target(made, spec, self._ports(), pid)
        return msgspec.structs.replace(target, tcp_socket=self._tools.network.tcp_socket)

    def _hold(self, reason: str, message: str) -> None:
        until = self._tools.clock.now() + self._tools.settings.retry
        if self._waiting is None or self._waiting.message != message:
            self._tools.tell(self._pod, "Warning", "Failed", f"Error: {message}")
        self._waiting = Waiting(reason, message, until)

    def _failed(self, run: Run, ended: Ended) -> None:
        self._runs.append(msgspec.structs.replace(run, ended=ended))

    def _ports(self) -> dict[str, int]:
        """Ports by name: what the address book gave, else what the container says."""
        written = {each.name: each.container_port for each in self.spec.ports if each.name}
        return {**written, **self._tools.ports.of(self._pod)}

    # Running

    def _begun(self, process: Supervised, record: Record, target: Target | None) -> None:
        self._process, self._target, self._record = process, target, record
        self._over.clear()
        self._unhealthy = ""
        adopted = target is None
        self._started = adopted or (
            self.spec.startup_probe is None and self.spec.lifecycle.post_start is None
        )
        self._ready = self._started and self.spec.readiness_probe is None
        limit = self._memory_limit()
        if limit and self._tools.settings.cgroup is None:
            self._tools.memory_limits[process.pid] = limit
        spawn(self._group, lambda: self._watch(process), f"watch {self.spec.name}")

    async def _watch(self, process: Supervised) -> None:
        async with asyncio.TaskGroup() as beside:
            care = spawn(beside, lambda: self._care(process), f"probe {self.spec.name}")
            await process.ended()
            care.cancel()
        self._note_end(process)

    async def _care(self, process: Supervised) -> None:
        """Hook and probes of a running process, in their order."""
        spec, clock = self.spec, self._tools.clock
        target = self._target
        if target is None:
            # Adopted: it has started long ago, and its environment must be found out again.
            await self.prepared.wait()
            made = await self._furnished(process.files, self._record)
            target = self._target = self._aim(made, self._tools.runtime.process(made), process.pid)
        elif await self._entered(target):
            self._started, self._ready = True, spec.readiness_probe is None
            self._wake()
        else:
            return
        async with asyncio.TaskGroup() as group:
            if spec.readiness_probe is not None:
                group.create_task(probing(spec.readiness_probe, target, clock, self._tell_ready))
            if spec.liveness_probe is not None:
                group.create_task(probing(spec.liveness_probe, target, clock, self._tell_alive))

    async def _entered(self, target: Target) -> bool:
        """Whether a new process came through its hook and its startup probe."""
        hook, probe = self.spec.lifecycle.post_start, self.spec.startup_probe
        if hook is not None:
            problem = await attempt(hook, target, HOOK_LIMIT, self._tools.clock)
            if problem:
                self._sick("PostStartHook", f"PostStartHook failed: {problem}")
                return False
        if probe is not None:
            await self._starting(probe, target)
        return True

    async def _starting(self, probe: Probe, target: Target) -> None:
        passed = asyncio.Event()

        def tell(well: bool, message: str) -> None:
            if well:
                passed.set()
            else:
                self._sick("Startup", f"Startup probe failed: {message}")

        async with asyncio.TaskGroup() as group:
            task = group.create_task(probing(probe, target, self._tools.clock, tell))
            await passed.wait()
            task.cancel()

    def _tell_ready(self, well: bool, message: str) -> None:
        if not well and self._ready:
            self._tools.tell(self._pod, "Warning", "Unhealthy", f"Readiness probe failed: {message}")
        if well != self._ready:
            self._ready = well
            self._wake()

    def _tell_alive(self, well: bool, message: str) -> None:
        if not well:
            self._sick("Liveness", f"Liveness probe failed: {message}")

    def _sick(self, what: str, message: str) -> None:
        if not self._unhealthy:
            self._unhealthy = message
            reason = "FailedPostStartHook" if what == "PostStartHook" else "Unhealthy"
            self._tools.tell(self._pod, "Warning", reason, message)
            self._wake()

    # Ending

    def stop(self, step: Stop) -> None:
        """Begin to end it."""
        assert self._process is not None
        self._activity = Activity.STOPPING
        grace = step.grace
        probes = (self.spec.liveness_probe, self.spec.startup_probe)
        if step.why:
            own = [each.termination_grace_period_seconds for each in probes if each is not None]
            grace = next((timedelta(seconds=each) for each in own if each is not None), grace)
            self._tools.tell(self._pod, "Normal", "Killing", f"{step.why}, will be restarted")
        process = self._process
        spawn(self._group, lambda: self.end(process, grace), f"stop {self.spec.name}")

    def hasten(self) -> None:
        """Nobody waits any more: kill it now."""
        if self._process is not None:
            self._process.kill()

    def freeze(self, *, frozen: bool) -> None:
        """Let it stand still, or go on."""
        if self._process is not None:
            self._process.freeze(frozen=frozen)

    async def end(self, process: Supervised, grace: timedelta) -> None:
        """Hook, TERM, wait, KILL; returns when nothing is left. Who calls it watches the process too."""
        hook = self.spec.lifecycle.pre_stop
        try:
            if grace > timedelta():
                async with time_limit(grace, self._tools.clock):
                    if hook is not None and self._target is not None:
                        await self._pre_stop()
                    process.terminate()
                    await self._over.wait()
        except TimeoutError:
            pass
        process.kill()
        await self._over.wait()

    async def _pre_stop(self) -> None:
        hook, target = self.spec.lifecycle.pre_stop, self._target
        assert hook is not None
        assert target is not None
        problem = await attempt(hook, target, HOOK_LIMIT, self._tools.clock)
        if problem:
            self._tools.tell(self._pod, "Warning", "FailedPreStopHook", f"PreStopHook failed: {problem}")

    async def shut_down(self, grace: timedelta) -> None:
        """The node ends: end the process without telling anybody. Nobody else watches it any more."""
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(grace.total_seconds()):
                await process.ended()
        except TimeoutError:
            process.kill()
            await process.ended()

    def abandon(self) -> None:
        """The node ends and the process does not."""
        if self._process is not None:
            self._process.abandon()

    def _note_end(self, process: Supervised) -> None:
        run = self._runs[-1]
        said = process.files.ended()
        if said is None:
            # Its shim was killed, and could not clean up.
            process.files.tidy()
        if self._kernel_killed(run) or (said is not None and said.oom):
            process.files.explain(Note("OOMKilled"))
        clash = self._tools.ports.take_back(self._pod) if self.role is Role.MAIN else ""
        if self.role is Role.MAIN:
            self._tools.intruders.leave(self._pod.metadata.key)
        if clash and (said is None or said.code):
            process.files.explain(Note(CLASH, clash))
        self._runs[-1] = self._ended(run, process.files, at=self._tools.clock.now())
        self._tools.memory_limits.pop(process.pid, None)
        self._tools.devices.give_back(self._record.devices)
        self._process, self._target = None, None
        self._passed |= self._started
        self._started = self._ready = False
        self._unhealthy = ""
        self._activity = Activity.IDLE
        self._over.set()
        self._wake()

    def out_of_memory(self, pid: int, size: int) -> bool:
        """Kill it if it is that process, which has so many bytes. Gives whether it was."""
        if self._process is None or self._process.pid != pid:
            return False
        self._process.files.explain(Note("OOMKilled", f"peak memory {-(-size // 2**20)}Mi"))
        self._process.kill()
        return True

    def _ended(self, run: Run, files: RunFiles, *, at: datetime) -> Run:
        """The run with how it ended, from what shim and node wrote down."""
        said, note = files.ended(), files.note()
        if said is not None and said.failed:
            return msgspec.structs.replace(run, ended=Ended(128, at, 0, "StartError", f"exec: {said.failed}"))
        # Without a word from the shim it was killed, and the process with it.
        code = said.code if said is not None else -9
        number = -code if code < 0 else 0
        code = 128 + number if number else code
        if note is not None and note.reason == "OOMKilled":
            code, number = 137, 9
        reason = note.reason if note is not None else ("Completed" if code == 0 else "Error")
        message = files.termination_message() or (note.message if note is not None else "")
        if not message and code and self.spec.termination_message_policy == "FallbackToLogsOnError":
            message = tail_text(files.log)
        return msgspec.structs.replace(run, ended=Ended(code, at, number, reason, message))

    # Memory

    def _memory_limit(self) -> int:
        text = self.spec.resources.limits.get("memory")
        return Quantity.of(text).value() if text is not None else 0

    def _cgroup(self, run: Run) -> tuple[Path, ...]:
        parent, limit = self._tools.settings.cgroup, self._memory_limit()
        return (Cgroup(parent, run.id).make(limit),) if parent is not None and limit else ()

    def _kernel_killed(self, run: Run) -> bool:
        parent = self._tools.settings.cgroup
        if parent is None or not self._memory_limit():
            return False
        group = Cgroup(parent, run.id)
        killed = group.killed()
        group.remove()
        return killed


def _told(status: RunStatus, now: datetime) -> list[Run]:
    """What the API remembers of a container whose files are gone. What ran then does not run now."""
    told: list[Run] = []
    for state, number in (
        (status.last_state, status.restart_count - 1),
        (status.state, status.restart_count),
    ):
        identity = status.container_id.removeprefix("process://")
        if state.terminated is not None:
            end = state.terminated
            ended = Ended(end.exit_code, end.finished_at or now, end.signal, end.reason, end.message)
            told.append(Run(max(number, 0), identity, number, end.started_at, ended))
        elif state.running is not None:
            ended = Ended(137, now, 0, LOST.reason, LOST.message)
            told.append(Run(number, identity, number, state.running.started_at or now, ended))
    return told
