"""`gangline events`: the events of a job and of the objects that belong to it, oldest first."""

from collections.abc import Iterable
from contextlib import aclosing
from datetime import UTC, datetime

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
EARLIEST = datetime.min.replace(tzinfo=UTC)


@cli_command()
@click.argument("job", required=False, shell_complete=completed_by("jobs"))
@click.option("-w", "--watch", is_flag=True, help="After printing, watch for new events.")
@click.option("--types", default="", metavar="TYPES", help="Only events of these types: Normal, Warning.")
@click.option("-o", "--output", "form", default="", metavar="FORM", help="json, yaml, name, jsonpath=…")
@click.option("--no-headers", is_flag=True, help="No titles above the columns.")
@server_options_all
def events(job: str | None, watch: bool, types: str, form: str, no_headers: bool, server: ServerOptions) -> int:
    r"""Print the events of a job, its pods and its services; without JOB, all events of the namespace.

    \b
      gangline events linear
      gangline events linear --types Warning
      gangline events -A -w

    Exit codes: 0; 102 no such job.
    """
    output_format = formats.parse_format(form)
    event_types = {kind.strip().capitalize() for kind in types.split(",") if kind.strip()}

    async def work(client: Client, target: ServerTarget) -> None:
        server_job = await find_job(client, target.object_namespace, job) if job else None
        selector = Selector(server_job.key.namespace if server_job else target.namespace)
        # An archive does not change any more.
        if watch and target.archive is None:
            await _watch_events(client, selector, server_job, event_types)
            return
        page = await client.list(EVENTS, selector)
        matching = sorted_events(event for event in page.items if is_about(event, server_job, event_types))
        _print_events(matching, output_format, headers=not no_headers, namespaces=not selector.namespace)

    return (run_async if watch else run_blocking)(server, work, missing=NOT_FOUND)


def _print_events(
    matching: list[JSON], output_format: formats.OutputFormat, *, headers: bool, namespaces: bool
) -> None:
    if not output_format.is_table:
        kind = {"apiVersion": "v1", "kind": "Event"}
        tables.write_stdout(
            formats.format_objects([{**kind, **event} for event in matching], output_format, single=False)
        )
        return
    now = SystemClock().now()
    rows = [event_row(event, now, namespaces=namespaces) for event in matching]
    titles = (*(("NAMESPACE",) if namespaces else ()), *HEADER)
    tables.write_stdout(tables.render(titles, rows, headers=headers, colour=tables.stdout_uses_colour()))
    if not rows:
        click.echo("No events found.", err=True)


async def _watch_events(client: Client, selector: Selector, job: ServerJob | None, types: set[str]) -> None:
    from gangline.cli.resources.watch import watch_objects

    columns = tables.Columns(HEADER, colour=tables.stdout_uses_colour())
    initial: list[JSON] | None = []
    async with aclosing(watch_objects(client, EVENTS, selector)) as objects:
        async for watched in objects:
            now = SystemClock().now()
            if watched.body is None:
                rows = [event_row(event, now) for event in sorted_events(initial or ())]
                columns.widen(rows)
                for line in (HEADER, *rows):
                    tables.write_stdout(columns.line(line) + "\n")
                initial = None
            elif not watched.deleted and is_about(watched.body, job, types):
                if initial is not None:
                    initial.append(watched.body)
                else:
                    tables.write_stdout(columns.line(event_row(watched.body, now)) + "\n")


def is_about(event: JSON, job: ServerJob | None, types: Iterable[str] = ()) -> bool:
    """Whether an event is of one of the types, and about the job or an object whose name begins with the job's."""
    if types and str(event.get("type")) not in types:
        return False
    if job is None:
        return True
    involved = event.get("involvedObject") or {}
    name = involved.get("name", "")
    if involved.get("kind") == job.resource.kind:
        same = not involved.get("uid") or involved["uid"] == job.body["metadata"].get("uid")
        return bool(name == job.key.name and same)
    if not (name == job.key.name or name.startswith(f"{job.key.name}-")):
        return False
    # An earlier job of the same name had pods of the same names: skip events from before this job was created.
    created, happened = parse_timestamp(job.body["metadata"].get("creationTimestamp")), last_seen(event)
    return created is None or happened is None or happened >= created


def last_seen(event: JSON) -> datetime | None:
    """When an event happened last, from the first of its time fields that is set."""
    series = event.get("series") or {}
    stamps = (
        series.get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event.get("firstTimestamp"),
        (event.get("metadata") or {}).get("creationTimestamp"),
    )
    return next((moment for moment in map(parse_timestamp, stamps) if moment is not None), None)


def sorted_events(items: Iterable[JSON]) -> list[JSON]:
    """Events by the time they last happened, oldest first; events without a time come before all others."""
    return sorted(items, key=lambda event: last_seen(event) or EARLIEST)


def occurrences(event: JSON) -> int:
    """How often an event happened."""
    return (event.get("series") or {}).get("count") or event.get("count") or 1


def event_row(event: JSON, now: datetime, *, namespaces: bool = False) -> list[str]:
    """The cells of an event."""
    last, involved = last_seen(event), event.get("involvedObject") or {}
    age = human_duration(now - last) if last is not None else "<unknown>"
    first = parse_timestamp(event.get("firstTimestamp")) or parse_timestamp(event.get("eventTime"))
    if occurrences(event) > 1 and first is not None:
        age += f" (x{occurrences(event)} over {human_duration(now - first)})"
    return [
        *([str((event.get("metadata") or {}).get("namespace", ""))] if namespaces else []),
        age,
        str(event.get("type", "")),
        str(event.get("reason", "")),
        f"{involved.get('kind', '')}/{involved.get('name', '')}",
        " ".join(str(event.get("message", "")).split()),
    ]
