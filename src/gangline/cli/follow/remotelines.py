"""The lines of a job's members, from the server: of pods that are there and of those yet to come, in order of time."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import NamedTuple

from gangline.api.core import Pod, PodPhase
from gangline.base.clock import Clock
from gangline.cli.follow.follower import Said
from gangline.cli.output.log_lines import Line, Merger, parsed
from gangline.jobs.pods.replicas import training
from gangline.kube.client import Client
from gangline.kube.errors import BadRequest, NotFound, ServerError, StreamBroken, Unreachable
from gangline.kube.pods import Pods

RETRY = timedelta(milliseconds=500)
LAST = timedelta(seconds=2)
"""How long logs may go on once the job has ended: a member that is kept need not end."""


class Mark(NamedTuple):
    """How far a log was read: the time of its last line, and how many lines had that time."""

    moment: str = ""
    times: int = 0

    def after(self, line: Line) -> "Mark":
        """Once this line, too, was read. One without a time belongs to the line before it."""
        if not line.moment:
            return self
        return Mark(line.moment, self.times + 1 if line.moment == self.moment else 1)

    @property
    def since(self) -> datetime | None:
        return datetime.fromisoformat(f"{self.moment[:26]}+00:00") if self.moment else None


class Unread:
    """Of a log that is read again from about a mark on, what comes after the mark."""

    def __init__(self, mark: Mark) -> None:
        self._mark, self._left = mark, mark.times

    def has(self, line: Line) -> bool:
        if line.moment == self._mark.moment and self._left:
            self._left -= 1
            return False
        return not line.moment or line.moment >= self._mark.moment


class _Source:
    """One pod as it is now; whoever waits is woken when it changes."""

    def __init__(self, pod: Pod) -> None:
        self.pod, self.changed = pod, asyncio.Event()

    def update(self, pod: Pod) -> None:
        self.pod = pod
        self.changed.set()

    def started(self, container: str) -> bool:
        """Whether there is a log."""
        for status in self.pod.status.container_statuses:
            if status.name == container:
                state = status.state
                return bool(state.running or state.terminated or status.last_state.terminated)
        return self.ended

    @property
    def ended(self) -> bool:
        """Whether nothing more will be said: then one more reading is enough."""
        return self.pod.status.phase in (PodPhase.SUCCEEDED, PodPhase.FAILED)


class RemoteLines:
    """Reads one container of every pod that was seen. Made in a running loop."""

    def __init__(self, client: Client, container: str, clock: Clock) -> None:
        self._client, self._container, self._clock = client, container, clock
        self._sources: dict[str, _Source] = {}
        self._new: asyncio.Queue[_Source] = asyncio.Queue()
        self._readers: list[asyncio.Task[None]] = []
        self._merger, self._over = Merger(), False

    def seen(self, pod: Pod) -> None:
        found = self._sources.get(pod.metadata.uid)
        if found is not None:
            found.update(pod)
            return
        self._sources[pod.metadata.uid] = found = _Source(pod)
        self._new.put_nowait(found)

    async def read(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._readers.append(group.create_task(self._read(await self._new.get())))

    async def rest(self) -> None:
        while not self._new.empty():
            await self._clock.sleep(timedelta())
        running = [reader for reader in self._readers if not reader.done()]
        if running:
            await asyncio.wait(running, timeout=LAST.total_seconds())
        self._over = True

    def lines(self) -> Iterator[Said]:
        found = self._merger.rest() if self._over else self._merger.due(self._clock.now())
        return (Said(line.member, line.text) for line in found)

    def close(self) -> None:
        """Readers end when `read` is cancelled."""

    async def _read(self, source: _Source) -> None:
        """One pod to its end: again after a restart inside it, or when the connection broke."""
        mark = Mark()
        while True:
            # In this order: what was said before the end is read after the end was seen.
            source.changed.clear()
            if not source.started(training(source.pod, self._container)):
                await source.changed.wait()
                continue
            ended = source.ended
            try:
                async with aclosing(self._lines_after(source, mark)) as lines:
                    async for line in lines:
                        mark = mark.after(line)
                        self._merger.add(line, self._clock.now())
            except NotFound:
                return
            except (BadRequest, StreamBroken, Unreachable, ServerError):
                # It may be there again in a moment; a pod that has ended is not asked twice.
                pass
            if ended:
                return
            await self._clock.sleep(RETRY)

    async def _lines_after(self, source: _Source, mark: Mark) -> AsyncGenerator[Line, None]:
        metadata, unread = source.pod.metadata, Unread(mark)
        container = training(source.pod, self._container)
        found = Pods(self._client).logs(
            metadata.key, container=container, follow=True, timestamps=True, since=mark.since
        )
        async with aclosing(found) as lines:
            async for raw in lines:
                line = parsed(metadata.name, raw)
                if unread.has(line):
                    yield line
