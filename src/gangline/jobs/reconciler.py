"""Observe, plan, apply."""

import logging
from collections import OrderedDict
from collections.abc import Mapping
from datetime import timedelta
from typing import Generic, Protocol, TypeVar

import msgspec

from gangline.api.core import Pod
from gangline.api.meta import Key
from gangline.base.clock import Clock, SystemClock
from gangline.base.errors import GanglineError
from gangline.jobs.executor import CreateRejected, Executor, rejections
from gangline.jobs.framework import Framework, J
from gangline.jobs.observer import Observer
from gangline.jobs.plan.actions import Create, JobPlan
from gangline.jobs.plan.finish import rejected_status
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.plan import reconcile_plan
from gangline.jobs.plan.restarts import FAILURE_LOG_LINES, failed_pods
from gangline.jobs.pods.replicas import training_container_name
from gangline.kube.errors import KubeError

log = logging.getLogger(__name__)

V = TypeVar("V")

COUNTER_INTERVAL = timedelta(milliseconds=200)
"""Counters alone are written down no sooner than this after the last write: five hundred pods do not start at once."""
PROGRESS_INTERVAL = timedelta(seconds=5)
"""Progress alone is written down no sooner than this after the last write, however often programs report."""
STALE_CACHE_RETRY = timedelta(seconds=1)
"""When to look again if the cache does not show our own write: its watch may be broken."""
MAX_LOG_TAILS = 4
"""So many failed pods of one job are asked what they said last; the first to fail is among them."""
MAX_VERDICT_RETRIES = 10
"""So often what comes before a verdict may go wrong. Then it is told all the same: an object that cannot be changed must
not keep it from its owner for good."""
MAX_REMEMBERED = 4096
MAX_CREATES_BEFORE_STATUS = 16
"""So many objects are made before a new job's status tells of it. Of more the owner should see that they are coming."""


class LogTailReader(Protocol):
    """Reads the end of a container's log."""

    async def tail(self, pod: Key, container: str, lines: int) -> tuple[str, ...]:
        """The last lines; none if they cannot be had. Never raises for that."""
        ...


class JobBlocked(GanglineError):
    """The server refuses what a job needs; tried again later."""


class VerdictRetries:
    """How often what comes before a verdict went wrong, by job. Outlives passes; a new process begins anew."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, int] = OrderedDict()

    def increment(self, uid: str) -> int:
        """How many there are with this one."""
        _put_bounded(self._counts, uid, self._counts.pop(uid, 0) + 1)
        return self._counts[uid]


class CachedJobReconciler(Generic[J]):
    """One pass over one job."""

    def __init__(
        self,
        framework: Framework[J],
        observe: Observer[J],
        executor: Executor,
        logs: LogTailReader | None = None,
        clock: Clock | None = None,
        quiet: timedelta = COUNTER_INTERVAL,
        setbacks: VerdictRetries | None = None,
        *,
        abreast: bool = False,
    ) -> None:
        """`setbacks` are shared by passes that follow each other.

        `abreast`: nobody was at work on these jobs before; else the cache must show that it is new enough.
        """
        self._framework, self._observe, self._executor, self._log_reader = framework, observe, executor, logs
        self._clock: Clock = clock or SystemClock()
        self._counter_interval = quiet
        # All only save calls. Job -> when we last wrote its status, and the version that this replaced; pod uid ->
        # its last lines.
        self._written_at: OrderedDict[str, float] = OrderedDict()
        self._replaced_versions: OrderedDict[str, str] = OrderedDict()
        self._log_tails: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._verdict_retries = setbacks or VerdictRetries()
        # Whether the cache has shown one of our own writes: it then knows all that was written before we began.
        self._cache_is_current = abreast
        # Jobs whose objects were made, or tried, before their status.
        self._started: OrderedDict[str, None] = OrderedDict()

    async def reconcile(self, key: Key) -> timedelta | None:
        seen = self._observe(key)
        if seen is None:
            return None
        metadata = seen.job.metadata
        replaced = self._replaced_versions.get(metadata.uid)
        if replaced == metadata.resource_version:
            return STALE_CACHE_RETRY
        self._cache_is_current = self._cache_is_current or replaced is not None
        logs = await self._read_log_tails(seen)
        if logs:
            seen = self._observe(key, logs)
            if seen is None:
                return None
        intent = self._without_progress(seen, reconcile_plan(self._framework, seen))
        early = self._counters_due_in(seen, intent)
        if early is not None:
            return early
        untouched = self._creates_only(seen, intent)
        if untouched:
            _put_bounded(self._started, metadata.uid, None)
        await self._apply(seen, intent, status_later=untouched)
        if untouched:
            return timedelta()
        owed = self._executor.recheck_after(seen.job)
        return min((delay for delay in (intent.requeue_after, owed) if delay is not None), default=None)

    def _creates_only(self, seen: ObservedJob[J], intent: JobPlan) -> bool:
        """Whether nobody has done anything for a job yet, and all there is to do is to make its few objects.

        There is nothing to count then, and nothing to lose: its status may come in the next pass, which under load
        knows already that its pods run, and saves a write. Who led before us may have ended it long ago, unknown to the
        cache; not if the cache is newer than our own first write. Where making them goes wrong the status comes first,
        the next time.
        """
        job, children = seen.job, seen.children
        actions = [action for stage in intent.stages for action in stage]
        return (
            self._cache_is_current
            and job.metadata.uid not in self._started
            and not job.status.conditions
            and not (children.pods or children.services or children.orphans)
            and not (intent.before_status or intent.events)
            and 0 < len(actions) <= MAX_CREATES_BEFORE_STATUS
            and all(isinstance(action, Create) for action in actions)
        )

    async def _apply(self, seen: ObservedJob[J], intent: JobPlan, *, status_later: bool) -> None:
        """Write down, then act; and if the server does not want what is needed, write that down too."""
        job = seen.job
        await self._run_before_status(job, intent)
        try:
            if not status_later:
                job = await self._executor.write_status(job, intent.status)
            await self._executor.run_stages(job, intent)
        except (CreateRejected, ExceptionGroup) as error:
            found = tuple(rejections(error))
            if not found:
                raise
            begun = msgspec.structs.replace(job, status=intent.status)
            job = await self._executor.write_status(job, rejected_status(self._framework, seen, begun, found))
            if not job.status.finished:
                raise JobBlocked(found[0].message) from error
        finally:
            if job is not seen.job:
                self._remember_write(seen.job)

    async def _run_before_status(self, job: J, intent: JobPlan) -> None:
        """What comes before a status. If it goes wrong again and again the status is written all the same."""
        if not intent.before_status:
            return
        try:
            await self._executor.run_before_status(job, intent)
        except (KubeError, ExceptionGroup) as error:
            own_fault = isinstance(error, ExceptionGroup) and error.split(KubeError)[1] is not None
            if own_fault or self._verdict_retries.increment(job.metadata.uid) < MAX_VERDICT_RETRIES:
                raise
            log.warning("%s %s ends with what is beside it as it was: %s", job.KIND, job.metadata.key, error)

    def _counters_due_in(self, seen: ObservedJob[J], intent: JobPlan) -> timedelta | None:
        """How long a status whose counters alone are new may wait; None if there is more to it, or it is due."""
        job = seen.job
        uncounted = msgspec.structs.replace(
            intent.status,
            replica_statuses=job.status.replica_statuses,
            progress=job.status.progress,
        )
        if uncounted != job.status or intent.status == job.status or intent.events or _has_actions(intent):
            return None
        return self._remaining(job, self._counter_interval) or None

    def _without_progress(self, seen: ObservedJob[J], intent: JobPlan) -> JobPlan:
        """The plan without the progress, if that is all that is new of the status and it is not due yet."""
        before, after = seen.job.status, intent.status
        if after.progress == before.progress:
            return intent
        left = self._remaining(seen.job, PROGRESS_INTERVAL)
        if not left or msgspec.structs.replace(after, progress=before.progress) != before:
            return intent
        wakes = (left, intent.requeue_after)
        return msgspec.structs.replace(
            intent, status=before, requeue_after=min(wake for wake in wakes if wake is not None)
        )

    def _remaining(self, job: J, wait: timedelta) -> timedelta:
        """What is left of a wait that began with the last write."""
        since = self._clock.monotonic() - self._written_at.get(job.metadata.uid, float("-inf"))
        return wait - timedelta(seconds=min(since, wait.total_seconds()))

    def _remember_write(self, job: J) -> None:
        _put_bounded(self._written_at, job.metadata.uid, self._clock.monotonic())
        _put_bounded(self._replaced_versions, job.metadata.uid, job.metadata.resource_version)

    async def _read_log_tails(self, seen: ObservedJob[J]) -> Mapping[str, tuple[str, ...]]:
        """What pods that failed just now said last."""
        known = seen.job.status.ledger.replaced
        pods = [pod for pod in failed_pods(seen.gang).values() if pod.metadata.uid not in known]
        if self._log_reader is None or not pods or seen.job.status.finished:
            return {}
        return {pod.metadata.uid: await self._log_tail(pod) for pod in pods[:MAX_LOG_TAILS]}

    async def _log_tail(self, pod: Pod) -> tuple[str, ...]:
        known = self._log_tails.get(pod.metadata.uid)
        if known is None and self._log_reader is not None:
            container = training_container_name(pod, self._framework.facts.container)
            known = await self._log_reader.tail(pod.metadata.key, container, FAILURE_LOG_LINES)
            _put_bounded(self._log_tails, pod.metadata.uid, known)
        return known or ()


def _has_actions(intent: JobPlan) -> bool:
    return bool(intent.before_status) or any(intent.stages)


def _put_bounded(known: OrderedDict[str, V], uid: str, value: V) -> None:
    """Remember something of a job or pod; the oldest of many are forgotten."""
    known[uid] = value
    while len(known) > MAX_REMEMBERED:
        known.popitem(last=False)
