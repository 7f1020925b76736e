"""CPU and memory of the processes of a local plane, from one look to the next."""

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import psutil

from gangline.base.clock import Clock
from gangline.cli.cleanup.processes import pod_pids
from gangline.cli.follow.view import ReplicaUsage


class UsageSampler:
    """Looks when asked. Containers' processes are sessions of their own, so children count with their parent."""

    def __init__(self, state: Path, clock: Clock) -> None:
        self._state, self._clock = state, clock
        # By leader of the session: when it was looked at, and the CPU seconds that it had taken by then.
        self._last_samples: dict[int, tuple[float, float]] = {}

    def sample(self) -> dict[str, ReplicaUsage]:
        """What the processes of each pod take, by the pod's name. CPU is known from the second look on."""
        sessions = self._pids_by_session()
        found: dict[str, ReplicaUsage] = {}
        for name, leader in pod_pids(self._state):
            seconds, memory = _cpu_and_memory(sessions.get(leader, ()))
            now = self._clock.monotonic()
            at, before = self._last_samples.get(leader, (now, seconds))
            self._last_samples[leader] = (now, seconds)
            share = max(0.0, seconds - before) / (now - at) if now > at else 0.0
            found[name] = ReplicaUsage(share, memory)
        return found

    @staticmethod
    def _pids_by_session() -> dict[int, list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for pid in psutil.pids():
            with suppress(ProcessLookupError, PermissionError):
                found[os.getsid(pid)].append(pid)
        return found


def _cpu_and_memory(pids: "list[int] | tuple[()]") -> tuple[float, int]:
    """CPU seconds and bytes of all of them."""
    seconds, memory = 0.0, 0
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            times = process.cpu_times()
            seconds += times.user + times.system
            memory += process.memory_info().rss
    return seconds, memory
