"""`gangline run`: runs jobs from files or a command, here or in a cluster; the exit code is their verdict."""

import os
import shutil
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import click

from gangline.base.errors import InputError
from gangline.cli.connect.server import ServerOptions
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.dashboard_options import DashboardOptions, dashboard_options
from gangline.cli.flags.durations import DURATION, duration_option
from gangline.cli.flags.node_options import NodeOptions, node_options
from gangline.cli.flags.notify_options import notify_option
from gangline.cli.flags.run_options import hang_watch_option, kind_option, nproc_option, progress_option, runs_option
from gangline.cli.flags.server_options import server_options
from gangline.cli.run.request import DEFAULT_CAPACITY, JobSource, RunRequest, Shipping
from gangline.cli.run.run import run_request

FLAG_SPELLINGS = {"as_user": "--as", "as_groups": "--as-group"}


@cli_command("run")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="FILE... | -- COMMAND...")
@click.option("-f", "--filename", "more", multiple=True, metavar="FILE", help="A manifest file; - is standard input.")
@nproc_option("Run COMMAND as a job of so many processes, without a file")
@kind_option
@click.option(
    "--max-restarts",
    type=click.IntRange(min=0),
    metavar="N",
    help="Start all processes of COMMAND again after a failure, at most N times; with a FILE: the backoffLimit of its jobs.",
)
@click.option("--image", default="", metavar="IMAGE", help="The image of COMMAND; with --context.")
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=AMOUNT",
    help="A resource limit of each process of COMMAND, such as gpu=1 or memory=4Gi.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change a value of every job, such as spec.runPolicy.backoffLimit=2.",
)
@click.option(
    "--keep",
    is_flag=True,
    help="Keep logs, the job and its curve in runs/<job>/; in a cluster leave the job running after Ctrl-C.",
)
@runs_option("The folder of --keep.")
@click.option(
    "--curve",
    "curves",
    multiple=True,
    metavar="METRIC",
    help="Draw the curve of a reported metric at the end, such as loss; may be repeated.",
)
@click.option(
    "--timeout",
    type=DURATION,
    metavar="DURATION",
    help="Stop the run after this time, such as 90s or 5m (exit code 101).",
)
@duration_option(
    "--hung-after",
    "60s",
    "Say so when a job has had no log line and no CPU use for this time, and look into a job without progress.",
)
@click.option(
    "--gang",
    is_flag=True,
    help="Start every job as a gang: all of its pods or none. Without it, only a job with a schedulingPolicy is a gang.",
)
@notify_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["json"]),
    help="Print the finished job as JSON; everything else goes to stderr.",
)
@click.option(
    "--ship/--no-ship",
    default=None,
    help="Whether the folder is shipped to the cluster; by default if the command mentions a file of it.",
)
@click.option(
    "--ship-secrets",
    is_flag=True,
    help="Ship files that look like credentials, too, and links out of the folder.",
)
@click.option("--dry-run", is_flag=True, help="With --context: list the files to ship, and send nothing.")
@click.option("--ship-limit", default="1Gi", show_default=True, metavar="SIZE", help="Largest folder to ship.")
@click.option(
    "--storage-class",
    default="",
    metavar="NAME",
    help="The storage class of the claim that a large folder is shipped in.",
)
@click.option(
    "--code",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="FOLDER",
    help="For a bundle: run the programs in this folder, instead of the packed code or stand-ins.",
)
@dashboard_options
@progress_option
@hang_watch_option
@node_options
@server_options
def run(
    words: tuple[str, ...],
    more: tuple[str, ...],
    nproc: str | None,
    keep: bool,
    runs: Path,
    curves: tuple[str, ...],
    gang: bool,
    notify: tuple[str, ...],
    output: str | None,
    server: ServerOptions,
    **options: Any,
) -> int:
    r"""Run jobs on this machine or in a cluster, watch them, exit with their verdict.

    \b
    gangline run --nproc 4 -- python train.py        as four processes
    gangline run --nproc gpu -- python train.py      one process for each GPU
    gangline run --nproc 2:4 -- python train.py      elastic, under torchrun
    gangline run --nproc 2 --kind TFJob -- python train.py
    gangline run job.yaml                            the job in a file
    gangline run job.yaml --set spec.runPolicy.backoffLimit=2
    gangline run a.yaml b.yaml                       both at once, on one screen
    gangline run job.yaml --capacity cpu=4 --gang    starts when all of it fits
    gangline run job.yaml --notify https://example.org/hook
    kustomize build . | gangline run -               from standard input
    gangline run --context prod --image IMAGE --nproc 4 -- python train.py
    gangline run --context prod job.yaml
    gangline run bert.bundle                         a recorded job, its faults

    On this machine every replica becomes a process with the variables it would have in a cluster. Ctrl-C stops all of
    them; a second Ctrl-C kills them. If no process can start (a package is missing, a script has a syntax error), the
    run ends at once and says what to do. With --context the job runs in that cluster, the folder is shipped along
    (without what .gitignore and .ganglineignore name; credentials are refused), and Ctrl-C deletes the job.

    Exit codes: 0 succeeded, 100 at least one failed, 101 not finished in time, 103 deleted meanwhile, 130
    interrupted, 1 an error.
    """
    node = NodeOptions(**{name: options.pop(name) for name in NodeOptions._fields})
    shipping = Shipping(**{name: options.pop(name) for name in Shipping._fields})
    dashboard = DashboardOptions.take_from(options)
    timeout: timedelta | None = options.pop("timeout")
    if timeout is not None and timeout <= timedelta():
        raise InputError(f"--timeout {timeout.total_seconds():g}s: expected more than 0")
    hung_after: timedelta = options.pop("hung_after")
    progress_endpoint: bool = options.pop("progress_endpoint")
    hang_watch: bool = options.pop("hang_watch")
    check_server_flags(server, node, gang=gang)
    if server.context is not None and (dashboard.open_dashboard or dashboard.dashboard_port):
        option = "--open" if dashboard.open_dashboard else "--dashboard-port"
        raise InputError(
            f"{option}: is about a run on this machine; for the cluster: gangline dashboard --context {server.context}"
        )
    if server.context and not progress_endpoint:
        raise InputError("--no-progress-endpoint: is about a run on this machine; leave it out with --context")
    if server.context and not hang_watch:
        raise InputError("--no-hang-watch: is about a run on this machine; in a cluster it is a flag of its operator")
    if notify and server.context:
        raise InputError(
            "--notify: is about a run on this machine; in a cluster its operator notifies, if it is set up"
        )
    if shipping.dry_run and not server.context:
        raise InputError("--dry-run: lists what is shipped to a cluster, and on this machine nothing is; add --context")
    request = RunRequest(
        source=_job_source(words, more, nproc, JobSource(**options)),
        timeout=timeout.total_seconds() if timeout is not None else None,
        gang=gang,
        hung_after=hung_after.total_seconds(),
        hang_watch=hang_watch,
        runs=runs if keep else None,
        output=output or "",
        curves=curves,
        notify=notify,
        node=node._replace(capacity=(*DEFAULT_CAPACITY, *node.capacity)),
        server=server,
        shipping=shipping,
        dashboard=dashboard if dashboard.dashboard else None,
        progress_endpoint=progress_endpoint,
    )
    return run_request(request)


def _job_source(words: Sequence[str], files: Sequence[str], nproc: str | None, source: JobSource) -> JobSource:
    """The source with its command or its files, which `words` are depending on `nproc`. Raises `InputError`."""
    if nproc is None and _is_program(words):
        nproc = "1"
    if nproc is not None:
        check_command(words, files)
        return source._replace(command=tuple(words), nproc=nproc)
    files = [*words, *files]
    if not files:
        raise InputError("expected a FILE; or for a script: gangline run --nproc 4 -- python train.py")
    if addresses := [file for file in files if file.startswith(("http://", "https://"))]:
        raise InputError(f"{addresses[0]}: is an address; download it first: curl -LO {addresses[0]}")
    if source.image or source.limits:
        option = "--image" if source.image else "--limit"
        raise InputError(f"{option}: is for a COMMAND with --nproc; a file says it itself, or --set does")
    return source._replace(files=tuple(map(Path, files)))


def _is_program(words: Sequence[str]) -> bool:
    """Whether the words are a command rather than files: the first is a program on PATH, or the path of one."""
    if not words or words[0].endswith((".yaml", ".yml", ".json")) or shutil.which(words[0]) is None:
        return False
    return os.sep in words[0] or not Path(words[0]).exists()


def check_command(words: Sequence[str], files: Sequence[str]) -> None:
    """Raise `InputError` if a manifest file is given where `--nproc` needs a command."""
    manifests = [*files, *(word for word in words[:1] if word.endswith((".yaml", ".yml")))]
    if manifests:
        raise InputError(
            f"--nproc: is for a COMMAND, and {manifests[0]} is a file; leave --nproc out, or change the file's replicas with --set"
        )


def check_server_flags(server: ServerOptions, node: NodeOptions, *, gang: bool = False) -> None:
    """Raise `InputError` for cluster options in a local run, and for node options or `--gang` in a cluster run."""
    if server.context is None:
        # Only --context selects a cluster: a run must not end up in one by accident.
        for name, value in server._replace(verbose=0, job_hint="")._asdict().items():
            if value:
                if name == "namespace" and (value.isdigit() or value == "p"):
                    raise InputError("-n: is the namespace in a cluster; for processes write --nproc")
                option = FLAG_SPELLINGS.get(name, f"--{name.replace('_', '-')}")
                raise InputError(f"{option}: the run is on this machine; add --context NAME to run in a cluster")
    elif node != NodeOptions():
        name = next(name for name in node._fields if getattr(node, name) != getattr(NodeOptions(), name))
        raise InputError(f"--{name}: is about a run on this machine; leave it out with --context")
    elif gang:
        raise InputError(
            "--gang: is about a run on this machine; with --context the job asks for it: --set spec.runPolicy.schedulingPolicy={}"
        )
