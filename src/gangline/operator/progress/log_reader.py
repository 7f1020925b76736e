"""Reads progress lines from the logs of running jobs: for programs that print them, in a cluster, without a sidecar.

Of each job only one pod is followed, the first in rank, and of all jobs only so many as the operator is told to: each is an
open connection to the API server, and from there to a kubelet.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Protocol

from gangline.api.core import Pod, PodPhase
from gangline.api.kubeflow.training import JobKind
from gangline.api.meta import Key
from gangline.base.clock import Clock, time_with_zone
from gangline.jobs.pods.replicas import leading_order, training_container_name
from gangline.kube.errors import Forbidden, KubeError, NotFound
from gangline.kube.pods import PodSubresources
from gangline.operator.progress.reporters import Reporter
from gangline.operator.progress.writer import ProgressWriter
from gangline.progress.line import Progress, parse_progress
from gangline.runtime.informer import Delta, Informer

log = logging.getLogger(__name__)

FIRST_LINES = 100
"""The lines before now that are read at first: the last report may be among them."""
FIRST_RETRY, LAST_RETRY = timedelta(seconds=1), timedelta(minutes=1)


class PodFollower(Protocol):
    """Follows the log of one pod."""

    async def follow(self, pod: Pod, has_ended: Callable[[], bool]) -> None:
        """Follow the log until the pod has ended and all is read, or it may not be read."""
        ...


def pods_to_follow(pods: Iterable[Pod], followed: Collection[str], limit: int) -> list[Pod]:
    """The pods whose logs are read: the first in rank of each job that runs, at most `limit` of them.

    Those that are `followed` already, by uid, stay; then the oldest come first.
    """
    first: dict[str, Pod] = {}
    for pod in pods:
        owner = pod.metadata.controller
        if owner is None or pod.status.phase != PodPhase.RUNNING or pod.metadata.deletion_timestamp is not None:
            continue
        current = first.get(owner.uid)
        if current is None or leading_order(pod) < leading_order(current):
            first[owner.uid] = pod

    def order(pod: Pod) -> tuple[bool, str, str]:
        created = pod.metadata.creation_timestamp
        return (pod.metadata.uid not in followed, created.isoformat() if created else "", pod.metadata.uid)

    return sorted(first.values(), key=order)[:limit]


class ProgressLogReader:
    """Follows the logs of pods as jobs come and go. `run` is for the operator that leads."""

    def __init__(
        self,
        pods: Informer[Pod],
        follower: PodFollower,
        limit: int,
        count: Callable[[int, int], object] = lambda followed, left_out: None,
    ) -> None:
        """`count` is called with how many pods are followed, and how many are not because of the limit."""
        self._pods, self._follower, self._limit, self._count = pods, follower, limit, count
        # By the uid of the pod.
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._unreadable: set[str] = set()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Follow logs until cancelled."""

        def on_change(delta: Delta[Pod]) -> None:
            if delta.after is None:
                self._unreadable.discard(delta.newest.metadata.uid)
            if delta.before is None or delta.after is None or delta.before.status.phase != delta.after.status.phase:
                self._changed.set()

        async with asyncio.TaskGroup() as group:
            with self._pods.subscribe(on_change):
                while True:
                    self._changed.clear()
                    self._update(group)
                    await self._changed.wait()

    def _update(self, group: asyncio.TaskGroup) -> None:
        readable = [pod for pod in self._pods.cache if pod.metadata.uid not in self._unreadable]
        candidates = pods_to_follow(readable, self._tasks.keys(), len(readable))
        # Those that have ended are read to their end, and count until then.
        ending = self._tasks.keys() - {pod.metadata.uid for pod in candidates}
        wanted = candidates[: max(0, self._limit - len(ending))]
        for pod in wanted:
            if pod.metadata.uid not in self._tasks:
                self._tasks[pod.metadata.uid] = group.create_task(self._follow(pod))
        self._count(len(self._tasks), len(candidates) - len(wanted))

    async def _follow(self, pod: Pod) -> None:
        uid, key = pod.metadata.uid, pod.metadata.key

        def has_ended() -> bool:
            current = self._pods.cache.get(key)
            return current is None or current.metadata.uid != uid or current.status.phase != PodPhase.RUNNING

        await self._follower.follow(pod, has_ended)
        self._tasks.pop(uid, None)
        if not has_ended():
            self._unreadable.add(uid)
        self._changed.set()


class ProgressLogFollower:
    """Reads the log of a pod and hands its progress lines to the writer."""

    def __init__(self, logs: PodSubresources, writer: ProgressWriter, kinds: Iterable[JobKind], clock: Clock) -> None:
        self._logs, self._writer, self._clock = logs, writer, clock
        self._containers: Mapping[str, str] = {kind.kind: kind.container for kind in kinds}

    async def follow(self, pod: Pod, has_ended: Callable[[], bool]) -> None:
        """Follow the log through restarts of the container and broken connections."""
        key, owner = pod.metadata.key, pod.metadata.controller
        container = training_container_name(pod, self._containers.get(owner.kind, "") if owner is not None else "")
        reading = _LogReading(Reporter(key, pod.metadata.uid, pod.metadata.annotations))
        delay = FIRST_RETRY
        while True:
            is_final = has_ended()
            try:
                is_newer = await self._read(key, container, reading)
            except NotFound:
                return
            except Forbidden as error:
                log.warning("progress cannot be read from a log", extra={"pod": str(key), "error": str(error)})
                return
            except KubeError as error:
                log.debug("a log is cut off", extra={"pod": str(key), "error": str(error)})
                is_newer = False
            if is_final:
                return
            delay = FIRST_RETRY if is_newer else min(LAST_RETRY, delay * 2)
            await self._clock.sleep(delay)

    async def _read(self, key: Key, container: str, reading: "_LogReading") -> bool:
        """Read what is new, until the container ends. Returns whether anything was. Raises `KubeError`."""
        start = reading.last_time
        reading.resume()
        lines = self._logs.logs(
            key,
            container=container,
            follow=True,
            timestamps=True,
            since=start,
            tail=FIRST_LINES if start is None else None,
        )
        async with aclosing(lines):
            async for line in lines:
                progress = reading.progress_in(line)
                if progress is not None:
                    is_last = progress.total is not None and progress.step >= progress.total
                    await self._writer.put(reading.reporter, progress, is_last=is_last)
        return reading.last_time != start


class _LogReading:
    """How far the log of a pod has been read. Several lines may have the same time."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self.last_time: datetime | None = None
        self._lines_at_last_time = 0
        # Of those that a server sends again, which begins with the whole second.
        self._lines_to_skip = 0

    def resume(self) -> None:
        """The log is read once more, from the last time on."""
        self._lines_to_skip = self._lines_at_last_time

    def progress_in(self, line: bytes) -> Progress | None:
        """The progress in a line with its time; None if it has none, or was read before."""
        text, _, rest = line.decode(errors="replace").partition(" ")
        time = time_with_zone(text)
        if time is None or (self.last_time is not None and time < self.last_time):
            return None
        if time == self.last_time and self._lines_to_skip:
            self._lines_to_skip -= 1
            return None
        self._lines_at_last_time = self._lines_at_last_time + 1 if time == self.last_time else 1
        self.last_time, self._lines_to_skip = time, 0
        return parse_progress(rest)
