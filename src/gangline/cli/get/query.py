"""The requests of `get`: full objects, tables that the server makes, and the watch of such a table."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any, NamedTuple

import msgspec

from gangline.api.meta import JSON, ApiStruct, Key, ListMeta, Selector
from gangline.api.scheme import Resource
from gangline.base.errors import InputError
from gangline.cli.resources.lookup import no_such_job, unknown_kind
from gangline.kube.client import Client
from gangline.kube.errors import KubeError, NotFound
from gangline.kube.paths import collection_path, object_path, selector_query
from gangline.kube.transport.api import QueryParams, Request

PAGE_SIZE = 500
TABLE_ACCEPT = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
NO_JOB_KINDS = "the server has no training job kinds; install them: gangline crds | kubectl apply -f -"


class ObjectQuery(NamedTuple):
    """Objects of one kind: those with the names, or without names all that the selector matches."""

    resource: Resource[JSON]
    names: tuple[str, ...] = ()
    base_selector: Selector = Selector()
    # The namespace of objects given by name.
    object_namespace: str = ""

    def key(self, name: str) -> Key:
        return Key(self.object_namespace if self.resource.namespaced else "", name)

    @property
    def selector(self) -> Selector:
        """The selector of a list; without a namespace for cluster-scoped kinds."""
        if self.resource.namespaced:
            return self.base_selector
        return msgspec.structs.replace(self.base_selector, namespace="")


class FetchResult(NamedTuple):
    """The objects that exist, and the server's errors for the names that do not."""

    objects: list[JSON]
    errors: list[KubeError]


def type_meta(resource: Resource[JSON]) -> JSON:
    """The apiVersion and kind of an object, which servers leave out of the items of a list."""
    return {"apiVersion": resource.api_version, "kind": resource.kind}


async def fetch_objects(client: Client, query: ObjectQuery) -> FetchResult:
    """Full objects, each with apiVersion and kind. Raises what listing raises."""
    bodies: list[JSON] = []
    errors: list[KubeError] = []
    for name in query.names:
        try:
            bodies.append(await client.get(query.resource, query.key(name)))
        except NotFound as error:
            errors.append(error)
    if not query.names:
        async for page in client.pages(query.resource, query.selector, limit=PAGE_SIZE):
            bodies.extend(page.items)
    return FetchResult([{**type_meta(query.resource), **body} for body in bodies], errors)


async def fetch_jobs(client: Client, queries: Sequence[ObjectQuery], *, all_kinds: bool) -> FetchResult:
    """Jobs of several kinds. Kinds that the server does not have are skipped; `InputError` if it has none of them.

    With `all_kinds`, a name is found if a job of any kind has it; else each query reports the names it misses.
    """
    bodies: list[JSON] = []
    errors: list[KubeError] = []
    unknown = 0
    for query in queries:
        try:
            result = await fetch_objects(client, query)
        except NotFound:
            unknown += 1
            continue
        bodies += result.objects
        errors += result.errors
    if unknown == len(queries):
        raise InputError(NO_JOB_KINDS) if all_kinds else unknown_kind(queries[0].resource.plural)
    if all_kinds and queries[0].names:
        existing = {body["metadata"]["name"] for body in bodies}
        namespace = queries[0].object_namespace
        errors = [no_such_job(namespace, name) for name in queries[0].names if name not in existing]
    return FetchResult(bodies, errors)


# The server's own tables


class _ColumnDefinition(ApiStruct, frozen=True):
    name: str = ""
    priority: int = 0


class TableRow(ApiStruct, frozen=True):
    cells: tuple[Any, ...] = ()
    object: JSON = {}


class ServerTable(ApiStruct, frozen=True):
    """A table that the server made, as `kubectl get` prints it (meta.k8s.io/v1 Table)."""

    metadata: ListMeta = ListMeta()
    column_definitions: tuple[_ColumnDefinition, ...] | None = ()
    rows: tuple[TableRow, ...] = ()


async def fetch_tables(
    client: Client, query: ObjectQuery, *, full_objects: bool = False
) -> tuple[list[ServerTable], list[KubeError]]:
    """The tables of a query, one for each request, and the errors for names that do not exist.

    With `full_objects`, rows carry the full object instead of its metadata.
    """
    include: QueryParams = (("includeObject", "Object"),) if full_objects else ()
    pages: list[ServerTable] = []
    errors: list[KubeError] = []
    for name in query.names:
        request = Request("GET", object_path(query.resource, query.key(name)), include, accept=TABLE_ACCEPT)
        try:
            pages.append(await client.requests.call_typed(request, ServerTable))
        except NotFound as error:
            errors.append(error)
    token = "" if not query.names else None
    while token is not None:
        request = list_request(query, (*include, ("limit", str(PAGE_SIZE)), *((("continue", token),) if token else ())))
        page = await client.requests.call_typed(request, ServerTable)
        pages.append(page)
        token = page.metadata.continue_ or None
    return pages, errors


def list_request(query: ObjectQuery, params: QueryParams = ()) -> Request:
    """The request for a list as a table."""
    selector = query.selector
    path = collection_path(query.resource, selector.namespace)
    return Request("GET", path, selector_query(selector) + params, accept=TABLE_ACCEPT)


async def watch_table(client: Client, query: ObjectQuery, since: str) -> AsyncGenerator[ServerTable, None]:
    """A table of one row for each change, until the server ends the stream. Raises `Gone`."""
    from gangline.kube.errors import Status, error_from_status
    from gangline.kube.transport.api import LineReader

    params: QueryParams = (("watch", "true"), ("resourceVersion", since))
    if query.names:
        params = (*params, ("fieldSelector", f"metadata.name={query.names[0]}"))
    async with client.requests.stream(list_request(query, params)) as stream:
        async for line in LineReader(stream.chunks()):
            event = msgspec.json.decode(line)
            if event["type"] == "ERROR":
                raise error_from_status(msgspec.convert(event["object"], Status))
            if event["type"] != "BOOKMARK":
                yield msgspec.convert(event["object"], ServerTable)
