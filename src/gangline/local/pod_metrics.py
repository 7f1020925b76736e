"""`metrics.k8s.io` of a local cluster: the CPU and memory of its pods and its node, as metrics-server serves them.

Nothing is measured unless someone asks. `kubectl top`, `gangline why` and the dashboard read it.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import msgspec

from gangline.api.meta import JSON, Key, timestamp
from gangline.api.selectors import SelectableFields
from gangline.apiserver import errors as apierrors
from gangline.apiserver.http.request_info import RequestInfo, RequestVerb
from gangline.apiserver.registry.resources import ApiResource
from gangline.apiserver.registry.selection import Selection
from gangline.apiserver.store.paths import object_path
from gangline.apiserver.store.records import StoreRecord
from gangline.apiserver.store.store import Store
from gangline.node.api.usage_meter import Measurement, UsageMeter

if TYPE_CHECKING:
    from gangline.node.usage import ContainerUsage, ResourceUsage

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
PODS = ApiResource(GROUP, VERSION, "PodMetrics", "pods", "", namespaced=True, verbs=("get", "list"))
NODES = ApiResource(GROUP, VERSION, "NodeMetrics", "nodes", "", namespaced=False, verbs=("get", "list"))

_FIELDS = SelectableFields(
    {
        "metadata.name": lambda pod: str(pod["metadata"].get("name", "")),
        "metadata.namespace": lambda pod: str(pod["metadata"].get("namespace", "")),
    }
)


class PodMetrics:
    """The group, served for the pods of a node in this process, and for the node."""

    group = GROUP
    resources = (NODES, PODS)

    def __init__(self, store: Store, meter: UsageMeter, node: str) -> None:
        """`node` is the name of the node that the meter measures."""
        self._store, self._meter, self._node = store, meter, node

    async def respond(self, info: RequestInfo, verb: RequestVerb, query: Mapping[str, str]) -> JSON:
        """The metrics of one pod or node, or a list of those that are selected."""
        measured = await self._meter.measure()
        if info.plural == NODES.plural:
            return self._respond_nodes(info, verb, query, measured)
        if verb is RequestVerb.GET:
            wanted = [used for used in measured.containers if used.pod == info.key]
            items = self._items(measured, wanted, Selection.from_query({}, _FIELDS))
            if not items:
                raise apierrors.not_found(PODS, f"{info.namespace}/{info.name}")
            return {"kind": "PodMetrics", "apiVersion": f"{GROUP}/{VERSION}", **items[0]}
        wanted = [used for used in measured.containers if info.namespace in ("", used.pod.namespace)]
        items = self._items(measured, wanted, Selection.from_query(query, _FIELDS))
        return {"kind": "PodMetricsList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items}

    def _respond_nodes(
        self, info: RequestInfo, verb: RequestVerb, query: Mapping[str, str], measured: Measurement
    ) -> JSON:
        record = self._store.get(object_path("", "nodes", "", self._node))
        selection = Selection.from_query(query if verb is RequestVerb.LIST else {}, _FIELDS)
        items = [] if record is None or not selection.matches(record) else [self._node_metrics(record, measured)]
        if verb is RequestVerb.LIST:
            return {"kind": "NodeMetricsList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": items}
        if not items or info.name != self._node:
            raise apierrors.not_found(NODES, info.name)
        return {"kind": "NodeMetrics", "apiVersion": f"{GROUP}/{VERSION}", **items[0]}

    def _node_metrics(self, record: StoreRecord, measured: Measurement) -> JSON:
        metadata = msgspec.json.decode(record.data)["metadata"]
        return {**_head(metadata, measured), "usage": _quantities(measured.machine)}

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
    return {
        **_head(pod, measured),
        "containers": [
            {"name": used.container, "usage": _quantities(used.usage)}
            for used in sorted(containers, key=lambda used: used.container)
        ],
    }


def _head(metadata: JSON, measured: Measurement) -> JSON:
    at = timestamp(measured.at)
    own = {name: metadata[name] for name in ("name", "namespace", "labels") if metadata.get(name)}
    return {
        "metadata": {**own, "creationTimestamp": at},
        "timestamp": at,
        "window": f"{measured.window.total_seconds():.3f}s",
    }


def _quantities(usage: "ResourceUsage") -> JSON:
    return {"cpu": f"{round(usage.cores * 1e9)}n", "memory": f"{usage.memory // 1024}Ki"}
