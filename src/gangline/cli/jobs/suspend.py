"""`gangline suspend` and `gangline resume`: stop a job's replicas and keep the job; start them again."""

import click

from gangline.cli.connect.run_work import run_blocking
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.exit_codes import NOT_FOUND
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.server_options import server_options
from gangline.cli.resources.lookup import find_unfinished_job
from gangline.kube.client import Client
from gangline.summary.actions import set_suspended


@cli_command()
@click.argument("words", nargs=-1, required=True, metavar="JOB...", shell_complete=completed_by("jobs"))
@server_options
def suspend(words: tuple[str, ...], server: ServerOptions) -> int:
    r"""Stop the replicas of jobs and free their resources, but keep the jobs.

    \b
      gangline suspend linear
      gangline resume linear        start its replicas again

    Exit codes: 0 done; 1 an error, such as a job that has ended; 102 no such job.
    """
    return _set_suspended(words, server, suspended=True)


@cli_command()
@click.argument("words", nargs=-1, required=True, metavar="JOB...", shell_complete=completed_by("jobs"))
@server_options
def resume(words: tuple[str, ...], server: ServerOptions) -> int:
    r"""Start the replicas of suspended jobs again.

    \b
      gangline resume linear

    The programs start from the beginning, or from their own checkpoints.

    Exit codes: 0 done; 1 an error, such as a job that has ended; 102 no such job.
    """
    return _set_suspended(words, server, suspended=False)


def _set_suspended(words: tuple[str, ...], server: ServerOptions, *, suspended: bool) -> int:
    async def work(client: Client, target: ServerTarget) -> None:
        for word in words:
            job = await find_unfinished_job(client, target.object_namespace, word, "it cannot be suspended or resumed")
            changed = await set_suspended(client, job, suspended=suspended)
            verb = "suspended" if suspended else "resumed"
            click.echo(f"{job.display_name} {verb}" + ("" if changed else " (unchanged)"))

    return run_blocking(server, work, missing=NOT_FOUND)
