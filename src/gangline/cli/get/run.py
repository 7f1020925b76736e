"""`gangline get`: query the server and print once. Without click, to start fast."""

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from gangline.api.meta import Key, Selector
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.cli.connect.run_work import run_async, run_blocking
from gangline.cli.connect.server import ServerOptions, ServerTarget
from gangline.cli.errors import error_line
from gangline.cli.exit_codes import ERROR, SUCCEEDED
from gangline.cli.get.query import FetchResult, ObjectQuery, fetch_jobs, fetch_objects, fetch_tables
from gangline.cli.get.view import GetFlags, KindGroup, TableView
from gangline.cli.output import formats, tables
from gangline.cli.resources.lookup import JOBS_WORDS, ResourceArg, resolve, resource_args, unknown_kind
from gangline.kube.client import Client
from gangline.kube.errors import KubeError, NotFound
from gangline.summary import job_rows
from gangline.summary.objects import object_key


def run_get(words: Sequence[str], server: ServerOptions, flags: GetFlags) -> int:
    """Fetch what the words name and print it. Returns the exit code."""
    args = resource_args(words)
    server = server._replace(job_hint=next((arg.name for arg in args if arg.name), ""))

    async def work(client: Client, target: ServerTarget) -> int:
        groups = await kind_groups(client, args, target, flags)
        # An archive does not change any more.
        if flags.watch and target.archive is None:
            from gangline.cli.get.watch import watch_groups

            return await watch_groups(client, groups, target, flags)
        return await print_once(client, groups, target, flags)

    return (run_async if flags.watch else run_blocking)(server, work)


async def kind_groups(
    client: Client, args: Sequence[ResourceArg], target: ServerTarget, flags: GetFlags
) -> list[KindGroup]:
    """The kinds with the names asked of each, in the order of the arguments. Raises `InputError`."""
    names_by_kind: dict[str, list[str]] = {}
    for arg in args:
        names_by_kind.setdefault(arg.kind, []).extend([arg.name] if arg.name else [])
    if (flags.selector or flags.field_selector) and any(names_by_kind.values()):
        raise InputError("name(s) cannot be provided when a selector is specified")
    selector = Selector(target.namespace, flags.selector, flags.field_selector)
    groups = []
    for kind, names in names_by_kind.items():
        resources = await resolve(client, kind)
        if names and not target.namespace and resources[0].namespaced:
            raise InputError("a resource cannot be retrieved by name across all namespaces")
        queries = tuple(
            ObjectQuery(resource, tuple(names), selector, target.object_namespace) for resource in resources
        )
        groups.append(KindGroup(queries, all_job_kinds=kind.lower() in JOBS_WORDS))
    return groups


async def print_once(client: Client, groups: Sequence[KindGroup], target: ServerTarget, flags: GetFlags) -> int:
    """Print all groups once. Returns the exit code."""
    if not flags.output_format.is_table:
        return await _print_objects(client, groups, target, flags)
    blocks = []
    for group in groups:
        view = TableView(group, flags, target.namespace)
        blocks.append(await (_jobs_block if group.is_jobs else _server_block)(client, view))
    # With several tables, each name has its kind before it. A table in which nothing was found does not count.
    several = sum(block.is_shown for block in blocks) > 1
    texts = [text for block in blocks if (text := block.render(several))]
    tables.write_stdout("\n".join(texts))
    errors = [error for block in blocks for error in block.errors]
    return _report_errors(groups, errors, target, flags, has_output=bool(texts))


async def _print_objects(client: Client, groups: Sequence[KindGroup], target: ServerTarget, flags: GetFlags) -> int:
    results = [await fetch_group(client, group) for group in groups]
    bodies = [body for result in results for body in result.objects]
    if flags.sort_by:
        bodies.sort(key=formats.sort_key(flags.sort_by))
    single = sum(len(group.queries[0].names) for group in groups) == 1
    nothing = not bodies and (single or flags.output_format.name == formats.NAME)
    if not nothing:
        text = formats.format_objects(
            bodies, flags.output_format, single=single, managed=flags.managed, headers=flags.headers
        )
        tables.write_stdout(text)
    errors = [error for result in results for error in result.errors]
    return _report_errors(groups, errors, target, flags, has_output=True)


async def fetch_group(client: Client, group: KindGroup) -> FetchResult:
    """The full objects of a group. Raises `InputError` if the server does not have the kind."""
    if group.is_jobs:
        return await fetch_jobs(client, group.queries, all_kinds=group.all_job_kinds)
    query = group.queries[0]
    try:
        return await fetch_objects(client, query)
    except NotFound as error:
        raise _list_error(query, error) from error


def _list_error(query: ObjectQuery, error: NotFound) -> Exception:
    # For a kind that it does not have the server names no object; for a namespace it gives the namespace's name.
    return error if error.status.details.name else unknown_kind(query.resource.plural)


def _report_errors(
    groups: Sequence[KindGroup], errors: Sequence[KubeError], target: ServerTarget, flags: GetFlags, *, has_output: bool
) -> int:
    """Print the errors, or that nothing was found. Returns the exit code."""
    reported = [] if flags.ignore_not_found else errors
    for error in reported:
        print(error_line(error), file=sys.stderr)
    if not has_output and not errors:
        namespaced = any(query.resource.namespaced for group in groups for query in group.queries)
        where = f" in {target.namespace} namespace." if target.namespace and namespaced else ""
        print(f"No resources found{where}", file=sys.stderr)
    return ERROR if reported else SUCCEEDED


# Tables


class TableBlock(NamedTuple):
    """The table of a group: `render(prefix_kind)` is its text."""

    render: Callable[[bool], str]
    is_shown: bool
    errors: Sequence[KubeError]


async def _jobs_block(client: Client, view: TableView) -> TableBlock:
    group, flags = view.group, view.flags
    result = await fetch_jobs(client, group.queries, all_kinds=group.all_job_kinds)
    bodies = result.objects
    if flags.sort_by:
        bodies = sorted(bodies, key=formats.sort_key(flags.sort_by))
    elif group.all_job_kinds:
        bodies = sorted(bodies, key=object_key)
    now, pods = SystemClock().now(), dict[Key, job_rows.PodDetails]()
    if any(map(job_rows.needs_pods, bodies)):
        # Imported here, because most jobs do not need it.
        from gangline.summary.pending_reasons import read_pod_details

        pods = await read_pod_details(client, bodies, view.namespace)

    def render(prefix_kind: bool) -> str:
        full_view = view._replace(prefix_kind=prefix_kind)
        rows = [full_view.job_row(body, now, pods) for body in bodies]
        return _render(full_view.job_header(), rows, flags)

    return TableBlock(render, bool(bodies) or not group.queries[0].names, result.errors)


async def _server_block(client: Client, view: TableView) -> TableBlock:
    query, flags = view.group.queries[0], view.flags
    try:
        pages, errors = await fetch_tables(client, query, full_objects=bool(flags.sort_by))
    except NotFound as error:
        raise _list_error(query, error) from error

    def render(prefix_kind: bool) -> str:
        if not any(page.rows for page in pages):
            return ""
        full_view = view._replace(prefix_kind=prefix_kind)
        rows = [row for page in pages for row in page.rows]
        if flags.sort_by:
            sort_key = formats.sort_key(flags.sort_by)
            rows.sort(key=lambda row: sort_key(row.object))
        return _render(full_view.server_header(pages[0]), [full_view.server_row(row, pages[0]) for row in rows], flags)

    return TableBlock(render, bool(pages), errors)


def _render(header: Sequence[str], rows: Sequence[Sequence[str]], flags: GetFlags) -> str:
    return tables.render(header, rows, headers=flags.headers, colour=tables.stdout_uses_colour())
