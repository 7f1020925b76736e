"""CPU and memory that the pods of a local run use."""

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import psutil

from gangline.base.clock import Clock
from gangline.cli.cleanup.processes import pod_pids
from gangline.cli.follow.view import ReplicaUsage


class UsageSampler:
    """Samples the processes of each pod. A container's process leads a session, so its children are counted with it."""

    def __init__(self, state: Path, clock: Clock) -> None:
        self._state, self._clock = state, clock
        # By the session leader's pid: the time of the last sample, and the CPU seconds used by then.
        self._last_samples: dict[int, tuple[float, float]] = {}

    def sample(self) -> dict[str, ReplicaUsage]:
        """The usage of each pod, by name. CPU is the average since the last sample, 0 at the first one."""
        sessions = self._pids_by_session()
        usage: dict[str, ReplicaUsage] = {}
        for name, leader in pod_pids(self._state):
            seconds, memory = _cpu_and_memory(sessions.get(leader, ()))
            now = self._clock.monotonic()
            last_time, last_seconds = self._last_samples.get(leader, (now, seconds))
            self._last_samples[leader] = (now, seconds)
            share = max(0.0, seconds - last_seconds) / (now - last_time) if now > last_time else 0.0
            usage[name] = ReplicaUsage(share, memory)
        return usage

    @staticmethod
    def _pids_by_session() -> dict[int, list[int]]:
        sessions: dict[int, list[int]] = defaultdict(list)
        for pid in psutil.pids():
            with suppress(ProcessLookupError, PermissionError):
                sessions[os.getsid(pid)].append(pid)
        return sessions


def _cpu_and_memory(pids: "list[int] | tuple[()]") -> tuple[float, int]:
    """The sums of CPU seconds and bytes of memory of the processes."""
    seconds, memory = 0.0, 0
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            times = process.cpu_times()
            seconds += times.user + times.system
            memory += process.memory_info().rss
    return seconds, memory
