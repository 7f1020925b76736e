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
from gangline.base.tasks import every, run_all
from gangline.kube.client import Client
from gangline.kube.config.access import Access
from gangline.node.checkpoint import PodFolder, StateFolder
from gangline.node.context import (
    Network,
    NoPorts,
    Ports,
    SharedNetwork,
    Tell,
    Tools,
    spawn,
    tell_nobody,
)
from gangline.node.network.bridge_client import NoNetwork
from gangline.node.network.port_squatter import Intruders
from gangline.node.node_status import Registration
from gangline.node.options import chosen_runtime
from gangline.node.pods.probes import Target
from gangline.node.pods.progress import Pace
from gangline.node.pods.worker import PodWorker
from gangline.node.resources import Devices, exceeding, machine_capacity
from gangline.node.runtime.process import MARK, adopt, begun
from gangline.node.settings import NodeSettings
from gangline.node.types import RunPod
from gangline.node.volumes.volumes import Volumes
from gangline.runtime.events import Recorder
from gangline.runtime.informer import Delta, Informer

log = logging.getLogger(__name__)

NAME = "local"
DEFAULTS = NodeSettings()


class Node:
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
        settings: NodeSettings = DEFAULTS,
        ports: Ports | None = None,
        recorder: Recorder | None = None,
        access: Access | None = None,
        network: Network | None = None,
    ) -> None:
        """`folder` is where processes run; `logs` is the state folder, logs included; `access` is for the pods."""
        capacity = machine_capacity(settings.capacity, logs)
        state = StateFolder(logs.absolute())
        devices = Devices({name: amount for name, amount in settings.capacity.items() if "/" in name})
        self._pods, self._clock, self._settings = pods, clock, settings
        self._state = state
        self._registration = Registration(client, capacity, settings, clock)
        self._tools = Tools(
            client=client,
            clock=clock,
            settings=settings,
            folder=folder,
            state=state,
            volumes=Volumes(client, state, capacity),
            devices=devices,
            allocatable=capacity,
            memory_limits={},
            runtime=chosen_runtime(settings, folder, state, devices, access),
            pace=Pace(settings.progress_period),
            intruders=Intruders(clock),
            away=self._registration.lose,
            ports=ports or NoPorts(),
            network=network or SharedNetwork(),
            tell=telling(recorder) if recorder is not None else tell_nobody,
        )
        # By uid: a pod of the same name is another pod.
        self._workers: dict[str, PodWorker] = {}

    @property
    def name(self) -> str:
        return self._settings.name

    async def run(self) -> None:
        """Take care of every pod that is bound here, until cancelled."""
        await self._pods.synced()
        try:
            async with asyncio.TaskGroup() as group:
                self._sweep(group)
                spawn(group, self._registration.run, "node registration")
                spawn(group, self._watch_memory, "memory watchdog")
                with self._pods.subscribed(lambda delta: self._tell(delta, group)):
                    await asyncio.Event().wait()
        finally:
            self._tools.intruders.close()
            await self._leave()

    # Pods

    def _tell(self, delta: Delta[Pod], group: asyncio.TaskGroup) -> None:
        pod = delta.newest
        uid = pod.metadata.uid
        if pod.spec.node_name != self._settings.name:
            return
        worker = self._workers.get(uid)
        if worker is not None:
            worker.tell(delta.after)
        elif delta.after is not None and self._concerns(pod):
            made = self._workers[uid] = PodWorker(pod, self._tools)
            spawn(group, lambda: self._work(made, uid), f"pod {pod.metadata.key}")

    def _concerns(self, pod: Pod) -> bool:
        """Whether there is anything to do: a pod that is over needs a node only to be let go."""
        return pod.metadata.deletion_timestamp is not None or pod.status.phase not in ("Succeeded", "Failed")

    async def _work(self, worker: PodWorker, uid: str) -> None:
        while True:
            await worker.run()
            pod = self._pods.cache.get(worker.key)
            if worker.gone or pod is None or pod.metadata.uid != uid:
                break
            if pod.metadata.deletion_timestamp is None:
                # It is over, and stays as it is until somebody deletes it.
                del self._workers[uid]
                return
            # Deleted while its last status was being written.
            worker = self._workers[uid] = PodWorker(pod, self._tools)
        del self._workers[uid]
        await self._forget(worker.folder)

    async def _forget(self, folder: PodFolder) -> None:
        """Volumes go with the pod, logs a little later: somebody may be reading them."""
        await asyncio.to_thread(folder.remove_volumes)
        await self._clock.sleep(self._settings.keep_logs)
        await asyncio.to_thread(folder.remove)

    def targets(self, uid: str) -> dict[str, Target]:
        """The containers of a pod that run, for whoever executes something in them."""
        worker = self._workers.get(uid)
        lives = worker.lives if worker is not None else ()
        return {life.spec.name: life.target for life in lives if life.target is not None}

    # What an earlier node left

    def _sweep(self, group: asyncio.TaskGroup) -> None:
        """End what belongs to no pod of ours any more. Living pods adopt their own."""
        ours = {each.metadata.uid for each in self._pods.cache if each.spec.node_name == self._settings.name}
        folders = self._state.pods()
        lost = {mark for folder in folders for mark in lost_marks(folder)}
        end_strays(lost)
        if lost:
            spawn(group, lambda: self._tools.runtime.discard(lost), "what is left of lost containers")
        for folder in folders:
            if folder.uid not in ours:
                spawn(group, partial(self._end_orphans, folder), f"orphans of {folder.key}")

    async def _end_orphans(self, folder: PodFolder) -> None:
        for container in folder.containers():
            for files in folder.runs(container):
                await begun(files, self._clock)
                process = adopt(files, self._clock)
                if process is not None:
                    log.info("ending a process whose pod is gone", extra={"pod": str(folder.key)})
                    process.kill()
                    await process.ended()
        with suppress(NoNetwork):
            await self._tools.network.left(folder.uid)
        await asyncio.to_thread(folder.remove)

    # Memory

    async def _watch_memory(self) -> None:
        await every(self._settings.memory_period, self._look_at_memory, self._clock)

    async def _look_at_memory(self) -> None:
        limits = dict(self._tools.memory_limits)
        if not limits:
            return
        for pid, size in (await asyncio.to_thread(exceeding, limits)).items():
            if any(
                life.out_of_memory(pid, size) for worker in self._workers.values() for life in worker.lives
            ):
                log.info(
                    "container uses more memory than its limit", extra={"pid": pid, "limit": limits[pid]}
                )

    # Leaving

    async def _leave(self) -> None:
        workers = list(self._workers.values())
        if self._settings.leave_running:
            for worker in workers:
                worker.abandon()
            self._tools.network.close(leave_running=True)
            return
        work = run_all((worker.shut_down(self._settings.end_grace) for worker in workers), at_once=1000)
        async with asyncio.TaskGroup() as group:
            await _to_its_end(group.create_task(work))
        self._tools.network.close(leave_running=False)


async def _to_its_end(task: asyncio.Task[None]) -> None:
    """Wait for a task even when cancelled meanwhile: it is short, and nobody would do its work afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


def telling(recorder: Recorder) -> Tell:
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


def lost_marks(folder: PodFolder) -> set[str]:
    """Identities of runs that nobody supervises and nobody saw end."""
    lost: set[str] = set()
    for container in folder.containers():
        for files in folder.runs(container):
            record = files.record()
            if record is not None and files.ended() is None and not files.alive():
                lost.add(record.id)
    return lost


def end_strays(marks: Iterable[str]) -> None:
    """Kill every process that carries one of these marks in its environment."""
    wanted = set(marks)
    for process in psutil.process_iter() if wanted else ():
        try:
            if process.environ().get(MARK) in wanted:
                process.kill()
        except psutil.Error:
            continue
