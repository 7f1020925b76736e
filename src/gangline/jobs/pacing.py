"""Which writes of a job's status wait, and what has been written so far. Saves requests, and decides nothing else."""

from datetime import timedelta

import msgspec

from gangline.api.kubeflow.training import TrainingJob
from gangline.base.clock import Clock
from gangline.jobs.bounded import BoundedDict
from gangline.jobs.framework import J
from gangline.jobs.plan.actions import Create, JobPlan
from gangline.jobs.plan.observed import ObservedJob

COUNTER_INTERVAL = timedelta(milliseconds=200)
"""A status in which only counters changed is written no sooner than this after the last write: the pods of a large job
start one after the other."""
MIN_PACED_REPLICAS, PLAN_INTERVAL_PER_REPLICA = 100, timedelta(microseconds=50)
"""A job with that many replicas is planned again no sooner than this, times its replicas, after its last plan. To plan
for hundreds of pods takes milliseconds, and they report hundreds of changes in a row."""
PROGRESS_INTERVAL = timedelta(seconds=5)
"""A status in which only the progress changed is written no sooner than this after the last write."""
MAX_CREATES_BEFORE_STATUS = 16
"""A new job with more objects than this gets its status first, so that its owner sees that they are being created."""
MAX_REMEMBERED = 4096


class StatusPacer:
    """Remembers the status writes of one reconciler, and tells which of the next ones may wait."""

    def __init__(self, clock: Clock, counter_interval: timedelta = COUNTER_INTERVAL, *, cache_is_current: bool) -> None:
        """`cache_is_current`: no other operator worked on these jobs before, so the cache cannot be behind one."""
        self._clock, self._counter_interval = clock, counter_interval
        # By job uid: when its status was last written, and the resourceVersion that this write replaced.
        self._written_at: BoundedDict[str, float] = BoundedDict(MAX_REMEMBERED)
        self._replaced_versions: BoundedDict[str, str] = BoundedDict(MAX_REMEMBERED)
        # By uid of a large job: before which time it is not planned again.
        self._next_plans: BoundedDict[str, float] = BoundedDict(MAX_REMEMBERED)
        # True once the cache has shown one of our writes: it then shows all that was written before we started.
        self._cache_is_current = cache_is_current
        # Jobs whose objects were created, or tried, before their status was written.
        self._deferred: BoundedDict[str, None] = BoundedDict(MAX_REMEMBERED)

    def cache_is_stale(self, job: TrainingJob) -> bool:
        """Whether the cache still shows the version that our last write replaced."""
        replaced = self._replaced_versions.get(job.metadata.uid)
        if replaced == job.metadata.resource_version:
            return True
        self._cache_is_current = self._cache_is_current or replaced is not None
        return False

    def record_write(self, job: TrainingJob) -> None:
        """Remember that a status was written over the one of `job`."""
        self._written_at[job.metadata.uid] = self._clock.monotonic()
        self._replaced_versions[job.metadata.uid] = job.metadata.resource_version

    def plan_due_in(self, job: TrainingJob) -> timedelta | None:
        """How long the next plan for a large job must wait; None if it may be made now."""
        remaining = self._next_plans.get(job.metadata.uid, 0.0) - self._clock.monotonic()
        return timedelta(seconds=remaining) if remaining > 0 else None

    def record_plan(self, observed: ObservedJob[J]) -> None:
        """Remember that a plan was made, if the job is large."""
        replicas = len(observed.gang.seats)
        if replicas >= MIN_PACED_REPLICAS:
            interval = PLAN_INTERVAL_PER_REPLICA * replicas
            self._next_plans[observed.job.metadata.uid] = self._clock.monotonic() + interval.total_seconds()

    def without_progress(self, job: TrainingJob, plan: JobPlan) -> JobPlan:
        """The plan with the old status, if only the progress changed and its write is not due yet."""
        before, after = job.status, plan.status
        if after.progress == before.progress:
            return plan
        remaining = self._remaining(job, PROGRESS_INTERVAL)
        if not remaining or msgspec.structs.replace(after, progress=before.progress) != before:
            return plan
        delays = (remaining, plan.requeue_after)
        requeue_after = min(delay for delay in delays if delay is not None)
        return msgspec.structs.replace(plan, status=before, requeue_after=requeue_after)

    def counters_due_in(self, observed: ObservedJob[J], plan: JobPlan) -> timedelta | None:
        """How long a plan may wait whose only effect is to write new counters; None if it does more, or is due.

        That all replicas are active is written at once: people wait for it, and no other counter will follow soon.
        """
        job = observed.job
        uncounted = msgspec.structs.replace(
            plan.status, replica_statuses=job.status.replica_statuses, progress=job.status.progress
        )
        has_actions = bool(plan.before_status) or any(plan.stages)
        if uncounted != job.status or plan.status == job.status or plan.events or has_actions:
            return None
        if sum(counts.active for counts in observed.gang.counts.values()) == len(observed.gang.seats):
            return None
        return self._remaining(job, self._counter_interval) or None

    def defer_status(self, observed: ObservedJob[J], plan: JobPlan) -> bool:
        """Whether the status may be written in the next reconcile. Remembered: true at most once per job.

        True only for a job without a status and without objects, whose plan does nothing but create a few: nothing is
        counted yet, so nothing can be lost. Under load the next reconcile already sees the pods running, which saves a
        write. An operator that led before us may have finished the job unseen by the cache; so the cache must have
        shown one of our own writes first. If creating fails, the next reconcile writes the status first.
        """
        job, children = observed.job, observed.children
        actions = [action for stage in plan.stages for action in stage]
        deferred = (
            self._cache_is_current
            and job.metadata.uid not in self._deferred
            and not job.status.conditions
            and not (children.pods or children.services or children.orphans)
            and not (plan.before_status or plan.events)
            and 0 < len(actions) <= MAX_CREATES_BEFORE_STATUS
            and all(isinstance(action, Create) for action in actions)
        )
        if deferred:
            self._deferred[job.metadata.uid] = None
        return deferred

    def _remaining(self, job: TrainingJob, interval: timedelta) -> timedelta:
        """What is left of an interval that began with the last write; zero if there was none."""
        elapsed = self._clock.monotonic() - self._written_at.get(job.metadata.uid, float("-inf"))
        return interval - timedelta(seconds=min(elapsed, interval.total_seconds()))
