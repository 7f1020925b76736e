"""`get -w`: a line for each change."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from datetime import timedelta

import msgspec

from gangline.api.meta import JSON, Selector
from gangline.base.clock import SystemClock
from gangline.base.tasks import run_every
from gangline.cli.connect.server import ServerTarget
from gangline.cli.get.query import ObjectQuery, ServerTable, TableRow, fetch_jobs, fetch_tables, type_meta, watch_table
from gangline.cli.get.view import GetFlags, KindGroup, TableView
from gangline.cli.output import formats, tables
from gangline.cli.resources.watch import MAX_RECONNECTS, Reconnects, watch_objects
from gangline.kube.client import Client
from gangline.kube.errors import Gone, KubeError, NotFound, StreamBroken, Unreachable
from gangline.summary import job_rows
from gangline.summary.objects import resource_version
from gangline.summary.pending_reasons import read_pod_details

REFRESH_INTERVAL = timedelta(seconds=2)
"""How often the pods of jobs that wait are looked at: they change without a change of the job."""


async def watch_groups(client: Client, groups: Sequence[KindGroup], target: ServerTarget, flags: GetFlags) -> int:
    """Print all objects once, then each change, until interrupted. A server that goes away is waited for.

    The plane of a run in progress does not come back.
    """
    reconnects = Reconnects(None if target.run_folder is None else MAX_RECONNECTS)
    async with asyncio.TaskGroup() as tasks:
        for group in groups:
            view = TableView(group, flags, target.namespace, prefix_kind=len(groups) > 1)
            if group.is_jobs or not flags.output_format.is_table:
                tasks.create_task(_ObjectWatch(client, view, reconnects).run())
            else:
                tasks.create_task(_watch_table(client, view, reconnects))
    return 0


class _ObjectWatch:
    """A watch of full objects: of jobs, printed in one table, or of any kinds in another format."""

    def __init__(self, client: Client, view: TableView, reconnects: Reconnects) -> None:
        self._client, self._view, self._reconnects = client, view, reconnects
        self._columns = tables.Columns(view.job_header(), colour=tables.stdout_uses_colour())
        self._header_printed = not view.flags.headers
        self._clock = SystemClock()
        # The jobs as they were printed last, by uid, with their row at that time.
        self._printed: dict[str, tuple[JSON, list[str]]] = {}
        # The rows of the jobs that were listed before the watch, by resourceVersion: no two objects share one.
        self._listed: dict[str, list[str]] = {}

    async def run(self) -> None:
        group = self._view.group
        # Jobs are listed before the watch, so that the columns fit them, and to know which kinds the server has.
        if group.is_jobs:
            result = await fetch_jobs(self._client, group.queries, all_kinds=group.all_job_kinds)
            rows = await self._rows(result.objects)
            self._columns.widen(rows)
            self._listed = {resource_version(body): row for body, row in zip(result.objects, rows, strict=True)}
        async with asyncio.TaskGroup() as tasks:
            for query in group.queries:
                tasks.create_task(self._watch_kind(query))
            if group.is_jobs and self._view.flags.output_format.is_table:
                tasks.create_task(run_every(REFRESH_INTERVAL, self._refresh, self._clock))

    async def _watch_kind(self, query: ObjectQuery) -> None:
        watch = watch_objects(self._client, query.resource, named_selector(query), self._reconnects)
        try:
            async with aclosing(watch) as objects:
                async for watched in objects:
                    if watched.body is not None:
                        await self._print_object({**type_meta(query.resource), **watched.body}, deleted=watched.deleted)
        except NotFound:
            if not self._view.group.all_job_kinds:
                raise

    async def _rows(self, bodies: Sequence[JSON]) -> list[list[str]]:
        pods = await read_pod_details(self._client, bodies, self._view.namespace)
        now = self._clock.now()
        return [self._view.job_row(body, now, pods) for body in bodies]

    async def _refresh(self) -> None:
        """Print the jobs whose row has changed, although the job itself has not."""
        bodies = [body for body, _ in self._printed.values() if job_rows.needs_pods(body)]
        # A server that does not answer, the watch reports.
        with suppress(KubeError):
            for body, row in zip(bodies, await self._rows(bodies), strict=True):
                uid = body["metadata"]["uid"]
                current, last_row = self._printed.get(uid, (None, row))
                if current is body and self._view.without_ages(last_row) != self._view.without_ages(row):
                    self._printed[uid] = (body, row)
                    self._print_row(row)

    async def _print_object(self, body: JSON, *, deleted: bool) -> None:
        flags = self._view.flags
        if not flags.output_format.is_table:
            separator = "---\n" if flags.output_format.name == formats.YAML else ""
            text = formats.format_objects([body], flags.output_format, single=True, managed=flags.managed)
            tables.write_stdout(separator + text)
            return
        row = self._listed.pop(resource_version(body), None) or (await self._rows([body]))[0]
        uid = body["metadata"]["uid"]
        self._printed[uid] = (body, row)
        if deleted:
            del self._printed[uid]
        self._print_row(row)

    def _print_row(self, row: list[str]) -> None:
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


async def _watch_table(client: Client, view: TableView, reconnects: Reconnects) -> None:
    """Print the rows of the server's own table, then a row for each change.

    Lists again when the watch is too old or the connection broke, and prints what changed meanwhile.
    """
    query = view.group.queries[0]
    query = query._replace(names=(), base_selector=named_selector(query))
    columns: tables.Columns | None = None
    first: ServerTable | None = None
    printed: dict[str, str] = {}
    while True:
        try:
            pages, _ = await fetch_tables(client, query)
            reconnects.succeed()
            first = first or pages[0]
            rows = [row for page in pages for row in page.rows if _is_new(row, printed)]
            texts = [view.server_row(row, first) for row in rows]
            if columns is None:
                columns = tables.Columns(view.server_header(first), colour=tables.stdout_uses_colour())
                columns.widen(texts)
                if view.flags.headers and texts:
                    tables.write_stdout(columns.line(columns.header) + "\n")
            for text in texts:
                tables.write_stdout(columns.line(text) + "\n")
            version = pages[-1].metadata.resource_version
            async with aclosing(_changed_rows(client, query, version)) as changes:
                async for change in changes:
                    if _is_new(change, printed):
                        tables.write_stdout(columns.line(view.server_row(change, first)) + "\n")
        except Gone:
            continue
        except (StreamBroken, Unreachable) as error:
            if first is None:
                raise
            await reconnects.wait(error)


def _is_new(row: TableRow, printed: dict[str, str]) -> bool:
    """Whether a row is of a version that is not in `printed` (by uid), where it is recorded."""
    metadata = row.object.get("metadata") or {}
    uid, version = metadata.get("uid", ""), metadata.get("resourceVersion", "")
    if uid and printed.get(uid) == version:
        return False
    printed[uid] = version
    return True


async def _changed_rows(client: Client, query: ObjectQuery, version: str) -> AsyncGenerator[TableRow, None]:
    """The row of each change after a resourceVersion, over as many watch requests as it takes. Raises `Gone`."""
    while True:
        async with aclosing(watch_table(client, query, version)) as events:
            async for event in events:
                for row in event.rows:
                    version = (row.object.get("metadata") or {}).get("resourceVersion") or version
                    yield row
