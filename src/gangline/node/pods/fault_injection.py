"""Provokes faults in a pod because somebody asked for it: real ones, through what the node does in earnest too."""

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
from gangline.api.drill import Answer, Fault, Order
from gangline.api.kubeflow.training import DRILLED
from gangline.api.quantity import Quantity
from gangline.kube.errors import KubeError
from gangline.node.context import Tools
from gangline.node.pods.container import ContainerLife
from gangline.node.pods.plan import Doom, Role
from gangline.node.settings import PROCESS
from gangline.node.types import RunPod, Volume

log = logging.getLogger(__name__)

RUNS = timedelta(milliseconds=50)
"""How long a slow replica runs between two pauses."""
LARGEST = 2**30
"""No volume is filled with more than this."""
LOW = "The node was low on resource: ephemeral-storage. It is a drill: the disk is as full as it was."
LOST = "Node {} which was running pod {} is unresponsive. It is a drill: the node is well."


class Subject(NamedTuple):
    """A pod, as its worker has it."""

    pod: RunPod
    lives: Callable[[], Sequence[ContainerLife]]
    volumes: Callable[[], Mapping[str, Path]]
    # The pod fails for this reason, whatever its restart policy.
    doom: Callable[[Doom], None]


class Drilling:
    """Carries out one order. The answer is on the pod before anything happens to it."""

    def __init__(self, order: Order, subject: Subject, tools: Tools) -> None:
        self._order, self._subject, self._tools = order, subject, tools

    async def run(self) -> None:
        """Answer, and do it. Cancelled, it undoes what lasts, but for a node that is away and a taken port."""
        answer = self._answer()
        if not await self._told(answer) or answer.refuses:
            return
        self._tools.tell(self._subject.pod, "Warning", "Drill", f"Drill: {answer.does}")
        log.warning("drill", extra={"pod": str(self._subject.pod.metadata.key), "fault": self._order.fault})
        match self._order.fault:
            case Fault.KILL:
                self._kill()
            case Fault.OOM:
                self._starve()
            case Fault.PORT:
                key = self._subject.pod.metadata.key
                self._tools.intruders.expect(key, timedelta(seconds=self._order.seconds))
                self._kill()
            case Fault.DISK:
                await self._fill()
            case Fault.NODE_LOST:
                self._lose()
            case Fault.SLOW:
                await self._slow()

    async def _told(self, answer: Answer) -> bool:
        metadata = self._subject.pod.metadata
        note = {DRILLED: msgspec.json.encode(answer).decode()}
        try:
            await self._tools.client.patch(
                Pod, metadata.key, {"metadata": {"uid": metadata.uid, "annotations": note}}
            )
        except KubeError as error:
            log.warning("drill not answered, so not done", extra={"error": str(error)})
            return False
        return True

    # Words

    def _answer(self) -> Answer:
        refuses = self._refusal()
        return Answer(id=self._order.id, does="" if refuses else self._words(), refuses=refuses)

    def _refusal(self) -> str:
        order, ports = self._order, self._tools.ports.of(self._subject.pod)
        if not self._working():
            return "no process of it runs"
        if order.fault is Fault.PORT and not ports:
            return "it has no port of its own on this node"
        if order.fault is Fault.SLOW and self._tools.settings.runtime != PROCESS:
            return "only processes can be slowed down, and this node runs containers"
        if order.fault is Fault.SLOW and order.pause <= 0:
            return "a pause takes longer than nothing"
        return ""

    def _words(self) -> str:
        order = self._order
        pids = ", ".join(str(life.pid) for life in self._working())
        match order.fault:
            case Fault.KILL:
                return f"SIGKILL to process group {pids}"
            case Fault.OOM:
                return f"the memory limit of process {pids} is lowered to nothing"
            case Fault.PORT:
                ports = sorted(set(self._tools.ports.of(self._subject.pod).values()))
                numbers = ", ".join(map(str, ports))
                return f"SIGKILL to process group {pids}, and port {numbers} is taken before its next start"
            case Fault.DISK:
                volume = self._sized()
                return f"volume {volume.name} is filled" if volume is not None else "evicted for want of disk"
            case Fault.NODE_LOST:
                return f"node {self._tools.settings.name} is lost with it for {order.seconds:g} s"
            case Fault.SLOW:
                pause = f"{order.pause * 1000:g} ms"
                return f"process {pids} stands still for {pause} after every {RUNS / timedelta(milliseconds=1):g} ms, for {order.seconds:g} s"

    # Deeds

    def _working(self) -> list[ContainerLife]:
        return [life for life in self._subject.lives() if life.alive and life.role is Role.MAIN]

    def _kill(self) -> None:
        for life in self._working():
            life.hasten()

    def _starve(self) -> None:
        """Nobody can do with one byte: the watchdog ends it as it ends whoever takes too much."""
        for life in self._working():
            if life.pid is not None:
                self._tools.memory_limits[life.pid] = 1

    def _sized(self) -> Volume | None:
        """A volume with a limit that can be filled up."""
        for volume in self._subject.pod.spec.volumes:
            if volume.empty_dir is not None and 0 < _limit(volume) <= LARGEST:
                folder = self._subject.volumes().get(volume.name)
                if folder is not None and shutil.disk_usage(folder).free > 2 * _limit(volume):
                    return volume
        return None

    async def _fill(self) -> None:
        volume = self._sized()
        if volume is None:
            self._subject.doom(Doom("Evicted", LOW))
            return
        folder = self._subject.volumes()[volume.name]
        try:
            await asyncio.to_thread(_filled, folder / ".gangline-drill", _limit(volume) + 2**20)
        except OSError as error:
            log.warning("volume not filled", extra={"error": str(error)})

    def _lose(self) -> None:
        metadata, tools = self._subject.pod.metadata, self._tools
        tools.away(timedelta(seconds=self._order.seconds))
        self._subject.doom(Doom("NodeLost", LOST.format(tools.settings.name, metadata.name)))
        # A machine that is gone says goodbye to nobody.
        self._kill()

    async def _slow(self) -> None:
        clock = self._tools.clock
        end = clock.monotonic() + self._order.seconds
        try:
            while clock.monotonic() < end:
                for life in self._working():
                    life.freeze(frozen=True)
                await clock.sleep(timedelta(seconds=self._order.pause))
                thaw(self._working())
                await clock.sleep(RUNS)
        finally:
            thaw(self._working())


def thaw(lives: Sequence[ContainerLife]) -> None:
    """Let them run, whoever stopped them."""
    for life in lives:
        life.freeze(frozen=False)


def _limit(volume: Volume) -> int:
    assert volume.empty_dir is not None
    return Quantity.of(volume.empty_dir.size_limit or "0").value()


def _filled(path: Path, size: int) -> None:
    """A file that takes so much room in earnest. Blocking."""
    with path.open("wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
            return
        for _ in range(size // 2**20 + 1):
            file.write(b"x" * 2**20)
