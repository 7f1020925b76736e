"""Discovery documents, from which kubectl and client libraries learn the resources of the server. Pure functions.

`resources` are all resources of the server in the order of `all_resources`, which is the order of the documents.
"""

import base64
import hashlib
import sys
from collections.abc import Iterable

from gangline.api.core import KUBERNETES_VERSION
from gangline.api.meta import JSON
from gangline.apiserver.registry.resources import ApiResource, Subresource

AGGREGATED_MEDIA_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""The content type of aggregated discovery. Other documents are plain `application/json`."""


def wants_aggregated(accept: str) -> bool | None:
    """Whether an Accept header asks for aggregated discovery at /api and /apis; None if nothing is acceptable (406).

    The first acceptable type decides, as in kube-apiserver. The v2beta1 form is not served since 1.33.
    """
    for part in (accept or "application/json").split(","):
        media, *rest = (piece.strip() for piece in part.split(";"))
        options = dict(piece.split("=", 1) for piece in rest if "=" in piece)
        if media not in ("application/json", "application/*", "*/*"):
            continue
        if options.get("as") is None:
            return False
        if (options["as"], options.get("g"), options.get("v")) == (
            "APIGroupDiscoveryList",
            "apidiscovery.k8s.io",
            "v2",
        ):
            return True
    return None


def version_info(gangline: str, platform: str) -> JSON:
    """/version: the emulated Kubernetes version, with gangline's version as build metadata."""
    major, minor, _ = KUBERNETES_VERSION.split(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": f"v{KUBERNETES_VERSION}+gangline-{gangline}",
        "gitCommit": "unknown",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{sys.version_info.major}.{sys.version_info.minor}",
        "compiler": sys.implementation.name,
        "platform": platform,
    }


def root_paths(resources: Iterable[ApiResource]) -> JSON:
    """/: the paths of the server."""
    fixed = {"/api", "/apis", "/healthz", "/livez", "/metrics", "/readyz", "/openapi/v2", "/openapi/v3", "/version"}
    listed = list(resources)
    groups = {f"/apis/{item.group}" for item in listed if item.group}
    return {"paths": sorted(fixed | groups | {f"/{item.group_version_path}" for item in listed})}


def api_versions(address: str) -> JSON:
    """/api, for clients that reach the server at `address` (host:port)."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def api_group_list(resources: Iterable[ApiResource]) -> JSON:
    """/apis: every group except the core group."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group_entry(name, versions) for name, versions in _by_group_version(resources).items() if name],
    }


def api_group(resources: Iterable[ApiResource], name: str) -> JSON | None:
    """/apis/NAME; None if there is no such group (404 in plain text)."""
    versions = _by_group_version(resources).get(name) if name else None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group_entry(name, versions)} if versions else None


def _group_entry(name: str, versions: JSON) -> JSON:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _by_group_version(resources: Iterable[ApiResource]) -> dict[str, dict[str, list[ApiResource]]]:
    """Resources by group and version."""
    groups: dict[str, dict[str, list[ApiResource]]] = {}
    for item in resources:
        groups.setdefault(item.group, {}).setdefault(item.version, []).append(item)
    return groups


def api_resource_list(resources: Iterable[ApiResource], group: str, version: str) -> JSON | None:
    """/api/v1 and /apis/GROUP/VERSION; None if there is no such version.

    The 404 is a Status for built-in groups, and plain text for unknown groups and groups of CRDs.
    """
    served = [item for item in resources if (item.group, item.version) == (group, version)]
    if not served:
        return None
    entries = [entry for item in served for entry in _resource_entries(item)]
    named = {"groupVersion": f"{group}/{version}" if group else version, "resources": entries}
    # kube-apiserver omits the apiVersion for the core group.
    return {"kind": "APIResourceList", **({"apiVersion": "v1"} if group else {}), **named}


def _resource_entries(item: ApiResource) -> list[JSON]:
    entry: JSON = {
        "name": item.plural,
        "singularName": item.singular,
        "namespaced": item.namespaced,
        "kind": item.kind,
        "verbs": item.verbs,
        **_short_names_and_categories(item),
    }
    if item.is_stored:
        entry["storageVersionHash"] = storage_version_hash(*item.storage_version, item.kind)
    return [entry, *(_subresource_entry(item, part) for part in item.subresources)]


def _short_names_and_categories(item: ApiResource) -> JSON:
    names = {"shortNames": item.short_names, "categories": item.categories}
    return {name: texts for name, texts in names.items() if texts}


def _subresource_entry(item: ApiResource, part: Subresource) -> JSON:
    foreign = {"group": part.group, "version": part.version} if part.version else {}
    return {
        "name": f"{item.plural}/{part.name}",
        "singularName": "",
        "namespaced": item.namespaced,
        **foreign,
        "kind": part.kind,
        "verbs": part.verbs,
    }


def storage_version_hash(group: str, version: str, kind: str) -> str:
    """A hash that identifies the version a resource is stored in."""
    return base64.b64encode(hashlib.sha256(f"{group}/{version}/{kind}".encode()).digest()[:8]).decode()


def group_discovery_list(resources: Iterable[ApiResource], *, core: bool) -> JSON:
    """/api (with `core`) or /apis as aggregated discovery: all groups, versions and resources in one document."""
    items = [
        {
            "metadata": {"name": name} if name else {},
            "versions": [
                {"version": version, "resources": [_resource_discovery(item) for item in items], "freshness": "Current"}
                for version, items in versions.items()
            ],
        }
        for name, versions in _by_group_version(resources).items()
        if core is not bool(name)
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _resource_discovery(item: ApiResource) -> JSON:
    # Resources of CRDs repeat the group and version of the list, built-in ones leave them empty.
    own = (item.group, item.version) if item.custom else ("", "")
    entry: JSON = {
        "resource": item.plural,
        "responseKind": _group_version_kind(*own, item.kind),
        "scope": "Namespaced" if item.namespaced else "Cluster",
        "singularResource": item.singular,
        "verbs": item.verbs,
        **_short_names_and_categories(item),
    }
    if item.subresources:
        entry["subresources"] = [
            {
                "subresource": part.name,
                "responseKind": _group_version_kind(*((part.group, part.version) if part.version else own), part.kind),
                "verbs": part.verbs,
            }
            for part in item.subresources
        ]
    return entry


def _group_version_kind(group: str, version: str, kind: str) -> JSON:
    return {"group": group, "version": version, "kind": kind}
