"""The CPU and memory that pods use whose containers are processes of this machine."""

import os
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from gangline.base.clock import Clock
from gangline.node.checkpoint import PodFolder, StateFolder

CLOCK_TICK = 1 / os.sysconf("SC_CLK_TCK")
"""The seconds by which the kernel counts CPU use. A process that only waits may cross one tick in any interval."""


class ResourceUsage(NamedTuple):
    """The CPU cores and bytes of memory that a replica uses, and the GPUs that it has (resource name and id)."""

    cores: float = 0.0
    memory: int = 0
    gpus: tuple[tuple[str, str], ...] = ()

    def __add__(self, other: object) -> "ResourceUsage":
        assert isinstance(other, ResourceUsage)
        return ResourceUsage(self.cores + other.cores, self.memory + other.memory, self.gpus + other.gpus)


class UsageSampler:
    """Samples the processes of each pod. A container's process leads a session, so its children are counted with it."""

    def __init__(self, state: Path, clock: Clock) -> None:
        self._pods, self._clock = StateFolder(state), clock
        # By the session leader's pid: the time of the last sample, and the CPU seconds used by then.
        self._last_samples: dict[int, tuple[float, float]] = {}

    def sample(self) -> dict[str, ResourceUsage]:
        """The usage of each pod, by name. CPU is the average since the last sample, 0 at the first one."""
        return {folder.key.name: usage for folder, usage in self._sample_pods()}

    def sample_by_uid(self) -> dict[str, ResourceUsage]:
        """The same, by the uid of the pod."""
        return {folder.uid: usage for folder, usage in self._sample_pods()}

    def _sample_pods(self) -> list[tuple[PodFolder, ResourceUsage]]:
        sessions = _pids_by_session()
        leaders = ((folder, live_pids(folder)) for folder in self._pods.pods())
        return [
            (folder, sum((self._container_usage(pid, sessions[pid]) for pid in pids), _devices(folder)))
            for folder, pids in leaders
            if pids
        ]

    def _container_usage(self, leader: int, pids: Iterable[int]) -> ResourceUsage:
        seconds, memory = _cpu_and_memory(pids)
        now = self._clock.monotonic()
        last_time, last_seconds = self._last_samples.get(leader, (now, seconds))
        self._last_samples[leader] = (now, seconds)
        used = seconds - last_seconds
        if used < 1.5 * CLOCK_TICK or now <= last_time:
            return ResourceUsage(0.0, memory)
        return ResourceUsage(used / (now - last_time), memory)


def live_pids(folder: PodFolder) -> list[int]:
    """The pids of the processes of a pod's containers that are alive.

    Without those that a container engine runs: the process of this machine is only its client.
    """
    alive = (files for files in folder.all_runs() if files.lock.is_held())
    processes = (files for files in alive if (run := files.run_record()) is None or not run.engine)
    records = (files.start_record() for files in processes)
    return [record.pid for record in records if record is not None]


def _devices(folder: PodFolder) -> ResourceUsage:
    """The GPUs of a pod's containers that are alive."""
    records = [files.run_record() for files in folder.all_runs() if files.lock.is_held()]
    devices = [record.devices for record in records if record is not None]
    return ResourceUsage(gpus=tuple((name, str(id_)) for held in devices for name in held for id_ in held[name]))


def _pids_by_session() -> dict[int, list[int]]:
    sessions: dict[int, list[int]] = defaultdict(list)
    for pid in psutil.pids():
        with suppress(ProcessLookupError, PermissionError):
            sessions[os.getsid(pid)].append(pid)
    return sessions


def _cpu_and_memory(pids: Iterable[int]) -> tuple[float, int]:
    """The sums of CPU seconds and bytes of memory of the processes."""
    seconds, memory = 0.0, 0
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            times = process.cpu_times()
            seconds += times.user + times.system
            memory += process.memory_info().rss
    return seconds, memory
