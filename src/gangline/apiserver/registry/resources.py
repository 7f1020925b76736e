"""Which resources the server has: the built-in ones as kube-apiserver has them, and those that CRDs define."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.schema.typed import published

# Kinds that controllers of a whole cluster would act on. Here they are kept, and that is all.
INERT_KINDS = frozenset(
    {
        ("apps", "DaemonSet"),
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("autoscaling", "HorizontalPodAutoscaler"),
        ("batch", "CronJob"),
        ("batch", "Job"),
        ("", "ReplicationController"),
    }
)

# Where the version that a resource is stored in is not its own. The storage version's hash tells.
_STORAGE_VERSIONS = {
    "events.events.k8s.io": ("", "v1"),
    "horizontalpodautoscalers.autoscaling": ("autoscaling", "v2"),
    "customresourcedefinitions.apiextensions.k8s.io": ("apiextensions.k8s.io", "v1beta1"),
}

_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_SUBRESOURCE_VERBS = ("get", "patch", "update")


class Subresource(msgspec.Struct, frozen=True):
    """`pods/eviction`. Group and version are of its kind, and empty where they are those of the resource."""

    name: str
    kind: str
    group: str = ""
    version: str = ""
    verbs: tuple[str, ...] = _SUBRESOURCE_VERBS


class ApiResource(msgspec.Struct, frozen=True):
    """One resource in one version."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    verbs: tuple[str, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    list_kind: str = ""
    storage_version: tuple[str, str] = ("", "")
    """Group and version it is stored in."""
    custom: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified_name(self) -> str:
        """As errors say it: `pods`, `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def group_version_path(self) -> str:
        """Its group version's path without slashes around it: `api/v1`, `apis/apps/v1`."""
        return group_version_path(self.group, self.version)

    @property
    def is_stored(self) -> bool:
        """False for what only answers, as reviews and bindings do."""
        return "list" in self.verbs

    @property
    def inert_warning(self) -> str:
        """What to tell whoever creates one; empty where something acts on it."""
        if (self.group, self.kind) not in INERT_KINDS:
            return ""
        return f"gangline stores this {self.kind}, but runs no controller that acts on it"

    def subresource(self, name: str) -> Subresource | None:
        return next((part for part in self.subresources if part.name == name), None)


def group_version_path(group: str, version: str) -> str:
    """The path of a group version, without slashes around it."""
    return f"apis/{group}/{version}" if group else f"api/{version}"


@cache
def builtin_resources() -> tuple[ApiResource, ...]:
    """What every server has, in kube-apiserver's order: preferred versions first."""
    return tuple(
        _builtin_resource(group["name"], version["version"], item)
        for group in published.discovery_data().groups
        for version in group["versions"]
        for item in version["resources"]
    )


def _builtin_resource(group: str, version: str, item: JSON) -> ApiResource:
    plural, kind = item["resource"], item["responseKind"]["kind"]
    return ApiResource(
        group,
        version,
        kind,
        plural,
        item["singularResource"],
        namespaced=item["scope"] == "Namespaced",
        verbs=tuple(item["verbs"]),
        short_names=tuple(item.get("shortNames", ())),
        categories=tuple(item.get("categories", ())),
        subresources=tuple(map(_subresource, item["subresources"])),
        list_kind=f"{kind}List",
        storage_version=_STORAGE_VERSIONS.get(f"{plural}.{group}", (group, version)),
    )


def _subresource(item: JSON) -> Subresource:
    kind = item["responseKind"]
    return Subresource(item["subresource"], kind["kind"], kind["group"], kind["version"], tuple(item["verbs"]))


def crd_resources(crd: JSON) -> tuple[ApiResource, ...]:
    """The resources of a CustomResourceDefinition, one for each version it serves, preferred version first.

    Names are the accepted ones: those in its status, where there are any.
    """
    spec = crd["spec"]
    accepted: JSON = crd.get("status", {}).get("acceptedNames", {})
    names = accepted if accepted.get("plural") else spec["names"]
    storage = next((item["name"] for item in spec["versions"] if item.get("storage")), "")
    served = [item for item in spec["versions"] if item.get("served")]
    served.sort(key=lambda item: version_rank(item["name"]))
    return tuple(_crd_resource(spec, names, item, storage) for item in served)


def _crd_resource(spec: JSON, names: JSON, version: JSON, storage: str) -> ApiResource:
    kind = names["kind"]
    parts = version.get("subresources") or {}
    offered = (
        ("status", Subresource("status", kind)),
        ("scale", Subresource("scale", "Scale", "autoscaling", "v1")),
    )
    return ApiResource(
        spec["group"],
        version["name"],
        kind,
        names["plural"],
        names.get("singular") or kind.lower(),
        namespaced=spec["scope"] == "Namespaced",
        verbs=_CUSTOM_VERBS,
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=tuple(part for name, part in offered if parts.get(name) is not None),
        list_kind=names.get("listKind") or f"{kind}List",
        storage_version=(spec["group"], storage),
        custom=True,
    )


_VERSION_PATTERN = re.compile(r"v([1-9]\d*)(?:(alpha|beta)([1-9]\d*))?")


def version_rank(version: str) -> tuple[Any, ...]:
    """Sorts versions as Kubernetes prefers them: v10, v2, v1, v2beta1, v1alpha3, then others by name."""
    found = _VERSION_PATTERN.fullmatch(version)
    if found is None:
        return (3, 0, 0, version)
    major, stage, minor = found.groups()
    return ({None: 0, "beta": 1, "alpha": 2}[stage], -int(major), -int(minor or 0), version)


def all_resources(custom: Iterable[ApiResource]) -> Iterator[ApiResource]:
    """Built-in resources, then custom ones: groups and resources by name, preferred versions first."""
    yield from builtin_resources()
    yield from sorted(custom, key=lambda item: (item.group, version_rank(item.version), item.plural))
