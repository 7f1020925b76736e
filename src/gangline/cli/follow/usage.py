"""CPU and memory of the processes of a local plane, from one look to the next."""

import os
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

import psutil

from gangline.base.clock import Clock
from gangline.cli.cleanup.processes import pods
from gangline.cli.follow.view import Use


class Usage:
    """Looks when asked. Containers' processes are sessions of their own, so children count with their parent."""

    def __init__(self, state: Path, clock: Clock) -> None:
        self._state, self._clock = state, clock
        # By leader of the session: when it was looked at, and the CPU seconds that it had taken by then.
        self._before: dict[int, tuple[float, float]] = {}

    def sample(self) -> dict[str, Use]:
        """What the processes of each pod take, by the pod's name. CPU is known from the second look on."""
        sessions = self._sessions()
        found: dict[str, Use] = {}
        for name, leader in pods(self._state):
            seconds, memory = _taken(sessions.get(leader, ()))
            now = self._clock.monotonic()
            at, before = self._before.get(leader, (now, seconds))
            self._before[leader] = (now, seconds)
            share = max(0.0, seconds - before) / (now - at) if now > at else 0.0
            found[name] = Use(share, memory)
        return found

    @staticmethod
    def _sessions() -> dict[int, list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for pid in psutil.pids():
            with suppress(ProcessLookupError, PermissionError):
                found[os.getsid(pid)].append(pid)
        return found


def _taken(pids: "list[int] | tuple[()]") -> tuple[float, int]:
    """CPU seconds and bytes of all of them."""
    seconds, memory = 0.0, 0
    for pid in pids:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            times = process.cpu_times()
            seconds += times.user + times.system
            memory += process.memory_info().rss
    return seconds, memory
