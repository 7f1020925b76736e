"""`gangline top`: CPU and memory of replicas, from the processes of this machine or the cluster's metrics API."""

import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from gangline.api.meta import JSON, Selector
from gangline.api.quantity import Quantity
from gangline.api.scheme import Resource
from gangline.base.errors import InputError
from gangline.cli.connect.run_work import run_blocking
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.exit_codes import NOT_FOUND
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.server_options import server_options_all
from gangline.cli.output import tables
from gangline.cli.resources.lookup import PODS, find_job
from gangline.cli.resources.replicas import JOB_NAME, sorted_pods
from gangline.kube.client import Client
from gangline.kube.errors import NotFound, ServerError

POD_METRICS: Resource[JSON] = Resource("metrics.k8s.io", "v1beta1", "PodMetrics", "pods", dict[str, Any])
SAMPLE_SECONDS = 0.5
PAUSE_SECONDS = 1.5
SPARKLINE_WIDTH = 40
SPARKLINE_BLOCKS = "▁▂▃▄▅▆▇█"
CLEAR_SCREEN = "\x1b[H\x1b[2J"
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


@cli_command()
@click.argument("job", required=False, shell_complete=completed_by("jobs"))
@click.option("-w", "--watch", is_flag=True, help="Refresh until interrupted, with a curve of the CPU used.")
@click.option("--no-headers", is_flag=True, help="No titles above the columns.")
@server_options_all
def top(job: str | None, watch: bool, no_headers: bool, server: ServerOptions) -> int:
    r"""Print CPU and memory of the replicas of a job, or of all jobs.

    On a plane of this machine the processes are measured for half a second; in a cluster, metrics-server is queried.

    \b
      gangline top linear
      gangline top linear -w
      gangline top -A

    Exit codes: 0; 1 there are no measurements; 102 no such job.
    """

    async def work(client: Client, target: ServerTarget) -> None:
        selector = Selector(target.namespace, labels=JOB_NAME)
        if job:
            server_job = await find_job(client, target.object_namespace, job)
            selector = Selector(server_job.key.namespace, labels=f"{JOB_NAME}={server_job.key.name}")
        history: dict[str, list[float]] = {}
        while True:
            pods = sorted_pods((await client.list(PODS, selector)).items)
            usages = await measure_pods(client, target, selector, pods)
            rows = usage_rows(pods, usages, namespaces=not selector.namespace)
            header = (*(("NAMESPACE",) if not selector.namespace else ()), *HEADER)
            if watch:
                header, rows = (*header, "CPU SO FAR"), _with_sparklines(pods, usages, rows, history)
                tables.write_stdout(CLEAR_SCREEN if tables.is_ansi_terminal(sys.stdout) else "")
            tables.write_stdout(tables.render(header, rows, headers=not no_headers))
            if not rows:
                click.echo("no replica is running", err=True)
            if not watch:
                return
            time.sleep(PAUSE_SECONDS)  # noqa: ASYNC251 - nothing else runs in this loop

    return run_blocking(server, work, missing=NOT_FOUND, alive=True)


def _with_sparklines(
    pods: Iterable[JSON],
    usages: Mapping[str, ResourceUsage],
    rows: list[list[str]],
    history: dict[str, list[float]],
) -> list[list[str]]:
    uids = [pod["metadata"]["uid"] for pod in pods if pod["metadata"]["uid"] in usages]
    for uid in uids:
        history[uid] = [*history.get(uid, []), usages[uid].cores][-SPARKLINE_WIDTH:]
    return [[*row, sparkline(history[uid])] for row, uid in zip(rows, uids, strict=True)]


def sparkline(values: Sequence[float]) -> str:
    """A curve in one line of text; the highest value is a full block, zero the lowest block."""
    highest = max(values, default=0.0)
    steps = len(SPARKLINE_BLOCKS) - 1
    return "".join(
        SPARKLINE_BLOCKS[round(value / highest * steps)] if highest > 0 else SPARKLINE_BLOCKS[0] for value in values
    )


HEADER = ("JOB", "POD", "NODE", "CPU(cores)", "MEMORY(bytes)", "OF LIMIT")


def usage_rows(
    pods: Iterable[JSON], usages: Mapping[str, ResourceUsage], *, namespaces: bool = False
) -> list[list[str]]:
    """The rows of the pods for which there is a measurement, which is keyed by the pod's uid."""
    rows = []
    for pod in pods:
        metadata = pod["metadata"]
        usage = usages.get(metadata["uid"])
        if usage is None:
            continue
        rows.append(
            [
                *([metadata["namespace"]] if namespaces else []),
                (metadata.get("labels") or {}).get(JOB_NAME, ""),
                metadata["name"],
                pod["spec"].get("nodeName") or "-",
                f"{round(usage.cores * 1000)}m",
                f"{usage.memory // 2**20}Mi",
                _limit_share(pod, usage),
            ]
        )
    return rows


def _limit_share(pod: JSON, usage: ResourceUsage) -> str:
    limits = [
        ((container.get("resources") or {}).get("limits") or {}).get("memory")
        for container in pod["spec"]["containers"]
    ]
    if not all(limits) or not limits:
        return "-"
    total = sum(_quantity_value(limit) for limit in limits)
    return f"{usage.memory / total:.0%}" if total else "-"


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
        total += ResourceUsage(_quantity_value(usage.get("cpu", "0")), int(_quantity_value(usage.get("memory", "0"))))
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


def _quantity_value(quantity: Any) -> float:
    return float(Quantity.parse(str(quantity)).as_fraction())
