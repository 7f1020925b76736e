"""`gangline scale`: how many replicas of a type a job has."""

import re
from collections.abc import Mapping, Sequence

import click

from gangline.api.meta import JSON
from gangline.base.errors import InputError
from gangline.cli.connect.run_work import run_blocking
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.exit_codes import NOT_FOUND
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.server_options import server_options
from gangline.cli.output.job_rows import is_finished, job_state, replica_counts, replica_specs
from gangline.cli.resources.lookup import find_job
from gangline.kube.client import Client

_TYPED_COUNT = re.compile(r"(?P<type>[A-Za-z]+)[=:/-]?(?P<count>\d+)|(?P<count2>\d+)[=:/-]?(?P<type2>[A-Za-z]+)")
"""What people write who expect the type in the number: `worker=2`, `worker:2`, `2worker`."""


def replica_count(text: str) -> int:
    """How many replicas there should be in all. Raises `BadParameter`, with what to write, for all else."""
    # Digits only: `+2` would be taken for 2, and means two more.
    if text.isascii() and text.isdigit():
        return int(text)
    raise click.BadParameter(f'"{text}" {_count_hint(text)}')


def _count_hint(text: str) -> str:
    """What is wrong with a number, and what to write."""
    steps = _suggested_flags(text.split(","))
    if len(steps) > 1:
        return f"names several types; scale one at a time: {', then '.join(steps)}"
    if steps:
        return f"names a type too; write {steps[0]}"
    if re.fullmatch(r"[+-]\d+", text):
        return "is no number of replicas; write how many there should be in all"
    return "is no number of replicas; write --replicas 2, or --replicas 2 --type worker"


def _suggested_flags(parts: Sequence[str]) -> list[str]:
    """What to write instead of `worker=2,ps=1`, one for each; nothing where one of them is something else."""
    found = [_TYPED_COUNT.fullmatch(part.strip()) for part in parts]
    return [
        f"--replicas {one['count'] or one['count2']} --type {one['type'] or one['type2']}"
        for one in found
        if one is not None and None not in found
    ]


@cli_command(context_settings={"allow_extra_args": True})
@click.argument("job", shell_complete=completed_by("jobs"))
@click.option("--replicas", type=replica_count, metavar="N", help="How many there should be. Required.")
@click.option("--type", "kind", default="", metavar="TYPE", help="Replica type; by default worker.")
@click.option("--current-replicas", type=int, metavar="N", help="Only if there are so many now.")
@server_options
@click.pass_context
def scale(
    context: click.Context,
    job: str,
    replicas: int | None,
    kind: str,
    current_replicas: int | None,
    server: ServerOptions,
) -> int:
    r"""Change how many replicas of a type a job has.

    \b
      gangline scale linear --replicas 4
      gangline scale linear --replicas 2 --type ps

    Whether the training survives that is up to it: elastic jobs do. Exit codes: 0; 1 an error; 102 no such job.
    """
    asked = _required_count(replicas, context)

    async def work(client: Client, place: ServerTarget) -> None:
        found = await find_job(client, place.object_namespace, job)
        if is_finished(found.body):
            raise InputError(f"{found.display_name} has ended ({job_state(found.body)}); it cannot be scaled")
        name = replica_type(replica_specs(found.body), kind, found.display_name)
        now = replica_counts(found.body)[name]
        if current_replicas is not None and current_replicas != now:
            raise InputError(f"{found.display_name} has {now} of {name}, not {current_replicas}")
        field = next(key for key in found.body["spec"] if key.endswith("ReplicaSpecs"))
        body = {"spec": {field: {name: {"replicas": asked}}}}
        version = found.body["metadata"]["resourceVersion"] if current_replicas is not None else None
        await client.patch(found.resource, found.key, body, resource_version=version)
        click.echo(f"{found.display_name} scaled: {name} {now} -> {asked}")

    return run_blocking(server, work, missing=NOT_FOUND)


def _required_count(replicas: int | None, context: click.Context) -> int:
    """How many. Raises `UsageError`, with what was meant, for a number or a type that has no flag before it."""
    loose = " ".join(context.args)
    if not loose and replicas is not None:
        return replicas
    if not loose:
        raise click.UsageError("how many? write --replicas 2, or --replicas 2 --type worker", context)
    steps = _suggested_flags(context.args) or ([f"--replicas {loose}"] if loose.isdigit() else [])
    if replicas is None and len(steps) == 1:
        raise click.UsageError(f'"{loose}": write {steps[0]}', context)
    raise click.UsageError(f'"{loose}": name one job, and a replica type with --type', context)


def replica_type(specs: Mapping[str, JSON], asked: str, job: str) -> str:
    """The replica type as the job spells it. Raises `InputError`."""
    spelled = {name.lower(): name for name in specs}
    if not asked and len(spelled) == 1:
        return next(iter(spelled.values()))
    found = spelled.get((asked or "worker").lower())
    if found is None:
        raise InputError(f"--type: {job} has {', '.join(specs) or 'no replicas'}; write one of them")
    return found
