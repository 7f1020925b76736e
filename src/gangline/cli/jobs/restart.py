"""`gangline restart`: delete the pods of replicas, so that the operator creates them again."""

import click

from gangline.cli.connect.run_work import run_blocking
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.exit_codes import NOT_FOUND
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.server_options import server_options
from gangline.cli.resources.lookup import find_unfinished_job
from gangline.kube.client import Client
from gangline.summary.actions import restart_replicas
from gangline.summary.replicas import replica_selector


@cli_command()
@click.argument("job", shell_complete=completed_by("jobs"))
@click.option(
    "--replica",
    "chosen",
    multiple=True,
    metavar="TYPE[/INDEX]",
    help="Restart only this replica (worker/1), or all of a type (worker); may be repeated.",
)
@server_options
def restart(job: str, chosen: tuple[str, ...], server: ServerOptions) -> int:
    r"""Restart one replica of a job, all of a type, or all.

    \b
      gangline restart linear                       all replicas
      gangline restart linear --replica worker/1    one replica
      gangline restart linear --replica ps          all replicas of a type

    Their pods are deleted, and the operator creates them again. In a job with restartScope: Job the others restart with
    them.

    Exit codes: 0 done; 1 an error, such as a job that has ended; 102 no such job.
    """
    selectors = tuple(map(replica_selector, chosen))

    async def work(client: Client, target: ServerTarget) -> None:
        server_job = await find_unfinished_job(
            client, target.object_namespace, job, "submit it again under another name"
        )
        async for replica in restart_replicas(client, server_job, selectors):
            click.echo(f"{server_job.display_name} {replica} restarted")

    return run_blocking(server, work, missing=NOT_FOUND)
