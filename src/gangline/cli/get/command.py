"""The flags of `gangline get`, `list` and `ps`."""

from typing import Any

import click

from gangline.base.options import option_group
from gangline.cli.connect.server import ServerOptions
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.server_options import server_options_all
from gangline.cli.get.run import run_get
from gangline.cli.get.view import GetFlags
from gangline.cli.output import formats
from gangline.summary.replicas import JOB_NAME

get_options = option_group(
    click.option(
        "-l",
        "--selector",
        default="",
        metavar="LABELS",
        help="List only objects with these labels, such as app=a,tier!=b.",
    ),
    click.option(
        "--field-selector",
        default="",
        metavar="FIELDS",
        help="List only objects with these fields, such as metadata.name=x.",
    ),
    click.option(
        "-o",
        "--output",
        "form",
        default="",
        metavar="FORM",
        help=f"Form of the output: {formats.FORMAT_NAMES.replace('|', ', ')}.  [default: a table]",
    ),
    click.option("-w", "--watch", is_flag=True, help="Keep printing changes until interrupted."),
    click.option(
        "--show-managed-fields", "managed", is_flag=True, help="Include metadata.managedFields in JSON and YAML."
    ),
    click.option("--no-headers", is_flag=True, help="Leave out the column titles."),
    click.option("--show-labels", "labels", is_flag=True, help="Add a column with all labels."),
    click.option("--sort-by", default="", metavar="PATH", help="Sort by a field, such as .metadata.creationTimestamp."),
    click.option("--ignore-not-found", is_flag=True, help="Treat an object that does not exist as no error."),
)
"""The options that select objects and their output format."""


@cli_command()
@click.argument(
    "words", nargs=-1, metavar="[KIND [NAME...] | KIND/NAME...]", shell_complete=completed_by("kinds_and_jobs")
)
@get_options
@click.option("--history", is_flag=True, help="List every job that was recorded on this machine, also deleted ones.")
@server_options_all
def get(words: tuple[str, ...], server: ServerOptions, history: bool, **params: Any) -> int:
    r"""List training jobs, or objects of any kind.

    \b
      gangline get                             the jobs of the namespace; the same as: gangline get jobs
      gangline get jobs -A                     of all namespaces
      gangline get jobs -w                     and every change, until interrupted
      gangline get jobs --history              also those that are gone; see gangline at --help
      gangline get tfjob/linear -o yaml        one object in full
      gangline get pods -l training.kubeflow.org/job-name=linear
      gangline get jobs -o custom-columns=NAME:.metadata.name,STATE:.status.conditions[-1:].type
      gangline get jobs -o jsonpath='{.items[*].metadata.name}' --sort-by .metadata.creationTimestamp

    `jobs` are all six kinds: TFJob, PyTorchJob, JAXJob, MPIJob, XGBoostJob, PaddleJob. READY counts the replicas that
    are ready or have succeeded; REASON says why a job waits or failed. Other kinds look as in kubectl.

    Exit codes: 0 printed; 1 an error, such as an object that does not exist.
    """
    if history:
        from gangline.cli.get.history import run_get_history

        return run_get_history(words or ("jobs",), server, get_flags(params))
    return run_get(words or ("jobs",), server, get_flags(params))


def get_flags(params: dict[str, Any]) -> GetFlags:
    """The options as a value. Raises `InputError`."""
    output_format, headers = formats.parse_format(params.pop("form")), not params.pop("no_headers")
    return GetFlags(output_format=output_format, headers=headers, **params)


@cli_command("list")
@get_options
@server_options_all
def list_(server: ServerOptions, **params: Any) -> int:
    r"""List training jobs: the same as `gangline get jobs`.

    \b
      gangline list
      gangline list -A          of all namespaces

    Exit codes: 0 printed; 1 an error.
    """
    return run_get(("jobs",), server, get_flags(params))


@cli_command()
@click.argument("job", required=False, default="")
@get_options
@server_options_all
def ps(job: str, server: ServerOptions, **params: Any) -> int:
    r"""List the replicas (pods) of a job, or of all jobs.

    \b
      gangline ps                    of all jobs of the namespace
      gangline ps linear -o wide     of one job, with nodes and addresses

    Exit codes: 0 printed; 1 an error.
    """
    flags = get_flags(params)
    label = f"{JOB_NAME}={job.rpartition('/')[2]}" if job else JOB_NAME
    selector = f"{label},{flags.selector}" if flags.selector else label
    return run_get(("pods",), server, flags._replace(selector=selector))
