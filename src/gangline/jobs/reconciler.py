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
from gangline.jobs.executor import Executor, Refused, refusals
from gangline.jobs.framework import Framework, J
from gangline.jobs.observer import Observe
from gangline.jobs.plan.actions import Create, Plan
from gangline.jobs.plan.finish import refused
from gangline.jobs.plan.observed import Observed
from gangline.jobs.plan.plan import plan
from gangline.jobs.plan.restarts import LOG_LINES, failed
from gangline.jobs.pods.replicas import training
from gangline.kube.errors import KubeError

log = logging.getLogger(__name__)

V = TypeVar("V")

QUIET = timedelta(milliseconds=200)
"""Counters alone are written down no sooner than this after the last write: five hundred pods do not start at once."""
PACE = timedelta(seconds=5)
"""Progress alone is written down no sooner than this after the last write, however often programs report."""
LOOK_AGAIN = timedelta(seconds=1)
"""When to look again if the cache does not show our own write: its watch may be broken."""
MOST_LOGS = 4
"""So many failed pods of one job are asked what they said last; the first to fail is among them."""
HELD_BACK = 10
"""So often what comes before a verdict may go wrong. Then it is told all the same: an object that cannot be changed must
not keep it from its owner for good."""
REMEMBERED = 4096
FEW = 16
"""So many objects are made before a new job's status tells of it. Of more the owner should see that they are coming."""


class LogReader(Protocol):
    """Reads the end of a container's log."""

    async def tail(self, pod: Key, container: str, lines: int) -> tuple[str, ...]:
        """The last lines; none if they cannot be had. Never raises for that."""
        ...


class Blocked(GanglineError):
    """The server refuses what a job needs; tried again later."""


class Setbacks:
    """How often what comes before a verdict went wrong, by job. Outlives passes; a new process begins anew."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, int] = OrderedDict()

    def one_more(self, uid: str) -> int:
        """How many there are with this one."""
        _note(self._counts, uid, self._counts.pop(uid, 0) + 1)
        return self._counts[uid]


class JobPass(Generic[J]):
    """One pass over one job."""

    def __init__(
        self,
        framework: Framework[J],
        observe: Observe[J],
        executor: Executor,
        logs: LogReader | None = None,
        clock: Clock | None = None,
        quiet: timedelta = QUIET,
        setbacks: Setbacks | None = None,
        *,
        abreast: bool = False,
    ) -> None:
        """`setbacks` are shared by passes that follow each other.

        `abreast`: nobody was at work on these jobs before; else the cache must show that it is new enough.
        """
        self._framework, self._observe, self._executor, self._logs = framework, observe, executor, logs
        self._clock: Clock = clock or SystemClock()
        self._quiet = quiet
        # All only save calls. Job -> when we last wrote its status, and the version that this replaced; pod uid ->
        # its last lines.
        self._written: OrderedDict[str, float] = OrderedDict()
        self._replaced: OrderedDict[str, str] = OrderedDict()
        self._tails: OrderedDict[str, tuple[str, ...]] = OrderedDict()
        self._setbacks = setbacks or Setbacks()
        # Whether the cache has shown one of our own writes: it then knows all that was written before we began.
        self._abreast = abreast
        # Jobs whose objects were made, or tried, before their status.
        self._begun: OrderedDict[str, None] = OrderedDict()

    async def reconcile(self, key: Key) -> timedelta | None:
        seen = self._observe(key)
        if seen is None:
            return None
        metadata = seen.job.metadata
        replaced = self._replaced.get(metadata.uid)
        if replaced == metadata.resource_version:
            return LOOK_AGAIN
        self._abreast = self._abreast or replaced is not None
        logs = await self._said(seen)
        if logs:
            seen = self._observe(key, logs)
            if seen is None:
                return None
        intent = self._paced(seen, plan(self._framework, seen))
        early = self._early(seen, intent)
        if early is not None:
            return early
        untouched = self._untouched(seen, intent)
        if untouched:
            _note(self._begun, metadata.uid, None)
        await self._apply(seen, intent, status_later=untouched)
        if untouched:
            return timedelta()
        owed = self._executor.owed(seen.job)
        return min((delay for delay in (intent.wake_after, owed) if delay is not None), default=None)

    def _untouched(self, seen: Observed[J], intent: Plan) -> bool:
        """Whether nobody has done anything for a job yet, and all there is to do is to make its few objects.

        There is nothing to count then, and nothing to lose: its status may come in the next pass, which under load
        knows already that its pods run, and saves a write. Who led before us may have ended it long ago, unknown to the
        cache; not if the cache is newer than our own first write. Where making them goes wrong the status comes first,
        the next time.
        """
        job, children = seen.job, seen.children
        actions = [action for stage in intent.stages for action in stage]
        return (
            self._abreast
            and job.metadata.uid not in self._begun
            and not job.status.conditions
            and not (children.pods or children.services or children.orphans)
            and not (intent.before or intent.notes)
            and 0 < len(actions) <= FEW
            and all(isinstance(action, Create) for action in actions)
        )

    async def _apply(self, seen: Observed[J], intent: Plan, *, status_later: bool) -> None:
        """Write down, then act; and if the server does not want what is needed, write that down too."""
        job = seen.job
        await self._prepare(job, intent)
        try:
            if not status_later:
                job = await self._executor.write(job, intent.status)
            await self._executor.act(job, intent)
        except (Refused, ExceptionGroup) as error:
            found = tuple(refusals(error))
            if not found:
                raise
            begun = msgspec.structs.replace(job, status=intent.status)
            job = await self._executor.write(job, refused(self._framework, seen, begun, found))
            if not job.status.finished:
                raise Blocked(found[0].message) from error
        finally:
            if job is not seen.job:
                self._remember(seen.job)

    async def _prepare(self, job: J, intent: Plan) -> None:
        """What comes before a status. If it goes wrong again and again the status is written all the same."""
        if not intent.before:
            return
        try:
            await self._executor.prepare(job, intent)
        except (KubeError, ExceptionGroup) as error:
            own_fault = isinstance(error, ExceptionGroup) and error.split(KubeError)[1] is not None
            if own_fault or self._setbacks.one_more(job.metadata.uid) < HELD_BACK:
                raise
            log.warning("%s %s ends with what is beside it as it was: %s", job.KIND, job.metadata.key, error)

    def _early(self, seen: Observed[J], intent: Plan) -> timedelta | None:
        """How long a status whose counters alone are new may wait; None if there is more to it, or it is due."""
        job = seen.job
        uncounted = msgspec.structs.replace(
            intent.status,
            replica_statuses=job.status.replica_statuses,
            progress=job.status.progress,
        )
        if uncounted != job.status or intent.status == job.status or intent.notes or _acts(intent):
            return None
        return self._left(job, self._quiet) or None

    def _paced(self, seen: Observed[J], intent: Plan) -> Plan:
        """The plan without the progress, if that is all that is new of the status and it is not due yet."""
        before, after = seen.job.status, intent.status
        if after.progress == before.progress:
            return intent
        left = self._left(seen.job, PACE)
        if not left or msgspec.structs.replace(after, progress=before.progress) != before:
            return intent
        wakes = (left, intent.wake_after)
        return msgspec.structs.replace(
            intent, status=before, wake_after=min(wake for wake in wakes if wake is not None)
        )

    def _left(self, job: J, wait: timedelta) -> timedelta:
        """What is left of a wait that began with the last write."""
        since = self._clock.monotonic() - self._written.get(job.metadata.uid, float("-inf"))
        return wait - timedelta(seconds=min(since, wait.total_seconds()))

    def _remember(self, job: J) -> None:
        _note(self._written, job.metadata.uid, self._clock.monotonic())
        _note(self._replaced, job.metadata.uid, job.metadata.resource_version)

    async def _said(self, seen: Observed[J]) -> Mapping[str, tuple[str, ...]]:
        """What pods that failed just now said last."""
        known = seen.job.status.ledger.replaced
        pods = [pod for pod in failed(seen.gang).values() if pod.metadata.uid not in known]
        if self._logs is None or not pods or seen.job.status.finished:
            return {}
        return {pod.metadata.uid: await self._tail(pod) for pod in pods[:MOST_LOGS]}

    async def _tail(self, pod: Pod) -> tuple[str, ...]:
        known = self._tails.get(pod.metadata.uid)
        if known is None and self._logs is not None:
            container = training(pod, self._framework.facts.container)
            known = await self._logs.tail(pod.metadata.key, container, LOG_LINES)
            _note(self._tails, pod.metadata.uid, known)
        return known or ()


def _acts(intent: Plan) -> bool:
    return bool(intent.before) or any(intent.stages)


def _note(known: OrderedDict[str, V], uid: str, value: V) -> None:
    """Remember something of a job or pod; the oldest of many are forgotten."""
    known[uid] = value
    while len(known) > REMEMBERED:
        known.popitem(last=False)
