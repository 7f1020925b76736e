"""Signs of life of pods of a cluster: the times of their last log lines, and the metrics API. A few requests a second."""

import logging
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from gangline.api.core import Pod
from gangline.api.kubeflow.training import JOB_NAME, JobKind
from gangline.api.meta import JSON, Key, Selector
from gangline.api.quantity import QuantityError, add_resources, parse_resources
from gangline.api.scheme import Resource
from gangline.base.clock import Clock
from gangline.health.signs import ReplicaSigns
from gangline.jobs.pods.replicas import training_container_name
from gangline.kube.client import Client
from gangline.kube.errors import Forbidden, KubeError, NotFound
from gangline.kube.pods import PodSubresources
from gangline.runtime.rate_limits import RateLimiter
from gangline.stacks.pods import replica_name

log = logging.getLogger(__name__)

POD_METRICS: Resource[JSON] = Resource("metrics.k8s.io", "v1beta1", "PodMetrics", "pods", dict[str, Any])
REQUESTS_PER_SECOND, BURST = 5.0, 10
"""What the watch over all jobs may ask the server."""
MAX_LOGS = 4
"""Of how many replicas of a job the logs are read: the leaders first."""
RETRY_SECONDS = 600.0
"""How long nothing is asked after the server has refused it."""


class ClusterSignReader:
    """Reads the signs of life of pods from the server. A right that is missing is said once in the operator's log."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self._limit = RateLimiter(clock, rate=REQUESTS_PER_SECOND, burst=BURST)
        # What the server has refused, and when it is asked again.
        self._refused: dict[str, float] = {}

    async def read(self, kind: JobKind, pods: Sequence[Pod]) -> tuple[ReplicaSigns, ...]:
        """The signs of each pod. Logs are read of the first few, the others have none."""
        cores = await self._cores(pods)
        signs = []
        for number, pod in enumerate(pods):
            mark, line = await self._last_line(kind, pod) if number < MAX_LOGS else (None, "")
            signs.append(ReplicaSigns(replica_name(pod), mark, line, cores.get(pod.metadata.name)))
        return tuple(signs)

    async def _cores(self, pods: Sequence[Pod]) -> dict[str, float]:
        """CPU cores by pod, if the cluster has the metrics API."""
        if not pods or self._is_refused("metrics"):
            return {}
        metadata = pods[0].metadata
        where = Selector(namespace=metadata.namespace, labels=f"{JOB_NAME}={metadata.labels.get(JOB_NAME, '')}")
        await self._limit.wait()
        try:
            items = (await self._client.list(POD_METRICS, where)).items
        except NotFound:
            self._refuse("metrics", "the cluster has no metrics API (metrics.k8s.io)")
            return {}
        except KubeError as error:
            self._refuse("metrics", str(error))
            return {}
        return {item["metadata"]["name"]: cores for item in items if (cores := _cores(item)) is not None}

    async def _last_line(self, kind: JobKind, pod: Pod) -> tuple[str | None, str]:
        """The time of the last log line, and the line; None if it cannot be read."""
        key: Key = pod.metadata.key
        if self._is_refused(f"logs/{key.namespace}"):
            return None, ""
        await self._limit.wait()
        container = training_container_name(pod, kind.container)
        reading = PodSubresources(self._client).logs(
            key, container=container, tail=1, timestamps=True, limit_bytes=4096
        )
        try:
            async with aclosing(reading) as lines:
                line = b"".join([line async for line in lines])
        except Forbidden as error:
            self._refuse(f"logs/{key.namespace}", str(error))
            return None, ""
        except KubeError:
            return None, ""
        time, _, text = line.decode(errors="replace").partition(" ")
        return time or None, text

    def _is_refused(self, what: str) -> bool:
        return self._clock.monotonic() < self._refused.get(what, 0.0)

    def _refuse(self, what: str, why: str) -> None:
        if what not in self._refused:
            # No warning: the rights for it are optional.
            log.info("hangs are found later: signs of life cannot be read", extra={"what": what, "error": why})
        self._refused[what] = self._clock.monotonic() + RETRY_SECONDS


def _cores(body: JSON) -> float | None:
    total: dict[str, Any] = {}
    for container in body.get("containers") or ():
        try:
            total = dict(add_resources(total, parse_resources(container.get("usage") or {})))
        except QuantityError:
            return None
    return float(total["cpu"].as_fraction()) if "cpu" in total else None
