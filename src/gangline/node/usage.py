"""The CPU and memory that pods use whose containers are processes of this machine."""

import os
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from gangline.api.meta import Key
from gangline.base.clock import Clock
from gangline.node.checkpoint import PodFolder, RunFiles, StateFolder

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


class ContainerUsage(NamedTuple):
    """What one container of a pod uses."""

    pod: Key
    uid: str
    container: str
    usage: ResourceUsage


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

    def sample_containers(self) -> list[ContainerUsage]:
        """The usage of each container since the last sample, without its devices and without those that it did not have."""
        known = set(self._last_samples)
        return [
            ContainerUsage(folder.key, folder.uid, container, usage)
            for folder, measured in self._measure()
            for container, pid, usage in measured
            if pid in known
        ]

    def _sample_pods(self) -> list[tuple[PodFolder, ResourceUsage]]:
        return [
            (folder, sum((usage for _, _, usage in measured), _devices(folder))) for folder, measured in self._measure()
        ]

    def _measure(self) -> list[tuple[PodFolder, list[tuple[str, int, ResourceUsage]]]]:
        """The pods with a process: the name, pid and usage of each container."""
        sessions = _pids_by_session()
        alive = [(folder, containers) for folder in self._pods.pods() if (containers := live_containers(folder))]
        measured = [
            (folder, [(name, pid, self._container_usage(pid, sessions[pid])) for name, pid in containers])
            for folder, containers in alive
        ]
        pids = {pid for _, containers in alive for _, pid in containers}
        self._last_samples = {pid: last for pid, last in self._last_samples.items() if pid in pids}
        return measured

    def _container_usage(self, leader: int, pids: Iterable[int]) -> ResourceUsage:
        seconds, memory = _cpu_and_memory(pids)
        now = self._clock.monotonic()
        last_time, last_seconds = self._last_samples.get(leader, (now, seconds))
        self._last_samples[leader] = (now, seconds)
        used = seconds - last_seconds
        if used < 1.5 * CLOCK_TICK or now <= last_time:
            return ResourceUsage(0.0, memory)
        return ResourceUsage(used / (now - last_time), memory)


def live_containers(folder: PodFolder) -> list[tuple[str, int]]:
    """The containers of a pod that are alive, with the pids of their processes.

    Without those that a container engine runs: the process of this machine is only its client.
    """
    processes = (files for files in _live_runs(folder) if (run := files.run_record()) is None or not run.engine)
    records = ((files.folder.name, files.start_record()) for files in processes)
    return [(container, record.pid) for container, record in records if record is not None]


def _live_runs(folder: PodFolder) -> list[RunFiles]:
    return [files for files in folder.all_runs() if files.lock.is_held()]


def _devices(folder: PodFolder) -> ResourceUsage:
    """The GPUs of a pod's containers that are alive."""
    records = [files.run_record() for files in _live_runs(folder)]
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
