"""`get -w`: a line for each change."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import msgspec

from gangline.api.meta import JSON, Selector
from gangline.base.clock import SystemClock
from gangline.cli.connect.server import ServerTarget
from gangline.cli.get.query import ObjectQuery, ServerTable, TableRow, fetch_jobs, fetch_tables, type_meta, watch_table
from gangline.cli.get.view import GetFlags, KindGroup, TableView
from gangline.cli.output import formats, tables
from gangline.cli.resources.watch import watch_objects
from gangline.kube.client import Client
from gangline.kube.errors import Gone, NotFound


async def watch_groups(client: Client, groups: Sequence[KindGroup], target: ServerTarget, flags: GetFlags) -> int:
    """Print all objects once, then each change, until interrupted."""
    async with asyncio.TaskGroup() as tasks:
        for group in groups:
            view = TableView(group, flags, target.namespace, prefix_kind=len(groups) > 1)
            if group.is_jobs or not flags.output_format.is_table:
                tasks.create_task(_ObjectWatch(client, view).run())
            else:
                tasks.create_task(_watch_table(client, view))
    return 0


class _ObjectWatch:
    """A watch of full objects: of jobs, printed in one table, or of any kinds in another format."""

    def __init__(self, client: Client, view: TableView) -> None:
        self._client, self._view = client, view
        self._columns = tables.Columns(view.job_header(), colour=tables.stdout_uses_colour())
        self._header_printed = not view.flags.headers

    async def run(self) -> None:
        group = self._view.group
        # Jobs are listed before the watch, so that the columns fit them, and to know which kinds the server has.
        if group.is_jobs:
            result = await fetch_jobs(self._client, group.queries, all_kinds=group.all_job_kinds)
            self._columns.widen([self._row(body) for body in result.objects])
        async with asyncio.TaskGroup() as tasks:
            for query in group.queries:
                tasks.create_task(self._watch_kind(query))

    async def _watch_kind(self, query: ObjectQuery) -> None:
        try:
            async with aclosing(watch_objects(self._client, query.resource, named_selector(query))) as objects:
                async for watched in objects:
                    if watched.body is not None:
                        self._print_object({**type_meta(query.resource), **watched.body})
        except NotFound:
            if not self._view.group.all_job_kinds:
                raise

    def _row(self, body: JSON) -> list[str]:
        return self._view.job_row(body, SystemClock().now())

    def _print_object(self, body: JSON) -> None:
        flags = self._view.flags
        if not flags.output_format.is_table:
            separator = "---\n" if flags.output_format.name == formats.YAML else ""
            text = formats.format_objects([body], flags.output_format, single=True, managed=flags.managed)
            tables.write_stdout(separator + text)
            return
        row = self._row(body)
        if not self._header_printed:
            self._header_printed = True
            self._columns.widen([row])
            tables.write_stdout(self._columns.line(self._columns.header) + "\n")
        tables.write_stdout(self._columns.line(row) + "\n")


def named_selector(query: ObjectQuery) -> Selector:
    """The selector of a query; an object that is queried by name is selected by its metadata.name."""
    if not query.names:
        return query.selector
    selector = msgspec.structs.replace(query.selector, fields=f"metadata.name={query.names[0]}")
    return (
        msgspec.structs.replace(selector, namespace=query.object_namespace) if query.resource.namespaced else selector
    )


async def _watch_table(client: Client, view: TableView) -> None:
    """Print the rows of the server's own table, then a row for each change. Lists again when the watch is too old."""
    query = view.group.queries[0]
    query = query._replace(names=(), base_selector=named_selector(query))
    columns: tables.Columns | None = None
    first: ServerTable | None = None
    while True:
        pages, _ = await fetch_tables(client, query)
        first = first or pages[0]
        rows = [view.server_row(row, first) for page in pages for row in page.rows]
        if columns is None:
            columns = tables.Columns(view.server_header(first), colour=tables.stdout_uses_colour())
            columns.widen(rows)
            if view.flags.headers and rows:
                tables.write_stdout(columns.line(columns.header) + "\n")
        for row in rows:
            tables.write_stdout(columns.line(row) + "\n")
        version = pages[-1].metadata.resource_version
        try:
            async with aclosing(_changed_rows(client, query, version)) as changes:
                async for change in changes:
                    tables.write_stdout(columns.line(view.server_row(change, first)) + "\n")
        except Gone:
            continue


async def _changed_rows(client: Client, query: ObjectQuery, version: str) -> AsyncGenerator[TableRow, None]:
    """The row of each change after a resourceVersion, over as many watch requests as it takes. Raises `Gone`."""
    while True:
        async with aclosing(watch_table(client, query, version)) as events:
            async for event in events:
                for row in event.rows:
                    version = (row.object.get("metadata") or {}).get("resourceVersion") or version
                    yield row
