"""Resource quotas and limit ranges."""

from collections.abc import Iterable
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, gostruct, metadata, quantities
from gangline.apiserver.kinds.machinery.strategy import StatusStrategy, Strategy
from gangline.schema.problems import FieldProblem, duplicate, forbidden, invalid, invalid_each, required

_QUOTA_SCOPES = frozenset(
    [
        "Terminating",
        "NotTerminating",
        "BestEffort",
        "NotBestEffort",
        "PriorityClass",
        "CrossNamespacePodAffinity",
        "VolumeAttributesClass",
    ]
)


class ResourceQuotaStatusStrategy(StatusStrategy):
    def validate_status(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        status = obj["status"]
        return _validate_quota_resources(status.get("hard", {}), "status.hard") + _validate_quota_resources(
            status.get("used", {}), "status.used"
        )


class ResourceQuotaStrategy(Strategy):
    struct = "core.v1.ResourceQuota"
    has_status = True
    status_strategy = ResourceQuotaStatusStrategy

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        spec = obj["spec"]
        problems = _validate_quota_resources(spec.get("hard", {}), "spec.hard")
        scopes = spec.get("scopes", [])
        for scope in scopes:
            if scope not in _QUOTA_SCOPES:
                problems.append(invalid("spec.scopes", scopes, "unsupported scope"))
            problems += _validate_scope_resources(scope, spec.get("hard", {}), "spec.scopes", scopes)
        problems += _validate_scope_pairs(scopes, "spec.scopes", scopes)
        expressions = spec.get("scopeSelector", {}).get("matchExpressions", ())
        for expression in expressions:
            problems += _validate_scope_expression(expression, spec)
        selected = [expression.get("scopeName", "") for expression in expressions]
        return problems + _validate_scope_pairs(selected, _EXPRESSIONS_PATH, spec.get("scopes"))

    def validate_transition(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        scopes = obj["spec"].get("scopes")
        if set(scopes or ()) == set(old["spec"].get("scopes") or ()):
            return []
        return [invalid("spec.scopes", scopes, metadata.IMMUTABLE_MESSAGE)]


def _validate_quota_resources(resources: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for name, text in resources.items():
        problems += quantities.validate_quota_resource_name(name, f"{path}[{name}]")
        problems += quantities.validate_resource_value(name, text, f"{path}[{name}]")
    return problems


_EXPRESSIONS_PATH = "spec.scopeSelector.matchExpressions"
_POD_RESOURCES = frozenset(
    {"pods", *(f"{prefix}{name}" for prefix in ("", "requests.", "limits.") for name in ("cpu", "memory"))}
)
_SCOPE_RESOURCES = {
    **dict.fromkeys(
        ("Terminating", "NotTerminating", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity"), _POD_RESOURCES
    ),
    "BestEffort": frozenset({"pods"}),
    "VolumeAttributesClass": frozenset({"persistentvolumeclaims", "requests.storage"}),
}
"""The resources that a quota with a scope may limit, of those that Kubernetes defines."""


def _validate_scope_resources(scope: str, hard: JSON, path: str, value: object) -> list[FieldProblem]:
    allowed = _SCOPE_RESOURCES.get(scope)
    if allowed is None:
        return []
    detail = "unsupported scope applied to resource"
    return [
        invalid(path, value, detail)
        for name in sorted(hard)
        if quantities.is_quota_resource(name) and name not in allowed
    ]


def _validate_scope_pairs(scopes: Iterable[str], path: str, value: object) -> list[FieldProblem]:
    pairs = ({"BestEffort", "NotBestEffort"}, {"Terminating", "NotTerminating"})
    return [invalid(path, value, "conflicting scopes") for pair in pairs if pair <= set(scopes)]


def _printed_selector(selector: JSON) -> Any:
    expressions = [
        bytes(gostruct.go_struct(expression, "ScopeName Operator Values")).decode()
        for expression in selector.get("matchExpressions", ())
    ]
    return msgspec.Raw(f'{{"MatchExpressions":[{",".join(expressions)}]}}'.encode())


def _validate_scope_expression(expression: JSON, spec: JSON) -> list[FieldProblem]:
    path = _EXPRESSIONS_PATH
    scope, operator, values = (
        expression.get("scopeName", ""),
        expression.get("operator", ""),
        expression.get("values", []),
    )
    problems: list[FieldProblem] = []
    if scope not in _QUOTA_SCOPES:
        problems.append(invalid(f"{path}.scopeName", scope, "unsupported scope"))
    problems += _validate_scope_resources(scope, spec.get("hard", {}), path, _printed_selector(spec["scopeSelector"]))
    if scope in _QUOTA_SCOPES - {"PriorityClass", "VolumeAttributesClass"} and operator != "Exists":
        detail = (
            "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
            "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or "
            "ResourceQuotaScopeCrossNamespacePodAffinity"
        )
        problems.append(invalid(f"{path}.operator", operator, detail))
    if operator in {"In", "NotIn"}:
        if not values:
            detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            problems.append(required(f"{path}.values", detail))
    elif operator not in {"Exists", "DoesNotExist"}:
        problems.append(invalid(f"{path}.operator", operator, "not a valid selector operator"))
    elif values:
        detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
        problems.append(invalid(f"{path}.values", values, detail))
    return problems


class LimitRangeStrategy(Strategy):
    struct = "core.v1.LimitRange"

    def prepare_for_create(self, obj: JSON, now: str) -> None:
        if not obj["metadata"].get("name"):  # The only kind with a default name.
            obj["metadata"]["name"] = obj["metadata"]["uid"]

    def set_defaults(self, obj: JSON) -> None:
        for limit in obj["spec"].get("limits") or ():
            if limit.get("type") == "Container":
                default = {**limit.get("max", {}), **limit.get("default", {})}
                request = {**limit.get("min", {}), **default, **limit.get("defaultRequest", {})}
                for name, value in (("default", default), ("defaultRequest", request)):
                    if value:
                        limit[name] = value

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        problems: list[FieldProblem] = []
        earlier_types: set[str] = set()
        for index, limit in enumerate(obj["spec"].get("limits") or ()):
            path, kind = f"spec.limits[{index}]", limit.get("type", "")
            errors = formats.qualified_name_errors(kind)
            if not errors and "/" not in kind and kind not in {"Pod", "Container", "PersistentVolumeClaim"}:
                errors = ("must be a standard limit type or fully qualified",)
            problems += invalid_each(f"{path}.type", kind, errors)
            if kind in earlier_types:
                problems.append(duplicate(f"{path}.type", kind))
            earlier_types.add(kind)
            problems += _validate_limit(limit, kind, path)
        return problems

    def validate_kind_update(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        return self.validate(obj)


def _validate_limit(limit: JSON, kind: str, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    groups = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"]
    for name in groups:
        if kind == "Pod" and name.startswith("default"):
            if limit.get(name):
                problems.append(forbidden(f"{path}.{name}", "may not be specified when `type` is 'Pod'"))
            continue
        for resource in limit.get(name, {}):
            resource_path = f"{path}.{name}[{resource}]"
            inside = kind in {"Pod", "Container"}
            problems += (quantities.validate_container_resource_name if inside else quantities.validate_resource_name)(
                resource, resource_path
            )
    if kind == "PersistentVolumeClaim" and not any("storage" in limit.get(name, {}) for name in ("min", "max")):
        detail = "either minimum or maximum storage value is required, but neither was provided"
        problems.append(required(f"{path}.limits", detail))
    for resource in sorted({resource_name for name in groups for resource_name in limit.get(name, {})}):
        problems += _validate_limit_order(limit, resource, path)
    return problems


_LIMIT_ORDER = (
    ("min", "max", "min", "min value {} is greater than max value {}"),
    ("min", "defaultRequest", "defaultRequest", "min value {} is greater than default request value {}"),
    ("defaultRequest", "max", "defaultRequest", "default request value {} is greater than max value {}"),
    ("defaultRequest", "default", "defaultRequest", "default request value {} is greater than default limit value {}"),
    ("min", "default", "default", "min value {} is greater than default value {}"),
    ("default", "max", "default", "default value {} is greater than max value {}"),
)


def _validate_limit_order(limit: JSON, resource: str, path: str) -> list[FieldProblem]:
    texts = {name: limit[name][resource] for name in limit if resource in (limit[name] if name != "type" else ())}
    problems: list[FieldProblem] = []
    for small, large, field, detail in _LIMIT_ORDER:
        if (
            small in texts
            and large in texts
            and quantities.parse_quantity(texts[small]) > quantities.parse_quantity(texts[large])
        ):
            value = {"defaultRequest": texts.get("defaultRequest"), "min": texts[small]}.get(field)
            if field == "default":
                value = texts[small] if small == "min" else texts[large]
            problems.append(invalid(f"{path}.{field}[{resource}]", value, detail.format(texts[small], texts[large])))
    ratio = texts.get("maxLimitRequestRatio")
    if ratio is not None and quantities.parse_quantity(ratio).milli() < 1000:
        field = f"{path}.maxLimitRequestRatio[{resource}]"
        problems.append(invalid(field, ratio, f"ratio {ratio} is less than 1"))
    if ratio is not None and {"min", "max"} <= texts.keys() and quantities.parse_quantity(texts["min"]).nanos:
        share = quantities.parse_quantity(texts["max"]).nanos / quantities.parse_quantity(texts["min"]).nanos
        if quantities.parse_quantity(ratio).milli() / 1000 > share:
            field = f"{path}.maxLimitRequestRatio[{resource}]"
            detail = f"ratio {ratio} is greater than max/min = {share:.6f}"
            problems.append(invalid(field, ratio, detail))
    return problems
