"""Where the log lines of a job's pods come from: files that the local node writes, or a server."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Iterator
from contextlib import aclosing
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Protocol

from gangline.api.core import Pod, PodPhase
from gangline.api.meta import Key
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.kube.errors import BadRequest, NotFound, ServerError, StreamBroken, Unreachable
from gangline.kube.pods import PodSubresources
from gangline.node.logs import NamespaceLogTail
from gangline.summary.log_lines import LineMerger, TimedLine, parse_line

RETRY_DELAY = timedelta(milliseconds=500)
DRAIN_TIMEOUT = timedelta(seconds=2)
"""How long logs are still read after the job has finished: a pod that is kept may go on writing."""


class PodLine(NamedTuple):
    """A log line, and the name of the pod that wrote it."""

    pod: str
    text: str


class LogSource(Protocol):
    """The log lines of a job's pods."""

    def update_pod(self, pod: Pod) -> None:
        """Take notice of a new or changed pod of the job."""

    async def run(self) -> None:
        """Fetch lines until cancelled; returns at once where nothing is to be done."""

    async def drain(self) -> None:
        """Wait, after the job has finished, until its last lines are fetched or `DRAIN_TIMEOUT` is over."""

    def new_lines(self) -> Iterator[PodLine]:
        """The lines since the last call."""

    def bars(self) -> dict[str, str]:
        """The progress bars that programs draw now in a line that they overwrite, by pod; empty where that is unknown."""

    def close(self) -> None: ...


class FileLogSource:
    """The lines of one job's pods from the node's log files, in a folder that other jobs share."""

    def __init__(self, state: Path, job: Key, others: Collection[str] = ()) -> None:
        self._tail, self._job = NamespaceLogTail(state), job
        # The prefixes of jobs that begin with this job's name: `a-b-worker-0` belongs to `a-b`, not to `a`.
        self._longer_prefixes = tuple(f"{name}-" for name in others if name.startswith(f"{job.name}-"))

    def update_pod(self, pod: Pod) -> None:
        """Does nothing: the file's name says which pod wrote it."""

    async def run(self) -> None:
        """Does nothing: `new_lines` reads the files."""

    async def drain(self) -> None:
        """Does nothing: all that a process wrote is in its file when it ends."""

    def new_lines(self) -> Iterator[PodLine]:
        for line in self._tail.lines(self._job.namespace):
            if self._is_member(line.pod):
                yield PodLine(line.pod, line.text)

    def bars(self) -> dict[str, str]:
        return {pod: bar for pod, bar in self._tail.bars(self._job.namespace).items() if self._is_member(pod)}

    def close(self) -> None:
        self._tail.close()

    def _is_member(self, pod: str) -> bool:
        return pod.startswith(f"{self._job.name}-") and not pod.startswith(self._longer_prefixes or "/")


class LogPosition(NamedTuple):
    """How far a log was read: the timestamp of its last line, and how many lines had that timestamp."""

    timestamp: str = ""
    line_count: int = 0

    def advanced_by(self, line: TimedLine) -> "LogPosition":
        """The position after this line. A line without a timestamp belongs to the line before it."""
        if not line.timestamp:
            return self
        return LogPosition(line.timestamp, self.line_count + 1 if line.timestamp == self.timestamp else 1)

    @property
    def since(self) -> datetime | None:
        return datetime.fromisoformat(f"{self.timestamp[:26]}+00:00") if self.timestamp else None


class ResumeFilter:
    """Tells new lines from those already read, in a log that is read again from about a position on."""

    def __init__(self, position: LogPosition) -> None:
        self._position, self._lines_to_skip = position, position.line_count

    def is_new(self, line: TimedLine) -> bool:
        if line.timestamp == self._position.timestamp and self._lines_to_skip:
            self._lines_to_skip -= 1
            return False
        return not line.timestamp or line.timestamp >= self._position.timestamp


class _PodLog:
    """The newest state of one pod, with an event that is set when it changes."""

    def __init__(self, pod: Pod) -> None:
        self.pod, self.changed, self._deleted = pod, asyncio.Event(), False

    def update(self, pod: Pod, *, deleted: bool) -> None:
        self.pod, self._deleted = pod, deleted
        self.changed.set()

    def has_started(self, container: str) -> bool:
        """Whether the container has a log."""
        status = self.pod.status
        for found in (*status.init_container_statuses, *status.container_statuses):
            if found.name == container:
                return bool(found.state.running or found.state.terminated or found.last_state.terminated)
        return status.phase not in ("", PodPhase.PENDING)

    @property
    def has_ended(self) -> bool:
        """Whether the pod has finished or is being deleted: then its log is read one last time."""
        if self._deleted or self.pod.metadata.deletion_timestamp is not None:
            return True
        return self.pod.status.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


class ServerLogSource:
    """Reads one container of every pod from the server, merged by time. Must be made in a running loop.

    `container_of` names the container to read. `tail` and `since` limit how far back the first read goes.
    """

    def __init__(
        self,
        client: Client,
        container_of: Callable[[Pod], str],
        clock: Clock,
        *,
        tail: int | None = None,
        since: timedelta | datetime | None = None,
    ) -> None:
        self._client, self._container_of, self._clock = client, container_of, clock
        self._tail, self._since = tail, since
        self._pod_logs: dict[str, _PodLog] = {}
        self._new_logs: asyncio.Queue[_PodLog] = asyncio.Queue()
        self._readers: list[asyncio.Task[None]] = []
        self._merger, self._drained = LineMerger(), False

    def update_pod(self, pod: Pod, *, deleted: bool = False) -> None:
        """Read the pod from now on, if it is new. A pod that is known only as deleted is not read."""
        log = self._pod_logs.get(pod.metadata.uid)
        if log is not None:
            log.update(pod, deleted=deleted)
        elif not deleted:
            self._pod_logs[pod.metadata.uid] = log = _PodLog(pod)
            self._new_logs.put_nowait(log)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._readers.append(group.create_task(self._read_pod(await self._new_logs.get())))

    async def drain(self) -> None:
        while not self._new_logs.empty():
            await self._clock.sleep(timedelta())
        running = [reader for reader in self._readers if not reader.done()]
        if running:
            await asyncio.wait(running, timeout=DRAIN_TIMEOUT.total_seconds())
        self._drained = True

    def new_lines(self) -> Iterator[PodLine]:
        return (PodLine(line.replica, line.text) for line in self.new_timed_lines())

    def new_timed_lines(self) -> Iterator[TimedLine]:
        """The lines since the last call, with their timestamps; `replica` is the name of the pod."""
        return self._merger.drain() if self._drained else self._merger.due_lines(self._clock.now())

    def bars(self) -> dict[str, str]:
        """None: a server sends complete lines."""
        return {}

    def close(self) -> None:
        """Does nothing: readers end when `run` is cancelled."""

    async def _read_pod(self, log: _PodLog) -> None:
        """Read one pod until it ends: again after a restart of the container, or when the connection broke."""
        position = LogPosition()
        while True:
            # Cleared and checked before the read, so that lines written before the end are not missed.
            log.changed.clear()
            ended, container = log.has_ended, self._container_of(log.pod)
            if not ended and not log.has_started(container):
                await log.changed.wait()
                continue
            try:
                async with aclosing(self._lines_after(position, log.pod, container)) as lines:
                    async for line in lines:
                        position = position.advanced_by(line)
                        self._merger.add(line, self._clock.now())
            except NotFound:
                return
            except (BadRequest, StreamBroken, Unreachable, ServerError):
                # The log may be readable again in a moment; of a pod that has ended it is not tried twice.
                pass
            if ended:
                return
            await self._clock.sleep(RETRY_DELAY)

    async def _lines_after(self, position: LogPosition, pod: Pod, container: str) -> AsyncGenerator[TimedLine, None]:
        resume = ResumeFilter(position)
        raw_lines = PodSubresources(self._client).logs(
            pod.metadata.key,
            container=container,
            follow=True,
            timestamps=True,
            tail=self._tail if position.since is None else None,
            since=position.since or self._since,
        )
        async with aclosing(raw_lines):
            async for raw in raw_lines:
                line = parse_line(pod.metadata.name, raw)
                if resume.is_new(line):
                    yield line
