"""The kubelet of this machine: runs the pods that are bound to it as processes, and reports their status."""

import asyncio
import logging
from contextlib import suppress
from functools import partial
from pathlib import Path

from gangline.api.core import ObjectReference, Pod, is_terminal_phase
from gangline.api.kubeflow.training import JOB_NAME
from gangline.base.clock import Clock
from gangline.base.host_features import raise_open_files_limit
from gangline.base.tasks import run_all, run_every
from gangline.kube.client import Client
from gangline.kube.config.access import PlaneAccess
from gangline.node.checkpoint import PodFolder, StateFolder
from gangline.node.network.bridge_client import NetworkUnavailable
from gangline.node.network.plugin import NetworkPlugin, NoPortAllocator, PortAllocator, SharedNetwork
from gangline.node.network.port_squatter import PortSquatters
from gangline.node.node_status import NodeRegistration
from gangline.node.options import create_runtime
from gangline.node.pod_types import RunPod
from gangline.node.pods.context import BadNode, FaultHooks, NodeContext, RecordEvent, discard_event, spawn_supervised
from gangline.node.pods.progress import ReportLimiter
from gangline.node.pods.worker import PodWorker
from gangline.node.resources import DeviceManager, machine_capacity, processes_over_limit, requests_gpus
from gangline.node.runtime.process import POLL_INTERVAL, adopt, end_strays, wait_for_start
from gangline.node.runtime.runtime import ContainerTarget
from gangline.node.settings import NodeSettings
from gangline.node.volumes.manager import VolumeManager
from gangline.node.volumes.tokens import ApiTokens, TokenManager, TokenRequester
from gangline.runtime.events import EventRecorder
from gangline.runtime.informer import Delta, Informer

log = logging.getLogger(__name__)

DEFAULT_NAME = "local"
DEFAULT_SETTINGS = NodeSettings()


class LocalKubelet:
    """This machine as a node. Inert until `run()`.

    When `run()` ends in order, it ends every process, unless the settings leave them running. A node that was killed
    leaves its processes running: the next node with the same state folder adopts them.
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
        tokens: TokenRequester | None = None,
        network: NetworkPlugin | None = None,
    ) -> None:
        """`folder` is where processes run, `logs` the state folder with the logs, `access` how pods reach the plane.

        `tokens` requests tokens for pods, by default from the API.
        """
        capacity = machine_capacity(settings.capacity, logs, settings.gpus)
        state = StateFolder(logs.absolute())
        devices = DeviceManager(settings.capacity, settings.gpus)
        self._pods, self._clock, self._settings = pods, clock, settings
        self._state = state
        self._registration = NodeRegistration(client, capacity, settings, clock)
        self._context = NodeContext(
            client=client,
            clock=clock,
            settings=settings,
            state=state,
            volumes=VolumeManager(
                client,
                state,
                capacity,
                TokenManager(tokens or ApiTokens(client), clock),
                access.ca_text if access is not None else None,
            ),
            devices=devices,
            memory_limits={},
            shims={},
            runtime=create_runtime(settings, folder, state, devices, access, self._hides_gpus),
            report_limiter=ReportLimiter(settings.progress_period),
            faults=FaultHooks(PortSquatters(clock), self._registration.mark_lost, BadNode(clock)),
            ports=ports or NoPortAllocator(),
            network=network or SharedNetwork(),
            record_event=event_recorder(recorder) if recorder is not None else discard_event,
        )
        # By uid: another pod may have the same name later.
        self._workers: dict[str, PodWorker] = {}

    @property
    def name(self) -> str:
        return self._settings.name

    async def run(self) -> None:
        """Run every pod that is bound to this node, until cancelled."""
        raise_open_files_limit()
        await self._pods.wait_for_sync()
        try:
            async with asyncio.TaskGroup() as group:
                await self._remove_orphans(group)
                spawn_supervised(group, self._registration.run, "node registration")
                spawn_supervised(group, self._watch_memory, "memory watchdog")
                with self._pods.subscribe(lambda delta: self._on_pod_change(delta, group)):
                    await asyncio.Event().wait()
        finally:
            self._context.faults.port_squatters.close()
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
            new_worker = self._workers[uid] = PodWorker(pod, self._context)
            spawn_supervised(group, lambda: self._run_worker(new_worker, uid), f"pod {pod.metadata.key}")

    def _needs_worker(self, pod: Pod) -> bool:
        """Whether there is work: a finished pod needs its node only to be deleted."""
        return pod.metadata.deletion_timestamp is not None or not is_terminal_phase(pod.status.phase)

    async def _run_worker(self, worker: PodWorker, uid: str) -> None:
        await self._wait_for_removed(worker)
        while True:
            await worker.run()
            pod = self._pods.cache.get(worker.key)
            if worker.is_deleted or pod is None or pod.metadata.uid != uid:
                break
            if pod.metadata.deletion_timestamp is None:
                # The pod has finished, and stays as it is until it is deleted.
                del self._workers[uid]
                return
            # The pod was deleted while its last status was being written.
            worker = self._workers[uid] = PodWorker(pod, self._context)
        del self._workers[uid]
        await self._remove_folder(worker.folder)

    async def _wait_for_removed(self, worker: PodWorker) -> None:
        """Wait until no process lives of pods of the same owner that were removed by force.

        Their objects are gone before their processes, and the owner creates their successors meanwhile.
        """
        while any(
            other.is_deleted and other.owner_uid == worker.owner_uid and other.has_processes
            for other in self._workers.values()
        ):
            await self._clock.sleep(POLL_INTERVAL)

    async def _remove_folder(self, folder: PodFolder) -> None:
        """Remove the volumes with the pod, the logs a little later: a client may be reading them."""
        await asyncio.to_thread(folder.remove_volumes)
        await self._clock.sleep(self._settings.log_retention)
        await asyncio.to_thread(folder.remove)

    def _hides_gpus(self, pod: RunPod) -> bool:
        """Whether a pod belongs to a job with replicas that request GPUs: the others must leave those alone."""
        job = pod.metadata.labels.get(JOB_NAME)
        return job is not None and any(
            requests_gpus(other)
            for other in self._pods.cache
            if other.metadata.labels.get(JOB_NAME) == job and other.metadata.namespace == pod.metadata.namespace
        )

    def container_targets(self, uid: str) -> dict[str, ContainerTarget]:
        """The running containers of a pod, by name, for exec, attach and port-forward."""
        worker = self._workers.get(uid)
        containers = worker.containers if worker is not None else ()
        return {container.spec.name: container.target for container in containers if container.target is not None}

    # Processes of an earlier node

    async def _remove_orphans(self, group: asyncio.TaskGroup) -> None:
        """Kill processes of pods that are no longer on this node. Workers adopt the processes of the others."""
        uids = {pod.metadata.uid for pod in self._pods.cache if pod.spec.node_name == self._settings.name}
        folders = self._state.pods()
        lost = {run_id for folder in folders for run_id in lost_run_ids(folder)}
        await end_strays(lost, self._clock)
        if lost:
            spawn_supervised(group, lambda: self._context.runtime.remove_lost(lost), "what is left of lost containers")
        for folder in folders:
            if folder.uid not in uids:
                spawn_supervised(group, partial(self._kill_orphans, folder), f"orphans of {folder.key}")

    async def _kill_orphans(self, folder: PodFolder) -> None:
        for files in folder.all_runs():
            await wait_for_start(files, self._clock)
            process = adopt(files, self._clock)
            if process is not None:
                log.info("ending a process whose pod is gone", extra={"pod": str(folder.key)})
                await process.end()
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
        workers = list(self._workers.values())
        containers = [container for worker in workers for container in worker.containers]
        over_limit = await asyncio.to_thread(processes_over_limit, limits, dict(self._context.shims))
        for pid, size in over_limit.items():
            if any(container.oom_kill(pid, size) for container in containers):
                log.info("container uses more memory than its limit", extra={"pid": pid, "limit": limits[pid]})

    # The end of the node

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
    """Wait for a task even when cancelled meanwhile: the task is short, and nothing would finish its work later."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def event_recorder(recorder: EventRecorder) -> RecordEvent:
    """Records events about pods with a recorder."""

    def record(pod: RunPod, type: str, reason: str, note: str) -> None:  # noqa: A002 - Kubernetes' word
        regarding = ObjectReference(
            api_version="v1", kind="Pod", namespace=pod.metadata.namespace, name=pod.metadata.name, uid=pod.metadata.uid
        )
        recorder.record(regarding, type, reason, note)

    return record


def lost_run_ids(folder: PodFolder) -> set[str]:
    """Ids of runs that have no shim any more and no recorded exit."""
    lost: set[str] = set()
    for files in folder.all_runs():
        record = files.run_record()
        if record is not None and files.exit_record() is None and not files.lock.is_held():
            lost.add(record.id)
    return lost
