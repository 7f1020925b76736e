"""Commands that users of other tools type: `list` and `ps`."""

from typing import Any

import click

from gangline.cli.flags.server_options import ServerOptions, server_options_all
from gangline.cli.flags.verb import cli_command
from gangline.cli.get.command import get_flags, get_options
from gangline.cli.get.run import run_get
from gangline.cli.resources.replicas import JOB_NAME


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
