"""Validation of CustomResourceDefinitions, in kube-apiserver's words and order.

kube-apiserver converts CRDs to an older form: what all versions have in common is reported once, directly under `spec`,
and only what differs under `spec.versions[i]`.
"""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats
from gangline.apiserver.kinds.machinery.metadata import IMMUTABLE_MESSAGE
from gangline.schema.crd_validation.schema_rules import SHARED_SCHEMA_PATH, check_crd_schema
from gangline.schema.problems import FieldProblem, duplicate, forbidden, invalid, invalid_each, required, unsupported

APPROVAL_ANNOTATION = "api-approved.kubernetes.io"
COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_PROTECTED_GROUP = re.compile(r"(^|\.)(k8s|kubernetes)\.io$").search
_PRESERVE_UNKNOWN_MESSAGE = (
    "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"
)
_SIMPLE_PATH_MESSAGE = "must be a simple json path starting with ."
_MIXED_CASE_PREFIX = "may have mixed case, but should otherwise match: "
_SELECTABLE_MESSAGE = (
    "must point to a field of type string, boolean or integer. Enum string fields and strings with formats are allowed."
)


class _PrintedVersion(msgspec.Struct, frozen=True):
    """A version as Go prints it, without the parts that all versions have in common."""

    Name: str
    Served: bool
    Storage: bool
    Deprecated: bool = False
    DeprecationWarning: str | None = None
    Schema: None = None
    Subresources: None = None
    AdditionalPrinterColumns: None = None
    SelectableFields: None = None


def crd_problems(crd: JSON) -> list[FieldProblem]:
    """Problems of a CRD, without those of its metadata that every kind has."""
    spec, name = crd["spec"], crd["metadata"].get("name") or ""
    problems: list[FieldProblem] = []
    names = spec.get("names") or {}
    if name and name != f"{names.get('plural', '')}.{spec.get('group', '')}":
        problems.append(invalid("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    problems += _spec_problems(spec)
    problems += _stored_versions_problems(spec, (crd.get("status") or {}).get("storedVersions"))
    return [*problems, *_approval_problems(crd)]


def crd_update_problems(new: JSON, old: JSON) -> list[FieldProblem]:
    """Problems of changed immutable fields: group and plural always, scope and kind once the CRD is established."""
    fields = [("spec.group", ("group",)), ("spec.names.plural", ("names", "plural"))]
    conditions = (old.get("status") or {}).get("conditions") or ()
    if any(c.get("type") == "Established" and c.get("status") == "True" for c in conditions):
        fields = [("spec.scope", ("scope",)), ("spec.names.kind", ("names", "kind")), *fields]
    return [
        invalid(path, _value_at(new["spec"], steps), IMMUTABLE_MESSAGE)
        for path, steps in fields
        if _value_at(new["spec"], steps) != _value_at(old["spec"], steps)
    ]


def _value_at(value: Any, steps: tuple[str, ...]) -> Any:
    for step in steps:
        value = (value or {}).get(step)
    return value or ""


def _spec_problems(spec: JSON) -> list[FieldProblem]:
    versions = spec.get("versions") or []
    problems = [*_group_problems(spec.get("group") or ""), *_scope_problems(spec.get("scope") or "")]
    if spec.get("preserveUnknownFields"):
        problems.append(invalid("spec.preserveUnknownFields", value=True, detail=_PRESERVE_UNKNOWN_MESSAGE))
    problems += [
        required(f"spec.versions[{index}].schema.openAPIV3Schema")
        for index, version in enumerate(versions)
        if not _openapi_schema(version)
    ]
    for index, version in enumerate(versions):
        path = f"spec.versions[{index}]"
        problems += invalid_each(
            f"{path}.name", version.get("name", ""), formats.dns_1035_label_errors(version.get("name", ""))
        )
        problems += _deprecation_problems(version, path)
    problems += _version_part_problems(versions, shared=False)
    problems += _storage_flag_problems(spec.get("versions"))
    if versions and versions[0].get("name"):
        problems += invalid_each(
            "spec.version", versions[0]["name"], formats.dns_1035_label_errors(versions[0]["name"])
        )
    problems += _names_problems(spec.get("names") or {})
    problems += _version_part_problems(versions, shared=True)
    return [*problems, *_conversion_problems(spec.get("conversion") or {})]


def _group_problems(group: str) -> list[FieldProblem]:
    if not group:
        return [required("spec.group")]
    if errors := formats.dns_subdomain_errors(group):
        return invalid_each("spec.group", group, errors)
    return [] if "." in group else [invalid("spec.group", group, "should be a domain with at least one dot")]


def _scope_problems(scope: str) -> list[FieldProblem]:
    if not scope:
        return [required("spec.scope")]
    supported = ("Cluster", "Namespaced")
    return [] if scope in supported else [unsupported("spec.scope", scope, supported)]


def _storage_flag_problems(listed_versions: list[JSON] | None) -> Iterator[FieldProblem]:
    versions = listed_versions or []
    names = [version.get("name", "") for version in versions]
    printed = None if listed_versions is None else [_printed_version(version) for version in versions]
    if len(set(names)) < len(names):
        yield invalid("spec.versions", printed, "must contain unique version names")
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield invalid("spec.versions", printed, "must have exactly one version marked as storage version")


def _printed_version(version: JSON) -> _PrintedVersion:
    return _PrintedVersion(
        version.get("name", ""),
        bool(version.get("served")),
        bool(version.get("storage")),
        bool(version.get("deprecated")),
        version.get("deprecationWarning"),
    )


def _stored_versions_problems(spec: JSON, stored: list[str] | None) -> Iterator[FieldProblem]:
    path = "status.storedVersions"
    if not stored:
        yield invalid(path, None, "must have at least one stored version")
        return
    versions = spec.get("versions") or []
    storage = [version["name"] for version in versions if version.get("storage")]
    if storage and storage[-1] not in stored:
        yield invalid(path, stored, f"must have the storage version {storage[-1]}")
    names = {version["name"] for version in versions}
    for index, name in enumerate(stored):
        if name not in names:
            yield invalid(
                f"{path}[{index}]",
                name,
                "missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions".replace(
                    "v1", name
                ),
            )


def _approval_problems(crd: JSON) -> list[FieldProblem]:
    if not _PROTECTED_GROUP(crd["spec"].get("group") or "") or (crd["metadata"].get("annotations") or {}).get(
        APPROVAL_ANNOTATION
    ):
        return []
    detail = (
        f'protected groups must have approval annotation "{APPROVAL_ANNOTATION}", '
        "see https://github.com/kubernetes/enhancements/pull/1111"
    )
    return [required(f"metadata.annotations[{APPROVAL_ANNOTATION}]", detail)]


# Names


def _names_problems(names: JSON) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for field in ("plural", "singular", "kind", "listKind"):
        problems += _name_problems(field, names.get(field) or "")
    for field in ("shortNames", "categories"):
        for index, name in enumerate(names.get(field) or ()):
            problems += invalid_each(f"spec.names.{field}[{index}]", name, formats.dns_1035_label_errors(name))
    if names.get("kind") and names.get("kind") == names.get("listKind"):
        problems.append(invalid("spec.names.listKind", names["listKind"], "kind and listKind may not be the same"))
    return problems


def _name_problems(field: str, name: str) -> list[FieldProblem]:
    path = f"spec.names.{field}"
    if not name:
        return [required(path)]
    if field in ("plural", "singular"):
        return invalid_each(path, name, formats.dns_1035_label_errors(name))
    return invalid_each(
        path, name, [_MIXED_CASE_PREFIX + errors for errors in formats.dns_1035_label_errors(name.lower())]
    )


# Parts that versions may have in common


def _version_part_problems(versions: list[JSON], *, shared: bool) -> list[FieldProblem]:
    """Schemas, subresources, columns and selectable fields: those that all versions share, or those that differ."""
    problems: list[FieldProblem] = []
    for part, check in (
        ("schema", _schema_problems),
        ("subresources", _subresource_problems),
        ("additionalPrinterColumns", _columns_problems),
        ("selectableFields", _selectable_field_problems),
    ):
        same = all(version.get(part) == versions[0].get(part) for version in versions)
        if same is not shared:
            continue
        for index, version in enumerate(versions[:1] if shared else versions):
            if version.get(part):
                problems += check(version, "spec" if shared else f"spec.versions[{index}]")
    return problems


def _openapi_schema(version: JSON) -> JSON | None:
    schema: JSON | None = (version.get("schema") or {}).get("openAPIV3Schema")
    return schema


def _schema_problems(version: JSON, path: str) -> list[FieldProblem]:
    schema = _openapi_schema(version)
    if not schema:
        return []
    status = "status" in (version.get("subresources") or {})
    schema_path = SHARED_SCHEMA_PATH if path == "spec" else f"{path}.schema.openAPIV3Schema"
    return check_crd_schema(schema, schema_path, status=status)


def _subresource_problems(version: JSON, path: str) -> list[FieldProblem]:
    scale = version["subresources"].get("scale")
    if scale is None:
        return []
    problems: list[FieldProblem] = []
    for field, roots in (
        ("specReplicasPath", (".spec",)),
        ("statusReplicasPath", (".status",)),
        ("labelSelectorPath", (".spec", ".status")),
    ):
        json_path = scale.get(field) or ""
        if json_path or field != "labelSelectorPath":
            problems += _replicas_path_problems(json_path, f"{path}.subresources.scale.{field}", roots)
    return problems


def _replicas_path_problems(json_path: str, path: str, roots: tuple[str, ...]) -> list[FieldProblem]:
    if not json_path:
        return [required(path)]
    if not json_path.startswith(".") or json_path == ".":
        return [invalid(path, json_path, _SIMPLE_PATH_MESSAGE)]
    if not any(json_path.startswith(f"{root}.") for root in roots):
        under = roots[0] if len(roots) == 1 else "either .spec or .status"
        return [invalid(path, json_path, f"should be a json path under {under}")]
    return []


def _columns_problems(version: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for index, column in enumerate(version["additionalPrinterColumns"]):
        problems += _column_problems(column, f"{path}.additionalPrinterColumns[{index}]")
    return problems


def _column_problems(column: JSON, path: str) -> Iterator[FieldProblem]:
    if not column.get("name"):
        yield required(f"{path}.name")
    kind, format_name, json_path = column.get("type"), column.get("format"), column.get("jsonPath") or ""
    if not kind:
        yield required(f"{path}.type", f"must be one of {','.join(COLUMN_TYPES)}")
    elif kind not in COLUMN_TYPES:
        yield invalid(f"{path}.type", kind, f"must be one of {','.join(COLUMN_TYPES)}")
    if format_name and format_name not in COLUMN_FORMATS:
        yield invalid(f"{path}.format", format_name, f"must be one of {','.join(COLUMN_FORMATS)}")
    if not json_path:
        yield required(f"{path}.JSONPath")
    elif not json_path.startswith("."):
        yield invalid(f"{path}.JSONPath", json_path, _SIMPLE_PATH_MESSAGE)


def _selectable_field_problems(version: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    earlier_paths: set[str] = set()
    for index, field in enumerate(version["selectableFields"]):
        item_path, json_path = f"{path}.selectableFields[{index}].jsonPath", field.get("jsonPath") or ""
        if errors := _selectable_field_error(json_path, _openapi_schema(version) or {}):
            problems.append(invalid(item_path, json_path, errors))
        elif json_path in earlier_paths:
            problems.append(duplicate(item_path, json_path))
        earlier_paths.add(json_path)
    return problems


def _selectable_field_error(path: str, schema: JSON) -> str:
    if not path.startswith((".", "[")):
        return f"is an invalid path: expected [ or . but got: {path}"
    node: JSON | None = schema
    for step in path.split(".")[1:]:
        node = ((node or {}).get("properties") or {}).get(step)
    if node is None or path.startswith(".metadata"):
        return "is an invalid path: does not refer to a valid field"
    return "" if node.get("type") in ("string", "boolean", "integer") else _SELECTABLE_MESSAGE


def _deprecation_problems(version: JSON, path: str) -> Iterator[FieldProblem]:
    detail = version.get("deprecationWarning")
    if detail is None:
        return
    if not version.get("deprecated"):
        yield invalid(f"{path}.deprecationWarning", detail, "can only be set for deprecated versions")
    elif not detail:
        yield invalid(f"{path}.deprecationWarning", detail, "must not be an empty string")


def _conversion_problems(conversion: JSON) -> Iterator[FieldProblem]:
    strategy, hook = conversion.get("strategy") or "", conversion.get("webhook") or {}
    client, reviews = hook.get("clientConfig"), hook.get("conversionReviewVersions")
    path, supported = "spec.conversion", ("None", "Webhook")
    if strategy not in supported:
        yield unsupported(f"{path}.strategy", strategy, supported)
    if strategy == "Webhook":
        if not client:
            yield required(f"{path}.webhookClientConfig", "required when strategy is set to Webhook")
        if not reviews:
            yield required(f"{path}.conversionReviewVersions")
        return
    detail = "should not be set when strategy is not set to Webhook"
    if client:
        yield forbidden(f"{path}.webhookClientConfig", detail)
    if reviews:
        yield forbidden(f"{path}.conversionReviewVersions", detail)
