"""`gangline scale`: change how many replicas of a type a job has."""

import re
from collections.abc import Sequence

import click

from gangline.cli.connect.run_work import run_blocking
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.exit_codes import NOT_FOUND
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.server_options import server_options
from gangline.cli.resources.lookup import find_unfinished_job
from gangline.kube.client import Client
from gangline.summary.actions import scale_replicas

_TYPED_COUNT = re.compile(r"(?P<type>[A-Za-z]+)[=:/-]?(?P<count>\d+)|(?P<count2>\d+)[=:/-]?(?P<type2>[A-Za-z]+)")
"""A type and a count in one word, which users of other tools write: `worker=2`, `worker:2`, `2worker`."""


def replica_count(text: str) -> int:
    """The click parameter type of a replica count. Raises `BadParameter`, with what to write."""
    # Digits only: `int` would take `+2` for 2, but the user means two more.
    if text.isascii() and text.isdigit():
        return int(text)
    raise click.BadParameter(f'"{text}" {_count_hint(text)}')


def _count_hint(text: str) -> str:
    """What is wrong with a count, and what to write."""
    suggestions = _suggested_flags(text.split(","))
    if len(suggestions) > 1:
        return f"names several types; scale one at a time: {', then '.join(suggestions)}"
    if suggestions:
        return f"names a type too; write {suggestions[0]}"
    if re.fullmatch(r"[+-]\d+", text):
        return "is no number of replicas; write how many there should be in all"
    return "is no number of replicas; write --replicas 2, or --replicas 2 --type worker"


def _suggested_flags(parts: Sequence[str]) -> list[str]:
    """The flags to write for each part of `worker=2,ps=1`; empty if any part is something else."""
    matches = [_TYPED_COUNT.fullmatch(part.strip()) for part in parts]
    return [
        f"--replicas {match['count'] or match['count2']} --type {match['type'] or match['type2']}"
        for match in matches
        if match is not None and None not in matches
    ]


@cli_command(context_settings={"allow_extra_args": True})
@click.argument("job", shell_complete=completed_by("jobs"))
@click.option("--replicas", type=replica_count, metavar="N", help="New number of replicas (required).")
@click.option("--type", "kind", default="", metavar="TYPE", help="Type of replica to change.  [default: worker]")
@click.option("--current-replicas", type=int, metavar="N", help="Do nothing unless the job has this many replicas now.")
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
    r"""Change the number of replicas of a running job.

    \b
      gangline scale linear --replicas 4              4 workers
      gangline scale linear --replicas 2 --type ps    2 parameter servers

    Only elastic training continues with another number of replicas; other programs fail or start again. Workers of an
    elastic PyTorchJob stay between minReplicas and maxReplicas of its policy.

    Exit codes: 0 done; 1 an error; 102 no such job.
    """
    count = _required_count(replicas, context)

    async def work(client: Client, target: ServerTarget) -> None:
        server_job = await find_unfinished_job(client, target.object_namespace, job, "it cannot be scaled")
        change = await scale_replicas(client, server_job, count, kind, current=current_replicas)
        click.echo(f"{server_job.display_name} scaled: {change.type} {change.before} -> {change.after}")

    return run_blocking(server, work, missing=NOT_FOUND)


def _required_count(replicas: int | None, context: click.Context) -> int:
    """The count of --replicas. Raises `UsageError`, with what to write, without it or for words without a flag."""
    extra = " ".join(context.args)
    if not extra and replicas is not None:
        return replicas
    if not extra:
        raise click.UsageError("how many? write --replicas 2, or --replicas 2 --type worker", context)
    suggestions = _suggested_flags(context.args) or ([f"--replicas {extra}"] if extra.isdigit() else [])
    if replicas is None and len(suggestions) == 1:
        raise click.UsageError(f'"{extra}": write {suggestions[0]}', context)
    raise click.UsageError(f'"{extra}": name one job, and a replica type with --type', context)
