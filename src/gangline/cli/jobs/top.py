"""`gangline top`: CPU and memory of replicas, from the machine itself or from the cluster's metrics."""

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
    "nobody measures here: the cluster has no metrics.k8s.io (install metrics-server), "
    "and the pods are not on this machine"
)


class ResourceUsage(NamedTuple):
    """What one replica uses: cores, and bytes."""

    cores: float = 0.0
    memory: int = 0

    def __add__(self, other: object) -> "ResourceUsage":
        assert isinstance(other, ResourceUsage)
        return ResourceUsage(self.cores + other.cores, self.memory + other.memory)


@cli_command()
@click.argument("job", required=False, shell_complete=completed_by("jobs"))
@click.option("-w", "--watch", is_flag=True, help="Go on, with a curve of the CPU used.")
@click.option("--no-headers", is_flag=True, help="No titles above the columns.")
@server_options_all
def top(job: str | None, watch: bool, no_headers: bool, server: ServerOptions) -> int:
    r"""Print CPU and memory of the replicas of a job, or of all jobs.

    On a plane of this machine the processes are measured, for half a second; in a cluster metrics-server is asked.

    \b
      gangline top linear
      gangline top linear -w
      gangline top -A

    Exit codes: 0; 1 nobody measures; 102 no such job.
    """

    async def work(client: Client, place: ServerTarget) -> None:
        where = Selector(place.namespace, labels=JOB_NAME)
        if job:
            found = await find_job(client, place.object_namespace, job)
            where = Selector(found.key.namespace, labels=f"{JOB_NAME}={found.key.name}")
        history: dict[str, list[float]] = {}
        while True:
            pods = sorted_pods((await client.list(PODS, where)).items)
            uses = await measure_pods(client, place, where, pods)
            rows = usage_rows(pods, uses, namespaces=not where.namespace)
            titles = (*(("NAMESPACE",) if not where.namespace else ()), *HEADER)
            if watch:
                titles, rows = (*titles, "CPU SO FAR"), _with_sparklines(pods, uses, rows, history)
                tables.write_stdout(CLEAR_SCREEN if tables.is_ansi_terminal(sys.stdout) else "")
            tables.write_stdout(tables.render(titles, rows, headers=not no_headers))
            if not rows:
                click.echo("no replica runs", err=True)
            if not watch:
                return
            time.sleep(PAUSE_SECONDS)  # noqa: ASYNC251 - nothing else goes on here

    return run_blocking(server, work, missing=NOT_FOUND, alive=True)


def _with_sparklines(
    pods: Iterable[JSON],
    uses: Mapping[str, ResourceUsage],
    rows: list[list[str]],
    history: dict[str, list[float]],
) -> list[list[str]]:
    seen = [pod["metadata"]["uid"] for pod in pods if pod["metadata"]["uid"] in uses]
    for uid in seen:
        history[uid] = [*history.get(uid, []), uses[uid].cores][-SPARKLINE_WIDTH:]
    return [[*row, sparkline(history[uid])] for row, uid in zip(rows, seen, strict=True)]


def sparkline(values: Sequence[float]) -> str:
    """A curve in one line of text: the highest value is a full block, nothing is the lowest."""
    most = max(values, default=0.0)
    steps = len(SPARKLINE_BLOCKS) - 1
    return "".join(
        SPARKLINE_BLOCKS[round(value / most * steps)] if most > 0 else SPARKLINE_BLOCKS[0] for value in values
    )


HEADER = ("JOB", "POD", "NODE", "CPU(cores)", "MEMORY(bytes)", "OF LIMIT")


def usage_rows(pods: Iterable[JSON], uses: Mapping[str, ResourceUsage], *, namespaces: bool = False) -> list[list[str]]:
    """One row for each pod that is measured, by its uid."""
    rows = []
    for pod in pods:
        metadata = pod["metadata"]
        use = uses.get(metadata["uid"])
        if use is None:
            continue
        rows.append(
            [
                *([metadata["namespace"]] if namespaces else []),
                (metadata.get("labels") or {}).get(JOB_NAME, ""),
                metadata["name"],
                pod["spec"].get("nodeName") or "-",
                f"{round(use.cores * 1000)}m",
                f"{use.memory // 2**20}Mi",
                _limit_share(pod, use),
            ]
        )
    return rows


def _limit_share(pod: JSON, use: ResourceUsage) -> str:
    limits = [((found.get("resources") or {}).get("limits") or {}).get("memory") for found in pod["spec"]["containers"]]
    if not all(limits) or not limits:
        return "-"
    whole = sum(_quantity_value(limit) for limit in limits)
    return f"{use.memory / whole:.0%}" if whole else "-"


async def measure_pods(
    client: Client, place: ServerTarget, where: Selector, pods: Sequence[JSON]
) -> dict[str, ResourceUsage]:
    """What pods use, by uid. Raises `InputError` where nobody measures."""
    folder = _pods_folder(place)
    if folder is not None:
        return _measure_processes(folder, pods)
    try:
        page = await client.list(POD_METRICS, where)
    except (NotFound, ServerError) as error:
        raise InputError(METRICS_MISSING) from error
    names = {(found["metadata"]["namespace"], found["metadata"]["name"]): found for found in page.items}
    keyed = ((pod["metadata"]["uid"], (pod["metadata"]["namespace"], pod["metadata"]["name"])) for pod in pods)
    return {uid: _reported_usage(names[key]) for uid, key in keyed if key in names}


def _reported_usage(metrics: JSON) -> ResourceUsage:
    total = ResourceUsage()
    for container in metrics.get("containers") or ():
        usage = container.get("usage") or {}
        total += ResourceUsage(_quantity_value(usage.get("cpu", "0")), int(_quantity_value(usage.get("memory", "0"))))
    return total


def _pods_folder(place: ServerTarget) -> Path | None:
    """Where the node of a plane of this machine, or of a run, keeps its pods."""
    folder = place.plane_folder / "pods" / "pods" if place.plane_folder is not None else None
    if place.run_folder is not None:
        folder = place.run_folder / "pods"
    return folder if folder is not None and folder.is_dir() else None


def _measure_processes(folder: Path, pods: Sequence[JSON]) -> dict[str, ResourceUsage]:
    """Measure process trees of pods, all at the same time."""
    import psutil

    trees: dict[str, list[psutil.Process]] = {}
    for pod in pods:
        metadata = pod["metadata"]
        place = folder / f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
        trees[metadata["uid"]] = [process for pid in _running_pids(place) for process in _process_tree(pid)]
    for processes in trees.values():
        for process in processes:
            _cores(process)
    time.sleep(SAMPLE_SECONDS if any(trees.values()) else 0)
    return {
        uid: sum((ResourceUsage(_cores(process), _memory(process)) for process in processes), ResourceUsage())
        for uid, processes in trees.items()
        if processes
    }


def _running_pids(place: Path) -> list[int]:
    """The processes of the newest attempt of each container that has not ended."""
    runs = (run for run in place.glob("*/*.run") if not run.with_suffix(".exit").exists())
    return [int(msgspec.json.decode(run.read_bytes())["pid"]) for run in runs]


def _process_tree(pid: int) -> list[Any]:
    import psutil

    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return []


def _cores(process: Any) -> float:
    import psutil

    try:
        return float(process.cpu_percent(None)) / 100
    except psutil.Error:
        return 0.0


def _memory(process: Any) -> int:
    import psutil

    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _quantity_value(quantity: Any) -> float:
    return float(Quantity.parse(str(quantity)).as_fraction())
