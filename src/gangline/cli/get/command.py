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
from gangline.cli.resources.replicas import JOB_NAME

get_options = option_group(
    click.option("-l", "--selector", default="", metavar="LABELS", help="Label selector: a=b,c!=d."),
    click.option("--field-selector", default="", metavar="FIELDS", help="Field selector: metadata.name=x."),
    click.option("-o", "--output", "form", default="", metavar="FORM", help=f"How to print: {formats.FORMAT_NAMES}."),
    click.option("-w", "--watch", is_flag=True, help="After printing, watch for changes."),
    click.option("--show-managed-fields", "managed", is_flag=True, help="Keep managedFields in JSON and YAML."),
    click.option("--no-headers", is_flag=True, help="No titles above the columns."),
    click.option("--show-labels", "labels", is_flag=True, help="All labels as the last column."),
    click.option("--sort-by", default="", metavar="PATH", help="Sort by a field: .metadata.creationTimestamp."),
    click.option("--ignore-not-found", is_flag=True, help="Exit 0 if a named object does not exist."),
)
"""The options that select objects and their output format."""


@cli_command()
@click.argument(
    "words", nargs=-1, metavar="KIND [NAME...] | KIND/NAME...", shell_complete=completed_by("kinds_and_jobs")
)
@get_options
@server_options_all
def get(words: tuple[str, ...], server: ServerOptions, **params: Any) -> int:
    r"""Print objects of any kind; all six kinds of training job are `jobs`, the default.

    The table of jobs shows the state, the replicas that run or have finished, restarts, the queue, and the reason if
    a job waits or fails. Other kinds look as in kubectl.

    \b
      gangline get jobs -A                     every training job
      gangline get jobs -w                     and every change
      gangline get tfjob/linear -o yaml        the full object
      gangline get pods -l training.kubeflow.org/job-name=linear
      gangline get jobs -o custom-columns=NAME:.metadata.name,STATE:.status.conditions[-1:].type
      gangline get jobs -o jsonpath='{.items[*].metadata.name}' --sort-by .metadata.creationTimestamp

    Exit codes: 0, or 1 if a named object does not exist.
    """
    return run_get(words or ("jobs",), server, get_flags(params))


def get_flags(params: dict[str, Any]) -> GetFlags:
    """The options as a value. Raises `InputError`."""
    output_format, headers = formats.parse_format(params.pop("form")), not params.pop("no_headers")
    return GetFlags(output_format=output_format, headers=headers, **params)


@cli_command("list")
@get_options
@server_options_all
def list_(server: ServerOptions, **params: Any) -> int:
    r"""Print the training jobs: the same as `gangline get jobs`.

    \b
      gangline list -A

    Exit codes: 0, or 1 an error.
    """
    return run_get(("jobs",), server, get_flags(params))


@cli_command()
@click.argument("job", required=False, default="")
@get_options
@server_options_all
def ps(job: str, server: ServerOptions, **params: Any) -> int:
    r"""Print the replicas (pods) of a job, or of all jobs.

    \b
      gangline ps
      gangline ps linear -o wide

    Exit codes: 0, or 1 an error.
    """
    flags = get_flags(params)
    label = f"{JOB_NAME}={job.rpartition('/')[2]}" if job else JOB_NAME
    selector = f"{label},{flags.selector}" if flags.selector else label
    return run_get(("pods",), server, flags._replace(selector=selector))
