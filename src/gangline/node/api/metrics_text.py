"""What the node tells about itself, as kubelet writes it: metrics in Prometheus' text form, and the usage summary. Pure."""

from collections import Counter
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from gangline.api.meta import JSON, Key, timestamp
from gangline.base.metrics_text import Sample, metric_text

if TYPE_CHECKING:
    from gangline.node.api.usage_meter import Measurement
    from gangline.node.usage import ContainerUsage, ResourceUsage


def node_metrics(node: str, pods: JSON) -> str:
    """`/metrics`: the pods and containers of the node."""
    states: Counter[str] = Counter(running=0, exited=0, created=0)
    running_pods = 0
    for pod in pods.get("items") or ():
        statuses = (pod.get("status") or {}).get("containerStatuses") or []
        found = [_container_state(status) for status in statuses]
        states.update(found)
        running_pods += "running" in found
    return (
        metric_text("kubelet_node_name", "gauge", "The node's name. The count is always 1.", [({"node": node}, 1)])
        + metric_text(
            "kubelet_running_pods", "gauge", "Number of pods that have a running pod sandbox", [({}, running_pods)]
        )
        + metric_text(
            "kubelet_running_containers",
            "gauge",
            "Number of containers currently running",
            [({"container_state": state}, count) for state, count in sorted(states.items())],
        )
    )


def _container_state(status: JSON) -> str:
    state = status.get("state") or {}
    return "running" if "running" in state else "exited" if "terminated" in state else "created"


def resource_metrics(measured: "Measurement") -> str:
    """`/metrics/resource`: what is used, as metrics-server reads it."""
    containers = sorted(measured.containers)
    by_pod = list(_pods(containers))

    def per_container(value: "Callable[[ContainerUsage], float]") -> list[Sample]:
        return [
            ({"container": used.container, "namespace": used.pod.namespace, "pod": used.pod.name}, value(used))
            for used in containers
        ]

    def per_pod(value: "Callable[[ContainerUsage], float]") -> list[Sample]:
        return [
            ({"namespace": pod.namespace, "pod": pod.name}, sum(map(value, members))) for (pod, _), members in by_pod
        ]

    def seconds(used: "ContainerUsage") -> float:
        return measured.container_seconds.get((used.uid, used.container), 0.0)

    def memory(used: "ContainerUsage") -> float:
        return used.usage.memory

    cpu_about, memory_about = (
        "Cumulative cpu time consumed by the %s in core-seconds",
        "Current working set of the %s in bytes",
    )
    families: list[tuple[str, list[Sample], list[Sample]]] = [
        ("node", [({}, measured.machine_seconds)], [({}, measured.machine.memory)]),
        ("container", per_container(seconds), per_container(memory)),
        ("pod", per_pod(seconds), per_pod(memory)),
    ]
    texts = [
        metric_text(f"{what}_cpu_usage_seconds_total", "counter", cpu_about % what, cpu)
        + metric_text(f"{what}_memory_working_set_bytes", "gauge", memory_about % what, used)
        for what, cpu, used in families
    ]
    error = metric_text("scrape_error", "gauge", "1 if there was an error while getting container metrics", [({}, 0)])
    return "".join((*texts, error))


def usage_summary(node: str, measured: "Measurement") -> JSON:
    """`/stats/summary`: the usage of the node, and of each pod and container."""
    return {
        "node": {"nodeName": node, **_stats(measured, measured.machine)},
        "pods": [
            {
                "podRef": {"name": pod.name, "namespace": pod.namespace, "uid": uid},
                "containers": [{"name": used.container, **_stats(measured, used.usage)} for used in members],
            }
            for (pod, uid), members in _pods(sorted(measured.containers))
        ],
    }


def _pods(containers: "Iterable[ContainerUsage]") -> "Iterable[tuple[tuple[Key, str], list[ContainerUsage]]]":
    return ((pod, list(members)) for pod, members in groupby(containers, key=lambda used: (used.pod, used.uid)))


def _stats(measured: "Measurement", usage: "ResourceUsage") -> JSON:
    at = timestamp(measured.at)
    return {
        "cpu": {"time": at, "usageNanoCores": round(usage.cores * 1e9)},
        "memory": {"time": at, "workingSetBytes": usage.memory, "usageBytes": usage.memory, "rssBytes": usage.memory},
    }
