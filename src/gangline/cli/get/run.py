"""What `gangline get` does: objects of any kind, and all training jobs at once. Without click, to start fast."""

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from gangline.api.meta import JSON, Key, Selector
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.cli.connect.server import ServerOptions, ServerTarget, run_async, run_blocking
from gangline.cli.errors import error_line
from gangline.cli.get.query import (
    FetchResult,
    ObjectQuery,
    TableStyle,
    fetch_jobs,
    fetch_objects,
    fetch_tables,
    row_cells,
    table_header,
)
from gangline.cli.output import formats, job_rows, tables
from gangline.cli.resources.lookup import JOB_KINDS, JOBS_WORDS, ResourceArg, resolve, resource_args
from gangline.kube.client import Client
from gangline.kube.errors import KubeError, NotFound

NO_REASONS: Mapping[Key, str] = {}
REASON_COLUMN = job_rows.HEADER.index("REASON")


class GetFlags(NamedTuple):
    """How to choose and how to show."""

    selector: str = ""
    field_selector: str = ""
    output_format: formats.OutputFormat = formats.OutputFormat()
    watch: bool = False
    managed: bool = False
    headers: bool = True
    labels: bool = False
    sort_by: str = ""
    ignore_not_found: bool = False


class KindGroup(NamedTuple):
    """Kinds that are shown together, with the same names."""

    queries: tuple[ObjectQuery, ...]
    # All kinds of job at once, so the kind is a column.
    all_job_kinds: bool = False

    @property
    def is_jobs(self) -> bool:
        return self.queries[0].resource in JOB_KINDS


def run_get(words: Sequence[str], server: ServerOptions, options: GetFlags) -> int:
    """Get and print. Gives the exit code."""
    chosen = resource_args(words)
    server = server._replace(job_hint=next((each.name for each in chosen if each.name), ""))

    async def work(client: Client, place: ServerTarget) -> int:
        groups = await kind_groups(client, chosen, place, options)
        # What runs left does not change any more.
        if options.watch and place.archive is None:
            from gangline.cli.get.watch import watch_groups

            return await watch_groups(client, groups, place, options)
        return await print_once(client, groups, place, options)

    return (run_async if options.watch else run_blocking)(server, work)


async def kind_groups(
    client: Client, chosen: Sequence[ResourceArg], place: ServerTarget, options: GetFlags
) -> list[KindGroup]:
    """Kinds with the names asked of them, in the order they were written. Raises `InputError`."""
    names: dict[str, list[str]] = {}
    for target in chosen:
        names.setdefault(target.kind, []).extend([target.name] if target.name else [])
    if (options.selector or options.field_selector) and any(names.values()):
        raise InputError("name(s) cannot be provided when a selector is specified")
    where = Selector(place.namespace, options.selector, options.field_selector)
    groups = []
    for kind, asked in names.items():
        found = await resolve(client, kind)
        if asked and not place.namespace and found[0].namespaced:
            raise InputError("a resource cannot be retrieved by name across all namespaces")
        wanted = tuple(ObjectQuery(resource, tuple(asked), where, place.object_namespace) for resource in found)
        groups.append(KindGroup(wanted, all_job_kinds=kind.lower() in JOBS_WORDS))
    return groups


async def print_once(client: Client, groups: Sequence[KindGroup], place: ServerTarget, options: GetFlags) -> int:
    """Everything once."""
    if not options.output_format.is_table:
        return await _print_objects(client, groups, place, options)
    found = [await (_jobs_block if group.is_jobs else _server_block)(client, group, place, options) for group in groups]
    # The kind stands before each name where there are several; one of which nothing was found does not count.
    several = sum(block.is_shown for block in found) > 1
    texts = [text for block in found if (text := block.render(several))]
    tables.write_stdout("\n".join(texts))
    errors = [error for block in found for error in block.errors]
    return _report_errors(groups, errors, place, options, found=bool(texts))


async def _print_objects(client: Client, groups: Sequence[KindGroup], place: ServerTarget, options: GetFlags) -> int:
    got = FetchResult([], [])
    for group in groups:
        more = await fetch_group(client, group)
        got = FetchResult([*got.objects, *more.objects], [*got.errors, *more.errors])
    bodies = sorted(got.objects, key=formats.sort_key(options.sort_by)) if options.sort_by else got.objects
    single = sum(len(group.queries[0].names) for group in groups) == 1
    nothing = not bodies and (single or options.output_format.name == formats.NAME)
    if not nothing:
        text = formats.format_objects(
            bodies, options.output_format, single=single, managed=options.managed, headers=options.headers
        )
        tables.write_stdout(text)
    return _report_errors(groups, got.errors, place, options, found=True)


async def fetch_group(client: Client, group: KindGroup) -> FetchResult:
    """The whole objects of a group. Raises `InputError` where the server does not know the kind."""
    if group.is_jobs:
        return await fetch_jobs(client, group.queries, every=group.all_job_kinds)
    try:
        return await fetch_objects(client, group.queries[0])
    except NotFound as error:
        raise _unknown_kind(group, error) from error


def _unknown_kind(group: KindGroup, error: NotFound) -> Exception:
    # The server says this of a kind that it does not have; of a namespace it would say its name.
    if not error.status.details.name:
        return InputError(f'the server doesn\'t have a resource type "{group.queries[0].resource.plural}"')
    return error


def _report_errors(
    groups: Sequence[KindGroup],
    errors: Sequence[KubeError],
    place: ServerTarget,
    options: GetFlags,
    *,
    found: bool,
) -> int:
    told = [] if options.ignore_not_found else errors
    for error in told:
        print(error_line(error), file=sys.stderr)
    if not found and not errors:
        namespaced = any(wanted.resource.namespaced for group in groups for wanted in group.queries)
        where = f" in {place.namespace} namespace." if place.namespace and namespaced else ""
        print(f"No resources found{where}", file=sys.stderr)
    return 1 if told else 0


# Tables


class TableBlock(NamedTuple):
    """The table of a group: its text, with the kind before each name or without."""

    render: Callable[[bool], str]
    is_shown: bool
    errors: Sequence[KubeError]


async def _jobs_block(client: Client, group: KindGroup, place: ServerTarget, options: GetFlags) -> TableBlock:
    got = await fetch_jobs(client, group.queries, every=group.all_job_kinds)
    bodies = got.objects
    if options.sort_by:
        bodies = sorted(bodies, key=formats.sort_key(options.sort_by))
    elif group.all_job_kinds:
        bodies = sorted(bodies, key=lambda body: (body["metadata"].get("namespace", ""), body["metadata"]["name"]))
    now, waits = SystemClock().now(), dict[Key, str]()
    if any(map(job_rows.may_wait, bodies)):
        # Imported here: of jobs that run nobody asks it.
        from gangline.cli.output.pending_reasons import pending_reasons

        waits = await pending_reasons(client, bodies, place.namespace)

    def text(several: bool) -> str:
        rows = [job_row(body, now, group, place, options, several, waits) for body in bodies]
        titles = job_header(group, place, options)
        return tables.render(titles, rows, headers=options.headers, colour=stdout_uses_colour())

    return TableBlock(text, bool(bodies) or not group.queries[0].names, got.errors)


def job_header(group: KindGroup, place: ServerTarget, options: GetFlags) -> list[str]:
    """Titles of the table of jobs."""
    return [
        *(["NAMESPACE"] if not place.namespace else []),
        *(["KIND"] if group.all_job_kinds else []),
        *job_rows.HEADER,
        *(job_rows.WIDE_HEADER if options.output_format.name == formats.WIDE else ()),
        *(["LABELS"] if options.labels else []),
    ]


def job_row(
    body: JSON,
    now: datetime,
    group: KindGroup,
    place: ServerTarget,
    options: GetFlags,
    several: bool,
    waits: Mapping[Key, str] = NO_REASONS,
) -> list[str]:
    """One job, cell by cell. `waits`: why those wait of whom it is known."""
    row = job_rows.job_cells(body, now, wide=options.output_format.name == formats.WIDE)
    if row[REASON_COLUMN] == job_rows.NONE:
        key = Key(body["metadata"].get("namespace", ""), body["metadata"]["name"])
        row[REASON_COLUMN] = waits.get(key, job_rows.NONE)
    if several and not group.all_job_kinds:
        row[0] = formats.object_name(body)
    metadata = body["metadata"]
    return [
        *([metadata.get("namespace", "")] if not place.namespace else []),
        *([body.get("kind", "")] if group.all_job_kinds else []),
        *row,
        *([tables.labels_text(metadata.get("labels"))] if options.labels else []),
    ]


async def _server_block(client: Client, group: KindGroup, place: ServerTarget, options: GetFlags) -> TableBlock:
    wanted = group.queries[0]
    try:
        pages, errors = await fetch_tables(client, wanted, whole=bool(options.sort_by))
    except NotFound as error:
        raise _unknown_kind(group, error) from error

    def text(several: bool) -> str:
        if not any(page.rows for page in pages):
            return ""
        look = table_style(wanted, place, options, several)
        lines = [(row.object, row_cells(page, row, look, pages[0])) for page in pages for row in page.rows]
        if options.sort_by:
            key = formats.sort_key(options.sort_by)
            lines.sort(key=lambda line: key(line[0]))
        titles, rows = table_header(pages[0], look), [line for _, line in lines]
        return tables.render(titles, rows, headers=options.headers, colour=stdout_uses_colour())

    return TableBlock(text, bool(pages), errors)


def table_style(wanted: ObjectQuery, place: ServerTarget, options: GetFlags, several: bool) -> TableStyle:
    """How the table of a kind is shown."""
    kind = wanted.resource
    prefix = f"{kind.kind.lower()}{f'.{kind.group}' if kind.group else ''}/" if several else ""
    return TableStyle(
        wide=options.output_format.name == formats.WIDE,
        show_namespace=not place.namespace and kind.namespaced,
        show_labels=options.labels,
        prefix=prefix,
    )


def stdout_uses_colour() -> bool:
    """Whether standard output takes colours."""
    return tables.use_colour(sys.stdout)
