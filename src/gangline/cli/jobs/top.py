"""`gangline top`: CPU, memory and GPUs of replicas, from the processes of this machine or the cluster's metrics API.

Of one job also its timeline and its curves, from its objects.
"""

import os
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click

from gangline.api.meta import JSON, Selector
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.base.invocation import own_command_line
from gangline.cli.connect.run_work import run_blocking_at
from gangline.cli.connect.server import NoServer, ServerOptions, ServerTarget, find_server
from gangline.cli.exit_codes import NOT_FOUND
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.server_options import server_options_all
from gangline.cli.jobs.top_goodput import show_goodput
from gangline.cli.jobs.top_timeline import TopTimeline
from gangline.cli.output import tables
from gangline.cli.output.curve import SPARKLINE_BLOCKS
from gangline.cli.output.text import ansi_text, can_draw
from gangline.cli.output.timeline import TimelineStyle
from gangline.cli.resources.lookup import find_job
from gangline.cli.resources.machine import MachineUsage, measure_machine
from gangline.cli.resources.usage import measure_pods, quantity_value
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.node.usage import ResourceUsage
from gangline.summary.objects import PODS
from gangline.summary.replicas import JOB_NAME, pod_selector, sorted_pods

if TYPE_CHECKING:
    from gangline.cli.jobs.top_recorded import RecordedTop

HEADER = ("JOB", "POD", "NODE", "CPU(cores)", "MEMORY(bytes)", "OF LIMIT")
GPU_HEADER = ("GPU", "GPU USE", "GPU MEMORY")
MACHINE_HEADER = ("RESOURCE", "USED", "TOTAL", "SHARE")
PAUSE_SECONDS = 1.5
SPARKLINE_WIDTH = 40
CLEAR_SCREEN = "\x1b[H\x1b[2J"


class TopRequest(NamedTuple):
    """The options of one `gangline top`."""

    job: str | None
    watch: bool
    curves: tuple[str, ...]
    headers: bool

    @property
    def shows_timeline(self) -> bool:
        """Whether there is a timeline below the table: not for a program that reads rows."""
        return self.headers and (sys.stdout.isatty() or bool(self.curves))


@cli_command()
@click.argument("job", required=False, shell_complete=completed_by("jobs"))
@click.option("-w", "--watch", is_flag=True, help="Refresh until interrupted, with a curve of the CPU use.")
@click.option(
    "--curve",
    "curves",
    multiple=True,
    metavar="METRIC",
    help="Draw the curve of a metric that JOB reports, such as loss; may be repeated.",
)
@click.option("--goodput", is_flag=True, help="Show what the time of the replicas went into, by namespace and queue.")
@click.option("--no-headers", is_flag=True, help="Leave out the column titles.")
@server_options_all
def top(
    job: str | None, watch: bool, curves: tuple[str, ...], goodput: bool, no_headers: bool, server: ServerOptions
) -> int:
    r"""Show the CPU and memory that the replicas of jobs use; without any server, those of this machine.

    \b
      gangline top                 the replicas of all jobs of the namespace
      gangline top linear          of one job, with its timeline
      gangline top linear -w --curve loss
      gangline top -A              of all namespaces
      gangline top -A --goodput    what the time of all replicas went into

    The timeline has a row for each replica, with failures and restarts, and one for each metric that is reported. It
    is also there for a job that has ended, and of a job that is gone there is what was recorded of it.

    Jobs on this machine are measured for half a second; in a cluster, metrics-server is queried.
    Replicas with GPUs of this machine show which, and how much of them is in use.

    Exit codes: 0 printed; 1 there are no measurements; 102 no such job.
    """
    if curves and not job:
        raise InputError("--curve: is about one job; write its name: gangline top JOB --curve loss")

    if goodput:
        if watch or curves:
            raise InputError("--goodput: is shown once and without curves; leave out --watch and --curve")
        target = find_server(server)
        return run_blocking_at(target, server, partial(show_goodput, job, headers=not no_headers), missing=NOT_FOUND)
    request = TopRequest(job, watch, curves, headers=not no_headers)
    try:
        target = find_server(server)
    except NoServer:
        if job:
            raise
        return _show_machine(watch=watch, headers=not no_headers)
    if target.archive is None or job:
        return run_blocking_at(target, server, partial(_show_usage, request), missing=NOT_FOUND)
    return _show_machine(watch=watch, headers=not no_headers)


async def _show_usage(request: TopRequest, client: Client, target: ServerTarget) -> None:
    """Show what the replicas use and, of a single job, its timeline: once, or until interrupted."""
    selector = Selector(target.namespace, labels=JOB_NAME)
    timeline, history = TopTimeline(), dict[str, list[float]]()
    while True:
        try:
            job = await find_job(client, target.object_namespace, request.job) if request.job else None
        except NotFound:
            if not _show_recorded(request, target):
                raise
            return
        selector = pod_selector(job) if job is not None else selector
        pods = sorted_pods((await client.list(PODS, selector)).items)
        now = SystemClock().now().timestamp()
        if job is not None and (request.shows_timeline or target.archive is not None):
            await timeline.look(client, job, pods, now)
        text = "".join(_timeline_text(timeline, now, request.curves))
        if target.archive is not None:
            # Nothing runs any more that could be measured.
            tables.write_stdout(_recorded_usage(request, target) + text)
            return
        try:
            usages = await measure_pods(client, target, selector, pods)
        except InputError:
            tables.write_stdout(text)
            raise
        rows = usage_rows(pods, usages, namespaces=not selector.namespace)
        header = (*(("NAMESPACE",) if not selector.namespace else ()), *HEADER)
        if any(usage.gpus for usage in usages.values()):
            header, rows = (*header, *GPU_HEADER), _with_gpus(pods, usages, rows)
        if request.watch:
            header, rows = (*header, "CPU SO FAR"), _with_sparklines(pods, usages, rows, history)
            tables.write_stdout(CLEAR_SCREEN if tables.is_ansi_terminal(sys.stdout) else "")
        tables.write_stdout(tables.render(header, rows, headers=request.headers) + text)
        if not rows:
            click.echo("no replica is running", err=True)
        if not request.watch:
            return
        time.sleep(PAUSE_SECONDS)  # noqa: ASYNC251 - nothing else runs in this loop


def _show_recorded(request: TopRequest, target: ServerTarget) -> bool:
    """Show what was recorded of a job that is gone. Returns whether there was anything."""
    # Imported here, because few jobs are gone.
    from gangline.cli.jobs import top_recorded

    found = top_recorded.recorded_top(target, request.job) if request.job else None
    if found is None:
        return False
    click.echo(found.note, err=True)
    tables.write_stdout(_usage_table(found, headers=request.headers))
    if request.headers:
        tables.write_stdout("".join(_timeline_text(found.timeline, found.end, request.curves)))
    return True


def _recorded_usage(request: TopRequest, target: ServerTarget) -> str:
    """The table of what was recorded of a job that has ended; empty if nothing was."""
    from gangline.cli.jobs import top_recorded

    found = top_recorded.recorded_top(target, request.job) if request.job else None
    return _usage_table(found, headers=request.headers) if found is not None else ""


def _usage_table(found: "RecordedTop", *, headers: bool) -> str:
    from gangline.cli.jobs.top_recorded import HEADER as RECORDED_HEADER

    return tables.render(RECORDED_HEADER, found.rows, headers=headers) if found.rows else ""


def _timeline_text(timeline: TopTimeline, now: float, curves: Sequence[str]) -> list[str]:
    """The lines below the table, with their line ends."""
    width = shutil.get_terminal_size().columns - 1
    style = TimelineStyle(width, ascii=not can_draw(sys.stdout))
    colour = tables.stdout_uses_colour()
    lines = timeline.lines(now, style, curves)
    return [f"{ansi_text(line, colour=colour).rstrip()}\n" for line in ((), *lines)] if lines else []


def _show_machine(*, watch: bool, headers: bool) -> int:
    """Show what this machine uses, as no server runs whose jobs could be measured."""
    while True:
        usage = measure_machine()
        tables.write_stdout(CLEAR_SCREEN if watch and tables.is_ansi_terminal(sys.stdout) else "")
        tables.write_stdout(tables.render(MACHINE_HEADER, machine_rows(usage), headers=headers))
        if not watch:
            click.echo(f"no job is running on this machine; start one: {own_command_line('demo')}", err=True)
            return 0
        time.sleep(PAUSE_SECONDS)


def machine_rows(usage: MachineUsage) -> list[list[str]]:
    """What this machine has and uses, a row for each resource."""
    rows = [["cpu", f"{usage.cpu.used:.1f} cores", f"{usage.cpu.total:g} cores", f"{usage.cpu.share:.0%}"]]
    amounts = {"memory": usage.memory, "disk": usage.disk}
    for number, gpu in enumerate(usage.gpus):
        rows.append([f"gpu {number} ({gpu.name})", f"{gpu.busy:.0%} busy", "-", f"{gpu.busy:.0%}"])
        amounts[f"gpu {number} memory"] = gpu.memory
    rows += [[name, _size(amount.used), _size(amount.total), f"{amount.share:.0%}"] for name, amount in amounts.items()]
    return rows


def _size(amount: float) -> str:
    return f"{amount / 2**20:.0f}Mi"


def _with_gpus(pods: Iterable[JSON], usages: Mapping[str, ResourceUsage], rows: list[list[str]]) -> list[list[str]]:
    """The rows with the GPUs of each replica, measured together."""
    from gangline.node.devices.detect import VARIABLE, measure_gpus

    # All GPUs, not only those that the shell of this command shows.
    environ = {name: value for name, value in os.environ.items() if name in ("PATH", VARIABLE)}
    measured = measure_gpus(environ)
    shown = [usages[pod["metadata"]["uid"]] for pod in pods if pod["metadata"]["uid"] in usages]
    return [[*row, *gpu_cells(usage, measured)] for row, usage in zip(rows, shown, strict=True)]


def gpu_cells(usage: ResourceUsage, measured: Mapping[tuple[str, str], tuple[int, int]]) -> tuple[str, str, str]:
    """The ids of a replica's GPUs, the mean of their use in percent, and the sum of their memory in use."""
    ids = ",".join(id_ for _, id_ in usage.gpus) or "-"
    amounts = [measured[gpu] for gpu in usage.gpus if gpu in measured]
    if not amounts:
        return ids, "-", "-"
    percent = sum(percent for percent, _ in amounts) / len(amounts)
    return ids, f"{percent:.0f}%", f"{sum(memory for _, memory in amounts) // 2**20}Mi"


def _with_sparklines(
    pods: Iterable[JSON], usages: Mapping[str, ResourceUsage], rows: list[list[str]], history: dict[str, list[float]]
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
    total = sum(quantity_value(limit) for limit in limits)
    return f"{usage.memory / total:.0%}" if total else "-"
