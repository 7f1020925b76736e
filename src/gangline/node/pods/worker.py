"""One pod: observe its containers, plan, apply, report; until the API has let it go."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from gangline.api.core import Pod
from gangline.api.drill import FaultKind, fault_request, fault_response
from gangline.api.kubeflow.training import PROGRESS_ANNOTATION
from gangline.api.meta import Condition, Key
from gangline.base.tasks import run_all, run_every
from gangline.kube.errors import KubeError, NotFound
from gangline.node.checkpoint import PodFolder
from gangline.node.context import NodeContext, WorkerTask, spawn_supervised
from gangline.node.environment import ConfigMissing
from gangline.node.network.bridge_client import NetworkUnavailable
from gangline.node.network.namespaces import Isolation
from gangline.node.pods.container import ContainerRunner
from gangline.node.pods.fault_injection import FaultInjector, FaultTarget, resume_all
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
from gangline.node.pods.status import HOST_IP, PodStatusContext, is_terminal_phase, pod_status
from gangline.node.pods.status_writer import PodStatusWriter, confirm_deleted
from gangline.node.types import RUN_PODS, RunContainerStatus, RunPod, is_sidecar
from gangline.node.volumes.refresh import VolumeRefresher
from gangline.node.volumes.volumes import VolumeMissing, eviction_message

log = logging.getLogger(__name__)


class PodWorker:
    """The life of one pod on this node. Told of changes by `tell`; does everything else by itself in `run`."""

    def __init__(self, pod: Pod, tools: NodeContext) -> None:
        self._latest, self._context = pod, tools
        self.folder: PodFolder = tools.state.pod(pod.metadata.key, pod.metadata.uid)
        self._containers: dict[str, ContainerRunner] = {}
        self._changed = asyncio.Event()
        self._prepared = False
        self._volumes_ready = asyncio.Event()
        self._refresher: VolumeRefresher | None = None
        self._start_time: datetime | None = pod.status.start_time
        self._termination: Termination | None = None
        self._stop_by: datetime | None = None
        # The API has no such pod any more: nobody to report to, nothing to wait for.
        self._deleted = False
        self._writer = PodStatusWriter(tools.client, pod, tools.clock)
        self._progress = ProgressReporter(
            pod.metadata.uid,
            pod.metadata.annotations.get(PROGRESS_ANNOTATION, ""),
            lambda line: self._writer.set_annotation(PROGRESS_ANNOTATION, line),
            tools.report_limiter,
            tools.clock,
        )
        self._conditions: tuple[Condition, ...] = pod.status.conditions
        # The drill that was begun, or was found to be over; and what goes on of drills.
        self._last_fault_id = ""
        self._fault_tasks: list[WorkerTask] = []
        self._volumes: dict[str, Path] = {}
        self._isolation: Isolation | None = None
        # As last reported; and whether the API had it as over before we began: then nothing is reported any more.
        self._phase = ""
        self._already_finished = False

    @property
    def key(self) -> Key:
        return self._latest.metadata.key

    @property
    def is_deleted(self) -> bool:
        """Whether the API has it no more."""
        return self._deleted

    @property
    def containers(self) -> Sequence[ContainerRunner]:
        return tuple(self._containers.values())

    def update(self, pod: Pod | None) -> None:
        """The newest of the pod; None when it is gone from the API."""
        if pod is None:
            self._deleted = True
            for life in self.containers:
                life.kill_now()
        else:
            before, self._latest = self._latest.metadata, pod
            self._writer.observe(pod)
            marks = (pod.metadata.labels, pod.metadata.annotations)
            if self._refresher is not None and marks != (before.labels, before.annotations):
                self._refresher.mark_stale()
        self._changed.set()

    def wake(self) -> None:
        """Look again."""
        self._changed.set()

    # Life

    async def run(self) -> None:
        """Live until the pod is over and reported, or released. Run again, it goes on where it was.

        Cancelled, it leaves processes as they are: see `shut_down` and `abandon`.
        """
        whole = await self._read_pod()
        if whole is None:
            self._deleted = True
            return
        self._start_time = self._start_time or self._context.clock.now()
        async with asyncio.TaskGroup() as group:
            self._create_containers(whole, group)
            writing = group.create_task(self._writer.run())
            sizing = group.create_task(self._watch_volume_sizes(whole))
            reporting = group.create_task(self._watch_progress())
            preparing = spawn_supervised(group, lambda: self._prepare(whole), "prepare")
            refreshing = spawn_supervised(group, lambda: self._refresh_volumes(whole), "refresh")
            await self._sync_loop(whole, group)
            if not self._deleted:
                await self._writer.wait_written()
            for task in (writing, sizing, reporting, preparing, refreshing, *self._fault_tasks):
                task.cancel()
        self._context.report_limiter.forget(whole.metadata.uid)
        with suppress(NetworkUnavailable):
            await self._context.network.leave(whole.metadata.uid)
        if self._deletion_requested() and not self._deleted:
            await confirm_deleted(self._context.client, whole.metadata.key, whole.metadata.uid, self._context.clock)
            self._deleted = True

    async def _sync_loop(self, whole: RunPod, group: asyncio.TaskGroup) -> None:
        while True:
            self._changed.clear()
            self._start_requested_fault(whole, group)
            if self._latest.metadata.deletion_timestamp is not None and self._stop_by is None:
                self._stop_by = self._context.clock.now() + await self._deletion_grace(whole)
            seen = self._observe(whole)
            decided = plan(seen)
            self._termination = decided.termination
            self._report_status(seen, whole)
            self._apply(decided)
            if self._is_done(seen, decided):
                return
            await self._wait_for_change(decided.wake_after)

    def _start_requested_fault(self, whole: RunPod, group: asyncio.TaskGroup) -> None:
        """Do what somebody ordered to see whether the pod's team survives it."""
        marks = self._latest.metadata.annotations
        order, answer = fault_request(marks), fault_response(marks)
        if order is None or order.id == self._last_fault_id or self._stop_by is not None or self._already_finished:
            return
        self._last_fault_id = order.id
        if answer is not None and answer.id == order.id:
            # An earlier node obeyed. It may have ended before it undid what it did.
            if order.fault is FaultKind.SLOW:
                resume_all(self.containers)
            return
        subject = FaultTarget(whole, lambda: self.containers, lambda: self._volumes, self._terminate)
        drilling = FaultInjector(order, subject, self._context)
        self._fault_tasks.append(spawn_supervised(group, drilling.run, f"drill {order.fault}"))

    def _terminate(self, doom: Termination) -> None:
        self._termination = self._termination or doom
        self.wake()

    def _observe(self, whole: RunPod) -> PodObservation:
        spec, now = whole.spec, self._context.clock.now()
        deadline = self._latest.spec.active_deadline_seconds
        return PodObservation(
            containers=tuple(life.observation() for life in self.containers),
            now=now,
            restart_policy=spec.restart_policy,
            start_time=self._start_time,
            deadline=timedelta(seconds=deadline) if deadline is not None else None,
            prepared=self._prepared,
            is_finished=self._already_finished,
            stop_by=now if self._deleted else self._stop_by,
            grace=timedelta(seconds=spec.termination_grace_period_seconds),
            termination=self._termination,
            has_controller=whole.metadata.controller is not None,
            backoff=self._context.settings.backoff,
        )

    def _apply(self, decided: PodPlan) -> None:
        for step in decided.steps:
            match step:
                case StartContainer():
                    self._containers[step.container].start(step)
                case StopContainer():
                    self._containers[step.container].stop(step)
                case ReleasePod():
                    pass  # the caller's: everything has ended

    def _is_done(self, seen: PodObservation, decided: PodPlan) -> bool:
        if any(each.is_busy for each in seen.containers) or any(life.is_running for life in self.containers):
            return False
        if any(isinstance(step, ReleasePod) for step in decided.steps) or self._deleted:
            return True
        # Nothing left to do until the API wants it gone.
        return self._already_finished or (not decided.steps and is_terminal_phase(self._phase))

    def _report_status(self, seen: PodObservation, whole: RunPod) -> None:
        if self._already_finished or self._deleted:
            return
        named = PodStatusContext(
            whole.metadata.namespace,
            whole.metadata.name,
            whole.metadata.uid,
            tuple(gate.condition_type for gate in whole.spec.readiness_gates),
            self._previous_conditions(),
            self._isolation.address if self._isolation is not None else HOST_IP,
        )
        # Before the status: what a program said last is known when its end is.
        self._report_progress()
        status = pod_status(seen, named)
        self._phase = status["phase"]
        self._conditions = msgspec.convert(status["conditions"], tuple[Condition, ...])
        self._writer.set_status(status)

    def _previous_conditions(self) -> tuple[Condition, ...]:
        """Our conditions as we last said them, those of others as the API has them."""
        ours = {each.type for each in self._conditions}
        return (
            *self._conditions,
            *(each for each in self._latest.status.conditions if each.type not in ours),
        )

    def _deletion_requested(self) -> bool:
        return self._stop_by is not None

    async def _wait_for_change(self, after: timedelta | None) -> None:
        timer = self._context.clock.call_later(after, self._changed.set) if after is not None else None
        try:
            await self._changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    # Beginning

    async def _read_pod(self) -> RunPod | None:
        """All of the pod, once: what matters of it later comes with `tell`."""
        while True:
            try:
                found = await self._context.client.get(RUN_PODS, self._latest.metadata.key)
            except NotFound:
                return None
            except KubeError as error:
                log.warning("pod not read, will retry", extra={"error": str(error)})
                await self._context.clock.sleep(self._context.settings.retry_interval)
            else:
                return found if found.metadata.uid == self._latest.metadata.uid else None

    async def _deletion_grace(self, whole: RunPod) -> timedelta:
        """What the API grants. Asked when it is needed: caches do not carry it."""
        default = timedelta(seconds=whole.spec.termination_grace_period_seconds)
        try:
            found = await self._context.client.get(RUN_PODS, whole.metadata.key)
        except KubeError:
            return default
        granted = found.metadata.deletion_grace_period_seconds
        return default if granted is None else timedelta(seconds=granted)

    def _create_containers(self, whole: RunPod, group: asyncio.TaskGroup) -> None:
        self._already_finished = is_terminal_phase(whole.status.phase)
        self._phase = whole.status.phase
        told: dict[str, RunContainerStatus] = {
            each.name: each for each in (*whole.status.init_container_statuses, *whole.status.container_statuses)
        }
        members = [(each, Role.SIDECAR if is_sidecar(each) else Role.INIT) for each in whole.spec.init_containers]
        members += [(each, Role.MAIN) for each in whole.spec.containers]
        for spec, role in members:
            life = ContainerRunner(spec, role, whole, self.folder, self._context, group, self.wake)
            life.recover(told.get(spec.name))
            if life.has_run:
                for earlier in self.containers:
                    earlier.mark_init_done()
            self._containers[spec.name] = life

    async def _prepare(self, whole: RunPod) -> None:
        """Volumes, until they are there."""
        problem = ""
        while not self._already_finished:
            try:
                self._isolation = await self._context.network.join(whole)
                self._volumes = await self._context.volumes.prepare(whole, self.folder)
                break
            except (VolumeMissing, ConfigMissing, NetworkUnavailable, KubeError, OSError) as error:
                if str(error) != problem:
                    problem = str(error)
                    self._context.record_event(whole, "Warning", "FailedMount", f"MountVolume.SetUp failed: {problem}")
                await self._context.clock.sleep(self._context.settings.retry_interval)
        for life in self.containers:
            life.volumes, life.isolation = self._volumes, self._isolation
            life.prepared.set()
        self._prepared = True
        self._volumes_ready.set()
        self.wake()

    async def _refresh_volumes(self, whole: RunPod) -> None:
        """Volumes that are made of objects follow them."""
        made = [each for each in whole.spec.volumes if each.config_map or each.secret or each.projected]
        made += [each for each in whole.spec.volumes if each.downward_api]
        if not made or self._already_finished:
            return
        await self._volumes_ready.wait()

        def now() -> RunPod:
            newest = self._latest.metadata
            labelled = msgspec.structs.replace(whole.metadata, labels=newest.labels, annotations=newest.annotations)
            return msgspec.structs.replace(whole, metadata=labelled)

        tools = self._context
        self._refresher = VolumeRefresher(tools.client, tools.volumes, now, self.folder, tools.clock)
        await self._refresher.run()

    async def _watch_progress(self) -> None:
        async def look() -> None:
            self._report_progress()

        await run_every(self._context.report_limiter.poll_interval, look, self._context.clock)

    def _report_progress(self) -> None:
        if self._already_finished or self._deleted:
            return
        working = [life for life in self.containers if life.role is Role.MAIN]
        runs = [files for life in working if (files := life.latest_files) is not None]
        self._progress.poll(runs, final=not any(life.is_running for life in working))

    async def _watch_volume_sizes(self, whole: RunPod) -> None:
        if not any(each.empty_dir and each.empty_dir.size_limit != "0" for each in whole.spec.volumes):
            return

        async def look() -> None:
            message = await asyncio.to_thread(eviction_message, whole, self._volumes)
            if message and self._termination is None:
                self._termination = Termination("Evicted", message)
                self._context.record_event(whole, "Warning", "Evicted", message)
                self.wake()

        await run_every(self._context.settings.size_period, look, self._context.clock)

    # The node ends

    async def shut_down(self, grace: timedelta) -> None:
        """End every process, telling nobody."""
        await run_all(life.shut_down(grace) for life in self.containers)

    def abandon(self) -> None:
        for life in self.containers:
            life.abandon()
