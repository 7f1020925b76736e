"""The CPU and memory of a team, over time: what metrics.k8s.io says while somebody looks, and what was recorded.

A measurement is read only when a page asks for it, and a page asks only while it is seen. What it read stays for the next
one, as long as the viewer is there.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from datetime import timedelta
from typing import NamedTuple

from gangline.base.clock import Clock
from gangline.dashboard.live.rights import ViewerRights
from gangline.dashboard.rows.job_row import ViewStruct
from gangline.kube.client import Client
from gangline.kube.errors import KubeError
from gangline.kube.pod_metrics import POD_METRICS, pod_usage
from gangline.summary.job_state import is_finished
from gangline.summary.objects import ServerJob
from gangline.summary.replicas import pod_selector
from gangline.timeline.curves import thinned
from gangline.timeline.facts import pod_replica, unix_time

SHORTEST_INTERVAL = timedelta(seconds=2)
"""Several pages of one job share a measurement."""
MAX_SAMPLES, MAX_JOBS = 20_000, 50
"""The most measurements of replicas that are kept of a job, and the most jobs."""
MAX_POINTS, FEWEST_POINTS = 10_000, 50
"""The most points of all replicas in one view, and how many each replica has at least."""
NOT_SERVED = "CPU and memory are not shown: the cluster has no metrics.k8s.io; metrics-server serves it"


class UsagePoint(NamedTuple):
    """What a replica used at a moment."""

    at: float
    replica: str
    cores: float
    memory: int


class ReplicaSeries(ViewStruct, frozen=True):
    """The values of one replica: unix seconds and value."""

    replica: str
    points: tuple[tuple[float, float], ...]


class UsageView(ViewStruct, frozen=True):
    """CPU cores and bytes of memory of each replica, over time."""

    cpu: list[ReplicaSeries]
    memory: list[ReplicaSeries]
    # Why there is nothing, or no more than was recorded; empty if there is nothing to say.
    note: str


class _MeasuredJob:
    def __init__(self) -> None:
        self.points: deque[UsagePoint] = deque(maxlen=MAX_SAMPLES)
        self.read_at = float("-inf")
        self.note = ""
        self.lock = asyncio.Lock()


class UsageReader:
    """Reads what the teams of one viewer use."""

    def __init__(self, client: Client, rights: ViewerRights, clock: Clock) -> None:
        self._client, self._rights, self._clock = client, rights, clock
        # By the uid of the job; the last used is the last.
        self._jobs: dict[str, _MeasuredJob] = {}

    async def read(self, job: ServerJob) -> tuple[list[UsagePoint], str]:
        """What was measured of a job, now and whenever a page asked before; and why there is no more."""
        uid = str(job.body["metadata"].get("uid", ""))
        measured = self._jobs.pop(uid, None) or _MeasuredJob()
        self._jobs[uid] = measured
        while len(self._jobs) > MAX_JOBS:
            del self._jobs[next(iter(self._jobs))]
        if not is_finished(job.body):
            async with measured.lock:
                await self._measure(job, measured)
        return list(measured.points), measured.note

    async def _measure(self, job: ServerJob, measured: _MeasuredJob) -> None:
        now = self._clock.monotonic()
        if now - measured.read_at < SHORTEST_INTERVAL.total_seconds():
            return
        measured.read_at = now
        scope = await self._rights.read_scope(POD_METRICS, job.key.namespace)
        if scope.is_empty:
            measured.note = scope.refusals[0].message if scope.refusals else NOT_SERVED
            return
        try:
            page = await self._client.list(POD_METRICS, pod_selector(job))
        except KubeError as error:
            measured.note = f"CPU and memory cannot be read: {' '.join(str(error).split())}"
            return
        measured.note = ""
        last = {point.replica: point.at for point in measured.points}
        for body in page.items:
            at, replica = unix_time(body.get("timestamp")), pod_replica(body, job.key.name).name
            # A measurement of metrics-server is the same for 15 seconds or longer.
            if at is not None and at > last.get(replica, 0.0):
                measured.points.append(UsagePoint(at, replica, *pod_usage(body)))


def usage_view(points: Iterable[UsagePoint], note: str, size: int) -> UsageView:
    """The view of measurements, each replica with at most `size` points; fewer for a large team."""
    cpu: dict[str, dict[float, float]] = {}
    memory: dict[str, dict[float, float]] = {}
    for point in sorted(points):
        cpu.setdefault(point.replica, {})[point.at] = point.cores
        memory.setdefault(point.replica, {})[point.at] = point.memory
    size = min(size, max(MAX_POINTS // max(len(cpu), 1), FEWEST_POINTS))
    return UsageView(cpu=_series(cpu, size), memory=_series(memory, size), note=note)


def _series(values: dict[str, dict[float, float]], size: int) -> list[ReplicaSeries]:
    ordered = sorted(values, key=lambda replica: (len(replica), replica))
    return [ReplicaSeries(replica=name, points=thinned(list(values[name].items()), size)) for name in ordered]
