"""One pod: observe its containers, plan, apply, report; until the API has let it go."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import msgspec

from gangline.api.core import Pod
from gangline.api.drill import Fault, answered, ordered
from gangline.api.kubeflow.training import PROGRESS
from gangline.api.meta import Condition, Key
from gangline.base.tasks import every, run_all
from gangline.kube.errors import KubeError, NotFound
from gangline.node.checkpoint import PodFolder
from gangline.node.context import Task, Tools, spawn
from gangline.node.environment import ConfigMissing
from gangline.node.network.bridge_client import NoNetwork
from gangline.node.network.namespaces import Isolation
from gangline.node.pods.container import ContainerLife
from gangline.node.pods.fault_injection import Drilling, Subject, thaw
from gangline.node.pods.plan import Doom, Observed, Plan, Release, Role, Start, Stop, plan
from gangline.node.pods.progress import Reports
from gangline.node.pods.status import HOST, Named, finally_over, pod_status
from gangline.node.pods.status_writer import StatusWriter, let_go
from gangline.node.types import RUN_PODS, RunPod, RunStatus, is_sidecar
from gangline.node.volumes.refresh import Refresher
from gangline.node.volumes.volumes import VolumeMissing, oversized

log = logging.getLogger(__name__)


class PodWorker:
    """The life of one pod on this node. Told of changes by `tell`; does everything else by itself in `run`."""

    def __init__(self, pod: Pod, tools: Tools) -> None:
        self._newest, self._tools = pod, tools
        self.folder: PodFolder = tools.state.pod(pod.metadata.key, pod.metadata.uid)
        self._lives: dict[str, ContainerLife] = {}
        self._changed = asyncio.Event()
        self._prepared = False
        self._ready = asyncio.Event()
        self._refresher: Refresher | None = None
        self._since: datetime | None = pod.status.start_time
        self._doom: Doom | None = None
        self._stop_by: datetime | None = None
        # The API has no such pod any more: nobody to report to, nothing to wait for.
        self._gone = False
        self._writer = StatusWriter(tools.client, pod, tools.clock)
        self._reports = Reports(
            pod.metadata.uid,
            pod.metadata.annotations.get(PROGRESS, ""),
            lambda line: self._writer.mark(PROGRESS, line),
            tools.pace,
            tools.clock,
        )
        self._conditions: tuple[Condition, ...] = pod.status.conditions
        # The drill that was begun, or was found to be over; and what goes on of drills.
        self._drilled = ""
        self._drills: list[Task] = []
        self._volumes: dict[str, Path] = {}
        self._isolation: Isolation | None = None
        # As last reported; and whether the API had it as over before we began: then nothing is reported any more.
        self._phase = ""
        self._over = False

    @property
    def key(self) -> Key:
        return self._newest.metadata.key

    @property
    def gone(self) -> bool:
        """Whether the API has it no more."""
        return self._gone

    @property
    def lives(self) -> Sequence[ContainerLife]:
        return tuple(self._lives.values())

    def tell(self, pod: Pod | None) -> None:
        """The newest of the pod; None when it is gone from the API."""
        if pod is None:
            self._gone = True
            for life in self.lives:
                life.hasten()
        else:
            before, self._newest = self._newest.metadata, pod
            self._writer.saw(pod)
            marks = (pod.metadata.labels, pod.metadata.annotations)
            if self._refresher is not None and marks != (before.labels, before.annotations):
                self._refresher.tell()
        self._changed.set()

    def wake(self) -> None:
        """Look again."""
        self._changed.set()

    # Life

    async def run(self) -> None:
        """Live until the pod is over and reported, or released. Run again, it goes on where it was.

        Cancelled, it leaves processes as they are: see `shut_down` and `abandon`.
        """
        whole = await self._whole()
        if whole is None:
            self._gone = True
            return
        self._since = self._since or self._tools.clock.now()
        async with asyncio.TaskGroup() as group:
            self._make(whole, group)
            writing = group.create_task(self._writer.run())
            sizing = group.create_task(self._watch_sizes(whole))
            reporting = group.create_task(self._watch_progress())
            preparing = spawn(group, lambda: self._prepare(whole), "prepare")
            refreshing = spawn(group, lambda: self._refresh(whole), "refresh")
            await self._live(whole, group)
            if not self._gone:
                await self._writer.flushed()
            for task in (writing, sizing, reporting, preparing, refreshing, *self._drills):
                task.cancel()
        self._tools.pace.leave(whole.metadata.uid)
        with suppress(NoNetwork):
            await self._tools.network.left(whole.metadata.uid)
        if self._released() and not self._gone:
            await let_go(self._tools.client, whole.metadata.key, whole.metadata.uid, self._tools.clock)
            self._gone = True

    async def _live(self, whole: RunPod, group: asyncio.TaskGroup) -> None:
        while True:
            self._changed.clear()
            self._heed(whole, group)
            if self._newest.metadata.deletion_timestamp is not None and self._stop_by is None:
                self._stop_by = self._tools.clock.now() + await self._grace(whole)
            seen = self._observe(whole)
            decided = plan(seen)
            self._doom = decided.doom
            self._report(seen, whole)
            self._apply(decided)
            if self._finished(seen, decided):
                return
            await self._woken(decided.wake_after)

    def _heed(self, whole: RunPod, group: asyncio.TaskGroup) -> None:
        """Do what somebody ordered to see whether the pod's team survives it."""
        marks = self._newest.metadata.annotations
        order, answer = ordered(marks), answered(marks)
        if order is None or order.id == self._drilled or self._stop_by is not None or self._over:
            return
        self._drilled = order.id
        if answer is not None and answer.id == order.id:
            # An earlier node obeyed. It may have ended before it undid what it did.
            if order.fault is Fault.SLOW:
                thaw(self.lives)
            return
        subject = Subject(whole, lambda: self.lives, lambda: self._volumes, self._condemn)
        drilling = Drilling(order, subject, self._tools)
        self._drills.append(spawn(group, drilling.run, f"drill {order.fault}"))

    def _condemn(self, doom: Doom) -> None:
        self._doom = self._doom or doom
        self.wake()

    def _observe(self, whole: RunPod) -> Observed:
        spec, now = whole.spec, self._tools.clock.now()
        deadline = self._newest.spec.active_deadline_seconds
        return Observed(
            containers=tuple(life.seen() for life in self.lives),
            now=now,
            restart_policy=spec.restart_policy,
            since=self._since,
            deadline=timedelta(seconds=deadline) if deadline is not None else None,
            prepared=self._prepared,
            over=self._over,
            stop_by=now if self._gone else self._stop_by,
            grace=timedelta(seconds=spec.termination_grace_period_seconds),
            doom=self._doom,
            owned=whole.metadata.controller is not None,
            backoff=self._tools.settings.backoff,
        )

    def _apply(self, decided: Plan) -> None:
        for step in decided.steps:
            match step:
                case Start():
                    self._lives[step.container].start(step)
                case Stop():
                    self._lives[step.container].stop(step)
                case Release():
                    pass  # the caller's: everything has ended

    def _finished(self, seen: Observed, decided: Plan) -> bool:
        if any(each.busy for each in seen.containers) or any(life.alive for life in self.lives):
            return False
        if any(isinstance(step, Release) for step in decided.steps) or self._gone:
            return True
        # Nothing left to do until the API wants it gone.
        return self._over or (not decided.steps and finally_over(self._phase))

    def _report(self, seen: Observed, whole: RunPod) -> None:
        if self._over or self._gone:
            return
        named = Named(
            whole.metadata.namespace,
            whole.metadata.name,
            whole.metadata.uid,
            tuple(gate.condition_type for gate in whole.spec.readiness_gates),
            self._before(),
            self._isolation.address if self._isolation is not None else HOST,
        )
        # Before the status: what a program said last is known when its end is.
        self._look_at_progress()
        status = pod_status(seen, named)
        self._phase = status["phase"]
        self._conditions = msgspec.convert(status["conditions"], tuple[Condition, ...])
        self._writer.want(status)

    def _before(self) -> tuple[Condition, ...]:
        """Our conditions as we last said them, those of others as the API has them."""
        ours = {each.type for each in self._conditions}
        return (
            *self._conditions,
            *(each for each in self._newest.status.conditions if each.type not in ours),
        )

    def _released(self) -> bool:
        return self._stop_by is not None

    async def _woken(self, after: timedelta | None) -> None:
        timer = self._tools.clock.call_later(after, self._changed.set) if after is not None else None
        try:
            await self._changed.wait()
        finally:
            if timer is not None:
                timer.cancel()

    # Beginning

    async def _whole(self) -> RunPod | None:
        """All of the pod, once: what matters of it later comes with `tell`."""
        while True:
            try:
                found = await self._tools.client.get(RUN_PODS, self._newest.metadata.key)
            except NotFound:
                return None
            except KubeError as error:
                log.warning("pod not read, will retry", extra={"error": str(error)})
                await self._tools.clock.sleep(self._tools.settings.retry)
            else:
                return found if found.metadata.uid == self._newest.metadata.uid else None

    async def _grace(self, whole: RunPod) -> timedelta:
        """What the API grants. Asked when it is needed: caches do not carry it."""
        default = timedelta(seconds=whole.spec.termination_grace_period_seconds)
        try:
            found = await self._tools.client.get(RUN_PODS, whole.metadata.key)
        except KubeError:
            return default
        granted = found.metadata.deletion_grace_period_seconds
        return default if granted is None else timedelta(seconds=granted)

    def _make(self, whole: RunPod, group: asyncio.TaskGroup) -> None:
        self._over = finally_over(whole.status.phase)
        self._phase = whole.status.phase
        told: dict[str, RunStatus] = {
            each.name: each
            for each in (*whole.status.init_container_statuses, *whole.status.container_statuses)
        }
        members = [
            (each, Role.SIDECAR if is_sidecar(each) else Role.INIT) for each in whole.spec.init_containers
        ]
        members += [(each, Role.MAIN) for each in whole.spec.containers]
        for spec, role in members:
            life = ContainerLife(spec, role, whole, self.folder, self._tools, group, self.wake)
            life.recover(told.get(spec.name))
            if life.ran:
                for earlier in self.lives:
                    earlier.pass_on()
            self._lives[spec.name] = life

    async def _prepare(self, whole: RunPod) -> None:
        """Volumes, until they are there."""
        problem = ""
        while not self._over:
            try:
                self._isolation = await self._tools.network.joined(whole)
                self._volumes = await self._tools.volumes.prepare(whole, self.folder)
                break
            except (VolumeMissing, ConfigMissing, NoNetwork, KubeError, OSError) as error:
                if str(error) != problem:
                    problem = str(error)
                    self._tools.tell(whole, "Warning", "FailedMount", f"MountVolume.SetUp failed: {problem}")
                await self._tools.clock.sleep(self._tools.settings.retry)
        for life in self.lives:
            life.volumes, life.isolation = self._volumes, self._isolation
            life.prepared.set()
        self._prepared = True
        self._ready.set()
        self.wake()

    async def _refresh(self, whole: RunPod) -> None:
        """Volumes that are made of objects follow them."""
        made = [each for each in whole.spec.volumes if each.config_map or each.secret or each.projected]
        made += [each for each in whole.spec.volumes if each.downward_api]
        if not made or self._over:
            return
        await self._ready.wait()

        def now() -> RunPod:
            newest = self._newest.metadata
            labelled = msgspec.structs.replace(
                whole.metadata, labels=newest.labels, annotations=newest.annotations
            )
            return msgspec.structs.replace(whole, metadata=labelled)

        tools = self._tools
        self._refresher = Refresher(tools.client, tools.volumes, now, self.folder, tools.clock)
        await self._refresher.run()

    async def _watch_progress(self) -> None:
        async def look() -> None:
            self._look_at_progress()

        await every(self._tools.pace.look, look, self._tools.clock)

    def _look_at_progress(self) -> None:
        if self._over or self._gone:
            return
        working = [life for life in self.lives if life.role is Role.MAIN]
        runs = [files for life in working if (files := life.files) is not None]
        self._reports.look(runs, final=not any(life.alive for life in working))

    async def _watch_sizes(self, whole: RunPod) -> None:
        if not any(each.empty_dir and each.empty_dir.size_limit != "0" for each in whole.spec.volumes):
            return

        async def look() -> None:
            message = await asyncio.to_thread(oversized, whole, self._volumes)
            if message and self._doom is None:
                self._doom = Doom("Evicted", message)
                self._tools.tell(whole, "Warning", "Evicted", message)
                self.wake()

        await every(self._tools.settings.size_period, look, self._tools.clock)

    # The node ends

    async def shut_down(self, grace: timedelta) -> None:
        """End every process, telling nobody."""
        await run_all(life.shut_down(grace) for life in self.lives)

    def abandon(self) -> None:
        for life in self.lives:
            life.abandon()
