"""`gangline suspend` and `gangline resume`: stop a job's replicas and keep the job; let it go on."""

import click

from gangline.base.errors import InputError
from gangline.cli.connect.run_work import run_blocking
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.exit_codes import NOT_FOUND
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.server_options import server_options
from gangline.cli.output.job_rows import is_finished, job_state
from gangline.cli.resources.lookup import find_job
from gangline.kube.client import Client


@cli_command()
@click.argument("words", nargs=-1, required=True, metavar="JOB...", shell_complete=completed_by("jobs"))
@server_options
def suspend(words: tuple[str, ...], server: ServerOptions) -> int:
    r"""Stop the replicas of jobs and free what they hold. The jobs stay, with all that was counted.

    \b
      gangline suspend linear
      gangline resume linear

    Exit codes: 0; 1 an error, such as a job that has ended; 102 no such job.
    """
    return _set_suspended(words, server, suspended=True)


@cli_command()
@click.argument("words", nargs=-1, required=True, metavar="JOB...", shell_complete=completed_by("jobs"))
@server_options
def resume(words: tuple[str, ...], server: ServerOptions) -> int:
    r"""Let suspended jobs go on: their replicas are made anew.

    \b
      gangline resume linear

    Exit codes: 0; 1 an error; 102 no such job.
    """
    return _set_suspended(words, server, suspended=False)


def _set_suspended(words: tuple[str, ...], server: ServerOptions, *, suspended: bool) -> int:
    async def work(client: Client, place: ServerTarget) -> None:
        for word in words:
            job = await find_job(client, place.object_namespace, word)
            if is_finished(job.body):
                raise InputError(
                    f"{job.display_name} has ended ({job_state(job.body)}); it cannot be suspended or resumed"
                )
            before = bool((job.body["spec"].get("runPolicy") or {}).get("suspend"))
            body = {"spec": {"runPolicy": {"suspend": suspended}}}
            await client.patch(job.resource, job.key, body)
            word_ = "suspended" if suspended else "resumed"
            click.echo(f"{job.display_name} {word_}" + (" (as it was)" if before == suspended else ""))

    return run_blocking(server, work, missing=NOT_FOUND)
