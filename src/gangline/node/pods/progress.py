"""What the programs of a pod report of their progress, on its way to the pod's annotation. Seldom, and the last always."""

import os
from collections.abc import Callable, Iterable
from datetime import timedelta

from gangline.base.clock import Clock
from gangline.node.checkpoint import RunFiles
from gangline.progress.line import MAX_LINE_LENGTH, bounded_progress, parse_progress, progress_line

POLL_INTERVAL = timedelta(seconds=1)
"""How often is looked whether there is a new report. That costs next to nothing; it is telling the API that is rare."""
MIN_REPORT_INTERVAL = timedelta(milliseconds=100)
"""The node as a whole tells of no more than one report in this time."""


class ReportLimiter:
    """How often one pod's progress is told: `period`, and less often where very many pods report."""

    def __init__(self, period: timedelta) -> None:
        self._period = period
        self._reporting: set[str] = set()

    def interval(self, uid: str) -> timedelta:
        """For a pod that reports."""
        self._reporting.add(uid)
        return max(self._period, MIN_REPORT_INTERVAL * len(self._reporting))

    def forget(self, uid: str) -> None:
        self._reporting.discard(uid)

    @property
    def poll_interval(self) -> timedelta:
        return min(POLL_INTERVAL, self._period)


class ProgressReporter:
    """The reports of one pod. `tell` gets the line that is due, never twice the same in a row."""

    def __init__(self, uid: str, told: str, tell: Callable[[str], None], pace: ReportLimiter, clock: Clock) -> None:
        """`told` is what the API has already."""
        self._uid, self._reported, self._report, self._limiter, self._clock = uid, told, tell, pace, clock
        self._latest = told
        self._reported_at = float("-inf")
        # By file: what it was when it was last read.
        self._file_stamps: dict[str, tuple[int, int]] = {}

    def poll(self, runs: Iterable[RunFiles], *, final: bool = False) -> None:
        """Look for something new, and tell it when it is due; `final`: now."""
        for files in runs:
            self._latest = self._read_new(files) or self._latest
        if self._latest == self._reported:
            return
        since = self._clock.monotonic() - self._reported_at
        if final or since >= self._limiter.interval(self._uid).total_seconds():
            self._reported, self._reported_at = self._latest, self._clock.monotonic()
            self._report(self._latest)

    def _read_new(self, files: RunFiles) -> str:
        """What a run reported since it was last looked at; nothing if that is nothing."""
        path = str(files.progress_file)
        try:
            with files.progress_file.open("rb") as file:
                stat = os.fstat(file.fileno())
                stamp = (stat.st_ino, stat.st_mtime_ns)
                if self._file_stamps.get(path) == stamp:
                    return ""
                self._file_stamps[path] = stamp
                said = parse_progress(file.read(MAX_LINE_LENGTH + 1).decode(errors="replace"))
        except OSError:
            return ""
        return progress_line(bounded_progress(said)) if said is not None else ""
