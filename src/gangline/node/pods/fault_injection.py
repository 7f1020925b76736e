"""Injects the faults that a drill requests: real ones, by the same mechanisms by which the node handles real faults."""

import asyncio
import logging
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import msgspec

from gangline.api.core import Pod
from gangline.api.drill import FaultKind, FaultRequest, FaultResponse
from gangline.api.kubeflow.training import DRILL_RESULT_ANNOTATION
from gangline.api.quantity import Quantity
from gangline.kube.errors import KubeError
from gangline.node.pod_types import RunPod, Volume
from gangline.node.pods.container import ContainerRunner
from gangline.node.pods.context import NodeContext
from gangline.node.pods.plan import Role, Termination

log = logging.getLogger(__name__)

SLOW_RUN_TIME = timedelta(milliseconds=50)
"""How long a slow replica runs between two pauses."""
MAX_FILL_BYTES = 2**30
"""A volume with a larger limit is not filled."""
DISK_PRESSURE_MESSAGE = "The node was low on resource: ephemeral-storage. It is a drill: the disk is as full as it was."
NODE_LOST_MESSAGE = "Node {} which was running pod {} is unresponsive. It is a drill: the node is well."


class FaultTarget(NamedTuple):
    """The pod that a fault is injected into."""

    pod: RunPod
    containers: Callable[[], Sequence[ContainerRunner]]
    volumes: Callable[[], Mapping[str, Path]]
    # Fails the pod for a reason, whatever its restart policy.
    terminate: Callable[[Termination], object]


class FaultInjector:
    """Carries out one fault request. The response is written to the pod before the fault is injected."""

    def __init__(self, request: FaultRequest, target: FaultTarget, context: NodeContext) -> None:
        self._request, self._target, self._context = request, target, context

    async def run(self) -> None:
        """Respond, and inject the fault. When cancelled, undo a lasting fault, except a lost node and a taken port."""
        response = self._response()
        if not await self._write_response(response) or response.refuses:
            return
        self._context.record_event(self._target.pod, "Warning", "Drill", f"Drill: {response.does}")
        log.warning("drill", extra={"pod": str(self._target.pod.metadata.key), "fault": self._request.fault})
        match self._request.fault:
            case FaultKind.KILL:
                self._kill()
            case FaultKind.OOM:
                self._exhaust_memory()
            case FaultKind.PORT:
                key = self._target.pod.metadata.key
                self._context.faults.port_squatters.schedule(key, timedelta(seconds=self._request.seconds))
                self._kill()
            case FaultKind.DISK:
                await self._fill_disk()
            case FaultKind.NODE_LOST:
                self._lose_node()
            case FaultKind.SLOW:
                await self._slow_down()

    async def _write_response(self, response: FaultResponse) -> bool:
        metadata = self._target.pod.metadata
        annotations = {DRILL_RESULT_ANNOTATION: msgspec.json.encode(response).decode()}
        body = {"metadata": {"uid": metadata.uid, "annotations": annotations}}
        try:
            await self._context.client.patch(Pod, metadata.key, body)
        except KubeError as error:
            log.warning("drill not answered, so not done", extra={"error": str(error)})
            return False
        return True

    # Response

    def _response(self) -> FaultResponse:
        refusal = self._refusal()
        return FaultResponse(id=self._request.id, does="" if refusal else self._description(), refuses=refusal)

    def _refusal(self) -> str:
        request, ports = self._request, self._context.ports.pod_ports(self._target.pod)
        if not self._running_containers():
            return "no process of it runs"
        if request.fault is FaultKind.PORT and not ports:
            return "it has no port of its own on this node"
        if request.fault is FaultKind.SLOW and any(map(_engine, self._running_containers())):
            return "only processes can be slowed down, and this replica is a container"
        if request.fault is FaultKind.SLOW and request.pause <= 0:
            return "a pause takes longer than nothing"
        return ""

    def _description(self) -> str:
        request = self._request
        pids = ", ".join(str(container.pid) for container in self._running_containers())
        match request.fault:
            case FaultKind.KILL:
                return f"SIGKILL to process group {pids}"
            case FaultKind.OOM:
                return f"the memory limit of process {pids} is lowered to nothing"
            case FaultKind.PORT:
                ports = sorted(set(self._context.ports.pod_ports(self._target.pod).values()))
                numbers = ", ".join(map(str, ports))
                return f"SIGKILL to process group {pids}, and port {numbers} is taken before its next start"
            case FaultKind.DISK:
                volume = self._fillable_volume()
                return f"volume {volume.name} is filled" if volume is not None else "evicted for want of disk"
            case FaultKind.NODE_LOST:
                return f"node {self._context.settings.name} is lost with it for {request.seconds:g} s"
            case FaultKind.SLOW:
                pause = f"{request.pause * 1000:g} ms"
                running = f"{SLOW_RUN_TIME / timedelta(milliseconds=1):g} ms"
                return f"process {pids} stands still for {pause} after every {running}, for {request.seconds:g} s"

    # Faults

    def _running_containers(self) -> list[ContainerRunner]:
        return [
            container
            for container in self._target.containers()
            if container.pid is not None and container.role is Role.MAIN
        ]

    def _kill(self) -> None:
        for container in self._running_containers():
            container.kill_now()

    def _exhaust_memory(self) -> None:
        """Lower the memory limit to one byte: the watchdog kills the process as it does in earnest."""
        for container in self._running_containers():
            if container.pid is not None:
                self._context.memory_limits[container.pid] = 1

    def _fillable_volume(self) -> Volume | None:
        """A volume whose size limit can be exceeded without filling the disk."""
        for volume in self._target.pod.spec.volumes:
            if volume.empty_dir is not None and 0 < _size_limit(volume) <= MAX_FILL_BYTES:
                folder = self._target.volumes().get(volume.name)
                if folder is not None and shutil.disk_usage(folder).free > 2 * _size_limit(volume):
                    return volume
        return None

    async def _fill_disk(self) -> None:
        volume = self._fillable_volume()
        if volume is None:
            self._target.terminate(Termination("Evicted", DISK_PRESSURE_MESSAGE))
            return
        folder = self._target.volumes()[volume.name]
        try:
            await asyncio.to_thread(_write_filler, folder / ".gangline-drill", _size_limit(volume) + 2**20)
        except OSError as error:
            log.warning("volume not filled", extra={"error": str(error)})

    def _lose_node(self) -> None:
        metadata, node = self._target.pod.metadata, self._context.settings.name
        self._context.faults.mark_lost(timedelta(seconds=self._request.seconds))
        self._target.terminate(Termination("NodeLost", NODE_LOST_MESSAGE.format(node, metadata.name)))
        # Without a grace period: a machine that is lost sends no TERM.
        self._kill()

    async def _slow_down(self) -> None:
        clock = self._context.clock
        end = clock.monotonic() + self._request.seconds
        try:
            while clock.monotonic() < end:
                for container in self._running_containers():
                    container.freeze(frozen=True)
                await clock.sleep(timedelta(seconds=self._request.pause))
                resume_all(self._running_containers())
                await clock.sleep(SLOW_RUN_TIME)
        finally:
            resume_all(self._running_containers())


def resume_all(containers: Sequence[ContainerRunner]) -> None:
    """Let all frozen containers continue."""
    for container in containers:
        container.freeze(frozen=False)


def _size_limit(volume: Volume) -> int:
    assert volume.empty_dir is not None
    return Quantity.of(volume.empty_dir.size_limit or "0").value()


def _write_filler(path: Path, size: int) -> None:
    """Write a file of this size, with its blocks allocated. Blocking."""
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
            return
        for _ in range(size // 2**20 + 1):
            file.write(b"x" * 2**20)


def _engine(container: ContainerRunner) -> str:
    """The container engine of a running container; empty for a process of this machine."""
    record = container.latest_files.run_record() if container.latest_files is not None else None
    return record.engine if record is not None else ""
