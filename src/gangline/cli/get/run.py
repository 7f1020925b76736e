"""What `gangline get` does: objects of any kind, and all training jobs at once. Without click, to start fast."""

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from gangline.api.meta import JSON, Key, Selector
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.cli.connect.server import Place, ServerOptions, ask, converse
from gangline.cli.errors import sentence
from gangline.cli.get.query import Got, Look, Wanted, cells, header, jobs, objects, table
from gangline.cli.output import formats, job_rows, tables
from gangline.cli.resources.lookup import JOB_KINDS, JOBS_WORDS, Target, resolve, targets
from gangline.kube.client import Client
from gangline.kube.errors import KubeError, NotFound

NOBODY: Mapping[Key, str] = {}
REASON = job_rows.HEADER.index("REASON")


class Options(NamedTuple):
    """How to choose and how to show."""

    selector: str = ""
    field_selector: str = ""
    form: formats.Form = formats.Form()
    watch: bool = False
    managed: bool = False
    headers: bool = True
    labels: bool = False
    sort_by: str = ""
    ignore_not_found: bool = False


class Group(NamedTuple):
    """Kinds that are shown together, with the same names."""

    kinds: tuple[Wanted, ...]
    # All kinds of job at once, so the kind is a column.
    every: bool = False

    @property
    def is_jobs(self) -> bool:
        return self.kinds[0].resource in JOB_KINDS


def run_get(words: Sequence[str], server: ServerOptions, options: Options) -> int:
    """Get and print. Gives the exit code."""
    chosen = targets(words)
    server = server._replace(about=next((each.name for each in chosen if each.name), ""))

    async def work(client: Client, place: Place) -> int:
        groups = await grouped(client, chosen, place, options)
        # What runs left does not change any more.
        if options.watch and place.left is None:
            from gangline.cli.get.watch import watch

            return await watch(client, groups, place, options)
        return await show(client, groups, place, options)

    return (converse if options.watch else ask)(server, work)


async def grouped(client: Client, chosen: Sequence[Target], place: Place, options: Options) -> list[Group]:
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
        wanted = tuple(Wanted(resource, tuple(asked), where, place.home) for resource in found)
        groups.append(Group(wanted, every=kind.lower() in JOBS_WORDS))
    return groups


async def show(client: Client, groups: Sequence[Group], place: Place, options: Options) -> int:
    """Everything once."""
    if not options.form.is_table:
        return await _show_objects(client, groups, place, options)
    found = [
        await (_job_block if group.is_jobs else _block)(client, group, place, options) for group in groups
    ]
    # The kind stands before each name where there are several; one of which nothing was found does not count.
    several = sum(block.there for block in found) > 1
    texts = [text for block in found if (text := block.text(several))]
    tables.put("\n".join(texts))
    errors = [error for block in found for error in block.errors]
    return _ended(groups, errors, place, options, found=bool(texts))


async def _show_objects(client: Client, groups: Sequence[Group], place: Place, options: Options) -> int:
    got = Got([], [])
    for group in groups:
        more = await fetched(client, group)
        got = Got([*got.objects, *more.objects], [*got.errors, *more.errors])
    bodies = sorted(got.objects, key=formats.sorter(options.sort_by)) if options.sort_by else got.objects
    single = sum(len(group.kinds[0].names) for group in groups) == 1
    nothing = not bodies and (single or options.form.word == formats.NAME)
    if not nothing:
        text = formats.shown(
            bodies, options.form, single=single, managed=options.managed, headers=options.headers
        )
        tables.put(text)
    return _ended(groups, got.errors, place, options, found=True)


async def fetched(client: Client, group: Group) -> Got:
    """The whole objects of a group. Raises `InputError` where the server does not know the kind."""
    if group.is_jobs:
        return await jobs(client, group.kinds, every=group.every)
    try:
        return await objects(client, group.kinds[0])
    except NotFound as error:
        raise _unknown(group, error) from error


def _unknown(group: Group, error: NotFound) -> Exception:
    # The server says this of a kind that it does not have; of a namespace it would say its name.
    if not error.status.details.name:
        return InputError(f'the server doesn\'t have a resource type "{group.kinds[0].resource.plural}"')
    return error


def _ended(
    groups: Sequence[Group], errors: Sequence[KubeError], place: Place, options: Options, *, found: bool
) -> int:
    told = [] if options.ignore_not_found else errors
    for error in told:
        print(sentence(error), file=sys.stderr)
    if not found and not errors:
        namespaced = any(wanted.resource.namespaced for group in groups for wanted in group.kinds)
        where = f" in {place.namespace} namespace." if place.namespace and namespaced else ""
        print(f"No resources found{where}", file=sys.stderr)
    return 1 if told else 0


# Tables


class Block(NamedTuple):
    """The table of a group: its text, with the kind before each name or without."""

    text: Callable[[bool], str]
    there: bool
    errors: Sequence[KubeError]


async def _job_block(client: Client, group: Group, place: Place, options: Options) -> Block:
    got = await jobs(client, group.kinds, every=group.every)
    bodies = got.objects
    if options.sort_by:
        bodies = sorted(bodies, key=formats.sorter(options.sort_by))
    elif group.every:
        bodies = sorted(
            bodies, key=lambda body: (body["metadata"].get("namespace", ""), body["metadata"]["name"])
        )
    now, waits = SystemClock().now(), dict[Key, str]()
    if any(map(job_rows.may_wait, bodies)):
        # Imported here: of jobs that run nobody asks it.
        from gangline.cli.output.pending_reasons import reasons

        waits = await reasons(client, bodies, place.namespace)

    def text(several: bool) -> str:
        rows = [job_row(body, now, group, place, options, several, waits) for body in bodies]
        titles = job_header(group, place, options)
        return tables.render(titles, rows, headers=options.headers, colour=coloured())

    return Block(text, bool(bodies) or not group.kinds[0].names, got.errors)


def job_header(group: Group, place: Place, options: Options) -> list[str]:
    """Titles of the table of jobs."""
    return [
        *(["NAMESPACE"] if not place.namespace else []),
        *(["KIND"] if group.every else []),
        *job_rows.HEADER,
        *(job_rows.WIDE_HEADER if options.form.word == formats.WIDE else ()),
        *(["LABELS"] if options.labels else []),
    ]


def job_row(
    body: JSON,
    now: datetime,
    group: Group,
    place: Place,
    options: Options,
    several: bool,
    waits: Mapping[Key, str] = NOBODY,
) -> list[str]:
    """One job, cell by cell. `waits`: why those wait of whom it is known."""
    row = job_rows.row(body, now, wide=options.form.word == formats.WIDE)
    if row[REASON] == job_rows.NONE:
        key = Key(body["metadata"].get("namespace", ""), body["metadata"]["name"])
        row[REASON] = waits.get(key, job_rows.NONE)
    if several and not group.every:
        row[0] = formats.named(body)
    metadata = body["metadata"]
    return [
        *([metadata.get("namespace", "")] if not place.namespace else []),
        *([body.get("kind", "")] if group.every else []),
        *row,
        *([tables.labels(metadata.get("labels"))] if options.labels else []),
    ]


async def _block(client: Client, group: Group, place: Place, options: Options) -> Block:
    wanted = group.kinds[0]
    try:
        pages, errors = await table(client, wanted, whole=bool(options.sort_by))
    except NotFound as error:
        raise _unknown(group, error) from error

    def text(several: bool) -> str:
        if not any(page.rows for page in pages):
            return ""
        look = look_of(wanted, place, options, several)
        lines = [(row.object, cells(page, row, look, pages[0])) for page in pages for row in page.rows]
        if options.sort_by:
            key = formats.sorter(options.sort_by)
            lines.sort(key=lambda line: key(line[0]))
        titles, rows = header(pages[0], look), [line for _, line in lines]
        return tables.render(titles, rows, headers=options.headers, colour=coloured())

    return Block(text, bool(pages), errors)


def look_of(wanted: Wanted, place: Place, options: Options, several: bool) -> Look:
    """How the table of a kind is shown."""
    kind = wanted.resource
    prefix = f"{kind.kind.lower()}{f'.{kind.group}' if kind.group else ''}/" if several else ""
    return Look(
        wide=options.form.word == formats.WIDE,
        namespaces=not place.namespace and kind.namespaced,
        labels=options.labels,
        prefix=prefix,
    )


def coloured() -> bool:
    """Whether standard output takes colours."""
    return tables.colours(sys.stdout)
