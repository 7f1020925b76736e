"""Discovery: the kinds that a server serves, and its version.

With aggregated discovery (Kubernetes 1.26 and newer) this takes one request for the core group and one for all others;
without it, one for each group and version.
"""

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec

from gangline.api.meta import JSON, ApiStruct
from gangline.api.scheme import Resource
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, MalformedResponse, NotFound
from gangline.kube.paths import CORE_ROOT, GROUPS_ROOT, VERSION_PATH, group_version_path
from gangline.kube.transport.api import Request

log = logging.getLogger(__name__)

AGGREGATED_ACCEPT = ",".join(
    (
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        "application/json",
    )
)


class DiscoveredResource(msgspec.Struct, frozen=True):
    """A kind that the server serves. Its objects decode to JSON."""

    resource: Resource[JSON]
    singular: str = ""
    verbs: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names under which a person may ask for the kind."""
        kind = self.resource
        names = (kind.plural, self.singular, kind.kind.lower(), kind.name, *self.short_names)
        return tuple(dict.fromkeys(name for name in names if name))


async def server_resources(client: Client) -> list[DiscoveredResource]:
    """All kinds in all versions, in the server's order: preferred versions first.

    A group whose own server is down is left out and logged, so a kind that is missing here may still exist; `is_served`
    asks about one kind. Raises the client's errors if no group can be read.
    """
    resources: list[DiscoveredResource] = []
    for root in (CORE_ROOT, GROUPS_ROOT):
        resources += [kind async for kind in _resources_under(client, root)]
    return resources


async def is_served(client: Client, resource: Resource[Any]) -> bool:
    """Whether the server serves this kind in this version."""
    try:
        listed = await _legacy_resources(client, resource.group, resource.version)
    except NotFound:
        return False
    return any(kind.resource.plural == resource.plural for kind in listed)


async def server_version(client: Client) -> str:
    """The server's version, such as `v1.34.4`."""
    return (await client.requests.call_typed(Request("GET", VERSION_PATH), _VersionInfo)).git_version


# The fields of discovery documents that are read here.


class _VersionInfo(ApiStruct, frozen=True):
    git_version: str


class _GroupVersion(ApiStruct, frozen=True):
    group_version: str


class _Group(ApiStruct, frozen=True):
    versions: tuple[_GroupVersion, ...] = ()


class _DiscoveryRoot(ApiStruct, frozen=True):
    """The response at a root: APIVersions, APIGroupList or APIGroupDiscoveryList."""

    kind: str
    versions: tuple[str, ...] = ()
    groups: tuple[_Group, ...] = ()
    items: tuple["_GroupDiscovery", ...] = ()


class _GroupMeta(ApiStruct, frozen=True):
    name: str = ""


class _ResponseKind(ApiStruct, frozen=True):
    kind: str = ""


class _Subresource(ApiStruct, frozen=True):
    subresource: str


class _ResourceDiscovery(ApiStruct, frozen=True):
    resource: str
    response_kind: _ResponseKind = _ResponseKind()
    scope: str = "Namespaced"
    singular_resource: str = ""
    verbs: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[_Subresource, ...] = ()


class _VersionDiscovery(ApiStruct, frozen=True):
    version: str
    freshness: str = ""
    resources: tuple[_ResourceDiscovery, ...] = ()


class _GroupDiscovery(ApiStruct, frozen=True):
    metadata: _GroupMeta = _GroupMeta()
    versions: tuple[_VersionDiscovery, ...] = ()


class _ApiResource(ApiStruct, frozen=True):
    name: str
    kind: str = ""
    namespaced: bool = False
    singular_name: str = ""
    verbs: tuple[str, ...] = ()
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()


class _ApiResourceList(ApiStruct, frozen=True):
    resources: tuple[_ApiResource, ...] = ()


async def _resources_under(client: Client, root: str) -> AsyncIterator[DiscoveredResource]:
    document = await client.requests.call_typed(Request("GET", root, accept=AGGREGATED_ACCEPT), _DiscoveryRoot)
    for group in document.items:
        for kind in _aggregated_resources(group):
            yield kind
    listed = [("", name) for name in document.versions]
    listed += [split_api_version(entry.group_version) for group in document.groups for entry in group.versions]
    for name, in_version in listed:
        try:
            kinds = await _legacy_resources(client, name, in_version)
        except (ApiError, MalformedResponse) as error:
            log.warning(
                "group cannot be discovered",
                extra={"group": name, "group_version": in_version, "error": str(error)},
            )
            continue
        for kind in kinds:
            yield kind


def split_api_version(api_version: str) -> tuple[str, str]:
    """Group and version of `apps/v1`; the group of `v1` is empty."""
    group, _, name = api_version.rpartition("/")
    return group, name


def _aggregated_resources(group: _GroupDiscovery) -> Iterator[DiscoveredResource]:
    for entry in group.versions:
        if entry.freshness == "Stale":
            log.warning(
                "group may be incomplete, its server is down",
                extra={"group": group.metadata.name, "group_version": entry.version},
            )
        for kind in entry.resources:
            yield DiscoveredResource(
                _unstructured_resource(
                    group.metadata.name,
                    entry.version,
                    kind.response_kind.kind,
                    kind.resource,
                    namespaced=kind.scope == "Namespaced",
                ),
                kind.singular_resource,
                kind.verbs,
                kind.short_names,
                kind.categories,
                tuple(part.subresource for part in kind.subresources),
            )


async def _legacy_resources(client: Client, group: str, in_version: str) -> list[DiscoveredResource]:
    listed = await client.requests.call_typed(Request("GET", group_version_path(group, in_version)), _ApiResourceList)
    parts: dict[str, list[str]] = {}
    for entry in listed.resources:
        plural, _, part = entry.name.partition("/")
        parts.setdefault(plural, []).extend([part] if part else [])
    return [
        DiscoveredResource(
            _unstructured_resource(group, in_version, entry.kind, entry.name, namespaced=entry.namespaced),
            entry.singular_name,
            entry.verbs,
            entry.short_names,
            entry.categories,
            tuple(parts[entry.name]),
        )
        for entry in listed.resources
        if "/" not in entry.name
    ]


def _unstructured_resource(group: str, in_version: str, kind: str, plural: str, *, namespaced: bool) -> Resource[JSON]:
    return Resource(group, in_version, kind, plural, dict[str, Any], namespaced=namespaced)
