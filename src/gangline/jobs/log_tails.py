"""The last log lines of pods that failed, or whose container did: they tell which replica failed first, and why."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Protocol

from gangline.api.core import Pod, PodPhase
from gangline.api.kubeflow.training import CleanPodPolicy
from gangline.api.meta import Key
from gangline.base.tasks import run_all
from gangline.jobs.bounded import BoundedDict
from gangline.jobs.framework import Framework, J
from gangline.jobs.plan.assessment import is_past_deadline
from gangline.jobs.plan.failures.records import LogTails, failure_time, has_failed, may_be_revised
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.restarts import failed_pods, most_restarted
from gangline.jobs.pods.replicas import is_active, training_container_name, training_status

MAX_LOG_TAILS = 32
"""Failed pods of one job whose logs are read: those that ended first."""
LOG_LINES = 100
"""So many last lines have the error of the program, even if its launcher writes a report after it."""
READS_AT_ONCE = 8
MAX_REMEMBERED = 4096


class LogTailReader(Protocol):
    """Reads the end of a container's log."""

    async def tail(self, pod: Key, container: str, lines: int, *, previous: bool = False) -> tuple[str, ...]:
        """The last lines with their times, of the run before with `previous`.

        As the API returns them with `timestamps=true`. Empty if they cannot be read, which raises nothing.
        """
        ...


class LogTailCache:
    """Reads the log tail of each failed pod once. Without a reader there are no log tails."""

    def __init__(self, reader: LogTailReader | None, framework: Framework[Any]) -> None:
        self._reader, self._framework = reader, framework
        self._container = framework.facts.container
        # By pod uid and number of restarts. Only saves requests.
        self._tails: BoundedDict[tuple[str, int], tuple[str, ...]] = BoundedDict(MAX_REMEMBERED)
        # By pod uid, of pods that ran: the number of failed pods when it was read, and the tail. Their logs go with them.
        self._running: BoundedDict[str, tuple[int, tuple[str, ...]]] = BoundedDict(MAX_REMEMBERED)

    async def read(self, observed: ObservedJob[J]) -> LogTails:
        """Log tails by pod uid: of pods that failed and are not counted as restarts yet, and of those that still run.

        If none has, and restarts may exceed the backoff limit or the job its deadline, that of the container that was
        restarted most often: with the job its pods go, and their logs.
        """
        if self._reader is None:
            return {}
        if observed.job.status.finished:
            # A node may report late that a replica had failed before the one in the status.
            late = may_be_revised(observed.job.status, observed.now)
            ended = [pod for pod in observed.gang.pods.values() if late and has_failed(pod, self._container)]
            tails = await self._tails_of(self._reader, sorted(ended, key=self._end_order)[:MAX_LOG_TAILS])
            return {**self._remembered(observed.children.departed), **tails}
        replaced = observed.job.status.ledger.replaced
        pods = [pod for pod in failed_pods(observed.gang).values() if pod.metadata.uid not in replaced]
        if pods:
            pods += [pod for pod in observed.gang.pods.values() if is_active(pod) and has_failed(pod, self._container)]
        pods += [pod for pod in observed.children.launched if pod.status.phase == PodPhase.FAILED]
        if pods:
            tails = await self._tails_of(self._reader, sorted(pods, key=self._end_order)[:MAX_LOG_TAILS])
            return {**await self._running_tails(self._reader, observed, len(pods)), **tails}
        limit = self._framework.run_policy(observed.job).backoff_limit
        is_limited = limit is not None and _restart_count(observed) >= limit
        is_over = is_limited or is_past_deadline(self._framework, observed)
        found = most_restarted(observed.gang, self._container) if is_over else None
        if found is None:
            return {}
        _, pod, status = found
        tail = await self._tail(self._reader, pod, status.restart_count, previous=status.state.running is not None)
        return {pod.metadata.uid: tail} if tail else {}

    def _end_order(self, pod: Pod) -> datetime:
        return failure_time(pod, self._container) or datetime.max.replace(tzinfo=UTC)

    async def _running_tails(self, reader: LogTailReader, observed: ObservedJob[J], failed: int) -> LogTails:
        """The logs of replicas that run while others have failed: one may have written its error and be about to end.

        On one machine a verdict waits for it. In a cluster the clean-up may delete it before its kubelet reports its end:
        its log is read as long as it is there, once for each number of failed pods.
        """
        is_local = observed.site.shared_host
        policy = self._framework.run_policy(observed.job).clean_pod_policy
        if not is_local and (policy == CleanPodPolicy.NONE or observed.recovery is not None):
            return {}
        tails: dict[str, tuple[str, ...]] = {}

        async def read(pod: Pod) -> None:
            uid, container = pod.metadata.uid, training_container_name(pod, self._container)
            if is_local or self._running.get(uid, (0, ()))[0] != failed:
                self._running[uid] = failed, await reader.tail(pod.metadata.key, container, LOG_LINES)
            tails[uid] = self._running[uid][1]

        active = [pod for pod in observed.gang.pods.values() if is_active(pod)]
        await run_all((read(pod) for pod in active[:MAX_LOG_TAILS]), at_once=READS_AT_ONCE)
        return tails

    def _remembered(self, pods: Iterable[Pod]) -> LogTails:
        """What was read of the logs of pods that are gone."""
        tails: dict[str, tuple[str, ...]] = {}
        for pod in pods:
            uid, restarts = pod.metadata.uid, training_status(pod, self._container).restart_count
            tails[uid] = self._tails.get((uid, restarts), ()) or self._running.get(uid, (0, ()))[1]
        return tails

    async def _tails_of(self, reader: LogTailReader, pods: Iterable[Pod]) -> LogTails:
        tails: dict[str, tuple[str, ...]] = {}

        async def read(pod: Pod) -> None:
            # A pod that restarts in place may fail again.
            restarts = training_status(pod, self._container).restart_count
            tails[pod.metadata.uid] = await self._tail(reader, pod, restarts)

        await run_all((read(pod) for pod in pods), at_once=READS_AT_ONCE)
        return tails

    async def _tail(
        self, reader: LogTailReader, pod: Pod, restarts: int = 0, *, previous: bool = False
    ) -> tuple[str, ...]:
        key = (pod.metadata.uid, restarts)
        if key not in self._tails:
            container = training_container_name(pod, self._container)
            tail = await reader.tail(pod.metadata.key, container, LOG_LINES, previous=previous)
            self._tails[key] = tail or self._running.get(pod.metadata.uid, (0, ()))[1]
        return self._tails.get(key, ())


def _restart_count(observed: ObservedJob[J]) -> int:
    in_place = sum(one.restart_count for pod in observed.gang.pods.values() for one in pod.status.container_statuses)
    return observed.job.status.restarts + in_place
