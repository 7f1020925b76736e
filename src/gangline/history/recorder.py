"""Records changes as they come: versions of objects, ends of logs when containers end, verdicts when jobs fail, use of CPU.

Where the changes come from is up to the caller: `gangline.local.history` takes them out of an embedded store, and
`gangline.history.cluster` from informers.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

from gangline.api.meta import JSON
from gangline.apiserver.store.paths import ObjectPath, split_path
from gangline.base.clock import Clock
from gangline.base.tasks import for_each
from gangline.history.endings import (
    WAITING_SECONDS,
    ContainerEnd,
    container_ends,
    is_waiting,
    last_lines,
    notable_conditions,
    running_containers,
)
from gangline.history.records import LogLine
from gangline.history.retention import HistoryLimits, tidy
from gangline.history.selection import is_listed_job, may_be_job
from gangline.history.writer import HistoryWriter
from gangline.kube.pod_metrics import PodUsage

log = logging.getLogger(__name__)

FLUSH_INTERVAL = timedelta(seconds=1)
PULSE_SECONDS = 5.0
"""How often a recorder without changes says that it is there."""
TIDY_SECONDS = 600.0
MIRROR_SECONDS = 60.0
MAX_CLOCK_STEP = timedelta(seconds=60)
"""A clock that is set back by less is waited for."""
USAGE_SECONDS = 15.0
"""How often the use of CPU and memory is recorded while pods run."""
RETRY_SECONDS = 30.0
"""After a failed write, for example on a full disk."""
LOGS_AT_ONCE = 32
LOG_LINES, LOG_BYTES = 100, 8 * 2**10
"""The end of a log that is recorded."""

LogTail = Callable[[ObjectPath, JSON, ContainerEnd], Awaitable[str]]
"""The last lines, with timestamps, of a container of a pod. Returns an empty text if there are none."""
Diagnose = Callable[[ObjectPath], Awaitable[JSON | None]]
"""What `gangline why` says of a job; None if it cannot be said."""


MeasureUsage = Callable[[], Awaitable[Mapping[str, PodUsage]]]
"""What pods use now, by their path; without those that cannot be measured."""


class _EndedContainer(NamedTuple):
    path: str
    pod: JSON
    end: ContainerEnd


class HistoryRecorder:
    """Writes one stream of a history. A disk that fails costs lines of the history, nothing else."""

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        source: str,
        *,
        limits: HistoryLimits | None = None,
        read_log: LogTail | None = None,
        diagnose: Diagnose | None = None,
        measure: MeasureUsage | None = None,
        mirror: Callable[[float], object] | None = None,
    ) -> None:
        """`mirror` copies the folder elsewhere, given the time; it is called once a minute, in a thread."""
        self._mirror, self._mirror_problem = mirror, ""
        self._folder, self._clock, self._source, self._limits = folder, clock, source, limits or HistoryLimits()
        self._read_log, self._diagnose, self._measure = read_log, diagnose, measure
        self._writer: HistoryWriter | None = None
        # Every change until then is recorded; later ones may wait in a feed. Lines of our own must not be newer than they.
        self._complete_until = 0.0
        # Why nothing is written now, and why that was so last.
        self._problem = self._last_problem = ""
        self._retry_at = 0.0
        # By path: runs of containers whose end is recorded, conditions that were explained, jobs that wait.
        self._ended_runs: dict[str, set[str]] = {}
        self._explained: dict[str, frozenset[tuple[str, str]]] = {}
        self._waiting_since: dict[str, float] = {}
        self._ended: list[_EndedContainer] = []
        self._to_explain: dict[str, JSON] = {}

    @property
    def now(self) -> float:
        return self._clock.now().timestamp()

    def begin(self, at: float, objects: Mapping[str, JSON]) -> None:
        """Start with the states that all objects, by path, had at a moment."""
        for path, body in objects.items():
            self._ended_runs[path] = {end.run for end in container_ends(body, ())}
            if may_be_job(path) and is_listed_job(path, body):
                self._explained[path] = notable_conditions(body)
                self._note_waiting(path, body)
        self._complete_until = at
        self._open(objects, at)

    def record(self, at: float, path: str, body: JSON | None) -> None:
        """Record a version of an object; None: it was deleted. `begin` comes first."""
        assert self._writer is not None
        if path.startswith("//pods/"):
            self._note_ended_containers(path, body, self._writer.objects.get(path))
        elif may_be_job(path):
            self._note_job(path, body)
        self._writer.record(at, path, body)

    async def run(self, feed: Callable[[], Awaitable[object]] | None = None) -> None:
        """Write what is recorded until cancelled. `feed` is called before, and may record more."""
        last_write = last_tidy = -math.inf
        last_copy = last_usage = self._clock.monotonic()
        while True:
            now, elapsed = self.now, self._clock.monotonic()
            if now < self._complete_until - MAX_CLOCK_STEP.total_seconds():
                self._begin_anew(now)
            if feed is not None:
                await feed()
            self._complete_until = now
            await self._collect_logs_together()
            await self.collect_verdicts()
            if elapsed - last_usage > USAGE_SECONDS:
                last_usage = elapsed
                await self.collect_usage()
            if elapsed - last_tidy > TIDY_SECONDS:
                last_tidy = elapsed
                await self._in_thread(self._tidy)
            wrote = await self.write(pulse=elapsed - last_write > PULSE_SECONDS)
            last_write = elapsed if wrote else last_write
            if elapsed - last_copy > MIRROR_SECONDS:
                last_copy = elapsed
                await self._in_thread(self._copy)
            await self._clock.sleep(FLUSH_INTERVAL)

    async def collect_logs(self) -> None:
        """Record the ends of the logs of containers that ended."""
        ended, self._ended = self._ended, []
        for container in ended:
            await self._record_log(container)

    async def _collect_logs_together(self) -> None:
        """As `collect_logs`, several at once: the logs of a node that is gone are slow to fail."""
        ended, self._ended = self._ended, []
        if ended:
            await for_each(ended, self._record_log, at_once=LOGS_AT_ONCE)

    async def collect_verdicts(self) -> None:
        """Let jobs be explained that failed, started again, or wait for long."""
        now = self.now
        for path, since in list(self._waiting_since.items()):
            if now - since > WAITING_SECONDS:
                self._waiting_since[path] = math.inf  # once
                self._to_explain[path] = self.objects[path]
        explain, self._to_explain = self._to_explain, {}
        if self._diagnose is None:
            return
        for path, body in explain.items():
            report = await self._diagnose(split_path(path))
            if report is not None and self._writer is not None:
                self._writer.record_verdict(self._complete_until, path, body, report)

    async def collect_usage(self) -> None:
        """Record what the pods use that run."""
        if self._measure is None or not any(_is_running_pod(*item) for item in self.objects.items()):
            return
        try:
            measured = await self._measure()
        except OSError as error:
            log.warning("the use of CPU and memory cannot be measured", extra={"error": str(error)})
            return
        for path, used in measured.items():
            pod = self.objects.get(path)
            if pod is not None and self._writer is not None:
                self._writer.record_usage(self._complete_until, path, pod, *used)

    async def write(self, *, pulse: bool = False) -> bool:
        """Write what is in memory, in a thread. Returns whether there was anything."""
        if self._problem and self._clock.monotonic() > self._retry_at:
            self._open(self.objects, self._complete_until)
        if self._writer is None:
            return False
        if pulse:
            self._writer.pulse(self._complete_until)
        pending, writer = self._writer.take(), self._writer
        if self._problem or not (pending.lines or pending.next):
            return False
        await self._in_thread(lambda: writer.write(pending))
        return True

    def finish(self) -> None:
        """Write the rest, and end the stream."""
        if self._writer is None or self._problem:
            return
        try:
            self._writer.close(self.now)
        except OSError as error:
            self._fail(error)
        self._copy()

    @property
    def objects(self) -> Mapping[str, JSON]:
        """The newest states of all objects, by path."""
        return self._writer.objects if self._writer is not None else {}

    # Writing

    def _open(self, objects: Mapping[str, JSON], at: float) -> None:
        self._writer = HistoryWriter(self._folder, at, source=self._source, objects=objects, limits=self._limits)
        self._problem = ""

    def _begin_anew(self, now: float) -> None:
        """The clock was set back: what follows would all have the last time before that. A new stream has the new time."""
        log.warning("the clock was set back; the history begins anew", extra={"seconds": self._complete_until - now})
        objects = dict(self.objects)
        if self._writer is not None and not self._problem:
            try:
                self._writer.close(self._complete_until)
            except OSError as error:
                self._fail(error)
        self._complete_until = now
        if not self._problem:
            self._open(objects, now)

    async def _in_thread(self, work: Callable[[], object]) -> None:
        thread = asyncio.get_running_loop().run_in_executor(None, work)
        try:
            await asyncio.shield(thread)
        except OSError as error:
            self._fail(error)
        except asyncio.CancelledError:
            # `finish` must not write at the same time.
            with suppress(OSError):
                await thread
            raise

    def _fail(self, error: OSError) -> None:
        if str(error) != self._last_problem:
            log.warning("the history cannot be written, will retry", extra={"error": str(error)})
        if self._writer is not None:
            self._writer.abandon()
        self._problem = self._last_problem = str(error)
        self._retry_at = self._clock.monotonic() + RETRY_SECONDS

    def _copy(self) -> None:
        if self._mirror is None:
            return
        try:
            self._mirror(self.now)
        except OSError as error:
            if str(error) != self._mirror_problem:
                log.warning("the history cannot be copied, will retry", extra={"error": str(error)})
            self._mirror_problem = str(error)
        else:
            self._mirror_problem = ""

    def _tidy(self) -> None:
        tidy(self._folder, self._limits, self.now)

    # Ends

    def _note_ended_containers(self, path: str, body: JSON | None, before: JSON | None) -> None:
        if body is None:
            known = self._ended_runs.pop(path, set())
            if before is not None:
                running = (end for end in running_containers(before) if end.run not in known)
                self._ended += [_EndedContainer(path, before, end) for end in running]
            return
        known = self._ended_runs.setdefault(path, set())
        for end in container_ends(body, known):
            known.add(end.run)
            self._ended.append(_EndedContainer(path, body, end))

    def _note_job(self, path: str, body: JSON | None) -> None:
        if body is None or not is_listed_job(path, body):
            self._explained.pop(path, None)
            self._waiting_since.pop(path, None)
            return
        conditions = notable_conditions(body)
        if conditions - self._explained.get(path, frozenset()):
            self._to_explain[path] = body
        self._explained[path] = conditions
        self._note_waiting(path, body)

    def _note_waiting(self, path: str, body: JSON) -> None:
        if is_waiting(body):
            self._waiting_since.setdefault(path, self.now)
        else:
            self._waiting_since.pop(path, None)

    async def _record_log(self, ended: _EndedContainer) -> None:
        if self._read_log is None or self._writer is None:
            return
        text = await self._read_log(split_path(ended.path), ended.pod, ended.end)
        if text:
            end = ended.end
            line = LogLine(0, 0, end.container, end.run, end.attempt, last_lines(text, LOG_LINES, LOG_BYTES))
            self._writer.record_log(self._complete_until, ended.path, ended.pod, line)


def _is_running_pod(path: str, body: JSON) -> bool:
    return path.startswith("//pods/") and (body.get("status") or {}).get("phase") == "Running"
