"""`gangline restart`: replicas anew. Their pods are deleted; the operator fills the seats."""

import click

from gangline.api.meta import Key
from gangline.base.errors import InputError
from gangline.cli.connect.run_work import run_blocking
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.exit_codes import NOT_FOUND
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.server_options import server_options
from gangline.cli.output.job_rows import is_finished, job_state
from gangline.cli.resources.lookup import PODS, find_job
from gangline.cli.resources.replicas import list_replicas, replica_name, replica_selector
from gangline.kube.client import Client
from gangline.kube.errors import Conflict, NotFound


@cli_command()
@click.argument("job", shell_complete=completed_by("jobs"))
@click.option("--replica", "chosen", multiple=True, metavar="TYPE[/INDEX]", help="worker/1, or all of worker.")
@server_options
def restart(job: str, chosen: tuple[str, ...], server: ServerOptions) -> int:
    r"""Start replicas anew: those named, or the whole team.

    Their pods are deleted, and the operator makes them again. A team that restarts together does so as a whole.

    \b
      gangline restart linear                       the whole team
      gangline restart linear --replica worker/1    one
      gangline restart linear --replica ps          all of a type

    Exit codes: 0; 1 an error, such as a job that has ended; 102 no such job.
    """
    wanted = tuple(map(replica_selector, chosen))

    async def work(client: Client, place: ServerTarget) -> None:
        found = await find_job(client, place.object_namespace, job)
        if is_finished(found.body):
            raise InputError(
                f"{found.display_name} has ended ({job_state(found.body)}); submit it again under another name"
            )
        pods = await list_replicas(client, found, wanted)
        if not pods:
            raise InputError(f"{found.display_name} has no pods to restart")
        for pod in pods:
            metadata = pod["metadata"]
            try:
                await client.delete(PODS, Key(metadata["namespace"], metadata["name"]), uid=metadata["uid"])
            except (NotFound, Conflict):
                # Somebody was faster.
                continue
            click.echo(f"{found.display_name} {replica_name(found, pod)} restarted")

    return run_blocking(server, work, missing=NOT_FOUND)
