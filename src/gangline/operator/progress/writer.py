"""Writes progress reports into the annotation of their pod: at a limited rate per pod, and always the last one.

A report that comes early waits, and is replaced by a newer one that comes meanwhile. Of several operators none replaces a
newer report by an older one: what has waited is compared with what the pod has by then.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from gangline.api.core import Pod
from gangline.api.kubeflow.training import PROGRESS_ANNOTATION, PROGRESS_TIME_ANNOTATION
from gangline.api.meta import JSON
from gangline.base.clock import Clock, Timer, time_with_zone
from gangline.base.tasks import background_tasks, run_all, time_limit
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, Conflict, KubeError, NotFound, ServerError, TooManyRequests
from gangline.operator.progress.reporters import Reporter
from gangline.progress.line import Progress, bounded_progress, parse_progress, progress_line

log = logging.getLogger(__name__)

WRITE_INTERVAL = timedelta(seconds=5)
"""The shortest time between two writes for one pod, in a cluster."""
MAX_PODS = 10_000
"""Pods that are remembered. Those without a waiting report are forgotten first, the oldest first."""
MAX_WRITES = 8
FIRST_RETRY, LAST_RETRY = timedelta(seconds=1), timedelta(seconds=30)
MAX_CONFLICTS = 5
LAST_WRITE_LIMIT = timedelta(seconds=4)
"""How long a program waits for its last report to be written; `transformers` waits for 5 seconds."""
CLOSE_GRACE = timedelta(seconds=3)
"""How long waiting reports may take to be written when the operator stops."""


class ReportOutcome(StrEnum):
    """What became of a report that was to be written."""

    WRITTEN = "written"
    OUTDATED = "outdated"
    """Another operator has written a newer one."""
    GONE = "gone"
    """The pod does not exist any more."""
    RETRIED = "retried"
    FAILED = "failed"


class Report(NamedTuple):
    """A progress line, and when it arrived."""

    line: str
    at: datetime


class _ReportingPod:
    """What is known of one pod: its last report, and what of it is written."""

    def __init__(self, reporter: Reporter) -> None:
        self.reporter = reporter
        self.progress = parse_progress(reporter.annotations.get(PROGRESS_ANNOTATION, ""))
        self.waiting: Report | None = None
        # Whether the report has waited, so that another operator may have written a newer one.
        self.is_late = False
        # Whether a last report came. What comes all the same is written at the usual rate.
        self.is_done = False
        self.written_at = float("-inf")
        self.retry_delay = FIRST_RETRY
        self.timer: Timer | None = None
        self.lock = asyncio.Lock()


class ProgressWriter:
    """Takes reports of pods and writes them, while it is `running`."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        count: Callable[[ReportOutcome], object] = lambda outcome: None,
        *,
        interval: timedelta = WRITE_INTERVAL,
    ) -> None:
        """`count` is called with what became of each report; `interval` is the shortest time between writes for a pod."""
        self._client, self._clock, self._count, self._interval = client, clock, count, interval
        self._pods: dict[str, _ReportingPod] = {}
        self._due: asyncio.Queue[_ReportingPod] = asyncio.Queue()
        self._slots = asyncio.Semaphore(MAX_WRITES)

    def last_progress(self, reporter: Reporter) -> Progress | None:
        """What the pod reported last, here or to another operator."""
        return self._pod(reporter).progress

    async def put(self, reporter: Reporter, progress: Progress, *, is_last: bool = False) -> None:
        """Take a report. The first that is the last is written before this returns, if the API server answers in time.

        A program ends after its last report, and with it its pod may go.
        """
        pod = self._pod(reporter)
        pod.progress, pod.is_late = progress, False
        pod.waiting = Report(progress_line(bounded_progress(progress)), self._clock.now())
        if not is_last or pod.is_done:
            self._write_when_due(pod)
            return
        pod.is_done = True
        try:
            async with time_limit(LAST_WRITE_LIMIT, self._clock):
                await self._write(pod, at_once=True)
        except TimeoutError:
            self._schedule(pod, FIRST_RETRY)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Write reports as they become due, until the block ends; then those that still wait, within a few seconds."""
        try:
            async with background_tasks(self._run()):
                yield
        finally:
            await self._write_rest()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                pod = await self._due.get()
                group.create_task(self._write(pod))

    async def _write_rest(self) -> None:
        waiting = [pod for pod in self._pods.values() if pod.waiting is not None]
        for pod in waiting:
            pod.is_late = True
        try:
            async with time_limit(CLOSE_GRACE, self._clock):
                await run_all((self._write(pod, at_once=True) for pod in waiting), at_once=MAX_WRITES)
        except TimeoutError:
            lost = sum(pod.waiting is not None for pod in waiting)
            log.warning("progress reports were not written in time", extra={"pods": lost})
        for pod in self._pods.values():
            if pod.timer is not None:
                pod.timer.cancel()

    def _pod(self, reporter: Reporter) -> _ReportingPod:
        pod = self._pods.pop(reporter.uid, None) or _ReportingPod(reporter)
        # The one that was used last is at the end.
        self._pods[reporter.uid] = pod
        if len(self._pods) > MAX_PODS:
            idle = next((uid for uid, found in self._pods.items() if found.waiting is None), None)
            if idle is not None and idle != reporter.uid:
                del self._pods[idle]
        return pod

    def _write_when_due(self, pod: _ReportingPod) -> None:
        """Write what waits as soon as the interval since the last write is over."""
        wait = self._remaining_seconds(pod)
        if wait <= 0:
            self._due.put_nowait(pod)
        else:
            self._schedule(pod, timedelta(seconds=wait))

    def _remaining_seconds(self, pod: _ReportingPod) -> float:
        return pod.written_at + self._interval.total_seconds() - self._clock.monotonic()

    def _schedule(self, pod: _ReportingPod, delay: timedelta) -> None:
        """Write what waits after a delay, however many reports come meanwhile."""
        pod.is_late = True
        if pod.timer is not None:
            return

        def wake() -> None:
            pod.timer = None
            self._due.put_nowait(pod)

        pod.timer = self._clock.call_later(delay, wake)

    async def _write(self, pod: _ReportingPod, *, at_once: bool = False) -> None:
        """Write what waits, if anything does and it is due. An error that may pass is tried again later."""
        async with pod.lock, self._slots:
            report = pod.waiting
            if report is None:
                return
            if not at_once and self._remaining_seconds(pod) > 0:
                # Another report was written while this one waited for its turn.
                self._write_when_due(pod)
                return
            result = await self._result_of_write(pod, report)
            self._count(result)
            if result == ReportOutcome.RETRIED:
                self._schedule(pod, pod.retry_delay)
                pod.retry_delay = min(LAST_RETRY, pod.retry_delay * 2)
                return
            pod.written_at, pod.retry_delay = self._clock.monotonic(), FIRST_RETRY
            if pod.waiting is report:
                pod.waiting = None
            else:
                self._write_when_due(pod)
            if result == ReportOutcome.GONE:
                self._forget(pod)

    async def _result_of_write(self, pod: _ReportingPod, report: Report) -> ReportOutcome:
        try:
            return await self._annotate(pod, report)
        except NotFound:
            return ReportOutcome.GONE
        except KubeError as error:
            log.warning("progress not written", extra={"pod": str(pod.reporter.pod), "error": str(error)})
            may_pass = not isinstance(error, ApiError) or isinstance(error, ServerError | TooManyRequests | Conflict)
            return ReportOutcome.RETRIED if may_pass else ReportOutcome.FAILED

    def _forget(self, pod: _ReportingPod) -> None:
        if pod.timer is not None:
            pod.timer.cancel()
        if self._pods.get(pod.reporter.uid) is pod:
            del self._pods[pod.reporter.uid]

    async def _annotate(self, pod: _ReportingPod, report: Report) -> ReportOutcome:
        """Write one report. Raises `NotFound` if the pod is gone, and `Conflict` if it changes all the time."""
        key, uid = pod.reporter.pod, pod.reporter.uid
        annotations = {PROGRESS_ANNOTATION: report.line, PROGRESS_TIME_ANNOTATION: report.at.isoformat()}
        body: JSON = {"metadata": {"uid": uid, "annotations": annotations}}
        if not pod.is_late:
            try:
                await self._client.patch(Pod, key, body)
            except Conflict:
                # Another pod of that name, or a pod that changes often.
                pass
            else:
                return ReportOutcome.WRITTEN
        for attempt in range(MAX_CONFLICTS):
            current = await self._client.get(Pod, key)
            if current.metadata.uid != uid:
                return ReportOutcome.GONE
            newest = time_with_zone(current.metadata.annotations.get(PROGRESS_TIME_ANNOTATION, ""))
            if newest is not None and newest > report.at:
                return ReportOutcome.OUTDATED
            try:
                await self._client.patch(Pod, key, body, resource_version=current.metadata.resource_version)
            except Conflict:
                if attempt + 1 == MAX_CONFLICTS:
                    raise
            else:
                break
        return ReportOutcome.WRITTEN
