"""The CPU and memory that pods use: of processes on this machine, else from the cluster's metrics API."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gangline.api.meta import JSON, Selector
from gangline.api.quantity import Quantity
from gangline.api.scheme import Resource
from gangline.base.errors import InputError
from gangline.cli.connect.server import ServerTarget
from gangline.kube.client import Client
from gangline.kube.errors import NotFound, ServerError

POD_METRICS: Resource[JSON] = Resource("metrics.k8s.io", "v1beta1", "PodMetrics", "pods", dict[str, Any])
SAMPLE_SECONDS = 0.5
METRICS_MISSING = (
    "there are no measurements: the cluster has no metrics.k8s.io (install metrics-server), "
    "and the pods are not on this machine"
)


class ResourceUsage(NamedTuple):
    """The CPU cores and bytes of memory that a replica uses."""

    cores: float = 0.0
    memory: int = 0

    def __add__(self, other: object) -> "ResourceUsage":
        assert isinstance(other, ResourceUsage)
        return ResourceUsage(self.cores + other.cores, self.memory + other.memory)


async def measure_pods(
    client: Client, target: ServerTarget, selector: Selector, pods: Sequence[JSON]
) -> dict[str, ResourceUsage]:
    """The usage of pods by uid. Raises `InputError` if the pods are not on this machine and there is no metrics API."""
    folder = _pods_folder(target)
    if folder is not None:
        return _measure_processes(folder, pods)
    try:
        page = await client.list(POD_METRICS, selector)
    except (NotFound, ServerError) as error:
        raise InputError(METRICS_MISSING) from error
    metrics_by_key = {
        (metrics["metadata"]["namespace"], metrics["metadata"]["name"]): metrics for metrics in page.items
    }
    pod_keys = ((pod["metadata"]["uid"], (pod["metadata"]["namespace"], pod["metadata"]["name"])) for pod in pods)
    return {uid: _reported_usage(metrics_by_key[key]) for uid, key in pod_keys if key in metrics_by_key}


def _reported_usage(metrics: JSON) -> ResourceUsage:
    total = ResourceUsage()
    for container in metrics.get("containers") or ():
        usage = container.get("usage") or {}
        total += ResourceUsage(quantity_value(usage.get("cpu", "0")), int(quantity_value(usage.get("memory", "0"))))
    return total


def _pods_folder(target: ServerTarget) -> Path | None:
    """The folder in which the node of a local plane, or of a run in progress, keeps its pods."""
    folder = target.plane_folder / "pods" / "pods" if target.plane_folder is not None else None
    if target.run_folder is not None:
        folder = target.run_folder / "pods"
    return folder if folder is not None and folder.is_dir() else None


def _measure_processes(folder: Path, pods: Sequence[JSON]) -> dict[str, ResourceUsage]:
    """Measure the process trees of all pods over the same interval."""
    import psutil

    trees: dict[str, list[psutil.Process]] = {}
    for pod in pods:
        metadata = pod["metadata"]
        pod_folder = folder / f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        trees[metadata["uid"]] = [process for pid in _running_pids(pod_folder) for process in _process_tree(pid)]
    # psutil measures the CPU between two calls.
    for processes in trees.values():
        for process in processes:
            _process_usage(process)
    time.sleep(SAMPLE_SECONDS if any(trees.values()) else 0)
    return {uid: sum(map(_process_usage, processes), ResourceUsage()) for uid, processes in trees.items() if processes}


def _running_pids(pod_folder: Path) -> list[int]:
    """The process ids of the containers of a pod that have not exited."""
    runs = (run for run in pod_folder.glob("*/*.run") if not run.with_suffix(".exit").exists())
    return [int(msgspec.json.decode(run.read_bytes())["pid"]) for run in runs]


def _process_tree(pid: int) -> list[Any]:
    import psutil

    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _process_usage(process: Any) -> ResourceUsage:
    """The CPU since the last call and the memory of a process; nothing if it has exited."""
    import psutil

    try:
        return ResourceUsage(process.cpu_percent(None) / 100, process.memory_info().rss)
    except psutil.Error:
        return ResourceUsage()


def quantity_value(quantity: Any) -> float:
    """The number of a Kubernetes quantity such as `500m` or `2Gi`."""
    return float(Quantity.parse(str(quantity)).as_fraction())
