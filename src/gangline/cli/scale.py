"""`gangline scale`: how many replicas of a type a job has."""

from collections.abc import Mapping

import click

from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.jobrows import finished, replica_specs, state, wanted
from gangline.cli.resources import find_job
from gangline.cli.servers import Place, ServerOptions, ask, server_options
from gangline.cli.verb import completed_by, verb
from gangline.cli.verdicts import NOT_FOUND
from gangline.kube.client import Client


@verb()
@click.argument("job", shell_complete=completed_by("jobs"))
@click.option("--replicas", type=click.IntRange(min=0), required=True, help="How many there should be.")
@click.option("--type", "kind", default="", metavar="TYPE", help="Replica type; by default worker.")
@click.option("--current-replicas", type=int, metavar="N", help="Only if there are so many now.")
@server_options
def scale(job: str, replicas: int, kind: str, current_replicas: int | None, server: ServerOptions) -> int:
    r"""Change how many replicas of a type a job has.

    \b
      gangline scale linear --replicas 4
      gangline scale linear --replicas 2 --type ps

    Whether the training survives that is up to it: elastic jobs do. Exit codes: 0; 1 an error; 102 no such job.
    """

    async def work(client: Client, place: Place) -> None:
        found = await find_job(client, place.home, job)
        if finished(found.body):
            raise InputError(f"{found.shown} has ended ({state(found.body)}); it cannot be scaled")
        name = type_of(replica_specs(found.body), kind, found.shown)
        now = wanted(found.body)[name]
        if current_replicas is not None and current_replicas != now:
            raise InputError(f"{found.shown} has {now} of {name}, not {current_replicas}")
        field = next(key for key in found.body["spec"] if key.endswith("ReplicaSpecs"))
        body = {"spec": {field: {name: {"replicas": replicas}}}}
        version = found.body["metadata"]["resourceVersion"] if current_replicas is not None else None
        await client.patch(found.resource, found.key, body, resource_version=version)
        click.echo(f"{found.shown} scaled: {name} {now} -> {replicas}")

    return ask(server, work, missing=NOT_FOUND)


def type_of(specs: Mapping[str, JSON], asked: str, job: str) -> str:
    """The replica type as the job spells it. Raises `InputError`."""
    spelled = {name.lower(): name for name in specs}
    if not asked and len(spelled) == 1:
        return next(iter(spelled.values()))
    found = spelled.get((asked or "worker").lower())
    if found is None:
        raise InputError(f"--type: {job} has {', '.join(specs) or 'no replicas'}; write one of them")
    return found
