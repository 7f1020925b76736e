"""Which resource serves a kind, and which type its objects decode to.

A `Scheme` is a value. There is no registry and no import side effect: a custom operator extends `CORE_SCHEME` and
passes
the result to its client and codec.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Generic, TypeVar

import msgspec

from gangline.base.errors import GanglineError

T = TypeVar("T")


class UnknownKind(GanglineError):
    """A kind or type that the scheme does not hold."""


class Resource(msgspec.Struct, Generic[T], frozen=True):
    """Where the objects of a kind are served, and the type they decode to (`dict` for plain JSON)."""

    group: str
    version: str
    kind: str
    plural: str
    model: type[T]
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def name(self) -> str:
        """The name as kubectl prints it: `tfjobs.kubeflow.org`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def __str__(self) -> str:
        return self.name


class Scheme:
    """An immutable table of resources, looked up by type, by kind, or by what a person types."""

    def __init__(self, resources: Iterable[Resource[Any]] | Callable[[], Iterable[Resource[Any]]]) -> None:
        """A function is called when the scheme is first used: those who only read JSON need not import its models."""
        self._given = resources if callable(resources) else tuple(resources)

    @cached_property
    def _resources(self) -> tuple[Resource[Any], ...]:
        return tuple(self._given() if callable(self._given) else self._given)

    @cached_property
    def _by_model(self) -> dict[type[Any], Resource[Any]]:
        return {resource.model: resource for resource in self._resources}

    @cached_property
    def _by_kind(self) -> dict[tuple[str, str], Resource[Any]]:
        return {(resource.api_version, resource.kind): resource for resource in self._resources}

    def __iter__(self) -> Iterator[Resource[Any]]:
        return iter(self._resources)

    def with_resources(self, *resources: Resource[Any]) -> "Scheme":
        """A scheme with these resources added. An added model or kind replaces an earlier one."""
        return Scheme((*self._resources, *resources))

    def of(self, kind: "type[T] | Resource[T]") -> Resource[T]:
        """The resource of a type; a resource is returned as it is. Raises `UnknownKind`."""
        if isinstance(kind, Resource):
            return kind
        try:
            return self._by_model[kind]
        except KeyError:
            raise UnknownKind(f"{kind.__name__} is not in the scheme: extend it with a Resource") from None

    def kind(self, api_version: str, kind: str) -> Resource[Any]:
        """The resource of a kind as a manifest names it. Raises `UnknownKind` with the closest known kinds."""
        try:
            return self._by_kind[api_version, kind]
        except KeyError:
            known = sorted({v for v, k in self._by_kind if k == kind})
            hint = f"write apiVersion: {known[0]}" if known else "it is none of the known kinds"
            raise UnknownKind(f"no kind {kind} in {api_version or 'an empty apiVersion'}; {hint}") from None

    def find(self, text: str) -> Resource[Any]:
        """The resource that a person means by `tfjob`, `tfjobs` or `tfjobs.kubeflow.org`. Raises `UnknownKind`."""
        wanted = text.lower()
        for resource in self._resources:
            singular = resource.kind.lower()
            if wanted in (singular, resource.plural, resource.name, f"{singular}.{resource.group}"):
                return resource
        raise UnknownKind(f"no resource {text!r}")


def _core_resources() -> tuple[Resource[Any], ...]:
    from gangline.api.core import (
        ConfigMap,
        Event,
        Lease,
        Namespace,
        Node,
        Pod,
        PriorityClass,
        Secret,
        Service,
        ServiceAccount,
    )

    return (
        Resource("", "v1", "Pod", "pods", Pod),
        Resource("", "v1", "Service", "services", Service),
        Resource("", "v1", "ConfigMap", "configmaps", ConfigMap),
        Resource("", "v1", "Secret", "secrets", Secret),
        Resource("", "v1", "ServiceAccount", "serviceaccounts", ServiceAccount),
        Resource("", "v1", "Node", "nodes", Node, namespaced=False),
        Resource("", "v1", "Namespace", "namespaces", Namespace, namespaced=False),
        Resource("events.k8s.io", "v1", "Event", "events", Event),
        Resource("coordination.k8s.io", "v1", "Lease", "leases", Lease),
        Resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", PriorityClass, namespaced=False),
    )


CORE_SCHEME = Scheme(_core_resources)
"""Kubernetes' own kinds that gangline reads."""
