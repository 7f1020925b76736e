"""The CPU and memory that pods use whose containers are processes of this machine."""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from gangline.api.meta import Key
from gangline.base.clock import Clock
from gangline.node.checkpoint import PodFolder, RunFiles, StateFolder
from gangline.node.runtime.shim import MARK_VARIABLE
from gangline.stacks.processes import environment_value

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


class ContainerProcess(NamedTuple):
    """The first process of a container that is alive, and the mark of its run."""

    container: str
    pid: int
    mark: str


MARK_READS = 2
"""How often the environment of a process is read: between fork and exec it is still that of its parent."""


class UsageSampler:
    """Samples the processes of each pod.

    A container's process leads a session, so its children are counted with it. Commands that were executed in the
    container, such as the ranks that mpirun starts, have the container's mark in their environment.
    """

    def __init__(self, state: Path, clock: Clock) -> None:
        self._pods, self._clock = StateFolder(state), clock
        # By the session leader's pid: the time of the last sample, and the CPU seconds used by then.
        self._last_samples: dict[int, tuple[float, float]] = {}
        # By pid: the mark of a process that has one; how often it was looked for in vain.
        self._marks: dict[int, str] = {}
        self._unmarked: dict[int, int] = {}

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
            ContainerUsage(folder.key, folder.uid, process.container, usage)
            for folder, measured in self._measure()
            for process, usage in measured
            if process.pid in known
        ]

    def _sample_pods(self) -> list[tuple[PodFolder, ResourceUsage]]:
        return [
            (folder, sum((usage for _, usage in measured), _devices(folder))) for folder, measured in self._measure()
        ]

    def _measure(self) -> list[tuple[PodFolder, list[tuple[ContainerProcess, ResourceUsage]]]]:
        """The pods with a process, and what each of their containers uses."""
        sessions = _pids_by_session()
        alive = [(folder, processes) for folder in self._pods.pods() if (processes := live_containers(folder))]
        leaders = {process.pid for _, processes in alive for process in processes}
        marks = {process.mark for _, processes in alive for process in processes}
        executed = self._executed_pids(marks, sessions, leaders)
        measured = [
            (
                folder,
                [
                    (process, self._container_usage(process.pid, (*sessions[process.pid], *executed[process.mark])))
                    for process in processes
                ],
            )
            for folder, processes in alive
        ]
        self._last_samples = {pid: last for pid, last in self._last_samples.items() if pid in leaders}
        return measured

    def _executed_pids(
        self, marks: set[str], sessions: Mapping[int, Sequence[int]], leaders: set[int]
    ) -> dict[str, list[int]]:
        """By mark, the processes outside of the containers' sessions that have it."""
        pids = {pid for leader, members in sessions.items() if leader not in leaders for pid in members}
        self._marks = {pid: mark for pid, mark in self._marks.items() if pid in pids}
        self._unmarked = {pid: count for pid, count in self._unmarked.items() if pid in pids}
        for pid in pids - self._marks.keys() if marks else ():
            if self._unmarked.get(pid, 0) < MARK_READS:
                mark = environment_value(pid, MARK_VARIABLE)
                if mark in marks:
                    self._marks[pid] = mark
                else:
                    self._unmarked[pid] = self._unmarked.get(pid, 0) + 1
        executed: dict[str, list[int]] = defaultdict(list)
        for pid, mark in self._marks.items():
            executed[mark].append(pid)
        return executed

    def _container_usage(self, leader: int, pids: Iterable[int]) -> ResourceUsage:
        seconds, memory = _cpu_and_memory(pids)
        now = self._clock.monotonic()
        last_time, last_seconds = self._last_samples.get(leader, (now, seconds))
        self._last_samples[leader] = (now, seconds)
        used = seconds - last_seconds
        if used < 1.5 * CLOCK_TICK or now <= last_time:
            return ResourceUsage(0.0, memory)
        return ResourceUsage(used / (now - last_time), memory)


def live_containers(folder: PodFolder) -> list[ContainerProcess]:
    """The first processes of a pod's containers that are alive.

    Without those that a container engine runs: the process of this machine is only its client.
    """
    runs = ((files.folder.name, files.start_record(), files.run_record()) for files in _live_runs(folder))
    return [
        ContainerProcess(container, start.pid, run.id if run is not None else "")
        for container, start, run in runs
        if start is not None and (run is None or not run.engine)
    ]


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


def machine_usage() -> tuple[float, int]:
    """The CPU seconds that all processes of the machine have used since it started, and the bytes of memory in use."""
    times = psutil.cpu_times()
    idle = times.idle + getattr(times, "iowait", 0.0)
    # Linux counts the time of virtual machines twice.
    guests = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    memory = psutil.virtual_memory()
    return sum(times) - idle - guests, memory.total - memory.available
