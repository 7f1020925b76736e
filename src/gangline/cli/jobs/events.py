"""`gangline events`: the events of a job and of the objects that belong to it, oldest first."""

from contextlib import aclosing

import click

from gangline.api.meta import JSON, Selector
from gangline.base.clock import SystemClock
from gangline.cli.connect.run_work import run_async, run_blocking
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.exit_codes import NOT_FOUND
from gangline.cli.flags.commands import cli_command, completed_by
from gangline.cli.flags.server_options import server_options_all
from gangline.cli.output import formats, tables
from gangline.cli.resources.lookup import find_job
from gangline.kube.client import Client
from gangline.summary.event_rows import HEADER, event_row, is_about, sorted_events
from gangline.summary.objects import EVENTS, ServerJob


@cli_command()
@click.argument("job", required=False, shell_complete=completed_by("jobs"))
@click.option("-w", "--watch", is_flag=True, help="Keep printing new events until interrupted.")
@click.option("--types", default="", metavar="TYPES", help="Print only events of these types: Normal, Warning.")
@click.option(
    "-o",
    "--output",
    "form",
    default="",
    metavar="FORM",
    help="Print the events in this form: json, yaml, name or jsonpath=TEMPLATE.",
)
@click.option("--no-headers", is_flag=True, help="Leave out the column titles.")
@server_options_all
def events(job: str | None, watch: bool, types: str, form: str, no_headers: bool, server: ServerOptions) -> int:
    r"""List what happened to a job, its pods and its services, oldest first.

    \b
      gangline events linear                      of one job
      gangline events linear --types Warning      only what went wrong
      gangline events                             of everything in the namespace
      gangline events -A -w                       of all namespaces, as it happens

    Exit codes: 0 printed; 1 an error; 102 no such job.
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
