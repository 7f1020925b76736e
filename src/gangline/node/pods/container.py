"""One container of a pod: starts and stops its runs as planned, and reports their state."""

import asyncio
import uuid
from collections.abc import Callable
from datetime import timedelta

import msgspec

from gangline.api.in_place import IN_PLACE_REASON
from gangline.base.tasks import time_limit
from gangline.kube.errors import KubeError
from gangline.node.checkpoint import KillReason, PodFolder, RunFiles, RunRecord
from gangline.node.environment import ConfigMissing
from gangline.node.network.service_ports import PortTaken
from gangline.node.pod_types import RunContainer, RunContainerStatus, RunPod
from gangline.node.pods.context import NodeContext, spawn_supervised
from gangline.node.pods.launch import ContainerLauncher, PodSandbox
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
from gangline.node.pods.probes import HOOK_TIMEOUT, ContainerProbes, run_action
from gangline.node.pods.recovery import OOM_KILLED, RunPhase, ended_run, recover_run, runs_from_status
from gangline.node.runtime.process import KILL_PATIENCE, SupervisedProcess, wait_for_start
from gangline.node.runtime.runtime import ContainerTarget, ImageMissing, StartFailed
from gangline.node.volumes.files import VolumeMissing


class ContainerRunner:
    """The runs of one container, one at a time. `observation` is the planner's input; `start` and `stop` its output."""

    def __init__(
        self,
        spec: RunContainer,
        role: Role,
        pod: RunPod,
        folder: PodFolder,
        context: NodeContext,
        group: asyncio.TaskGroup,
        wake: Callable[[], None],
    ) -> None:
        """`wake` is called whenever the observation changes."""
        self.spec, self.role = spec, role
        self._pod, self._folder, self._context, self._group, self._wake = pod, folder, context, group, wake
        self._launcher = ContainerLauncher(spec, role, pod, context)
        # Complete once the pod is prepared.
        self._sandbox = PodSandbox(folder)
        self._prepared = asyncio.Event()
        self._runs: list[ContainerRun] = []
        self._activity = Activity.IDLE
        self._waiting: ContainerWaiting | None = None
        self._started = self._ready = self._init_done = False
        self._unhealthy_reason = ""
        # These describe the run whose process is alive.
        self._process: SupervisedProcess | None = None
        self._target: ContainerTarget | None = None
        self._record = RunRecord("", 0)
        self._exited = asyncio.Event()

    @property
    def pid(self) -> int | None:
        """The pid of the living process; None if there is none."""
        return self._process.pid if self._process is not None else None

    @property
    def target(self) -> ContainerTarget | None:
        """How to reach the living process; None also while the target of an adopted process is being resolved."""
        return self._target

    @property
    def latest_files(self) -> RunFiles | None:
        """The files of the newest run."""
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
            resources=self.spec.resources,
        )

    def resize(self, spec: RunContainer) -> None:
        """Take the resources of a changed spec. A new memory limit holds for the living process, too."""
        self.spec = msgspec.structs.replace(self.spec, resources=spec.resources)
        self._launcher.resize(self.spec, self._process, self._record)
        self._wake()

    def set_sandbox(self, sandbox: PodSandbox) -> None:
        """Provide what the pod prepared for its containers. Called once, before the first `start`."""
        self._sandbox = sandbox
        self._prepared.set()

    def mark_init_done(self) -> None:
        """Record that containers after this one have run, so this one was initialized."""
        self._init_done = True

    # Runs of an earlier node

    def recover(self, status: RunContainerStatus | None) -> bool:
        """Recover the runs of an earlier node; living processes are adopted. Called once, before anything else.

        Returns whether the container has ever run.
        """
        for files in self._folder.runs(self.spec.name):
            record = files.run_record()
            if record is not None:
                self._recover_run(files, record)
        if self._process is not None and status is not None:
            self._ready = status.ready
        if not self._runs and status is not None:
            self._runs = runs_from_status(status, self._context.clock.now())
        return bool(self._runs)

    def _recover_run(self, files: RunFiles, record: RunRecord) -> None:
        recovered = recover_run(files, record, self.spec.termination_message_policy, self._context.clock)
        match recovered.phase:
            case RunPhase.ENDED:
                self._runs.append(recovered.run)
            case RunPhase.RUNNING:
                assert recovered.process is not None
                self._context.devices.restore(record.devices)
                self._runs.append(recovered.run)
                self._on_started(recovered.process, record, None)
            case RunPhase.STARTING:
                self._activity = Activity.STARTING
                spawn_supervised(self._group, lambda: self._recover_starting(files, record), f"adopt {self.spec.name}")
            case RunPhase.DISCARDED:
                pass

    async def _recover_starting(self, files: RunFiles, record: RunRecord) -> None:
        await wait_for_start(files, self._context.clock)
        self._activity = Activity.IDLE
        self._recover_run(files, record)
        self._wake()

    # Starting

    def start(self, step: StartContainer) -> None:
        """Begin to start a run. `observation` shows the result."""
        self._activity = Activity.STARTING
        spawn_supervised(self._group, lambda: self._start(step), f"start {self.spec.name}")

    async def _start(self, step: StartContainer) -> None:
        run = ContainerRun(attempt=step.attempt, id=uuid.uuid4().hex, streak=step.streak)
        self._waiting = None
        try:
            await self._launch(run)
        except (ConfigMissing, VolumeMissing) as error:
            self._set_waiting("CreateContainerConfigError", str(error))
        except KubeError as error:
            self._set_waiting("CreateContainerConfigError", f"the API did not answer: {error}")
        except ImageMissing as error:
            self._set_waiting("ErrImagePull", str(error))
        except PortTaken as error:
            self._record_failed_start(run, PORT_CLASH, str(error))
        except (StartFailed, OSError) as error:
            self._context.record_event(self._pod, "Warning", "Failed", f"Error: {error}")
            self._record_failed_start(run, "StartError", str(error))
        finally:
            if self._activity is Activity.STARTING:
                self._activity = Activity.IDLE
            self._wake()

    async def _launch(self, run: ContainerRun) -> None:
        files = self._folder.run_files(self.spec.name, run.attempt)
        launched = await self._launcher.launch(run, files, self._sandbox)
        self._folder.remove_old_runs(self.spec.name)
        self._runs.append(msgspec.structs.replace(run, started_at=self._context.clock.now()))
        self._context.record_event(self._pod, "Normal", "Started", f"Started container {self.spec.name}")
        self._on_started(launched.process, launched.record, launched.target)

    def _set_waiting(self, reason: str, message: str) -> None:
        retry_at = self._context.clock.now() + self._context.settings.retry_interval
        if self._waiting is None or self._waiting.message != message:
            self._context.record_event(self._pod, "Warning", "Failed", f"Error: {message}")
        self._waiting = ContainerWaiting(reason, message, retry_at)

    def _record_failed_start(self, run: ContainerRun, reason: str, message: str) -> None:
        exit_ = ContainerExit(128, self._context.clock.now(), reason=reason, message=message)
        self._runs.append(msgspec.structs.replace(run, exit=exit_))

    # Running

    def _on_started(self, process: SupervisedProcess, record: RunRecord, target: ContainerTarget | None) -> None:
        """Watch a process that runs. `target` is None for an adopted process, which has long started."""
        self._process, self._target, self._record = process, target, record
        self._exited.clear()
        self._unhealthy_reason = ""
        adopted = target is None
        self._started = adopted or (self.spec.startup_probe is None and self.spec.lifecycle.post_start is None)
        self._ready = self._started and self.spec.readiness_probe is None
        self._launcher.watch_memory(process)
        spawn_supervised(self._group, lambda: self._watch_process(process), f"watch {self.spec.name}")

    async def _watch_process(self, process: SupervisedProcess) -> None:
        async with asyncio.TaskGroup() as group:
            probes = spawn_supervised(group, lambda: self._run_probes(process), f"probe {self.spec.name}")
            await process.wait()
            probes.cancel()
        if process.files.exit_record() is None:
            # The shim was killed. Its process may live.
            await self._launcher.end_lost(self._record)
        self._on_exit(process)

    async def _run_probes(self, process: SupervisedProcess) -> None:
        """Hook and probes of a running process, in their order."""
        adopted = self._target is None
        if self._target is None:
            await self._prepared.wait()
            self._target = await self._launcher.adopted_target(process, self._record, self._sandbox)
        probes = ContainerProbes(
            self.spec,
            self._target,
            self._context.clock,
            self._on_readiness,
            self._record_warning,
            self._mark_unhealthy,
        )
        if not adopted:
            if not await probes.run_startup():
                return
            self._started, self._ready = True, self.spec.readiness_probe is None
            self._wake()
        await probes.run()

    def _record_warning(self, reason: str, message: str) -> None:
        self._context.record_event(self._pod, "Warning", reason, message)

    def _on_readiness(self, ready: bool) -> None:
        if ready != self._ready:
            self._ready = ready
            self._wake()

    def _mark_unhealthy(self, reason: str) -> None:
        if not self._unhealthy_reason:
            self._unhealthy_reason = reason
            self._wake()

    # Ending

    def stop(self, step: StopContainer) -> None:
        """Begin to stop the process."""
        assert self._process is not None
        self._activity = Activity.STOPPING
        grace = step.grace
        if step.in_place:
            self._process.files.write_kill_reason(KillReason(IN_PLACE_REASON, "ended for a restart in place"))
            self._context.record_event(self._pod, "Normal", "Killing", f"{step.reason}, will be restarted")
        elif step.reason:
            probes = (self.spec.liveness_probe, self.spec.startup_probe)
            graces = [probe.termination_grace_period_seconds for probe in probes if probe is not None]
            grace = next((timedelta(seconds=seconds) for seconds in graces if seconds is not None), grace)
            self._context.record_event(self._pod, "Normal", "Killing", f"{step.reason}, will be restarted")
        process = self._process
        spawn_supervised(self._group, lambda: self._terminate(process, grace), f"stop {self.spec.name}")

    async def _terminate(self, process: SupervisedProcess, grace: timedelta) -> None:
        """Run the preStop hook, send TERM, wait for the grace period, then KILL. Returns when the run has ended."""
        try:
            if grace > timedelta():
                async with time_limit(grace, self._context.clock):
                    await self._run_pre_stop()
                    process.terminate()
                    await self._exited.wait()
        except TimeoutError:
            pass
        process.kill()
        while not self._exited.is_set():
            try:
                async with time_limit(KILL_PATIENCE, self._context.clock):
                    await self._exited.wait()
            except TimeoutError:
                await process.kill_all()

    async def _run_pre_stop(self) -> None:
        hook, target = self.spec.lifecycle.pre_stop, self._target
        if hook is None or target is None:
            return
        problem = await run_action(hook, target, HOOK_TIMEOUT, self._context.clock)
        if problem:
            self._context.record_event(self._pod, "Warning", "FailedPreStopHook", f"PreStopHook failed: {problem}")

    def _on_exit(self, process: SupervisedProcess) -> None:
        self._launcher.release(process, self._record)
        finished_at, policy = process.ended_at or self._context.clock.now(), self.spec.termination_message_policy
        self._runs[-1] = ended_run(self._runs[-1], process.files, policy, finished_at)
        self._process, self._target = None, None
        self._init_done |= self._started
        self._started = self._ready = False
        self._unhealthy_reason = ""
        self._activity = Activity.IDLE
        self._exited.set()
        self._wake()

    def kill_now(self) -> None:
        """Kill the process without a grace period."""
        if self._process is not None:
            self._process.kill()

    def oom_kill(self, pid: int, size: int) -> bool:
        """Kill the process if it has this pid, because it uses `size` bytes. Returns whether it was this process."""
        if self._process is None or self._process.pid != pid:
            return False
        self._process.files.write_kill_reason(KillReason(OOM_KILLED, f"peak memory {-(-size // 2**20)}Mi"))
        self._process.kill()
        return True

    def send_signal(self, number: int) -> None:
        """Send a signal to the process group."""
        if self._process is not None:
            self._process.send_signal(number)

    async def shut_down(self, grace: timedelta) -> None:
        """End the process because the node ends. The end is not reported: the tasks that watched it are cancelled."""
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(grace.total_seconds()):
                await process.wait()
        except TimeoutError:
            await process.end()

    def abandon(self) -> None:
        """Let the process outlive the node."""
        if self._process is not None:
            self._process.abandon()
