"""Validation of the downward API: fields of the pod that containers and volumes read."""

import re

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats
from gangline.schema.problems import FieldProblem, invalid, invalid_each, required, unsupported

ENV_FIELD_PATHS = (
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
VOLUME_FIELD_PATHS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_FIELD_PATHS = frozenset(
    {*ENV_FIELD_PATHS, *VOLUME_FIELD_PATHS, "spec.restartPolicy", "spec.schedulerName", "status.phase"}
)
_RESOURCE_FIELDS = tuple(
    f"{kind}.{name}" for kind in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_HUGE_PAGES_PREFIXES = ("limits.hugepages-", "requests.hugepages-")
_SUBSCRIPT = re.compile(r"(.*?)\['(.*)'\]", re.DOTALL).fullmatch
_BYTE_DIVISORS = frozenset({"1", *(f"1{unit}" for unit in "kMGTPE"), *(f"1{unit}i" for unit in "KMGTPE")})
_BYTE_DIVISORS_TEXT = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei"


def validate_field_ref(reference: JSON, supported: tuple[str, ...], path: str) -> list[FieldProblem]:
    """Problems of a `fieldRef`: a field of the pod, or one label or annotation."""
    field = reference.get("fieldPath", "")
    if not field:
        return [required(f"{path}.fieldPath")]
    version = reference.get("apiVersion")
    if version != "v1":
        return [_field_path_problem(field, f"unsupported pod version: {version}", path)]
    if subscript := _SUBSCRIPT(field):
        return _validate_subscript(subscript[1], subscript[2], field, path)
    if field not in _FIELD_PATHS:
        return [_field_path_problem(field, f"field label not supported: {field}", path)]
    return [] if field in supported else [unsupported(f"{path}.fieldPath", field, supported)]


def _field_path_problem(field: str, why: str, path: str) -> FieldProblem:
    return invalid(f"{path}.fieldPath", field, f"error converting fieldPath: {why}")


def _validate_subscript(name: str, key: str, field: str, path: str) -> list[FieldProblem]:
    if name == "metadata.annotations":
        return invalid_each(path, key.lower(), formats.qualified_name_errors(key.lower()))
    if name == "metadata.labels":
        return invalid_each(path, key, formats.qualified_name_errors(key))
    return [_field_path_problem(field, f"field label does not support subscript: {field}", path)]


def validate_resource_field_ref(reference: JSON, path: str, *, of_volume: bool) -> list[FieldProblem]:
    """Problems of a `resourceFieldRef`: a limit or request of a container."""
    resource = reference.get("resource", "")
    problems: list[FieldProblem] = []
    if of_volume and not reference.get("containerName"):
        problems.append(required(f"{path}.containerName"))
    elif not resource:
        problems.append(required(f"{path}.resource"))
    elif resource not in _RESOURCE_FIELDS and not resource.startswith(_HUGE_PAGES_PREFIXES):
        problems.append(unsupported(f"{path}.resource", resource, _RESOURCE_FIELDS))
    return problems + _validate_divisor(resource, reference.get("divisor", "0"), f"{path}.divisor")


def _validate_divisor(resource: str, divisor: str, path: str) -> list[FieldProblem]:
    if divisor == "0":
        return []
    if resource in {"limits.cpu", "requests.cpu"}:
        supported, detail, name = frozenset({"1", "1m"}), "1m and 1", "cpu"
    else:
        name = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}.get(
            resource.partition(".")[2], "hugepages" if resource.startswith(_HUGE_PAGES_PREFIXES) else ""
        )
        supported, detail = _BYTE_DIVISORS, _BYTE_DIVISORS_TEXT
    if not name or divisor in supported:
        return []
    return [invalid(path, resource, f"only divisor's values {detail} are supported with the {name} resource")]
