"""Objects and tables from a server, as `get` and its aliases need them."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple

import msgspec

from gangline.api.meta import JSON, Key, ListMeta, Selector, Wire
from gangline.api.scheme import Resource
from gangline.base.errors import InputError
from gangline.cli.output import tables
from gangline.kube.client import Client
from gangline.kube.errors import KubeError, NotFound
from gangline.kube.paths import collection, item, selection
from gangline.kube.transport.api import Query, Request

PAGE = 500
AS_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
NO_KINDS = "the server knows no training jobs; bring their definitions: gangline crds | kubectl apply -f -"


class Wanted(NamedTuple):
    """Objects of one kind: those named, or all that are selected."""

    resource: Resource[JSON]
    names: tuple[str, ...] = ()
    where: Selector = Selector()
    # The namespace of those named.
    home: str = ""

    def key(self, name: str) -> Key:
        return Key(self.home if self.resource.namespaced else "", name)

    @property
    def selector(self) -> Selector:
        """Where to list: kinds without namespaces are asked for without one."""
        if self.resource.namespaced:
            return self.where
        return msgspec.structs.replace(self.where, namespace="")


class Got(NamedTuple):
    """What was found, and what the server said about the rest."""

    objects: list[JSON]
    errors: list[KubeError]


async def objects(client: Client, wanted: Wanted) -> Got:
    """Whole objects, each with its kind, which lists leave out. Raises what listing raises."""
    found: list[JSON] = []
    errors: list[KubeError] = []
    for name in wanted.names:
        try:
            found.append(await client.get(wanted.resource, wanted.key(name)))
        except NotFound as error:
            errors.append(error)
    if not wanted.names:
        async for page in client.pages(wanted.resource, wanted.selector, limit=PAGE):
            found.extend(page.items)
    kind = {"apiVersion": wanted.resource.api_version, "kind": wanted.resource.kind}
    return Got([{**kind, **body} for body in found], errors)


async def jobs(client: Client, kinds: Sequence[Wanted], *, every: bool) -> Got:
    """Jobs of several kinds. A kind that the server does not know has none; if it knows none, `InputError`.

    `every`: a name need be that of one kind only.
    """
    found: list[JSON] = []
    errors: list[KubeError] = []
    unknown = 0
    for wanted in kinds:
        try:
            got = await objects(client, wanted)
        except NotFound:
            unknown += 1
            continue
        found += got.objects
        errors += got.errors
    if unknown == len(kinds):
        raise InputError(
            NO_KINDS if every else f'the server doesn\'t have a resource type "{kinds[0].resource.plural}"'
        )
    if every and kinds[0].names:
        there = {body["metadata"]["name"] for body in found}
        errors = [_no_job(kinds[0], name) for name in kinds[0].names if name not in there]
    return Got(found, errors)


def _no_job(wanted: Wanted, name: str) -> KubeError:
    from gangline.kube.errors import Status

    told = f'no training job "{name}" in namespace "{wanted.home}"'
    return NotFound(Status(status="Failure", message=told, reason="NotFound", code=404))


# The server's own tables


class _Column(Wire, frozen=True):
    name: str = ""
    priority: int = 0


class Row(Wire, frozen=True):
    cells: tuple[Any, ...] = ()
    object: JSON = {}


class Table(Wire, frozen=True):
    """What `kubectl get` prints, made by the server."""

    kind: str = ""
    metadata: ListMeta = ListMeta()
    column_definitions: tuple[_Column, ...] | None = ()
    rows: tuple[Row, ...] = ()
    # Of a server that makes no tables.
    items: tuple[JSON, ...] = ()


async def table(
    client: Client, wanted: Wanted, *, whole: bool = False
) -> tuple[list[Table], list[KubeError]]:
    """The tables of what is wanted, one for each request it took. `whole`: rows carry their whole object."""
    include: Query = (("includeObject", "Object"),) if whole else ()
    found: list[Table] = []
    errors: list[KubeError] = []
    for name in wanted.names:
        request = Request("GET", item(wanted.resource, wanted.key(name)), include, accept=AS_TABLE)
        try:
            found.append(await client.read(request, Table))
        except NotFound as error:
            errors.append(error)
    token = "" if not wanted.names else None
    while token is not None:
        request = list_request(
            wanted, (*include, ("limit", str(PAGE)), *((("continue", token),) if token else ()))
        )
        page = await client.read(request, Table)
        found.append(page)
        token = page.metadata.continue_ or None
    return found, errors


def list_request(wanted: Wanted, more: Query = ()) -> Request:
    """A list as a table."""
    where = wanted.selector
    path = collection(wanted.resource, where.namespace)
    return Request("GET", path, selection(where) + more, accept=AS_TABLE)


class Look(NamedTuple):
    """How a table is shown."""

    wide: bool = False
    namespaces: bool = False
    labels: bool = False
    # The kind before each name, where several are shown: `pod/`.
    prefix: str = ""


def header(found: Table, look: Look) -> list[str]:
    """Titles of the columns that are shown."""
    names = [column.name.upper() for column in _shown(found, look)]
    return [*(["NAMESPACE"] if look.namespaces else []), *names, *(["LABELS"] if look.labels else [])]


def cells(found: Table, row: Row, look: Look, columns: Table | None = None) -> list[str]:
    """A row, cell by cell. Later tables of a watch have no columns: those of the first count."""
    definitions = (columns or found).column_definitions or ()
    texts = [
        tables.cell(value)
        for column, value in zip(definitions, row.cells, strict=False)
        if look.wide or not column.priority
    ]
    metadata = row.object.get("metadata") or {}
    if look.prefix and texts:
        texts[0] = look.prefix + texts[0]
    return [
        *([metadata.get("namespace", "")] if look.namespaces else []),
        *texts,
        *([tables.labels(metadata.get("labels"))] if look.labels else []),
    ]


def _shown(found: Table, look: Look) -> list[_Column]:
    return [column for column in found.column_definitions or () if look.wide or not column.priority]


async def table_changes(client: Client, wanted: Wanted, since: str) -> AsyncGenerator[Table, None]:
    """Tables of one row, one for each change, until the server ends the stream. Raises `Gone`."""
    from gangline.kube.errors import Status, api_error
    from gangline.kube.transport.api import lines

    query: Query = (("watch", "true"), ("resourceVersion", since))
    names = wanted.names
    if names:
        query = (*query, ("fieldSelector", f"metadata.name={names[0]}"))
    async with client.stream(list_request(wanted, query)) as stream:
        async for line in lines(stream.chunks()):
            event = msgspec.json.decode(line)
            if event["type"] == "ERROR":
                raise api_error(msgspec.convert(event["object"], Status))
            if event["type"] != "BOOKMARK":
                yield msgspec.convert(event["object"], Table)
