"""The CPU and memory that pods use: of processes on this machine, else from the cluster's metrics API."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gangline.api.meta import JSON, Selector
from gangline.api.quantity import Quantity
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.cli.connect.server import ServerTarget
from gangline.kube.client import Client
from gangline.kube.errors import NotFound, ServerError
from gangline.kube.pod_metrics import POD_METRICS, pod_usage
from gangline.node.usage import ResourceUsage, UsageSampler

SAMPLE_SECONDS = 0.5
METRICS_MISSING = (
    "there are no measurements: the cluster has no metrics.k8s.io (install metrics-server), "
    "and the pods are not on this machine"
)


async def measure_pods(
    client: Client, target: ServerTarget, selector: Selector, pods: Sequence[JSON]
) -> dict[str, ResourceUsage]:
    """The usage of pods by uid. Raises `InputError` if the pods are not on this machine and there is no metrics API."""
    state = node_state(target)
    if state is not None:
        return _measure_processes(state, pods)
    try:
        page = await client.list(POD_METRICS, selector)
    except (NotFound, ServerError) as error:
        raise InputError(METRICS_MISSING) from error
    metrics_by_key = {
        (metrics["metadata"]["namespace"], metrics["metadata"]["name"]): metrics for metrics in page.items
    }
    pod_keys = ((pod["metadata"]["uid"], (pod["metadata"]["namespace"], pod["metadata"]["name"])) for pod in pods)
    return {uid: ResourceUsage(*pod_usage(metrics_by_key[key])) for uid, key in pod_keys if key in metrics_by_key}


def node_state(target: ServerTarget) -> Path | None:
    """The folder in which the node of a local plane, or of a run in progress, keeps its state."""
    folder = target.plane_folder / "pods" if target.plane_folder is not None else target.run_folder
    return folder if folder is not None and (folder / "pods").is_dir() else None


def _measure_processes(state: Path, pods: Sequence[JSON]) -> dict[str, ResourceUsage]:
    """Measure the processes of the pods over one interval."""
    clock = SystemClock()
    sampler = UsageSampler(state, clock)
    if not sampler.sample():
        return {}
    time.sleep(SAMPLE_SECONDS)
    uids = {pod["metadata"]["uid"] for pod in pods}
    return {uid: usage for uid, usage in sampler.sample_by_uid().items() if uid in uids}


def quantity_value(quantity: Any) -> float:
    """The number of a Kubernetes quantity such as `500m` or `2Gi`."""
    return float(Quantity.parse(str(quantity)).as_fraction())
