"""Observe, plan, apply: the reconcile loop of one kind of job."""

import logging
from datetime import timedelta
from typing import Generic

import msgspec

from gangline.api.meta import Key
from gangline.base.clock import Clock, SystemClock
from gangline.base.errors import GanglineError
from gangline.jobs.bounded import BoundedDict
from gangline.jobs.cause_reader import CauseReader
from gangline.jobs.executor import CreateRejected, Executor, rejections
from gangline.jobs.framework import Framework, J
from gangline.jobs.goodput import LEDGER_INTERVAL, GoodputBook, plan_with_goodput
from gangline.jobs.log_tails import LogTailCache, LogTailReader
from gangline.jobs.observer import Observer
from gangline.jobs.pacing import COUNTER_INTERVAL, MAX_REMEMBERED, StatusPacer
from gangline.jobs.plan.actions import JobPlan
from gangline.jobs.plan.failures.records import LogTails
from gangline.jobs.plan.finish import rejected_status
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.plan import reconcile_plan
from gangline.jobs.plan.recovery.question import needs_cause
from gangline.kube.errors import KubeError

log = logging.getLogger(__name__)

STALE_CACHE_RETRY = timedelta(seconds=1)
"""When to look again if the cache does not show our own write: its watch may be broken."""
MAX_VERDICT_RETRIES = 10
"""How often the actions before a verdict may fail. Then the verdict is written all the same: an object that cannot be
changed must not hide it for good."""


class JobBlocked(GanglineError):
    """The server rejects an object that the job needs. Tried again later."""


class VerdictRetries:
    """How often the actions before a verdict failed, by job uid. In memory only: a new process starts at zero."""

    def __init__(self) -> None:
        self._counts: BoundedDict[str, int] = BoundedDict(MAX_REMEMBERED)

    def increment(self, uid: str) -> int:
        """Count one failure more, and return the number of failures."""
        self._counts[uid] = self._counts.pop(uid, 0) + 1
        return self._counts[uid]


class CachedJobReconciler(Generic[J]):
    """Reconciles all jobs of one kind from caches. Lives as long as the process; what it remembers only saves calls."""

    def __init__(
        self,
        framework: Framework[J],
        observe: Observer[J],
        executor: Executor,
        logs: LogTailReader | None = None,
        clock: Clock | None = None,
        counter_interval: timedelta = COUNTER_INTERVAL,
        verdict_retries: VerdictRetries | None = None,
        causes: CauseReader | None = None,
        *,
        cache_is_current: bool = False,
        ledger_interval: timedelta = LEDGER_INTERVAL,
    ) -> None:
        """`verdict_retries` may be shared by reconcilers that follow each other.

        `causes` diagnoses failures of jobs with a recovery policy; without it exit codes and reasons must do.

        `cache_is_current`: no other operator worked on these jobs before; else the cache must first show one of our
        writes.
        """
        self._framework, self._observe, self._executor = framework, observe, executor
        self._log_tails, self._causes = LogTailCache(logs, framework), causes
        self._pacer = StatusPacer(clock or SystemClock(), counter_interval, cache_is_current=cache_is_current)
        self._verdict_retries = verdict_retries or VerdictRetries()
        self._goodput, self._ledger_interval = GoodputBook(), ledger_interval

    async def reconcile(self, key: Key) -> timedelta | None:
        """One reconcile of one job. Returns after how long to look again although nothing changes; None: no need."""
        job = self._observe.find_job(key)
        if job is None:
            return None
        if self._pacer.cache_is_stale(job):
            return STALE_CACHE_RETRY
        delay = self._pacer.plan_due_in(job)
        if delay is not None:
            return delay
        observed = self._observe(key)
        if observed is None:
            return None
        log_tails: LogTails = {}
        while (tails := await self._log_tails.read(observed)).keys() - log_tails.keys():
            # Reading took time: the caches may show more failed pods by now, whose logs count as much.
            log_tails = tails
            observed = self._observe(key, log_tails)
            if observed is None:
                return None
        if self._causes is not None and needs_cause(self._framework, observed):
            cause = await self._causes.cause(observed.job, self._framework.facts)
            observed = self._observe(key, log_tails, cause)
            if observed is None:
                return None
        plan = reconcile_plan(self._framework, observed)
        ledger = self._goodput.account(self._framework, observed, plan.status)
        plan = self._pacer.without_progress(observed.job, plan)
        self._pacer.record_plan(observed)
        delay = self._pacer.counters_due_in(observed, plan)
        if delay is not None:
            return delay
        plan = plan_with_goodput(observed, plan, ledger, self._ledger_interval)
        if self._pacer.defer_status(observed, plan):
            await self._apply(observed, plan, defer_status=True)
            return timedelta()
        await self._apply(observed, plan, defer_status=False)
        delays = (plan.requeue_after, self._executor.recheck_after(observed.job))
        return min((delay for delay in delays if delay is not None), default=None)

    async def _apply(self, observed: ObservedJob[J], plan: JobPlan, *, defer_status: bool) -> None:
        """Write the status, then act. If the server rejects an object that the job needs, write that down too."""
        job = observed.job
        await self._run_before_status(job, plan)
        try:
            if not defer_status:
                job = await self._executor.write_status(job, plan.status)
            await self._executor.run_stages(job, plan)
        except (CreateRejected, ExceptionGroup) as error:
            rejected = tuple(rejections(error))
            if not rejected:
                raise
            planned = msgspec.structs.replace(job, status=plan.status)
            job = await self._executor.write_status(job, rejected_status(self._framework, observed, planned, rejected))
            if not job.status.finished:
                raise JobBlocked(rejected[0].message) from error
        finally:
            # A write that changes nothing leaves the version: the definition of another operator may prune what we add.
            if job.metadata.resource_version != observed.job.metadata.resource_version:
                self._pacer.record_write(observed.job)

    async def _run_before_status(self, job: J, plan: JobPlan) -> None:
        """Run the actions that come before the status. When they keep failing, the status is written all the same."""
        if not plan.before_status:
            return
        try:
            await self._executor.run_before_status(job, plan)
        except (KubeError, ExceptionGroup) as error:
            own_fault = isinstance(error, ExceptionGroup) and error.split(KubeError)[1] is not None
            if own_fault or self._verdict_retries.increment(job.metadata.uid) < MAX_VERDICT_RETRIES:
                raise
            log.warning("job ends although its companions could not be updated", extra={"error": str(error)})
