"""Objects and tables from a server, as `get` and its aliases need them."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple

import msgspec

from gangline.api.meta import JSON, ApiStruct, Key, ListMeta, Selector
from gangline.api.scheme import Resource
from gangline.base.errors import InputError
from gangline.cli.output import tables
from gangline.kube.client import Client
from gangline.kube.errors import KubeError, NotFound
from gangline.kube.paths import collection_path, object_path, selector_query
from gangline.kube.transport.api import QueryParams, Request

PAGE_SIZE = 500
TABLE_ACCEPT = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
NO_JOB_KINDS = "the server knows no training jobs; bring their definitions: gangline crds | kubectl apply -f -"


class ObjectQuery(NamedTuple):
    """Objects of one kind: those named, or all that are selected."""

    resource: Resource[JSON]
    names: tuple[str, ...] = ()
    base_selector: Selector = Selector()
    # The namespace of those named.
    object_namespace: str = ""

    def key(self, name: str) -> Key:
        return Key(self.object_namespace if self.resource.namespaced else "", name)

    @property
    def selector(self) -> Selector:
        """Where to list: kinds without namespaces are asked for without one."""
        if self.resource.namespaced:
            return self.base_selector
        return msgspec.structs.replace(self.base_selector, namespace="")


class FetchResult(NamedTuple):
    """What was found, and what the server said about the rest."""

    objects: list[JSON]
    errors: list[KubeError]


async def fetch_objects(client: Client, wanted: ObjectQuery) -> FetchResult:
    """Whole objects, each with its kind, which lists leave out. Raises what listing raises."""
    found: list[JSON] = []
    errors: list[KubeError] = []
    for name in wanted.names:
        try:
            found.append(await client.get(wanted.resource, wanted.key(name)))
        except NotFound as error:
            errors.append(error)
    if not wanted.names:
        async for page in client.pages(wanted.resource, wanted.selector, limit=PAGE_SIZE):
            found.extend(page.items)
    kind = {"apiVersion": wanted.resource.api_version, "kind": wanted.resource.kind}
    return FetchResult([{**kind, **body} for body in found], errors)


async def fetch_jobs(client: Client, kinds: Sequence[ObjectQuery], *, every: bool) -> FetchResult:
    """Jobs of several kinds. A kind that the server does not know has none; if it knows none, `InputError`.

    `every`: a name need be that of one kind only.
    """
    found: list[JSON] = []
    errors: list[KubeError] = []
    unknown = 0
    for wanted in kinds:
        try:
            got = await fetch_objects(client, wanted)
        except NotFound:
            unknown += 1
            continue
        found += got.objects
        errors += got.errors
    if unknown == len(kinds):
        raise InputError(
            NO_JOB_KINDS if every else f'the server doesn\'t have a resource type "{kinds[0].resource.plural}"'
        )
    if every and kinds[0].names:
        there = {body["metadata"]["name"] for body in found}
        errors = [_no_such_job(kinds[0], name) for name in kinds[0].names if name not in there]
    return FetchResult(found, errors)


def _no_such_job(wanted: ObjectQuery, name: str) -> KubeError:
    from gangline.kube.errors import Status

    told = f'no training job "{name}" in namespace "{wanted.object_namespace}"'
    return NotFound(Status(status="Failure", message=told, reason="NotFound", code=404))


# The server's own tables


class _ColumnDefinition(ApiStruct, frozen=True):
    name: str = ""
    priority: int = 0


class TableRow(ApiStruct, frozen=True):
    cells: tuple[Any, ...] = ()
    object: JSON = {}


class ServerTable(ApiStruct, frozen=True):
    """What `kubectl get` prints, made by the server."""

    kind: str = ""
    metadata: ListMeta = ListMeta()
    column_definitions: tuple[_ColumnDefinition, ...] | None = ()
    rows: tuple[TableRow, ...] = ()
    # Of a server that makes no tables.
    items: tuple[JSON, ...] = ()


async def fetch_tables(
    client: Client, wanted: ObjectQuery, *, whole: bool = False
) -> tuple[list[ServerTable], list[KubeError]]:
    """The tables of what is wanted, one for each request it took. `whole`: rows carry their whole object."""
    include: QueryParams = (("includeObject", "Object"),) if whole else ()
    found: list[ServerTable] = []
    errors: list[KubeError] = []
    for name in wanted.names:
        request = Request("GET", object_path(wanted.resource, wanted.key(name)), include, accept=TABLE_ACCEPT)
        try:
            found.append(await client.requests.call_typed(request, ServerTable))
        except NotFound as error:
            errors.append(error)
    token = "" if not wanted.names else None
    while token is not None:
        request = list_request(
            wanted, (*include, ("limit", str(PAGE_SIZE)), *((("continue", token),) if token else ()))
        )
        page = await client.requests.call_typed(request, ServerTable)
        found.append(page)
        token = page.metadata.continue_ or None
    return found, errors


def list_request(wanted: ObjectQuery, more: QueryParams = ()) -> Request:
    """A list as a table."""
    where = wanted.selector
    path = collection_path(wanted.resource, where.namespace)
    return Request("GET", path, selector_query(where) + more, accept=TABLE_ACCEPT)


class TableStyle(NamedTuple):
    """How a table is shown."""

    wide: bool = False
    show_namespace: bool = False
    show_labels: bool = False
    # The kind before each name, where several are shown: `pod/`.
    prefix: str = ""


def table_header(found: ServerTable, look: TableStyle) -> list[str]:
    """Titles of the columns that are shown."""
    names = [column.name.upper() for column in _visible_columns(found, look)]
    return [
        *(["NAMESPACE"] if look.show_namespace else []),
        *names,
        *(["LABELS"] if look.show_labels else []),
    ]


def row_cells(found: ServerTable, row: TableRow, look: TableStyle, columns: ServerTable | None = None) -> list[str]:
    """A row, cell by cell. Later tables of a watch have no columns: those of the first count."""
    definitions = (columns or found).column_definitions or ()
    texts = [
        tables.cell_text(value)
        for column, value in zip(definitions, row.cells, strict=False)
        if look.wide or not column.priority
    ]
    metadata = row.object.get("metadata") or {}
    if look.prefix and texts:
        texts[0] = look.prefix + texts[0]
    return [
        *([metadata.get("namespace", "")] if look.show_namespace else []),
        *texts,
        *([tables.labels_text(metadata.get("labels"))] if look.show_labels else []),
    ]


def _visible_columns(found: ServerTable, look: TableStyle) -> list[_ColumnDefinition]:
    return [column for column in found.column_definitions or () if look.wide or not column.priority]


async def watch_table(client: Client, wanted: ObjectQuery, since: str) -> AsyncGenerator[ServerTable, None]:
    """Tables of one row, one for each change, until the server ends the stream. Raises `Gone`."""
    from gangline.kube.errors import Status, error_from_status
    from gangline.kube.transport.api import LineReader

    query: QueryParams = (("watch", "true"), ("resourceVersion", since))
    names = wanted.names
    if names:
        query = (*query, ("fieldSelector", f"metadata.name={names[0]}"))
    async with client.requests.stream(list_request(wanted, query)) as stream:
        async for line in LineReader(stream.chunks()):
            event = msgspec.json.decode(line)
            if event["type"] == "ERROR":
                raise error_from_status(msgspec.convert(event["object"], Status))
            if event["type"] != "BOOKMARK":
                yield msgspec.convert(event["object"], ServerTable)
