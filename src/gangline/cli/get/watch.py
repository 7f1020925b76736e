"""`get -w`: a line for each change."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from gangline.api.meta import JSON, Selector
from gangline.base.clock import SystemClock
from gangline.cli.connect.server import ServerTarget
from gangline.cli.get.query import (
    ObjectQuery,
    ServerTable,
    TableStyle,
    fetch_jobs,
    fetch_tables,
    row_cells,
    table_header,
    watch_table,
)
from gangline.cli.get.run import GetFlags, KindGroup, job_header, job_row, stdout_uses_colour, table_style
from gangline.cli.output import formats, tables
from gangline.cli.resources.watch import watch_objects
from gangline.kube.client import Client
from gangline.kube.errors import Gone, NotFound


async def watch_groups(client: Client, groups: Sequence[KindGroup], place: ServerTarget, options: GetFlags) -> int:
    """Everything once, then changes, until interrupted."""
    several = len(groups) > 1
    async with asyncio.TaskGroup() as tasks:
        for group in groups:
            if group.is_jobs or not options.output_format.is_table:
                tasks.create_task(_ObjectWatch(client, group, place, options, several).run())
            else:
                tasks.create_task(_watch_table(client, group.queries[0], place, options, several))
    return 0


class _ObjectWatch:
    """Kinds whose whole objects are watched, and shown in one table or in another form."""

    def __init__(self, client: Client, group: KindGroup, place: ServerTarget, options: GetFlags, several: bool) -> None:
        self._client, self._group, self._place = client, group, place
        self._options, self._several = options, several
        self._columns = tables.Columns(job_header(group, place, options), colour=stdout_uses_colour())
        self._header_printed = not options.headers

    async def run(self) -> None:
        # Once before, so that columns fit what is there; and to know which kinds the server has.
        if self._group.is_jobs:
            got = await fetch_jobs(self._client, self._group.queries, every=self._group.all_job_kinds)
            self._columns.widen([self._row(body) for body in got.objects])
        async with asyncio.TaskGroup() as tasks:
            for wanted in self._group.queries:
                tasks.create_task(self._watch_kind(wanted))

    async def _watch_kind(self, wanted: ObjectQuery) -> None:
        try:
            async with aclosing(watch_objects(self._client, wanted.resource, named_selector(wanted))) as seen:
                async for each in seen:
                    if each.body is not None:
                        self._print_change({**_type_meta(wanted), **each.body})
        except NotFound:
            if not self._group.all_job_kinds:
                raise

    def _row(self, body: JSON) -> list[str]:
        now = SystemClock().now()
        return job_row(body, now, self._group, self._place, self._options, self._several)

    def _print_change(self, body: JSON) -> None:
        options = self._options
        if not options.output_format.is_table:
            separator = "---\n" if options.output_format.name == formats.YAML else ""
            text = formats.format_objects([body], options.output_format, single=True, managed=options.managed)
            tables.write_stdout(separator + text)
            return
        row = self._row(body)
        if not self._header_printed:
            self._header_printed = True
            self._columns.widen([row])
            tables.write_stdout(self._columns.line(self._columns.header) + "\n")
        tables.write_stdout(self._columns.line(row) + "\n")


def _type_meta(wanted: ObjectQuery) -> JSON:
    return {"apiVersion": wanted.resource.api_version, "kind": wanted.resource.kind}


def named_selector(wanted: ObjectQuery) -> Selector:
    """A selector for what is wanted; one object is selected by its name."""
    if not wanted.names:
        return wanted.selector
    where = msgspec.structs.replace(wanted.selector, fields=f"metadata.name={wanted.names[0]}")
    return msgspec.structs.replace(where, namespace=wanted.object_namespace) if wanted.resource.namespaced else where


async def _watch_table(
    client: Client, wanted: ObjectQuery, place: ServerTarget, options: GetFlags, several: bool
) -> None:
    """Rows of the server's own table."""
    look = table_style(wanted, place, options, several)
    once = wanted._replace(names=(), base_selector=named_selector(wanted))
    columns: tables.Columns | None = None
    first: ServerTable | None = None
    while True:
        pages, _ = await fetch_tables(client, once)
        first = first or pages[0]
        rows = [row_cells(page, row, look, first) for page in pages for row in page.rows]
        if columns is None:
            columns = tables.Columns(table_header(first, look), colour=stdout_uses_colour())
            columns.widen(rows)
            if options.headers and rows:
                tables.write_stdout(columns.line(columns.header) + "\n")
        for row in rows:
            tables.write_stdout(columns.line(row) + "\n")
        try:
            await _print_changes(client, once, pages[-1], look, first, columns)
        except Gone:
            continue


async def _print_changes(
    client: Client,
    wanted: ObjectQuery,
    page: ServerTable,
    look: TableStyle,
    first: ServerTable,
    columns: tables.Columns,
) -> None:
    since = page.metadata.resource_version
    while True:
        async with aclosing(watch_table(client, wanted, since)) as events:
            async for event in events:
                for row in event.rows:
                    since = (row.object.get("metadata") or {}).get("resourceVersion") or since
                    tables.write_stdout(columns.line(row_cells(event, row, look, first)) + "\n")
