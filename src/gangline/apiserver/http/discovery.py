"""Discovery documents: what kubectl and client libraries ask for to learn which kinds there are. Pure functions.

`served` is everything the server has, as `api_resource_list.in_order` gives it: its order is the order of the answers.
"""

import base64
import hashlib
import sys
from collections.abc import Iterable

from gangline.api.meta import JSON
from gangline.apiserver.registry.resources import ApiResource, Subresource

AGGREGATED_MEDIA_TYPE = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
"""The content type of the aggregated form. Others: plain `application/json`."""

KUBERNETES_VERSION = ("1", "34", "1.34.4")


def wants_aggregated(accept: str) -> bool | None:
    """What an Accept header asks for at /api and /apis; None when it takes nothing that we have (406).

    The first type that we can give decides, as in kube-apiserver. The v2beta1 form is gone since 1.33.
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
    """/version: the Kubernetes that we are as, and gangline's own version as build metadata."""
    major, minor, full = KUBERNETES_VERSION
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": f"v{full}+gangline-{gangline}",
        "gitCommit": "unknown",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{sys.version_info.major}.{sys.version_info.minor}",
        "compiler": sys.implementation.name,
        "platform": platform,
    }


def root_paths(served: Iterable[ApiResource]) -> JSON:
    """The document at /."""
    fixed = {"/api", "/apis", "/healthz", "/livez", "/readyz", "/openapi/v2", "/openapi/v3", "/version"}
    found = list(served)
    groups = {f"/apis/{item.group}" for item in found if item.group}
    return {"paths": sorted(fixed | groups | {f"/{item.group_version_path}" for item in found})}


def api_versions(address: str) -> JSON:
    """/api, for clients that reach us at `address` (host:port)."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def api_group_list(served: Iterable[ApiResource]) -> JSON:
    """/apis: every group but the core one."""
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group_entry(name, found) for name, found in _by_group_version(served).items() if name],
    }


def api_group(served: Iterable[ApiResource], name: str) -> JSON | None:
    """/apis/NAME; None when there is no such group (404 in plain text)."""
    found = _by_group_version(served).get(name) if name else None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group_entry(name, found)} if found else None


def _group_entry(name: str, versions: JSON) -> JSON:
    told = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": told, "preferredVersion": told[0]}


def _by_group_version(served: Iterable[ApiResource]) -> dict[str, dict[str, list[ApiResource]]]:
    """Group, then version, then resources."""
    found: dict[str, dict[str, list[ApiResource]]] = {}
    for item in served:
        found.setdefault(item.group, {}).setdefault(item.version, []).append(item)
    return found


def api_resource_list(served: Iterable[ApiResource], group: str, version: str) -> JSON | None:
    """/api/v1 and /apis/GROUP/VERSION; None when there is no such version.

    That is a 404, in plain text for an unknown group and for CRDs' groups, as a Status for built-in groups.
    """
    found = [item for item in served if (item.group, item.version) == (group, version)]
    if not found:
        return None
    entries = [entry for item in found for entry in _resource_entries(item)]
    named = {"groupVersion": f"{group}/{version}" if group else version, "resources": entries}
    # kube-apiserver leaves the version out for the core group.
    return {"kind": "APIResourceList", **({"apiVersion": "v1"} if group else {}), **named}


def _resource_entries(item: ApiResource) -> list[JSON]:
    entry: JSON = {
        "name": item.plural,
        "singularName": item.singular,
        "namespaced": item.namespaced,
        "kind": item.kind,
        "verbs": item.verbs,
    }
    if item.short_names:
        entry["shortNames"] = item.short_names
    if item.categories:
        entry["categories"] = item.categories
    if item.is_stored:
        entry["storageVersionHash"] = storage_version_hash(*item.storage_version, item.kind)
    return [entry, *(_subresource_entry(item, part) for part in item.subresources)]


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
    """Tells clients which version a resource is stored in, without saying it."""
    return base64.b64encode(hashlib.sha256(f"{group}/{version}/{kind}".encode()).digest()[:8]).decode()


def group_discovery_list(served: Iterable[ApiResource], *, core: bool) -> JSON:
    """/api (core) or /apis in the aggregated form: all of discovery in one answer."""
    items = [
        {
            "metadata": {"name": name} if name else {},
            "versions": [
                {
                    "version": version,
                    "resources": [_resource_discovery(item) for item in found],
                    "freshness": "Current",
                }
                for version, found in versions.items()
            ],
        }
        for name, versions in _by_group_version(served).items()
        if core is not bool(name)
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": "apidiscovery.k8s.io/v2",
        "metadata": {},
        "items": items,
    }


def _resource_discovery(item: ApiResource) -> JSON:
    # Built-in kinds leave group and version to be those of the list, custom ones repeat them.
    own = (item.group, item.version) if item.custom else ("", "")
    entry: JSON = {
        "resource": item.plural,
        "responseKind": _group_version_kind(*own, item.kind),
        "scope": "Namespaced" if item.namespaced else "Cluster",
        "singularResource": item.singular,
        "verbs": item.verbs,
    }
    if item.short_names:
        entry["shortNames"] = item.short_names
    if item.categories:
        entry["categories"] = item.categories
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
