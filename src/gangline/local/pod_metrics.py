"""`metrics.k8s.io` of a local cluster: the CPU and memory of its pods, as metrics-server serves them.

Nothing is measured unless someone asks. `kubectl top`, `gangline why` and the dashboard read it.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from gangline.api.meta import JSON, Key, timestamp
from gangline.api.selectors import SelectableFields
from gangline.apiserver import errors as apierrors
from gangline.apiserver.http.request_info import RequestInfo, RequestVerb
from gangline.apiserver.registry.resources import ApiResource
from gangline.apiserver.registry.selection import Selection
from gangline.apiserver.store.paths import object_path
from gangline.apiserver.store.store import Store
from gangline.base.clock import Clock

if TYPE_CHECKING:
    from gangline.node.usage import ContainerUsage, UsageSampler

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
PODS = ApiResource(GROUP, VERSION, "PodMetrics", "pods", "", namespaced=True, verbs=("get", "list"))
FIRST_WINDOW = timedelta(seconds=0.5)
"""How long is measured for the first who asks."""
SHORTEST_WINDOW = timedelta(seconds=1)
"""Who asks sooner than that gets the measurement before."""
LONGEST_WINDOW = timedelta(seconds=60)
"""An older sample tells nothing about now."""

_FIELDS = SelectableFields(
    {
        "metadata.name": lambda pod: str(pod["metadata"].get("name", "")),
        "metadata.namespace": lambda pod: str(pod["metadata"].get("namespace", "")),
    }
)


class Measurement(NamedTuple):
    """What containers used in the window before a moment."""

    at: datetime
    window: timedelta
    containers: "list[ContainerUsage]"


class UsageMeter:
    """Measures the processes of a node when someone asks: CPU use is that since the last time somebody did."""

    def __init__(self, state: Path, clock: Clock) -> None:
        """`state` is the folder of the node's records."""
        self._state, self._clock = state, clock
        self._sampler: UsageSampler | None = None
        self._sampled_at = 0.0
        self._last: Measurement | None = None
        self._lock = asyncio.Lock()

    async def measure(self) -> Measurement:
        """The usage of all containers that are processes of this machine."""
        async with self._lock:
            age = timedelta(seconds=self._clock.monotonic() - self._sampled_at)
            if self._last is not None and age < SHORTEST_WINDOW:
                return self._last
            if self._sampler is None or age > LONGEST_WINDOW:
                # Imported here: a plane starts without it.
                from gangline.node.usage import UsageSampler

                self._sampler = UsageSampler(self._state, self._clock)
                await self._sample(self._sampler)
                await self._clock.sleep(FIRST_WINDOW)
            began = self._sampled_at
            containers = await self._sample(self._sampler)
            window = timedelta(seconds=self._sampled_at - began)
            self._last = Measurement(self._clock.now(), window, containers)
            return self._last

    async def _sample(self, sampler: "UsageSampler") -> "list[ContainerUsage]":
        self._sampled_at = self._clock.monotonic()
        return await asyncio.to_thread(sampler.sample_containers)


class PodMetrics:
    """The group, served for the pods of a node in this process."""

    group = GROUP
    resources = (PODS,)

    def __init__(self, store: Store, state: Path, clock: Clock) -> None:
        self._store, self._meter = store, UsageMeter(state, clock)

    async def respond(self, info: RequestInfo, verb: RequestVerb, query: Mapping[str, str]) -> JSON:
        """The metrics of one pod, or a list of those that are selected."""
        measured = await self._meter.measure()
        if verb is RequestVerb.GET:
            wanted = [used for used in measured.containers if used.pod == info.key]
            items = self._items(measured, wanted, Selection.from_query({}, _FIELDS))
            if not items:
                raise apierrors.not_found(PODS, f"{info.namespace}/{info.name}")
            return {"kind": "PodMetrics", "apiVersion": f"{GROUP}/{VERSION}", **items[0]}
        wanted = [used for used in measured.containers if info.namespace in ("", used.pod.namespace)]
        items = self._items(measured, wanted, Selection.from_query(query, _FIELDS))
        return {"kind": "PodMetricsList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items}

    def _items(self, measured: Measurement, wanted: "Iterable[ContainerUsage]", selection: Selection) -> list[JSON]:
        pods: dict[tuple[Key, str], list[ContainerUsage]] = {}
        for used in wanted:
            pods.setdefault((used.pod, used.uid), []).append(used)
        items = []
        for (key, uid), containers in sorted(pods.items()):
            record = self._store.get(object_path("", "pods", *key))
            # The processes of a pod may outlive it by a moment.
            if record is None or not selection.matches(record):
                continue
            metadata = msgspec.json.decode(record.data)["metadata"]
            if metadata.get("uid") == uid:
                items.append(_pod_metrics(metadata, measured, containers))
        return items


def _pod_metrics(pod: JSON, measured: Measurement, containers: "Iterable[ContainerUsage]") -> JSON:
    at = timestamp(measured.at)
    named = {"name": pod["name"], "namespace": pod["namespace"], "creationTimestamp": at}
    return {
        "metadata": {**named, **({"labels": pod["labels"]} if pod.get("labels") else {})},
        "timestamp": at,
        "window": f"{measured.window.total_seconds():.3f}s",
        "containers": [
            {
                "name": used.container,
                "usage": {"cpu": f"{round(used.usage.cores * 1e9)}n", "memory": f"{used.usage.memory // 1024}Ki"},
            }
            for used in sorted(containers, key=lambda used: used.container)
        ],
    }
