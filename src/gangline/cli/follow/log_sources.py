"""The lines of a job's members, from the files that a node of this machine writes."""

import asyncio
from collections.abc import AsyncGenerator, Collection, Iterator
from contextlib import aclosing
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from gangline.api.core import Pod, PodPhase
from gangline.api.meta import Key
from gangline.base.clock import Clock
from gangline.cli.follow.follower import PodLine
from gangline.cli.output.log_lines import LineMerger, TimedLine, parse_line
from gangline.jobs.pods.replicas import training_container_name
from gangline.kube.client import Client
from gangline.kube.errors import BadRequest, NotFound, ServerError, StreamBroken, Unreachable
from gangline.kube.pods import PodSubresources
from gangline.node.logs import NamespaceLogTail


class FileLogSource:
    """Lines of one job's pods, where there are pods of other jobs, too."""

    def __init__(self, state: Path, job: Key, others: Collection[str] = ()) -> None:
        self._tail, self._job = NamespaceLogTail(state), job
        # Jobs whose names begin with this one's: `a-b-worker-0` is not of `a` where there is an `a-b`.
        self._longer_prefixes = tuple(f"{name}-" for name in others if name.startswith(f"{job.name}-"))

    def update_pod(self, pod: Pod) -> None:
        """Its name says whose it is."""

    async def run(self) -> None:
        """Files are read when they are asked for."""

    async def drain(self) -> None:
        """What a process wrote is in its file when it has ended."""

    def new_lines(self) -> Iterator[PodLine]:
        for line in self._tail.lines(self._job.namespace):
            if self._is_member(line.pod):
                yield PodLine(line.pod, line.text)

    def close(self) -> None:
        self._tail.close()

    def _is_member(self, pod: str) -> bool:
        return pod.startswith(f"{self._job.name}-") and not pod.startswith(self._longer_prefixes or "/")


RETRY_DELAY = timedelta(milliseconds=500)
DRAIN_TIMEOUT = timedelta(seconds=2)
"""How long logs may go on once the job has ended: a member that is kept need not end."""


class LogPosition(NamedTuple):
    """How far a log was read: the time of its last line, and how many lines had that time."""

    timestamp: str = ""
    line_count: int = 0

    def advanced_by(self, line: TimedLine) -> "LogPosition":
        """Once this line, too, was read. One without a time belongs to the line before it."""
        if not line.timestamp:
            return self
        return LogPosition(line.timestamp, self.line_count + 1 if line.timestamp == self.timestamp else 1)

    @property
    def since(self) -> datetime | None:
        return datetime.fromisoformat(f"{self.timestamp[:26]}+00:00") if self.timestamp else None


class ResumeFilter:
    """Of a log that is read again from about a mark on, what comes after the mark."""

    def __init__(self, mark: LogPosition) -> None:
        self._position, self._lines_to_skip = mark, mark.line_count

    def is_new(self, line: TimedLine) -> bool:
        if line.timestamp == self._position.timestamp and self._lines_to_skip:
            self._lines_to_skip -= 1
            return False
        return not line.timestamp or line.timestamp >= self._position.timestamp


class _PodLog:
    """One pod as it is now; whoever waits is woken when it changes."""

    def __init__(self, pod: Pod) -> None:
        self.pod, self.changed = pod, asyncio.Event()

    def update(self, pod: Pod) -> None:
        self.pod = pod
        self.changed.set()

    def has_started(self, container: str) -> bool:
        """Whether there is a log."""
        for status in self.pod.status.container_statuses:
            if status.name == container:
                state = status.state
                return bool(state.running or state.terminated or status.last_state.terminated)
        return self.has_ended

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will be said: then one more reading is enough."""
        return self.pod.status.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


class ServerLogSource:
    """Reads one container of every pod that was seen. Made in a running loop."""

    def __init__(self, client: Client, container: str, clock: Clock) -> None:
        self._client, self._container, self._clock = client, container, clock
        self._pod_logs: dict[str, _PodLog] = {}
        self._new_logs: asyncio.Queue[_PodLog] = asyncio.Queue()
        self._readers: list[asyncio.Task[None]] = []
        self._merger, self._drained = LineMerger(), False

    def update_pod(self, pod: Pod) -> None:
        found = self._pod_logs.get(pod.metadata.uid)
        if found is not None:
            found.update(pod)
            return
        self._pod_logs[pod.metadata.uid] = found = _PodLog(pod)
        self._new_logs.put_nowait(found)

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
        found = self._merger.drain() if self._drained else self._merger.due_lines(self._clock.now())
        return (PodLine(line.replica, line.text) for line in found)

    def close(self) -> None:
        """Readers end when `read` is cancelled."""

    async def _read_pod(self, source: _PodLog) -> None:
        """One pod to its end: again after a restart inside it, or when the connection broke."""
        mark = LogPosition()
        while True:
            # In this order: what was said before the end is read after the end was seen.
            source.changed.clear()
            if not source.has_started(training_container_name(source.pod, self._container)):
                await source.changed.wait()
                continue
            ended = source.has_ended
            try:
                async with aclosing(self._lines_after(source, mark)) as lines:
                    async for line in lines:
                        mark = mark.advanced_by(line)
                        self._merger.add(line, self._clock.now())
            except NotFound:
                return
            except (BadRequest, StreamBroken, Unreachable, ServerError):
                # It may be there again in a moment; a pod that has ended is not asked twice.
                pass
            if ended:
                return
            await self._clock.sleep(RETRY_DELAY)

    async def _lines_after(self, source: _PodLog, mark: LogPosition) -> AsyncGenerator[TimedLine, None]:
        metadata, unread = source.pod.metadata, ResumeFilter(mark)
        container = training_container_name(source.pod, self._container)
        found = PodSubresources(self._client).logs(
            metadata.key, container=container, follow=True, timestamps=True, since=mark.since
        )
        async with aclosing(found) as lines:
            async for raw in lines:
                line = parse_line(metadata.name, raw)
                if unread.is_new(line):
                    yield line
