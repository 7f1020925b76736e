"""`gangline get`: objects of any kind, and all training jobs at once."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.server_options import ServerOptions, server_options_all
from gangline.cli.get.run import GetFlags, run_get
from gangline.cli.output import formats
from gangline.cli.resources.replicas import JOB_NAME

F = TypeVar("F", bound=Callable[..., Any])


def get_options(command: F) -> F:
    """The options that say which objects, and how they look."""
    options = (
        click.option("-l", "--selector", default="", metavar="LABELS", help="Only with these labels: a=b,c!=d."),
        click.option("--field-selector", default="", metavar="FIELDS", help="Only with these fields: metadata.name=x."),
        click.option(
            "-o",
            "--output",
            "form",
            default="",
            metavar="FORM",
            help=f"How to print: {formats.FORMAT_NAMES}.",
        ),
        click.option("-w", "--watch", is_flag=True, help="Go on and print changes."),
        click.option("--show-managed-fields", "managed", is_flag=True, help="With -o json and yaml: who owns what."),
        click.option("--no-headers", is_flag=True, help="No titles above the columns."),
        click.option("--show-labels", "labels", is_flag=True, help="All labels as the last column."),
        click.option("--sort-by", default="", metavar="PATH", help="Sort by a field: .metadata.creationTimestamp."),
        click.option("--ignore-not-found", is_flag=True, help="Exit 0 when what was named is not there."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@cli_command()
@click.argument(
    "words", nargs=-1, metavar="KIND [NAME...] | KIND/NAME...", shell_complete=completed_by("kinds_and_jobs")
)
@get_options
@server_options_all
def get(words: tuple[str, ...], server: ServerOptions, **given: Any) -> int:
    r"""Print objects of any kind; all six kinds of training job are `jobs`, the default.

    A table shows how each job stands: replicas that run or are done, restarts, queue, and why it is not simply
    going well. Other kinds look as in kubectl.

    \b
      gangline get jobs -A                     every training job
      gangline get jobs -w                     and what becomes of them
      gangline get tfjob/linear -o yaml        one, whole
      gangline get pods -l training.kubeflow.org/job-name=linear
      gangline get jobs -o custom-columns=NAME:.metadata.name,STATE:.status.conditions[-1:].type
      gangline get jobs -o jsonpath='{.items[*].metadata.name}' --sort-by .metadata.creationTimestamp

    Exit codes: 0, or 1 when something named is not there.
    """
    return run_get(words or ("jobs",), server, get_flags(given))


def get_flags(given: dict[str, Any]) -> GetFlags:
    """The options as a value. Raises `InputError`."""
    form, headers = formats.parse_format(given.pop("form")), not given.pop("no_headers")
    return GetFlags(output_format=form, headers=headers, **given)


@cli_command("list")
@get_options
@server_options_all
def list_(server: ServerOptions, **given: Any) -> int:
    r"""Print the training jobs: the same as `gangline get jobs`.

    \b
      gangline list -A

    Exit codes: 0, or 1 an error.
    """
    return run_get(("jobs",), server, get_flags(given))


@cli_command()
@click.argument("job", required=False, default="")
@get_options
@server_options_all
def ps(job: str, server: ServerOptions, **given: Any) -> int:
    r"""Print the replicas of a job, or of all jobs: their pods.

    \b
      gangline ps
      gangline ps linear -o wide

    Exit codes: 0, or 1 an error.
    """
    options = get_flags(given)
    label = f"{JOB_NAME}={job.rpartition('/')[2]}" if job else JOB_NAME
    selector = f"{label},{options.selector}" if options.selector else label
    return run_get(("pods",), server, options._replace(selector=selector))
