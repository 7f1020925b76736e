"""Pods bound to this machine become processes; what becomes of them is written to their status."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil

from gangline.api.core import ObjectReference, Pod
from gangline.base.clock import Clock
from gangline.base.tasks import run_all, run_every
from gangline.kube.client import Client
from gangline.kube.config.access import PlaneAccess
from gangline.node.checkpoint import PodFolder, StateFolder
from gangline.node.context import (
    NetworkPlugin,
    NodeContext,
    NoPortAllocator,
    PortAllocator,
    RecordEvent,
    SharedNetwork,
    discard_event,
    spawn_supervised,
)
from gangline.node.network.bridge_client import NetworkUnavailable
from gangline.node.network.port_squatter import PortSquatters
from gangline.node.node_status import NodeRegistration
from gangline.node.options import create_runtime
from gangline.node.pods.probes import ContainerTarget
from gangline.node.pods.progress import ReportLimiter
from gangline.node.pods.worker import PodWorker
from gangline.node.resources import DeviceManager, machine_capacity, processes_over_limit
from gangline.node.runtime.process import MARK_VARIABLE, adopt, wait_for_start
from gangline.node.settings import NodeSettings
from gangline.node.types import RunPod
from gangline.node.volumes.volumes import VolumeManager
from gangline.runtime.events import EventRecorder
from gangline.runtime.informer import Delta, Informer

log = logging.getLogger(__name__)

DEFAULT_NAME = "local"
DEFAULT_SETTINGS = NodeSettings()


class LocalKubelet:
    """This machine as a node. Inert until `run()`.

    Leaving `run()` in an orderly way ends every process, unless the settings say that they stay. A node that was killed
    leaves its processes running: the next one with the same state folder adopts them.
    """

    def __init__(
        self,
        client: Client,
        pods: Informer[Pod],
        *,
        folder: Path,
        logs: Path,
        clock: Clock,
        settings: NodeSettings = DEFAULT_SETTINGS,
        ports: PortAllocator | None = None,
        recorder: EventRecorder | None = None,
        access: PlaneAccess | None = None,
        network: NetworkPlugin | None = None,
    ) -> None:
        """`folder` is where processes run; `logs` is the state folder, logs included; `access` is for the pods."""
        capacity = machine_capacity(settings.capacity, logs)
        state = StateFolder(logs.absolute())
        devices = DeviceManager({name: amount for name, amount in settings.capacity.items() if "/" in name})
        self._pods, self._clock, self._settings = pods, clock, settings
        self._state = state
        self._registration = NodeRegistration(client, capacity, settings, clock)
        self._context = NodeContext(
            client=client,
            clock=clock,
            settings=settings,
            folder=folder,
            state=state,
            volumes=VolumeManager(client, state, capacity),
            devices=devices,
            allocatable=capacity,
            memory_limits={},
            runtime=create_runtime(settings, folder, state, devices, access),
            report_limiter=ReportLimiter(settings.progress_period),
            port_squatters=PortSquatters(clock),
            mark_lost=self._registration.mark_lost,
            ports=ports or NoPortAllocator(),
            network=network or SharedNetwork(),
            record_event=event_recorder(recorder) if recorder is not None else discard_event,
        )
        # By uid: a pod of the same name is another pod.
        self._workers: dict[str, PodWorker] = {}

    @property
    def name(self) -> str:
        return self._settings.name

    async def run(self) -> None:
        """Take care of every pod that is bound here, until cancelled."""
        await self._pods.wait_for_sync()
        try:
            async with asyncio.TaskGroup() as group:
                self._remove_orphans(group)
                spawn_supervised(group, self._registration.run, "node registration")
                spawn_supervised(group, self._watch_memory, "memory watchdog")
                with self._pods.subscribe(lambda delta: self._on_pod_change(delta, group)):
                    await asyncio.Event().wait()
        finally:
            self._context.port_squatters.close()
            await self._shut_down()

    # Pods

    def _on_pod_change(self, delta: Delta[Pod], group: asyncio.TaskGroup) -> None:
        pod = delta.newest
        uid = pod.metadata.uid
        if pod.spec.node_name != self._settings.name:
            return
        worker = self._workers.get(uid)
        if worker is not None:
            worker.update(delta.after)
        elif delta.after is not None and self._needs_worker(pod):
            made = self._workers[uid] = PodWorker(pod, self._context)
            spawn_supervised(group, lambda: self._run_worker(made, uid), f"pod {pod.metadata.key}")

    def _needs_worker(self, pod: Pod) -> bool:
        """Whether there is anything to do: a pod that is over needs a node only to be let go."""
        return pod.metadata.deletion_timestamp is not None or pod.status.phase not in ("Succeeded", "Failed")

    async def _run_worker(self, worker: PodWorker, uid: str) -> None:
        while True:
            await worker.run()
            pod = self._pods.cache.get(worker.key)
            if worker.is_deleted or pod is None or pod.metadata.uid != uid:
                break
            if pod.metadata.deletion_timestamp is None:
                # It is over, and stays as it is until somebody deletes it.
                del self._workers[uid]
                return
            # Deleted while its last status was being written.
            worker = self._workers[uid] = PodWorker(pod, self._context)
        del self._workers[uid]
        await self._remove_folder(worker.folder)

    async def _remove_folder(self, folder: PodFolder) -> None:
        """Volumes go with the pod, logs a little later: somebody may be reading them."""
        await asyncio.to_thread(folder.remove_volumes)
        await self._clock.sleep(self._settings.log_retention)
        await asyncio.to_thread(folder.remove)

    def container_targets(self, uid: str) -> dict[str, ContainerTarget]:
        """The containers of a pod that run, for whoever executes something in them."""
        worker = self._workers.get(uid)
        lives = worker.containers if worker is not None else ()
        return {life.spec.name: life.target for life in lives if life.target is not None}

    # What an earlier node left

    def _remove_orphans(self, group: asyncio.TaskGroup) -> None:
        """End what belongs to no pod of ours any more. Living pods adopt their own."""
        ours = {each.metadata.uid for each in self._pods.cache if each.spec.node_name == self._settings.name}
        folders = self._state.pods()
        lost = {mark for folder in folders for mark in lost_run_ids(folder)}
        kill_strays(lost)
        if lost:
            spawn_supervised(group, lambda: self._context.runtime.remove_lost(lost), "what is left of lost containers")
        for folder in folders:
            if folder.uid not in ours:
                spawn_supervised(group, partial(self._kill_orphans, folder), f"orphans of {folder.key}")

    async def _kill_orphans(self, folder: PodFolder) -> None:
        for container in folder.containers():
            for files in folder.runs(container):
                await wait_for_start(files, self._clock)
                process = adopt(files, self._clock)
                if process is not None:
                    log.info("ending a process whose pod is gone", extra={"pod": str(folder.key)})
                    process.kill()
                    await process.wait()
        with suppress(NetworkUnavailable):
            await self._context.network.leave(folder.uid)
        await asyncio.to_thread(folder.remove)

    # Memory

    async def _watch_memory(self) -> None:
        await run_every(self._settings.memory_period, self._enforce_memory_limits, self._clock)

    async def _enforce_memory_limits(self) -> None:
        limits = dict(self._context.memory_limits)
        if not limits:
            return
        for pid, size in (await asyncio.to_thread(processes_over_limit, limits)).items():
            if any(life.oom_kill(pid, size) for worker in self._workers.values() for life in worker.containers):
                log.info("container uses more memory than its limit", extra={"pid": pid, "limit": limits[pid]})

    # Leaving

    async def _shut_down(self) -> None:
        workers = list(self._workers.values())
        if self._settings.leave_running:
            for worker in workers:
                worker.abandon()
            self._context.network.close(leave_running=True)
            return
        work = run_all((worker.shut_down(self._settings.shutdown_grace) for worker in workers), at_once=1000)
        async with asyncio.TaskGroup() as group:
            await _await_uncancelled(group.create_task(work))
        self._context.network.close(leave_running=False)


async def _await_uncancelled(task: asyncio.Task[None]) -> None:
    """Wait for a task even when cancelled meanwhile: it is short, and nobody would do its work afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def event_recorder(recorder: EventRecorder) -> RecordEvent:
    """Events about pods, through a recorder."""

    def tell(pod: RunPod, type: str, reason: str, note: str) -> None:  # noqa: A002 - Kubernetes' word
        regarding = ObjectReference(
            api_version="v1",
            kind="Pod",
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            uid=pod.metadata.uid,
        )
        recorder.record(regarding, type, reason, note)

    return tell


def lost_run_ids(folder: PodFolder) -> set[str]:
    """Identities of runs that nobody supervises and nobody saw end."""
    lost: set[str] = set()
    for container in folder.containers():
        for files in folder.runs(container):
            record = files.run_record()
            if record is not None and files.exit_record() is None and not files.is_alive():
                lost.add(record.id)
    return lost


def kill_strays(marks: Iterable[str]) -> None:
    """Kill every process that carries one of these marks in its environment."""
    wanted = set(marks)
    for process in psutil.process_iter() if wanted else ():
        try:
            if process.environ().get(MARK_VARIABLE) in wanted:
                process.kill()
        except psutil.Error:
            continue
