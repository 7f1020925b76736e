"""`gangline events`: what happened to a job and everything that belongs to it, oldest first."""

from collections.abc import Iterable
from contextlib import aclosing
from datetime import datetime

import click

from gangline.api.durations import human
from gangline.api.meta import JSON, Selector
from gangline.base.clock import SystemClock
from gangline.cli.exit_codes import NOT_FOUND
from gangline.cli.flags.server_options import Place, ServerOptions, ask, converse, server_options_all
from gangline.cli.flags.verb import completed_by, verb
from gangline.cli.get.run import coloured
from gangline.cli.output import formats, tables
from gangline.cli.output.job_rows import moment
from gangline.cli.resources.lookup import EVENTS, FoundJob, find_job
from gangline.kube.client import Client

HEADER = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")
NEVER = "0001-01-01T00:00:00Z"


@verb()
@click.argument("job", required=False, shell_complete=completed_by("jobs"))
@click.option("-w", "--watch", is_flag=True, help="Go on and print what happens.")
@click.option("--types", default="", metavar="TYPES", help="Only Normal or Warning.")
@click.option("-o", "--output", "form", default="", metavar="FORM", help="json, yaml, name, jsonpath=…")
@click.option("--no-headers", is_flag=True, help="No titles above the columns.")
@server_options_all
def events(
    job: str | None, watch: bool, types: str, form: str, no_headers: bool, server: ServerOptions
) -> int:
    r"""Print what happened to a job, its pods and its services; or, without JOB, in the whole namespace.

    \b
      gangline events linear
      gangline events linear --types Warning
      gangline events -A -w

    Exit codes: 0; 102 no such job.
    """
    how = formats.form(form)
    kinds = {kind.strip().capitalize() for kind in types.split(",") if kind.strip()}

    async def work(client: Client, place: Place) -> None:
        found = await find_job(client, place.home, job) if job else None
        where = Selector(found.key.namespace if found else place.namespace)
        # What runs left does not change any more.
        if watch and place.left is None:
            await _watch(client, where, found, kinds)
            return
        page = await client.list(EVENTS, where)
        chosen = ordered(one for one in page.items if concerns(one, found, kinds))
        _show(chosen, how, headers=not no_headers, namespaces=not where.namespace)

    return (converse if watch else ask)(server, work, missing=NOT_FOUND)


def _show(chosen: list[JSON], how: formats.Form, *, headers: bool, namespaces: bool) -> None:
    if not how.is_table:
        kind = {"apiVersion": "v1", "kind": "Event"}
        tables.put(formats.shown([{**kind, **one} for one in chosen], how, single=False))
        return
    now = SystemClock().now()
    rows = [row(one, now, namespaces=namespaces) for one in chosen]
    titles = (*(("NAMESPACE",) if namespaces else ()), *HEADER)
    tables.put(tables.render(titles, rows, headers=headers, colour=coloured()))
    if not rows:
        click.echo("No events found.", err=True)


async def _watch(client: Client, where: Selector, job: FoundJob | None, kinds: set[str]) -> None:
    from gangline.cli.resources.watch import changes

    columns = tables.Columns(HEADER, colour=coloured())
    first: list[JSON] | None = []
    async with aclosing(changes(client, EVENTS, where)) as seen:
        async for each in seen:
            now = SystemClock().now()
            if each.body is None:
                rows = [row(one, now) for one in ordered(first or ())]
                columns.widen(rows)
                for line in (HEADER, *rows):
                    tables.put(columns.line(line) + "\n")
                first = None
            elif not each.deleted and concerns(each.body, job, kinds):
                if first is not None:
                    first.append(each.body)
                else:
                    tables.put(columns.line(row(each.body, now)) + "\n")


def concerns(event: JSON, job: FoundJob | None, kinds: Iterable[str] = ()) -> bool:
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
    born, seen = moment(job.body["metadata"].get("creationTimestamp")), last_seen(event)
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
    return next((found for found in map(moment, stamps) if found is not None), None)


def ordered(found: Iterable[JSON]) -> list[JSON]:
    """Oldest first."""
    return sorted(found, key=lambda one: last_seen(one) or moment(NEVER))  # type: ignore[arg-type,return-value]


def times(event: JSON) -> int:
    """How often it happened."""
    return (event.get("series") or {}).get("count") or event.get("count") or 1


def row(event: JSON, now: datetime, *, namespaces: bool = False) -> list[str]:
    """One event, cell by cell."""
    seen, about = last_seen(event), event.get("involvedObject") or {}
    age = human(now - seen) if seen is not None else "<unknown>"
    begun = moment(event.get("firstTimestamp")) or moment(event.get("eventTime"))
    if times(event) > 1 and begun is not None:
        age += f" (x{times(event)} over {human(now - begun)})"
    return [
        *([str((event.get("metadata") or {}).get("namespace", ""))] if namespaces else []),
        age,
        str(event.get("type", "")),
        str(event.get("reason", "")),
        f"{about.get('kind', '')}/{about.get('name', '')}",
        " ".join(str(event.get("message", "")).split()),
    ]
