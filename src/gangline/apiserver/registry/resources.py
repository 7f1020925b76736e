"""The resources of the server: the built-in ones of kube-apiserver, and those that CRDs define."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.schema.typed import published

# Kinds that a controller of a full cluster acts on. This server only stores them.
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

# Resources that are stored in another version. Found by the storageVersionHash that kube-apiserver publishes.
_STORAGE_VERSIONS = {
    "events.events.k8s.io": ("", "v1"),
    "horizontalpodautoscalers.autoscaling": ("autoscaling", "v2"),
    "customresourcedefinitions.apiextensions.k8s.io": ("apiextensions.k8s.io", "v1beta1"),
}

_CUSTOM_VERBS = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_SUBRESOURCE_VERBS = ("get", "patch", "update")


class Subresource(msgspec.Struct, frozen=True):
    """A subresource such as `pods/eviction`. Group and version of its kind are empty if they are the resource's own."""

    name: str
    kind: str
    group: str = ""
    version: str = ""
    verbs: tuple[str, ...] = _SUBRESOURCE_VERBS


class ApiResource(msgspec.Struct, frozen=True):
    """A resource in one version."""

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
    """The group and version that objects are stored in."""
    custom: bool = False

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> tuple[str, str]:
        """Group and plural: the resource in all of its versions."""
        return self.group, self.plural

    @property
    def qualified_name(self) -> str:
        """The name in error messages: `pods`, `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def group_version_path(self) -> str:
        """The path of the group version without slashes around it: `api/v1`, `apis/apps/v1`."""
        return group_version_path(self.group, self.version)

    @property
    def is_stored(self) -> bool:
        """False for resources that exist only as request and response, such as reviews and bindings."""
        return "list" in self.verbs

    @property
    def inert_warning(self) -> str:
        """A warning for clients that create an object of an inert kind; empty for other kinds."""
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
    """The built-in resources in kube-apiserver's order: preferred versions first."""
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
    """The resources of a CustomResourceDefinition, one for each served version, preferred version first."""
    versions = [item for item in crd["spec"]["versions"] if item.get("served")]
    versions.sort(key=lambda item: version_rank(item["name"]))
    return tuple(_crd_resource(crd, item) for item in versions)


def crd_storage_resource(crd: JSON) -> ApiResource:
    """The resource of a CustomResourceDefinition in the version that is stored, which may be one that is not served."""
    return _crd_resource(crd, next(item for item in crd["spec"]["versions"] if item.get("storage")))


def _crd_resource(crd: JSON, version: JSON) -> ApiResource:
    """Its names are those that the status accepts, or those of the spec while the status has none."""
    spec = crd["spec"]
    accepted_names: JSON = crd.get("status", {}).get("acceptedNames", {})
    names = accepted_names if accepted_names.get("plural") else spec["names"]
    storage = next((item["name"] for item in spec["versions"] if item.get("storage")), "")
    kind = names["kind"]
    subresources = version.get("subresources") or {}
    supported = (("status", Subresource("status", kind)), ("scale", Subresource("scale", "Scale", "autoscaling", "v1")))
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
        subresources=tuple(subresource for name, subresource in supported if subresources.get(name) is not None),
        list_kind=names.get("listKind") or f"{kind}List",
        storage_version=(spec["group"], storage),
        custom=True,
    )


_VERSION_PATTERN = re.compile(r"v([1-9]\d*)(?:(alpha|beta)([1-9]\d*))?")


def version_rank(version: str) -> tuple[Any, ...]:
    """A sort key in Kubernetes' order of preference: v10, v2, v1, v2beta1, v1alpha3, then other names."""
    match = _VERSION_PATTERN.fullmatch(version)
    if match is None:
        return (3, 0, 0, version)
    major, stage, minor = match.groups()
    return ({None: 0, "beta": 1, "alpha": 2}[stage], -int(major), -int(minor or 0), version)


def all_resources(custom: Iterable[ApiResource]) -> Iterator[ApiResource]:
    """Built-in resources, then custom ones: groups and resources by name, preferred versions first."""
    yield from builtin_resources()
    yield from sorted(custom, key=lambda item: (item.group, version_rank(item.version), item.plural))
