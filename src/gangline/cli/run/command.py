"""`gangline run`: jobs from files or a script, here or in a cluster; their verdict is the exit code."""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import click

from gangline.base.errors import InputError
from gangline.cli.connect.server import ServerOptions
from gangline.cli.flags.commands import cli_command
from gangline.cli.flags.durations import DURATION
from gangline.cli.flags.node_options import NodeOptions, node_options
from gangline.cli.flags.server_options import server_options
from gangline.cli.run.request import RunJob, check_unique_names

# Nobody else is here: a file that asks for a cluster's cores runs on the few there are, only slower.
DEFAULT_CAPACITY = ("cpu=1000",)
DEFAULT_RUNS_FOLDER = Path("runs")
TTL_AFTER_FINISHED = 24 * 3600
"""For so many seconds a job made from a command stays in a cluster when it has ended."""
LOCAL_SERVER = ServerOptions()
FLAG_SPELLINGS = {"as_user": "--as", "as_groups": "--as-group"}


class RunRequest(NamedTuple):
    """A run as it was asked for: files, or a command and how many processes."""

    files: tuple[Path, ...] = ()
    command: tuple[str, ...] = ()
    nproc: int = 0
    kind: str = ""
    image: str = ""
    limits: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    timeout: float | None = None
    gang: bool = False
    # None: leave nothing.
    runs: Path | None = None
    output: str = ""
    # Whether the curve is drawn in the terminal too.
    curve: bool = False
    node: NodeOptions = NodeOptions()
    hook_factory: Callable[[Path], Any] | None = None
    # What to do next, said at the end.
    next_steps: str = ""
    # With a context: there. Without: on this machine.
    server: ServerOptions = LOCAL_SERVER
    # Whether the folder goes along; None: if the job names a file of it.
    ship: bool | None = None
    ship_limit: str = "1Gi"
    storage_class: str = ""


@cli_command("run")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="FILE... | -- COMMAND...")
@click.option(
    "-f",
    "--filename",
    "more",
    multiple=True,
    metavar="FILE",
    help="A file, as for kubectl; - is standard input.",
)
@click.option("--nproc", type=int, metavar="N", help="Run COMMAND as a job of N processes; no file is needed.")
@click.option("--kind", default="PyTorchJob", show_default=True, help="What kind of job a COMMAND becomes.")
@click.option("--image", default="", metavar="IMAGE", help="The image that COMMAND runs in; with --context.")
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=AMOUNT",
    help="What each process of COMMAND may take, as nvidia.com/gpu=1.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change a value of every job, as spec.runPolicy.backoffLimit=2.",
)
@click.option(
    "--keep",
    is_flag=True,
    help="Leave logs, the job and its curve in runs/<job>/; in a cluster let the job go on after Ctrl-C.",
)
@click.option(
    "--runs",
    type=click.Path(path_type=Path),
    default=DEFAULT_RUNS_FOLDER,
    show_default=True,
    metavar="FOLDER",
    help="Where --keep keeps.",
)
@click.option(
    "--timeout",
    type=DURATION,
    metavar="DURATION",
    help="Give up after so long, as 90s or 5m (exit code 101).",
)
@click.option(
    "--gang",
    is_flag=True,
    help="Start every job as a gang: all of its pods or none. Without, jobs with a schedulingPolicy.",
)
@click.option("-o", "--output", type=click.Choice(["json"]), help="Print the job as it ended; all else goes to stderr.")
@click.option(
    "--ship/--no-ship",
    default=None,
    help="Whether the folder goes along to the cluster; by default if the command names a file of it.",
)
@click.option(
    "--ship-limit",
    default="1Gi",
    show_default=True,
    metavar="SIZE",
    help="How large a folder may be to be shipped.",
)
@click.option("--storage-class", default="", metavar="NAME", help="Of the claim that carries a large folder.")
@node_options
@server_options
def run(
    words: tuple[str, ...],
    more: tuple[str, ...],
    nproc: int | None,
    keep: bool,
    runs: Path,
    output: str | None,
    server: ServerOptions,
    **given: Any,
) -> int:
    r"""Run jobs on this machine or in a cluster, watch them, exit with their verdict.

    \b
    gangline run job.yaml                            the job in a file, in the file's folder
    gangline run job.yaml --set spec.runPolicy.backoffLimit=2
    gangline run --nproc 4 -- python train.py        a script as a PyTorchJob, here
    gangline run --nproc 2 --kind TFJob -- python train.py
    gangline run a.yaml b.yaml                       both at once, on one screen
    gangline run job.yaml --capacity cpu=4 --gang    starts when all of it fits
    kustomize build . | gangline run -               from standard input, in the folder you are in
    gangline run --context prod --image IMAGE --nproc 4 --limit nvidia.com/gpu=1 -- python train.py
    gangline run --context prod job.yaml

    Here every replica becomes a process with the variables it would have in a cluster. Ctrl-C stops all of them;
    once more kills them. With --context the job runs in that cluster, the folder goes along (without what .gitignore
    names), and Ctrl-C deletes the job.

    Exit codes: 0 succeeded, 100 failed (one of them is enough), 101 not finished in time, 103 deleted by somebody
    else, 130 interrupted, 1 an error.
    """
    options = NodeOptions(**{name: given.pop(name) for name in NodeOptions._fields})
    limit: timedelta | None = given.pop("timeout")
    check_server_flags(server, options, gang=given["gang"])
    asked = RunRequest(
        **given,
        timeout=limit.total_seconds() if limit is not None else None,
        runs=runs if keep else None,
        output=output or "",
        node=options._replace(capacity=(*DEFAULT_CAPACITY, *options.capacity)),
        server=server,
    )
    if nproc is not None:
        check_command(words, more)
        return run_request(asked._replace(command=words, nproc=nproc))
    words += more
    if not words:
        raise InputError("expected a FILE; or for a script: gangline run --nproc 4 -- python train.py")
    if asked.image or asked.limits:
        option = "--image" if asked.image else "--limit"
        raise InputError(f"{option}: is for a COMMAND with --nproc; a file says it itself, or --set does")
    return run_request(asked._replace(files=tuple(map(Path, words))))


def check_command(words: Sequence[str], files: Sequence[str]) -> None:
    """Refuse a file of a job where a command should be. Raises `InputError`."""
    named = [*files, *(word for word in words[:1] if word.endswith((".yaml", ".yml")))]
    if named:
        raise InputError(
            f"--nproc: is for a COMMAND, and {named[0]} is a file; leave --nproc out, or change the file's replicas with --set"
        )


def check_script(words: Sequence[str]) -> None:
    """Refuse a script that is not there: every process would only say so. Raises `InputError`."""
    interpreter, script = Path(words[0]).name if words else "", words[1] if len(words) > 1 else ""
    if interpreter.startswith("python") and script.endswith(".py") and not Path(script).exists():
        raise InputError(f"{script}: no such file; processes start in {Path.cwd()}")


def check_server_flags(server: ServerOptions, node: NodeOptions, *, gang: bool = False) -> None:
    """Refuse options of a cluster for a run on this machine, and the other way round. Raises `InputError`."""
    if server.context is None:
        # Which server is a question only of a cluster; a run must not land in one by accident.
        for name, value in server._replace(verbose=0, job_hint="")._asdict().items():
            if value:
                option = FLAG_SPELLINGS.get(name, f"--{name.replace('_', '-')}")
                raise InputError(f"{option}: the run is on this machine; add --context NAME to run in a cluster")
    elif node != NodeOptions():
        name = next(name for name in node._fields if getattr(node, name) != getattr(NodeOptions(), name))
        raise InputError(f"--{name}: is about a run on this machine; leave it out with --context")
    elif gang:
        raise InputError(
            "--gang: is about a run on this machine; with --context the job asks for it: --set spec.runPolicy.schedulingPolicy={}"
        )


def run_request(asked: RunRequest) -> int:
    """Read, run, follow, tell the verdict. Bad input is found before anything starts."""
    jobs = _read_jobs(asked)
    check_unique_names(jobs)
    # Imported here: the command line must start fast, and a mistake be told in no time.
    import gc

    # Nothing of what is imported is garbage, and looking for it takes a tenth of the time.
    gc.disable()
    run: Callable[[RunRequest, Sequence[RunJob]], int]
    if asked.server.context is not None:
        from gangline.cli.run.remote import run_remote as run
    else:
        from gangline.cli.run.local import run_local as run
    gc.freeze()
    gc.enable()
    return run(asked, jobs)


def _is_local_plane(server: ServerOptions) -> bool:
    """Whether the context leads to the plane of this machine, which runs processes and no images. Raises `ConfigError`."""
    from gangline.cli.connect.server import find_server

    place = find_server(server._replace(verbose=0))
    return place.plane_folder is not None or place.archive is not None


def _jobs_in_file(file: Path, settings: Sequence[str]) -> Iterator[RunJob]:
    from gangline.cli.manifests.jobs import read_jobs_and_others

    found, others = read_jobs_and_others(file, settings)
    for number, (facts, document) in enumerate(found):
        # Made once, before the first.
        needs = others if number == 0 else ()
        yield RunJob(facts, document.body, file.parent.resolve(), document=document, dependencies=needs)


def _read_jobs(asked: RunRequest) -> Sequence[RunJob]:
    """The jobs, their kinds, and where their processes start. Raises `InputError`."""
    if asked.files:
        return [job for file in asked.files for job in _jobs_in_file(file, asked.settings)]
    from gangline.cli.manifests.from_command import LOCAL_IMAGE, job_from_command
    from gangline.cli.manifests.overrides import with_overrides

    remote = asked.server.context is not None
    if remote and not asked.image and not _is_local_plane(asked.server):
        raise InputError("--context: a command in a cluster needs an image; add --image IMAGE")
    if not remote:
        check_script(asked.command)
    facts, body = job_from_command(
        asked.kind, asked.command, asked.nproc, image=asked.image or LOCAL_IMAGE, limits=asked.limits
    )
    if remote:
        # As here, where nothing goes on when the run is over; but for a while one can look at it.
        body["spec"]["runPolicy"] = {
            "cleanPodPolicy": "Running",
            "ttlSecondsAfterFinished": TTL_AFTER_FINISHED,
        }
    return [RunJob(facts, with_overrides(body, asked.settings), Path.cwd(), from_command=True)]
