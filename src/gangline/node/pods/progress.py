"""Copies the progress reports of a pod's programs into an annotation: at a limited rate, the last report always."""

import os
from collections.abc import Callable, Iterable
from datetime import timedelta

from gangline.base.clock import Clock
from gangline.base.files import open_regular
from gangline.node.checkpoint import RunFiles
from gangline.progress.line import MAX_LINE_LENGTH, bounded_progress, parse_progress, progress_line

POLL_INTERVAL = timedelta(seconds=1)
"""How often the files of reports are read. That costs next to nothing; only writes to the API are limited."""
MIN_REPORT_INTERVAL = timedelta(milliseconds=100)
"""The shortest time between two reports of all pods of the node together."""


class ReportLimiter:
    """How often the progress of one pod is written: every `period`, less often when very many pods report."""

    def __init__(self, period: timedelta) -> None:
        self._period = period
        self._reporting: set[str] = set()

    def interval(self, uid: str) -> timedelta:
        """The time between two reports of a pod, which counts as reporting from now on."""
        self._reporting.add(uid)
        return max(self._period, MIN_REPORT_INTERVAL * len(self._reporting))

    def forget(self, uid: str) -> None:
        self._reporting.discard(uid)

    @property
    def poll_interval(self) -> timedelta:
        return min(POLL_INTERVAL, self._period)


class ProgressReporter:
    """The progress reports of one pod."""

    def __init__(
        self, uid: str, reported: str, report: Callable[[str], None], limiter: ReportLimiter, clock: Clock
    ) -> None:
        """`reported` is the line that the API has already. `report` gets a line, never the same twice in a row."""
        self._uid, self._reported, self._report, self._limiter, self._clock = uid, reported, report, limiter, clock
        self._latest = reported
        self._reported_at = float("-inf")
        # Inode and modification time of each file when it was last read.
        self._file_stamps: dict[str, tuple[int, int]] = {}

    def poll(self, runs: Iterable[RunFiles], *, final: bool = False) -> None:
        """Read new reports, and report the last one when it is due; with `final`, at once."""
        for files in runs:
            self._latest = self._read_new(files) or self._latest
        if self._latest == self._reported:
            return
        since = self._clock.monotonic() - self._reported_at
        if final or since >= self._limiter.interval(self._uid).total_seconds():
            self._reported, self._reported_at = self._latest, self._clock.monotonic()
            self._report(self._latest)

    def _read_new(self, files: RunFiles) -> str:
        """The progress line of a run, if it changed since the last call; else empty."""
        path = str(files.progress_file)
        try:
            with open_regular(files.progress_file) as file:
                stat = os.fstat(file.fileno())
                stamp = (stat.st_ino, stat.st_mtime_ns)
                if self._file_stamps.get(path) == stamp:
                    return ""
                self._file_stamps[path] = stamp
                progress = parse_progress(file.read(MAX_LINE_LENGTH + 1).decode(errors="replace"))
        except OSError:
            return ""
        return progress_line(bounded_progress(progress)) if progress is not None else ""
