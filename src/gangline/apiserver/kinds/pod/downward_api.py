"""Validation of what containers and volumes read about their own pod."""

import re

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats
from gangline.apiserver.kinds.machinery.problems import each, invalid, required, unsupported
from gangline.schema.problems import Problem

FOR_ENVIRONMENT = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
FOR_VOLUMES = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
_READABLE = frozenset(
    {*FOR_ENVIRONMENT, *FOR_VOLUMES, "spec.restartPolicy", "spec.schedulerName", "status.phase"}
)
_AMOUNTS = tuple(
    f"{kind}.{name}" for kind in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_HUGE = ("limits.hugepages-", "requests.hugepages-")
_SUBSCRIPT = re.compile(r"(.*?)\['(.*)'\]", re.DOTALL).fullmatch
_BYTES = frozenset({"1", *(f"1{unit}" for unit in "kMGTPE"), *(f"1{unit}i" for unit in "KMGTPE")})
_TOLD_BYTES = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei"


def field_reference(reference: JSON, known: tuple[str, ...], path: str) -> list[Problem]:
    """`fieldRef`: a field of the pod, or one label or annotation."""
    field = reference.get("fieldPath", "")
    if not field:
        return [required(f"{path}.fieldPath")]
    version = reference.get("apiVersion")
    if version != "v1":
        return [_unreadable(field, f"unsupported pod version: {version}", path)]
    if found := _SUBSCRIPT(field):
        return _subscripted(found[1], found[2], field, path)
    if field not in _READABLE:
        return [_unreadable(field, f"field label not supported: {field}", path)]
    return [] if field in known else [unsupported(f"{path}.fieldPath", field, known)]


def _unreadable(field: str, why: str, path: str) -> Problem:
    return invalid(f"{path}.fieldPath", field, f"error converting fieldPath: {why}")


def _subscripted(name: str, key: str, field: str, path: str) -> list[Problem]:
    if name == "metadata.annotations":
        return each(path, key.lower(), formats.qualified_name(key.lower()))
    if name == "metadata.labels":
        return each(path, key, formats.qualified_name(key))
    return [_unreadable(field, f"field label does not support subscript: {field}", path)]


def resource_reference(reference: JSON, path: str, *, of_volume: bool) -> list[Problem]:
    """`resourceFieldRef`: a limit or request of a container."""
    resource = reference.get("resource", "")
    found: list[Problem] = []
    if of_volume and not reference.get("containerName"):
        found.append(required(f"{path}.containerName"))
    elif not resource:
        found.append(required(f"{path}.resource"))
    elif resource not in _AMOUNTS and not resource.startswith(_HUGE):
        found.append(unsupported(f"{path}.resource", resource, _AMOUNTS))
    return found + _divisor(resource, reference.get("divisor", "0"), f"{path}.divisor")


def _divisor(resource: str, divisor: str, path: str) -> list[Problem]:
    if divisor == "0":
        return []
    if resource in {"limits.cpu", "requests.cpu"}:
        known, told, name = frozenset({"1", "1m"}), "1m and 1", "cpu"
    else:
        name = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}.get(
            resource.partition(".")[2], "hugepages" if resource.startswith(_HUGE) else ""
        )
        known, told = _BYTES, _TOLD_BYTES
    if not name or divisor in known:
        return []
    return [invalid(path, resource, f"only divisor's values {told} are supported with the {name} resource")]
