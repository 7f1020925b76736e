"""What the programs of a pod report of their progress, on its way to the pod's annotation. Seldom, and the last always."""

import os
from collections.abc import Callable, Iterable
from datetime import timedelta

from gangline.base.clock import Clock
from gangline.node.checkpoint import RunFiles
from gangline.progress.line import LONGEST, bounded, progress, written

LOOK = timedelta(seconds=1)
"""How often is looked whether there is a new report. That costs next to nothing; it is telling the API that is rare."""
EACH = timedelta(milliseconds=100)
"""The node as a whole tells of no more than one report in this time."""


class Pace:
    """How often one pod's progress is told: `period`, and less often where very many pods report."""

    def __init__(self, period: timedelta) -> None:
        self._period = period
        self._reporting: set[str] = set()

    def of(self, uid: str) -> timedelta:
        """For a pod that reports."""
        self._reporting.add(uid)
        return max(self._period, EACH * len(self._reporting))

    def leave(self, uid: str) -> None:
        self._reporting.discard(uid)

    @property
    def look(self) -> timedelta:
        return min(LOOK, self._period)


class Reports:
    """The reports of one pod. `tell` gets the line that is due, never twice the same in a row."""

    def __init__(self, uid: str, told: str, tell: Callable[[str], None], pace: Pace, clock: Clock) -> None:
        """`told` is what the API has already."""
        self._uid, self._told, self._tell, self._pace, self._clock = uid, told, tell, pace, clock
        self._newest = told
        self._told_at = float("-inf")
        # By file: what it was when it was last read.
        self._read: dict[str, tuple[int, int]] = {}

    def look(self, runs: Iterable[RunFiles], *, final: bool = False) -> None:
        """Look for something new, and tell it when it is due; `final`: now."""
        for files in runs:
            self._newest = self._found(files) or self._newest
        if self._newest == self._told:
            return
        since = self._clock.monotonic() - self._told_at
        if final or since >= self._pace.of(self._uid).total_seconds():
            self._told, self._told_at = self._newest, self._clock.monotonic()
            self._tell(self._newest)

    def _found(self, files: RunFiles) -> str:
        """What a run reported since it was last looked at; nothing if that is nothing."""
        path = str(files.progress)
        try:
            with files.progress.open("rb") as file:
                stat = os.fstat(file.fileno())
                stamp = (stat.st_ino, stat.st_mtime_ns)
                if self._read.get(path) == stamp:
                    return ""
                self._read[path] = stamp
                said = progress(file.read(LONGEST + 1).decode(errors="replace"))
        except OSError:
            return ""
        return written(bounded(said)) if said is not None else ""
