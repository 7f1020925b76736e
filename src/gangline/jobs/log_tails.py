"""The last log lines of failed pods: they tell which replica failed first, and why."""

from collections.abc import Mapping
from typing import Protocol

from gangline.api.core import Pod
from gangline.api.meta import Key
from gangline.jobs.bounded import BoundedDict
from gangline.jobs.framework import J
from gangline.jobs.plan.observed import ObservedJob
from gangline.jobs.plan.restarts import FAILURE_LOG_LINES, failed_pods
from gangline.jobs.pods.replicas import training_container_name

MAX_LOG_TAILS = 4
"""Failed pods of one job whose logs are read; the first pod that failed is among them."""
MAX_REMEMBERED = 4096


class LogTailReader(Protocol):
    """Reads the end of a container's log."""

    async def tail(self, pod: Key, container: str, lines: int) -> tuple[str, ...]:
        """The last lines; empty if they cannot be read, which raises nothing."""
        ...


class LogTailCache:
    """Reads the log tail of each failed pod once. Without a reader there are no log tails."""

    def __init__(self, reader: LogTailReader | None, container: str) -> None:
        self._reader, self._container = reader, container
        # Only saves requests.
        self._tails: BoundedDict[str, tuple[str, ...]] = BoundedDict(MAX_REMEMBERED)

    async def read(self, observed: ObservedJob[J]) -> Mapping[str, tuple[str, ...]]:
        """Log tails by pod uid, of pods that failed and are not counted as restarts yet."""
        replaced = observed.job.status.ledger.replaced
        pods = [pod for pod in failed_pods(observed.gang).values() if pod.metadata.uid not in replaced]
        if self._reader is None or not pods or observed.job.status.finished:
            return {}
        return {pod.metadata.uid: await self._tail(self._reader, pod) for pod in pods[:MAX_LOG_TAILS]}

    async def _tail(self, reader: LogTailReader, pod: Pod) -> tuple[str, ...]:
        uid = pod.metadata.uid
        if uid not in self._tails:
            container = training_container_name(pod, self._container)
            self._tails[uid] = await reader.tail(pod.metadata.key, container, FAILURE_LOG_LINES)
        return self._tails.get(uid, ())
