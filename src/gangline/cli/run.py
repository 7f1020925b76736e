"""`gangline run`: a job from a file or a script on an ephemeral local plane; its verdict is the exit code."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

from gangline.api.meta import JSON
from gangline.api.training import JobKind
from gangline.base.errors import InputError
from gangline.cli.nodeoptions import NodeOptions, node_options

# One job, and nobody else here: a file that asks for a cluster's cores runs on the few there are, only slower.
OFFERED = ("cpu=1000",)
RUNS = Path("runs")


class Asked(NamedTuple):
    """A run as it was asked for: a file, or a command and how many processes."""

    file: Path | None = None
    command: tuple[str, ...] = ()
    nproc: int = 0
    kind: str = ""
    settings: tuple[str, ...] = ()
    timeout: float | None = None
    # None: leave nothing.
    runs: Path | None = None
    output: str = ""
    # Whether the curve is drawn in the terminal too.
    curve: bool = False
    node: NodeOptions = NodeOptions()
    watcher: Callable[[Path], Any] | None = None
    # What to do next, said at the end.
    following: str = ""


@click.command("run")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="FILE | -- COMMAND...")
@click.option(
    "--nproc", type=int, metavar="N", help="Run COMMAND as a job of N processes; no file is needed."
)
@click.option("--kind", default="PyTorchJob", show_default=True, help="What kind of job a COMMAND becomes.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change a value of the job, as spec.runPolicy.backoffLimit=2.",
)
@click.option("--keep", is_flag=True, help="Leave logs, the job and its curve in runs/<job>/.")
@click.option(
    "--runs",
    type=click.Path(path_type=Path),
    default=RUNS,
    show_default=True,
    metavar="FOLDER",
    help="Where --keep keeps.",
)
@click.option("--timeout", type=float, metavar="SECONDS", help="Give up after so long (exit code 101).")
@click.option(
    "-o", "--output", type=click.Choice(["json"]), help="Print the job as it ended; all else goes to stderr."
)
@node_options
def run_file(
    words: tuple[str, ...],
    nproc: int | None,
    kind: str,
    settings: tuple[str, ...],
    keep: bool,
    runs: Path,
    timeout: float | None,
    output: str | None,
    **node: Any,
) -> int:
    """Run a job on this machine, watch it, exit with its verdict.

    \b
    gangline run job.yaml                            the job in a file, in the file's folder
    gangline run job.yaml --set spec.runPolicy.backoffLimit=2
    gangline run --nproc 4 -- python train.py        a script as a PyTorchJob, here
    gangline run --nproc 2 --kind TFJob -- python train.py

    Every replica becomes a process with the variables it would have in a cluster. Ctrl-C stops all of them; once
    more kills them. Exit codes: 0 succeeded, 100 failed, 101 not finished in time, 130 interrupted, 1 an error.
    """  # noqa: D301
    options = NodeOptions(**node)
    asked = Asked(
        settings=settings,
        timeout=timeout,
        runs=runs if keep else None,
        output=output or "",
        node=options._replace(capacity=(*OFFERED, *options.capacity)),
    )
    if nproc is not None:
        return run_job(asked._replace(command=words, nproc=nproc, kind=kind))
    if len(words) != 1:
        raise InputError(
            "expected one FILE at a time; or for a script: gangline run --nproc 4 -- python train.py"
        )
    return run_job(asked._replace(file=Path(words[0])))


def run_job(asked: Asked) -> int:
    """Read, run, follow, tell the verdict. Bad input is found before anything starts."""
    facts, body, folder = _job(asked)
    # Imported here: the command line must start fast, and a mistake be told in no time.
    import gc

    # Nothing of what is imported is garbage, and looking for it takes a tenth of the time.
    gc.disable()
    from gangline.cli.running import execute

    gc.freeze()
    gc.enable()
    return execute(asked, facts, body, folder)


def _job(asked: Asked) -> tuple[JobKind, JSON, Path]:
    """The job, its kind, and where its processes start. Raises `InputError`."""
    if asked.file is not None:
        from gangline.cli.manifest import read_job

        facts, body = read_job(asked.file, asked.settings)
        return facts, body, asked.file.parent.resolve()
    from gangline.cli.overrides import overridden
    from gangline.cli.script import scripted

    facts, body = scripted(asked.kind, asked.command, asked.nproc)
    return facts, overridden(body, asked.settings), Path.cwd()
