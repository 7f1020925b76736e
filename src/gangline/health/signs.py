"""Signs of life of a team, as values. Pure.

Signs are counters and marks, never times: only a change between two looks counts. So no clock of a node or of a program is
compared with ours, and a machine that was suspended, or stopped by a signal, shows no gap.
"""

import msgspec

IDLE_CORES = 0.1
"""A process that uses less CPU than this computes nothing that a person would wait for."""
QUIET_BYTES = 256 * 1024
"""Fewer bytes than this between two looks are heartbeats, not work."""


class ReplicaSigns(msgspec.Struct, frozen=True):
    """What is seen of one replica. None: it could not be read."""

    name: str
    # What identifies the last log line: its time, or the size and time of the file.
    log_mark: str | None = None
    # The words of that line.
    last_line: str = ""
    # CPU cores since the look before.
    cores: float | None = None
    # Bytes read and written so far: files, pipes and, where they can be counted, sockets.
    bytes_moved: int | None = None
    # All processes are stopped, by a signal or a debugger.
    is_stopped: bool = False


class TeamSigns(msgspec.Struct, frozen=True):
    """What is seen of a team at one look."""

    # The last progress report; empty: none yet.
    progress: str = ""
    # None: only the progress was looked at.
    replicas: tuple[ReplicaSigns, ...] | None = None

    @property
    def log_mark(self) -> str:
        """What identifies the last log lines of all replicas; empty if none could be read."""
        marks = ((one.name, one.log_mark) for one in self.replicas or ())
        return "\n".join(f"{name} {mark}" for name, mark in marks if mark)

    @property
    def is_stopped(self) -> bool:
        """Whether somebody has stopped all of it on purpose."""
        return bool(self.replicas) and all(one.is_stopped for one in self.replicas or ())

    @property
    def is_idle(self) -> bool | None:
        """Whether no replica uses the CPU; None if that is not known of all."""
        replicas = self.replicas or ()
        if any(one.cores is not None and one.cores >= IDLE_CORES for one in replicas):
            return False
        return True if replicas and all(one.cores is not None for one in replicas) else None

    def replica(self, name: str) -> ReplicaSigns:
        """The signs of one replica; without any if there are none."""
        return next((one for one in self.replicas or () if one.name == name), ReplicaSigns(name))


class ObservedTime:
    """The seconds that the watcher itself has lived through.

    While the machine is suspended, or everything on it is stopped, no time passes for the jobs, and none here.
    """

    def __init__(self, monotonic: float, longest_step: float) -> None:
        self._last, self._longest_step = monotonic, longest_step
        self.seconds = 0.0

    def advance(self, monotonic: float) -> float:
        """Count the time since the last call, but no more than one turn of the watcher may take."""
        self.seconds += min(max(0.0, monotonic - self._last), self._longest_step)
        self._last = monotonic
        return self.seconds
