"""`get -w`: a line for each change."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from gangline.api.meta import JSON, Selector
from gangline.base.clock import SystemClock
from gangline.cli.connect.server import Place
from gangline.cli.get.query import Look, Table, Wanted, cells, header, jobs, table, table_changes
from gangline.cli.get.run import Group, Options, coloured, job_header, job_row, look_of
from gangline.cli.output import formats, tables
from gangline.cli.resources.watch import changes
from gangline.kube.client import Client
from gangline.kube.errors import Gone, NotFound


async def watch(client: Client, groups: Sequence[Group], place: Place, options: Options) -> int:
    """Everything once, then changes, until interrupted."""
    several = len(groups) > 1
    async with asyncio.TaskGroup() as tasks:
        for group in groups:
            if group.is_jobs or not options.form.is_table:
                tasks.create_task(_Objects(client, group, place, options, several).run())
            else:
                tasks.create_task(_rows(client, group.kinds[0], place, options, several))
    return 0


class _Objects:
    """Kinds whose whole objects are watched, and shown in one table or in another form."""

    def __init__(self, client: Client, group: Group, place: Place, options: Options, several: bool) -> None:
        self._client, self._group, self._place = client, group, place
        self._options, self._several = options, several
        self._columns = tables.Columns(job_header(group, place, options), colour=coloured())
        self._told = not options.headers

    async def run(self) -> None:
        # Once before, so that columns fit what is there; and to know which kinds the server has.
        if self._group.is_jobs:
            got = await jobs(self._client, self._group.kinds, every=self._group.every)
            self._columns.widen([self._row(body) for body in got.objects])
        async with asyncio.TaskGroup() as tasks:
            for wanted in self._group.kinds:
                tasks.create_task(self._follow(wanted))

    async def _follow(self, wanted: Wanted) -> None:
        try:
            async with aclosing(changes(self._client, wanted.resource, named(wanted))) as seen:
                async for each in seen:
                    if each.body is not None:
                        self._show({**_kind(wanted), **each.body})
        except NotFound:
            if not self._group.every:
                raise

    def _row(self, body: JSON) -> list[str]:
        now = SystemClock().now()
        return job_row(body, now, self._group, self._place, self._options, self._several)

    def _show(self, body: JSON) -> None:
        options = self._options
        if not options.form.is_table:
            separator = "---\n" if options.form.word == formats.YAML else ""
            text = formats.shown([body], options.form, single=True, managed=options.managed)
            tables.put(separator + text)
            return
        row = self._row(body)
        if not self._told:
            self._told = True
            self._columns.widen([row])
            tables.put(self._columns.line(self._columns.header) + "\n")
        tables.put(self._columns.line(row) + "\n")


def _kind(wanted: Wanted) -> JSON:
    return {"apiVersion": wanted.resource.api_version, "kind": wanted.resource.kind}


def named(wanted: Wanted) -> Selector:
    """A selector for what is wanted; one object is selected by its name."""
    if not wanted.names:
        return wanted.selector
    where = msgspec.structs.replace(wanted.selector, fields=f"metadata.name={wanted.names[0]}")
    return msgspec.structs.replace(where, namespace=wanted.home) if wanted.resource.namespaced else where


async def _rows(client: Client, wanted: Wanted, place: Place, options: Options, several: bool) -> None:
    """Rows of the server's own table."""
    look = look_of(wanted, place, options, several)
    once = wanted._replace(names=(), where=named(wanted))
    columns: tables.Columns | None = None
    first: Table | None = None
    while True:
        pages, _ = await table(client, once)
        first = first or pages[0]
        rows = [cells(page, row, look, first) for page in pages for row in page.rows]
        if columns is None:
            columns = tables.Columns(header(first, look), colour=coloured())
            columns.widen(rows)
            if options.headers and rows:
                tables.put(columns.line(columns.header) + "\n")
        for row in rows:
            tables.put(columns.line(row) + "\n")
        try:
            await _more(client, once, pages[-1], look, first, columns)
        except Gone:
            continue


async def _more(
    client: Client, wanted: Wanted, page: Table, look: Look, first: Table, columns: tables.Columns
) -> None:
    since = page.metadata.resource_version
    while True:
        async with aclosing(table_changes(client, wanted, since)) as events:
            async for event in events:
                for row in event.rows:
                    since = (row.object.get("metadata") or {}).get("resourceVersion") or since
                    tables.put(columns.line(cells(event, row, look, first)) + "\n")
