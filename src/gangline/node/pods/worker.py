"""One pod: observe its containers, plan, apply, report, until the pod is deleted from the API."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from gangline.api.core import Pod, is_terminal_phase
from gangline.api.drill import FaultKind, fault_request, fault_response
from gangline.api.in_place import in_place_order
from gangline.api.kubeflow.training import ENDED_AT_ANNOTATION, PROGRESS_ANNOTATION
from gangline.api.meta import Condition, Key
from gangline.base.tasks import run_all
from gangline.kube.errors import KubeError, NotFound
from gangline.node.checkpoint import PodFolder
from gangline.node.environment import HOST_IP, ConfigMissing
from gangline.node.network.bridge_client import NetworkUnavailable
from gangline.node.network.namespaces import Isolation
from gangline.node.pod_types import RUN_PODS, RunContainer, RunContainerStatus, RunPod, is_sidecar
from gangline.node.pods.background_loops import volume_refresher, watch_progress, watch_volume_sizes
from gangline.node.pods.container import ContainerRunner
from gangline.node.pods.context import NodeContext, WorkerTask, spawn_supervised
from gangline.node.pods.fault_injection import FaultInjector, FaultTarget, bad_node_message, resume_all
from gangline.node.pods.launch import PodSandbox
from gangline.node.pods.plan import (
    PodObservation,
    PodPlan,
    ReleasePod,
    Role,
    StartContainer,
    StopContainer,
    Termination,
    plan,
)
from gangline.node.pods.progress import ProgressReporter
from gangline.node.pods.status import PodStatusContext, failed_ends, pod_status
from gangline.node.pods.status_writer import PodStatusWriter, confirm_deleted
from gangline.node.volumes.files import VolumeMissing
from gangline.node.volumes.refresh import VolumeRefresher

log = logging.getLogger(__name__)

DEBUG_SHELL = "sh"
"""What an ephemeral container runs that names no command."""


class PodWorker:
    """Runs one pod on this node. `update` delivers changes of the pod; `run` does everything else."""

    def __init__(self, pod: Pod, context: NodeContext) -> None:
        self._latest, self._context = pod, context
        self.folder: PodFolder = context.state.pod(pod.metadata.key, pod.metadata.uid)
        self._containers: dict[str, ContainerRunner] = {}
        self._changed = asyncio.Event()
        self._prepared = asyncio.Event()
        self._refresher: VolumeRefresher | None = None
        started = pod.status.start_time
        # The latest moment that is written so: a deadline is never over too early.
        self._start_time: datetime | None = started.replace(microsecond=999_999) if started is not None else None
        self._termination: Termination | None = None
        self._stop_by: datetime | None = None
        # The API has no such pod any more: there is nothing to report and nothing to wait for.
        self._deleted = False
        self._writer = PodStatusWriter(context.client, pod, context.clock)
        self._progress = ProgressReporter(
            pod.metadata.uid,
            pod.metadata.annotations.get(PROGRESS_ANNOTATION, ""),
            lambda line: self._writer.set_annotation(PROGRESS_ANNOTATION, line),
            context.report_limiter,
            context.clock,
        )
        self._reported_ends = pod.metadata.annotations.get(ENDED_AT_ANNOTATION, "")
        self._conditions: tuple[Condition, ...] = pod.status.conditions
        # The id of the newest fault request that was started, or that an earlier node had carried out.
        self._last_fault_id = ""
        self._fault_tasks: list[WorkerTask] = []
        self._volumes: dict[str, Path] = {}
        self._isolation: Isolation | None = None
        self._address = HOST_IP
        # The phase as last reported; and whether the API had a terminal phase when the worker began: then nothing is
        # reported any more.
        self._phase = ""
        self._already_finished = False
        # The spec has changed since it was read: containers were added, or get other resources.
        self._spec_changed = False

    @property
    def key(self) -> Key:
        return self._latest.metadata.key

    @property
    def is_deleted(self) -> bool:
        """Whether the pod is deleted from the API."""
        return self._deleted

    @property
    def owner_uid(self) -> str:
        """The uid of the pod's controller, else its own."""
        controller = self._latest.metadata.controller
        return controller.uid if controller is not None else self._latest.metadata.uid

    @property
    def has_processes(self) -> bool:
        """Whether a process of the pod lives or is being started."""
        return any(container.pid is not None or container.observation().is_busy for container in self.containers)

    @property
    def containers(self) -> Sequence[ContainerRunner]:
        return tuple(self._containers.values())

    def update(self, pod: Pod | None) -> None:
        """Take the newest version of the pod; None when it is deleted from the API."""
        if pod is None:
            self._deleted = True
            for container in self.containers:
                container.kill_now()
        else:
            before, self._latest = self._latest.metadata, pod
            self._writer.observe(pod)
            # A deletion changes the generation, too.
            deleted = pod.metadata.deletion_timestamp is not None
            self._spec_changed |= pod.metadata.generation != before.generation and not deleted
            after = pod.metadata
            changed = (after.labels, after.annotations) != (before.labels, before.annotations)
            if self._refresher is not None and changed:
                self._refresher.mark_stale()
        self._changed.set()

    def wake(self) -> None:
        """Observe and plan again."""
        self._changed.set()

    # The loop

    async def run(self) -> None:
        """Run the pod until it has finished and is reported, or is deleted. A second call continues where it was.

        When cancelled, it leaves processes as they are: see `shut_down` and `abandon`.
        """
        pod = await self._read_pod()
        if pod is None:
            self._deleted = True
            return
        self._start_time = self._start_time or self._context.clock.now()
        self._address = self._context.network.address(pod)
        async with asyncio.TaskGroup() as group:
            self._create_containers(pod, group)
            tasks = [
                group.create_task(self._writer.run()),
                group.create_task(watch_volume_sizes(pod, lambda: self._volumes, self._terminate, self._context)),
                group.create_task(watch_progress(self._report_progress, self._context)),
                spawn_supervised(group, lambda: self._prepare(pod), "prepare"),
                spawn_supervised(group, lambda: self._refresh_volumes(pod), "refresh"),
            ]
            await self._sync_loop(pod, group)
            if not self._deleted:
                await self._writer.wait_written()
            for task in (*tasks, *self._fault_tasks):
                task.cancel()
        self._context.report_limiter.forget(pod.metadata.uid)
        self._context.volumes.tokens.forget(pod.metadata.uid)
        with suppress(NetworkUnavailable):
            await self._context.network.leave(pod.metadata.uid)
        if self._stop_by is not None and not self._deleted:
            await confirm_deleted(self._context.client, pod.metadata.key, pod.metadata.uid, self._context.clock)
            self._deleted = True

    async def _sync_loop(self, pod: RunPod, group: asyncio.TaskGroup) -> None:
        while True:
            self._changed.clear()
            if self._spec_changed:
                await self._take_changed_spec(group)
            self._start_requested_fault(pod, group)
            if self._latest.metadata.deletion_timestamp is not None and self._stop_by is None:
                self._stop_by = self._context.clock.now() + await self._deletion_grace(pod)
            observed = self._observe(pod)
            pod_plan = plan(observed)
            self._termination = pod_plan.termination
            self._report_status(observed, pod)
            self._apply(pod_plan)
            if self._is_done(pod_plan):
                return
            await self._wait_for_change(pod_plan.wake_after)

    def _start_requested_fault(self, pod: RunPod, group: asyncio.TaskGroup) -> None:
        """Start the fault that a drill requests by an annotation of the pod."""
        annotations = self._latest.metadata.annotations
        request, response = fault_request(annotations), fault_response(annotations)
        if request is None or request.id == self._last_fault_id or self._stop_by is not None or self._already_finished:
            return
        self._last_fault_id = request.id
        if response is not None and response.id == request.id:
            # An earlier node carried it out, and may have ended before it undid the fault.
            if request.fault in (FaultKind.SLOW, FaultKind.HANG):
                resume_all(self.containers)
            return
        target = FaultTarget(
            pod, lambda: self.containers, lambda: self._volumes, self._terminate, lambda: self._isolation
        )
        injector = FaultInjector(request, target, self._context)
        self._fault_tasks.append(spawn_supervised(group, injector.run, f"drill {request.fault}"))

    def _terminate(self, termination: Termination) -> bool:
        """End the pod for this reason. Returns False if it is ending for another reason already."""
        if self._termination is not None:
            return False
        self._termination = termination
        self.wake()
        return True

    def _observe(self, pod: RunPod) -> PodObservation:
        spec, now = pod.spec, self._context.clock.now()
        deadline = self._latest.spec.active_deadline_seconds
        return PodObservation(
            containers=tuple(container.observation() for container in self.containers),
            now=now,
            restart_policy=spec.restart_policy,
            start_time=self._start_time,
            deadline=timedelta(seconds=deadline) if deadline is not None else None,
            prepared=self._prepared.is_set(),
            is_finished=self._already_finished,
            stop_by=now if self._deleted else self._stop_by,
            grace=timedelta(seconds=spec.termination_grace_period_seconds),
            termination=self._termination,
            has_controller=pod.metadata.controller is not None,
            order=in_place_order(self._latest.metadata.annotations),
            backoff=self._context.settings.backoff,
        )

    def _apply(self, pod_plan: PodPlan) -> None:
        for step in pod_plan.steps:
            match step:
                case StartContainer():
                    self._containers[step.container].start(step)
                case StopContainer():
                    self._containers[step.container].stop(step)
                case ReleasePod():
                    pass  # `_is_done` ends the loop, and `run` confirms the deletion

    def _is_done(self, pod_plan: PodPlan) -> bool:
        if self.has_processes:
            return False
        if any(isinstance(step, ReleasePod) for step in pod_plan.steps) or self._deleted:
            return True
        # A finished pod needs the node again only when it is deleted.
        return self._already_finished or (not pod_plan.steps and is_terminal_phase(self._phase))

    async def _wait_for_change(self, timeout: timedelta | None) -> None:
        timer = self._context.clock.call_later(timeout, self._changed.set) if timeout is not None else None
        try:
            await self._changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    # Reports

    def _report_status(self, observed: PodObservation, pod: RunPod) -> None:
        if self._already_finished or self._deleted:
            return
        context = PodStatusContext(
            pod.metadata.namespace,
            pod.metadata.name,
            pod.metadata.uid,
            tuple(gate.condition_type for gate in pod.spec.readiness_gates),
            self._previous_conditions(),
            self._address,
        )
        # Before the status: a client that sees the end of a program also sees its last progress report.
        self._report_progress()
        self._report_ends(observed)
        status = pod_status(observed, context)
        self._phase = status["phase"]
        self._conditions = msgspec.convert(status["conditions"], tuple[Condition, ...])
        self._writer.set_status(status)

    def _report_ends(self, observed: PodObservation) -> None:
        """Report when runs failed, exactly. What the node itself stops has not failed."""
        ends = failed_ends(observed) if self._stop_by is None else ""
        if ends and ends != self._reported_ends:
            self._reported_ends = ends
            self._writer.set_annotation(ENDED_AT_ANNOTATION, ends)

    def _previous_conditions(self) -> tuple[Condition, ...]:
        """The node's conditions as it last reported them, those of other writers as the API has them."""
        own_types = {condition.type for condition in self._conditions}
        return (
            *self._conditions,
            *(condition for condition in self._latest.status.conditions if condition.type not in own_types),
        )

    def _report_progress(self) -> None:
        if self._already_finished or self._deleted:
            return
        mains = [container for container in self.containers if container.role is Role.MAIN]
        runs = [files for container in mains if (files := container.latest_files) is not None]
        self._progress.poll(runs, final=all(container.pid is None for container in mains))

    # Preparation

    async def _read_pod(self) -> RunPod | None:
        """The complete pod, read once: later changes come by `update`. None when it is deleted or replaced."""
        while True:
            try:
                pod = await self._context.client.get(RUN_PODS, self._latest.metadata.key)
            except NotFound:
                return None
            except KubeError as error:
                log.warning("pod not read, will retry", extra={"error": str(error)})
                await self._context.clock.sleep(self._context.settings.retry_interval)
            else:
                return pod if pod.metadata.uid == self._latest.metadata.uid else None

    async def _deletion_grace(self, pod: RunPod) -> timedelta:
        """The grace period of the deletion, read from the API because caches do not hold it."""
        default = timedelta(seconds=pod.spec.termination_grace_period_seconds)
        try:
            current = await self._context.client.get(RUN_PODS, pod.metadata.key)
        except KubeError:
            return default
        granted = current.metadata.deletion_grace_period_seconds
        return default if granted is None else timedelta(seconds=granted)

    def _create_containers(self, pod: RunPod, group: asyncio.TaskGroup) -> None:
        self._already_finished = is_terminal_phase(pod.status.phase)
        self._phase = pod.status.phase
        statuses: dict[str, RunContainerStatus] = {
            status.name: status
            for status in (
                *pod.status.init_container_statuses,
                *pod.status.container_statuses,
                *pod.status.ephemeral_container_statuses,
            )
        }
        specs = [(spec, Role.SIDECAR if is_sidecar(spec) else Role.INIT) for spec in pod.spec.init_containers]
        specs += [(spec, Role.MAIN) for spec in pod.spec.containers]
        for spec, role in specs:
            container = ContainerRunner(spec, role, pod, self.folder, self._context, group, self.wake)
            if container.recover(statuses.get(spec.name)):
                for earlier in self.containers:
                    earlier.mark_init_done()
            self._containers[spec.name] = container
        for spec in pod.spec.ephemeral_containers:
            container = self._add_ephemeral(spec, pod, group)
            container.recover(statuses.get(spec.name))

    def _add_ephemeral(self, spec: RunContainer, pod: RunPod, group: asyncio.TaskGroup) -> ContainerRunner:
        # As in images for debugging, a shell runs where no command is named.
        spec = spec if spec.command or spec.args else msgspec.structs.replace(spec, command=(DEBUG_SHELL,))
        container = ContainerRunner(spec, Role.EPHEMERAL, pod, self.folder, self._context, group, self.wake)
        self._containers[spec.name] = container
        return container

    async def _take_changed_spec(self, group: asyncio.TaskGroup) -> None:
        """Add new ephemeral containers, and resize the others."""
        try:
            pod = await self._context.client.get(RUN_PODS, self._latest.metadata.key)
        except KubeError as error:
            log.warning("changed pod not read, will retry", extra={"pod": str(self.key), "error": str(error)})
            self._context.clock.call_later(self._context.settings.retry_interval, self.wake)
            return
        self._spec_changed = False
        if pod.metadata.uid != self._latest.metadata.uid or self._already_finished:
            return
        for spec in pod.spec.ephemeral_containers:
            if spec.name not in self._containers:
                container = self._add_ephemeral(spec, pod, group)
                if self._prepared.is_set():
                    container.set_sandbox(PodSandbox(self.folder, self._volumes, self._isolation, self._address))
        for spec in (*pod.spec.containers, *pod.spec.init_containers):
            known = self._containers.get(spec.name)
            if known is not None and known.spec.resources != spec.resources:
                known.resize(spec)

    async def _prepare(self, pod: RunPod) -> None:
        """Prepare network and volumes; retries until both are there."""
        problem = ""
        if self._context.faults.bad_node.is_bad and not self._already_finished:
            self._terminate(Termination("UnexpectedAdmissionError", bad_node_message(self._context.settings.name)))
            return
        while not self._already_finished:
            try:
                self._isolation = await self._context.network.join(pod)
                self._volumes = await self._context.volumes.prepare(pod, self.folder)
                break
            except (VolumeMissing, ConfigMissing, NetworkUnavailable, KubeError, OSError) as error:
                if str(error) != problem:
                    problem = str(error)
                    self._context.record_event(pod, "Warning", "FailedMount", f"MountVolume.SetUp failed: {problem}")
                await self._context.clock.sleep(self._context.settings.retry_interval)
        for container in self.containers:
            container.set_sandbox(PodSandbox(self.folder, self._volumes, self._isolation, self._address))
        self._prepared.set()
        self.wake()

    async def _refresh_volumes(self, pod: RunPod) -> None:
        if self._already_finished:
            return
        await self._prepared.wait()
        self._refresher = volume_refresher(pod, lambda: self._latest, self.folder, self._context)
        if self._refresher is not None:
            await self._refresher.run()

    # The end of the node

    async def shut_down(self, grace: timedelta | None) -> None:
        """End every process without reporting it, after `grace` by force; None is what the pod grants."""
        granted = grace or timedelta(seconds=self._latest.spec.termination_grace_period_seconds)
        await run_all(container.shut_down(granted) for container in self.containers)

    def abandon(self) -> None:
        """Let every process outlive the node."""
        for container in self.containers:
            container.abandon()
