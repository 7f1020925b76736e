"""`gangline events`: what happened to a job and everything that belongs to it, oldest first."""

from collections.abc import Iterable
from contextlib import aclosing
from datetime import datetime

import click

from gangline.api.durations import human_duration
from gangline.api.meta import JSON, Selector
from gangline.base.clock import SystemClock
from gangline.cli.connect.run_work import run_async, run_blocking
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.exit_codes import NOT_FOUND
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.server_options import server_options_all
from gangline.cli.output import formats, tables
from gangline.cli.output.job_rows import parse_timestamp
from gangline.cli.resources.lookup import EVENTS, ServerJob, find_job
from gangline.kube.client import Client

HEADER = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")
ZERO_TIME = "0001-01-01T00:00:00Z"


@cli_command()
@click.argument("job", required=False, shell_complete=completed_by("jobs"))
@click.option("-w", "--watch", is_flag=True, help="Go on and print what happens.")
@click.option("--types", default="", metavar="TYPES", help="Only Normal or Warning.")
@click.option("-o", "--output", "form", default="", metavar="FORM", help="json, yaml, name, jsonpath=…")
@click.option("--no-headers", is_flag=True, help="No titles above the columns.")
@server_options_all
def events(job: str | None, watch: bool, types: str, form: str, no_headers: bool, server: ServerOptions) -> int:
    r"""Print what happened to a job, its pods and its services; or, without JOB, in the whole namespace.

    \b
      gangline events linear
      gangline events linear --types Warning
      gangline events -A -w

    Exit codes: 0; 102 no such job.
    """
    how = formats.parse_format(form)
    kinds = {kind.strip().capitalize() for kind in types.split(",") if kind.strip()}

    async def work(client: Client, place: ServerTarget) -> None:
        found = await find_job(client, place.object_namespace, job) if job else None
        where = Selector(found.key.namespace if found else place.namespace)
        # What runs left does not change any more.
        if watch and place.archive is None:
            await _watch_events(client, where, found, kinds)
            return
        page = await client.list(EVENTS, where)
        chosen = sorted_events(one for one in page.items if is_about(one, found, kinds))
        _print_events(chosen, how, headers=not no_headers, namespaces=not where.namespace)

    return (run_async if watch else run_blocking)(server, work, missing=NOT_FOUND)


def _print_events(chosen: list[JSON], how: formats.OutputFormat, *, headers: bool, namespaces: bool) -> None:
    if not how.is_table:
        kind = {"apiVersion": "v1", "kind": "Event"}
        tables.write_stdout(formats.format_objects([{**kind, **one} for one in chosen], how, single=False))
        return
    now = SystemClock().now()
    rows = [event_row(one, now, namespaces=namespaces) for one in chosen]
    titles = (*(("NAMESPACE",) if namespaces else ()), *HEADER)
    tables.write_stdout(tables.render(titles, rows, headers=headers, colour=tables.stdout_uses_colour()))
    if not rows:
        click.echo("No events found.", err=True)


async def _watch_events(client: Client, where: Selector, job: ServerJob | None, kinds: set[str]) -> None:
    from gangline.cli.resources.watch import watch_objects

    columns = tables.Columns(HEADER, colour=tables.stdout_uses_colour())
    first: list[JSON] | None = []
    async with aclosing(watch_objects(client, EVENTS, where)) as seen:
        async for each in seen:
            now = SystemClock().now()
            if each.body is None:
                rows = [event_row(one, now) for one in sorted_events(first or ())]
                columns.widen(rows)
                for line in (HEADER, *rows):
                    tables.write_stdout(columns.line(line) + "\n")
                first = None
            elif not each.deleted and is_about(each.body, job, kinds):
                if first is not None:
                    first.append(each.body)
                else:
                    tables.write_stdout(columns.line(event_row(each.body, now)) + "\n")


def is_about(event: JSON, job: ServerJob | None, kinds: Iterable[str] = ()) -> bool:
    """Whether an event is about a job or what is named after it, and of the types asked for."""
    if kinds and str(event.get("type")) not in kinds:
        return False
    if job is None:
        return True
    about = event.get("involvedObject") or {}
    name = about.get("name", "")
    if about.get("kind") == job.resource.kind:
        same = not about.get("uid") or about["uid"] == job.body["metadata"].get("uid")
        return bool(name == job.key.name and same)
    if not (name == job.key.name or name.startswith(f"{job.key.name}-")):
        return False
    # An earlier job of the same name had pods of the same names.
    born, seen = parse_timestamp(job.body["metadata"].get("creationTimestamp")), last_seen(event)
    return born is None or seen is None or seen >= born


def last_seen(event: JSON) -> datetime | None:
    """When it happened last."""
    series = event.get("series") or {}
    stamps = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event.get("firstTimestamp"),
        (event.get("metadata") or {}).get("creationTimestamp"),
    )
    return next((found for found in map(parse_timestamp, stamps) if found is not None), None)


def sorted_events(found: Iterable[JSON]) -> list[JSON]:
    """Oldest first."""
    return sorted(found, key=lambda one: last_seen(one) or parse_timestamp(ZERO_TIME))  # type: ignore[arg-type,return-value]


def occurrences(event: JSON) -> int:
    """How often it happened."""
    return (event.get("series") or {}).get("count") or event.get("count") or 1


def event_row(event: JSON, now: datetime, *, namespaces: bool = False) -> list[str]:
    """One event, cell by cell."""
    seen, about = last_seen(event), event.get("involvedObject") or {}
    age = human_duration(now - seen) if seen is not None else "<unknown>"
    begun = parse_timestamp(event.get("firstTimestamp")) or parse_timestamp(event.get("eventTime"))
    if occurrences(event) > 1 and begun is not None:
        age += f" (x{occurrences(event)} over {human_duration(now - begun)})"
    return [
        *([str((event.get("metadata") or {}).get("namespace", ""))] if namespaces else []),
        age,
        str(event.get("type", "")),
        str(event.get("reason", "")),
        f"{about.get('kind', '')}/{about.get('name', '')}",
        " ".join(str(event.get("message", "")).split()),
    ]
