"""The lines that a team writes from now on, as they come: one request with `follow` for each container that runs.

A page of logs ends at a position in each log. Following begins there, so that no line is missing and none comes twice.
Lines wait in a bounded queue: a viewer who reads slowly slows down the server's streams, and nothing piles up here.
"""

import asyncio
import secrets
from collections.abc import Callable
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import NamedTuple

from gangline.api.meta import JSON, Key
from gangline.base.clock import Clock
from gangline.base.tasks import run_every
from gangline.dashboard.live.job import untracked
from gangline.dashboard.live.rights import Access, ViewerRights
from gangline.dashboard.live.watches import WatchPool, WatchSpec
from gangline.dashboard.rows.log_page import AttemptLine, LogQuery
from gangline.kube.client import Client
from gangline.kube.errors import BadRequest, KubeError, NotFound, ServerError, StreamBroken, Unauthorized, Unreachable
from gangline.kube.pods import PodSubresources
from gangline.runtime.informer import Informer
from gangline.summary.log_lines import parse_line
from gangline.summary.objects import PODS, ServerJob
from gangline.summary.replicas import container_name, owns_pod, pod_selector, replica_name, sorted_pods

MAX_FOLLOWED = 64
"""The most containers that one page follows."""
MAX_WAITING_LINES = 1000
TAIL_LINES = 100
"""Of a log that is longer than a page shows, following begins with so many of its last lines."""
MAX_SAVED = 200
RETRY_DELAY = timedelta(seconds=1)
RIGHTS_INTERVAL = timedelta(seconds=30)
"""How often is asked whether the viewer may still read: a server lets a log that is followed go on for ever."""


class RunId(NamedTuple):
    """One run of the container of a pod."""

    uid: str
    attempt: int


class LogPositions:
    """Up to where each run was read, by the timestamp of its last line; None if a page did not reach its end."""

    def __init__(self) -> None:
        self.read: dict[RunId, str | None] = {}

    def set(self, run: RunId, timestamp: str | None) -> None:
        self.read[run] = timestamp


class SavedPositions:
    """The ends of the pages that a viewer has read, by an id; the oldest is forgotten first."""

    def __init__(self) -> None:
        self._saved: dict[str, LogPositions] = {}

    def save(self, positions: LogPositions) -> str:
        """The id of the positions."""
        while len(self._saved) >= MAX_SAVED:
            del self._saved[next(iter(self._saved))]
        identity = secrets.token_urlsafe(9)
        self._saved[identity] = positions
        return identity

    def take(self, identity: str) -> LogPositions | None:
        """The positions, once."""
        return self._saved.pop(identity, None)


class ContainerRun(NamedTuple):
    """A run that the server has a log of. `previous`: it is not the last one of its container."""

    id: RunId
    pod: JSON
    previous: bool


def readable_runs(pod: JSON) -> list[ContainerRun]:
    """The runs of a pod's container whose logs are kept: the one before, and the last; none before it has started.

    While it waits to be started again, the log is that of the run that ended.
    """
    name, uid = container_name(pod), str(pod["metadata"].get("uid", ""))
    statuses = (pod.get("status") or {}).get("containerStatuses") or ()
    status: JSON = next((item for item in statuses if item.get("name") == name), {})
    restarts, state = int(status.get("restartCount") or 0), status.get("state") or {}
    last = ContainerRun(RunId(uid, restarts), pod, previous=False)
    if "running" in state or "terminated" in state:
        return [*([ContainerRun(RunId(uid, restarts - 1), pod, previous=True)] if restarts else []), last]
    return [last] if "terminated" in (status.get("lastState") or {}) else []


class LogFollower:
    """Follows the logs of one job for one page, until cancelled."""

    def __init__(
        self,
        client: Client,
        rights: ViewerRights,
        watches: WatchPool,
        clock: Clock,
        job: ServerJob,
        query: LogQuery,
        positions: LogPositions,
    ) -> None:
        self._client, self._rights, self._watches, self._clock = client, rights, watches, clock
        self._job, self._query, self._positions = job, query, positions
        self._waiting: asyncio.Queue[AttemptLine] = asyncio.Queue(MAX_WAITING_LINES)
        self._begun: set[RunId] = set()
        self._open: dict[RunId, tuple[ContainerRun, asyncio.Task[None]]] = {}
        self.notes: dict[str, None] = {}
        """What cannot be followed, in words, in the order in which it was noticed."""

    async def run(self) -> None:
        """Read logs as their containers start, as long as the viewer may read them."""
        selector, changed = pod_selector(self._job), asyncio.Event()
        spec = WatchSpec(PODS, selector, (), untracked)
        async with self._watches.informer(spec) as informer, asyncio.TaskGroup() as group:
            group.create_task(run_every(RIGHTS_INTERVAL, self._end_refused, self._clock))
            with informer.subscribe(lambda _: changed.set()):
                changed.set()
                while True:
                    await changed.wait()
                    changed.clear()
                    self._begin(informer, lambda run: group.create_task(self._follow(run)))

    async def lines(self, most: int) -> list[AttemptLine]:
        """Wait for a line; then it and others that wait, by their time."""
        taken = [await self._waiting.get()]
        while len(taken) < most and not self._waiting.empty():
            taken.append(self._waiting.get_nowait())
        return sorted(taken, key=lambda item: item.line.timestamp)

    def _begin(self, informer: Informer[JSON], start: Callable[[ContainerRun], asyncio.Task[None]]) -> None:
        pods = sorted_pods(pod for pod in informer.cache if owns_pod(self._job, pod))
        for pod in pods:
            if not self._query.has_replica(replica_name(self._job, pod)):
                continue
            for run in readable_runs(pod):
                # Who was not read by the page at all has begun after it, unless it is an earlier run.
                if run.id in self._begun or (run.previous and run.id not in self._positions.read):
                    continue
                if len(self._open) >= MAX_FOLLOWED:
                    self.notes[f"only {MAX_FOLLOWED} containers are followed at once; choose a replica"] = None
                    return
                self._begun.add(run.id)
                self._open[run.id] = (run, start(run))

    async def _follow(self, run: ContainerRun) -> None:
        replica = replica_name(self._job, run.pod)
        try:
            while not await self._read(run, replica):
                await self._clock.sleep(RETRY_DELAY)
        except KubeError as error:
            self.notes[f"{replica}: {' '.join(str(error).split())}"] = None
        finally:
            del self._open[run.id]

    async def _end_refused(self) -> None:
        """Stop reading the logs that the viewer may not read any more."""
        try:
            if await self._rights.may(self._access()):
                return
            for run, task in list(self._open.values()):
                # A role may name the pods.
                access = self._access(run.pod["metadata"]["name"])
                if not await self._rights.may(access):
                    refusal = await self._rights.refusal(access)
                    self.notes[f"{replica_name(self._job, run.pod)}: {refusal.message}"] = None
                    task.cancel()
        except Unauthorized as error:
            self.notes[" ".join(str(error).split())] = None
            for _, task in self._open.values():
                task.cancel()
        except KubeError:
            pass  # Nobody can say; the streams end with the server.

    def _access(self, pod: str = "") -> Access:
        return Access("get", PODS, self._job.key.namespace, pod, "log")

    async def _read(self, run: ContainerRun, replica: str) -> bool:
        """Read a log from its position on. Returns whether it has ended: false if the connection was cut."""
        metadata, read = run.pod["metadata"], self._positions.read
        after = read.get(run.id, "")
        stream = PodSubresources(self._client).logs(
            Key(metadata["namespace"], metadata["name"]),
            container=container_name(run.pod),
            follow=not run.previous,
            previous=run.previous,
            timestamps=True,
            tail=TAIL_LINES if after is None else None,
            since=datetime.fromisoformat(f"{after[:26]}+00:00") if after else None,
        )
        try:
            async with aclosing(stream):
                async for raw in stream:
                    line = parse_line(replica, raw)
                    if line.timestamp:
                        if line.timestamp <= (after or ""):
                            continue
                        read[run.id] = line.timestamp
                    if self._query.matches(line):
                        await self._waiting.put(AttemptLine(line, run.id.attempt))
        except (StreamBroken, Unreachable, ServerError):
            return False
        except (BadRequest, NotFound):
            return True  # It has not started, or its log is gone.
        return True
