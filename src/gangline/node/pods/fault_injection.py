"""Injects the faults that a drill requests: real ones, by the same mechanisms by which the node handles real faults."""

import asyncio
import logging
import os
import shutil
import signal
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
from gangline.node.checkpoint import KillReason
from gangline.node.logs import append_lines
from gangline.node.network.bridge import POD_INTERFACE
from gangline.node.network.namespaces import Isolation, nsenter_prefix
from gangline.node.pod_types import RunPod, Volume
from gangline.node.pods.container import ContainerRunner
from gangline.node.pods.context import NodeContext
from gangline.node.pods.plan import Role, Termination

log = logging.getLogger(__name__)

SLOW_RUN_TIME = timedelta(milliseconds=50)
"""How long a slow replica runs between two pauses."""
HANG_PERIOD = timedelta(milliseconds=200)
"""How often a hanging replica is stopped again."""
MIN_BITS_PER_SECOND = 1000
MAX_FILL_BYTES = 2**30
"""A volume with a larger limit is not filled."""
DISK_PRESSURE_MESSAGE = "The node was low on resource: ephemeral-storage. It is a drill: the disk is as full as it was."
EVICTION_MESSAGE = "The node was told to evict it. It is a drill."
NODE_LOST_MESSAGE = "Node {} which was running pod {} is unresponsive. It is a drill: the node is well."


class FaultTarget(NamedTuple):
    """The pod that a fault is injected into."""

    pod: RunPod
    containers: Callable[[], Sequence[ContainerRunner]]
    volumes: Callable[[], Mapping[str, Path]]
    # Fails the pod for a reason, whatever its restart policy.
    terminate: Callable[[Termination], object]
    # The pod's own namespaces; None if it shares the network of the machine.
    isolation: Callable[[], Isolation | None]


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
        for container in self._running_containers():
            if container.latest_files is not None:
                append_lines(container.latest_files.log_file, self._request.log, self._context.clock.now())
        await self._inject()

    async def _inject(self) -> None:
        hooks, duration = self._context.faults, timedelta(seconds=self._request.seconds)
        match self._request.fault:
            case FaultKind.KILL:
                self._kill()
            case FaultKind.EXIT:
                self._exit()
            case FaultKind.OOM:
                self._exhaust_memory()
            case FaultKind.PORT:
                hooks.port_squatters.schedule(self._target.pod.metadata.key, duration)
                self._kill()
            case FaultKind.DISK:
                await self._fill_disk()
            case FaultKind.EVICT:
                self._target.terminate(Termination("Evicted", EVICTION_MESSAGE))
            case FaultKind.NODE_LOST:
                self._lose_node()
            case FaultKind.BAD_NODE:
                hooks.bad_node.mark(duration)
                message = bad_node_message(self._context.settings.name)
                self._target.terminate(Termination("UnexpectedAdmissionError", message))
            case FaultKind.SLOW:
                await self._slow_down()
            case FaultKind.HANG:
                await self._hang()
            case FaultKind.SLOW_NETWORK:
                await self._slow_network()

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
        if request.fault in (FaultKind.SLOW, FaultKind.HANG) and any(map(_engine, self._running_containers())):
            return "only processes can be stopped for a while, and this replica is a container"
        if request.fault is FaultKind.SLOW_NETWORK:
            return self._network_refusal()
        if request.fault is FaultKind.KILL and request.signal not in _signal_numbers():
            return f"there is no signal {request.signal}"
        if request.fault is FaultKind.SLOW and request.pause <= 0:
            return "a pause takes longer than nothing"
        return ""

    def _network_refusal(self) -> str:
        if self._request.bits_per_second < MIN_BITS_PER_SECOND:
            return f"a network of less than {MIN_BITS_PER_SECOND} bits a second does not work at all"
        if self._target.isolation() is None:
            return "it shares the network of this machine; start the run with --network isolated"
        if shutil.which("tc") is None:
            return "the node has no program tc (package iproute2), which limits what a network sends"
        return ""

    def _description(self) -> str:
        request = self._request
        pids = ", ".join(str(container.pid) for container in self._running_containers())
        match request.fault:
            case FaultKind.KILL:
                return f"{signal.Signals(request.signal).name} to process group {pids}"
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
            case FaultKind.HANG:
                return f"process {pids} stands still for {request.seconds:g} s"
            case FaultKind.SLOW_NETWORK:
                rate = f"{request.bits_per_second / 1e6:g} Mbit/s"
                return f"what it sends is limited to {rate}, for {request.seconds:g} s"
            case FaultKind.BAD_NODE:
                node = self._context.settings.name
                return f"node {node} fails it, and every pod that starts there, for {request.seconds:g} s"
            case FaultKind.EVICT:
                return "evicted"
            case FaultKind.EXIT:
                return f"process group {pids} is ended, and reported as exit {request.exit_code}"

    # Faults

    def _running_containers(self) -> list[ContainerRunner]:
        return [
            container
            for container in self._target.containers()
            if container.pid is not None and container.role is Role.MAIN
        ]

    def _kill(self) -> None:
        for container in self._running_containers():
            if self._request.signal == signal.SIGKILL:
                container.kill_now()
            else:
                container.send_signal(self._request.signal)

    def _exit(self) -> None:
        for container in self._running_containers():
            if container.latest_files is not None:
                container.latest_files.write_kill_reason(KillReason("Error", exit_code=self._request.exit_code))
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
                    container.send_signal(signal.SIGSTOP)
                await clock.sleep(timedelta(seconds=self._request.pause))
                resume_all(self._running_containers())
                await clock.sleep(SLOW_RUN_TIME)
        finally:
            resume_all(self._running_containers())

    async def _hang(self) -> None:
        """Stop all processes, again and again: one that starts meanwhile, in the same pod, must stand still, too."""
        clock = self._context.clock
        end = clock.monotonic() + self._request.seconds
        try:
            while clock.monotonic() < end:
                for container in self._running_containers():
                    container.send_signal(signal.SIGSTOP)
                await clock.sleep(min(HANG_PERIOD, timedelta(seconds=max(0.0, end - clock.monotonic()))))
        finally:
            resume_all(self._running_containers())

    async def _slow_network(self) -> None:
        """Limit what the pod sends by a token bucket in its own network, and remove the limit at the end."""
        rate = str(self._request.bits_per_second)
        try:
            await self._tc("replace", "tbf", "rate", rate, "burst", "16kb", "latency", "400ms")
            await self._context.clock.sleep(timedelta(seconds=self._request.seconds))
        finally:
            await self._tc("delete")

    async def _tc(self, verb: str, *settings: str) -> None:
        """Run tc in the network of the pod."""
        pid = next((container.pid for container in self._running_containers()), None)
        if pid is None:
            return
        prefix = nsenter_prefix(pid, Path("/"))
        words = (*prefix, "tc", "qdisc", verb, "dev", POD_INTERFACE, "root", *settings)
        process = await asyncio.create_subprocess_exec(*words, stderr=asyncio.subprocess.PIPE)
        _, errors = await process.communicate()
        if process.returncode:
            text = errors.decode(errors="replace").strip()
            log.warning("the network is not slowed down", extra={"error": text})
            self._context.record_event(self._target.pod, "Warning", "Drill", f"Drill: tc {verb} failed: {text}")


def bad_node_message(node: str) -> str:
    """Why a pod fails on a node that a drill makes bad."""
    return f"Pod was rejected: node {node} fails every pod that starts on it. It is a drill: the node is well."


def _signal_numbers() -> set[int]:
    return {int(number) for number in signal.valid_signals()}


def resume_all(containers: Sequence[ContainerRunner]) -> None:
    """Let all frozen containers continue."""
    for container in containers:
        container.send_signal(signal.SIGCONT)


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
