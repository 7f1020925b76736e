"""HorizontalPodAutoscalers: stored as `autoscaling/v2`, also served as `v1`."""

import json
from typing import Any, ClassVar

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats
from gangline.apiserver.kinds.machinery.canonical import canonicalizer
from gangline.apiserver.kinds.machinery.metadata import validate_non_negative
from gangline.apiserver.kinds.machinery.strategy import StatusStrategy, Strategy
from gangline.schema.problems import FieldProblem, forbidden, invalid, invalid_each, required, unsupported

_METRIC_SOURCES = {
    "Object": "object",
    "External": "external",
    "Pods": "pods",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}
_METRICS_ANNOTATION = "autoscaling.alpha.kubernetes.io/metrics"
_BEHAVIOR_ANNOTATION = "autoscaling.alpha.kubernetes.io/behavior"


class AutoscalerStatusStrategy(StatusStrategy):
    def validate_status(self, obj: JSON, old: JSON) -> list[FieldProblem]:
        problems = validate_non_negative("status.currentReplicas", obj["status"].get("currentReplicas", 0))
        return problems + validate_non_negative("status.desiredReplicas", obj["status"].get("desiredReplicas", 0))


class AutoscalerStrategy(Strategy):
    """`autoscaling/v2`."""

    struct = "autoscaling.v2.HorizontalPodAutoscaler"
    has_status = True
    status_strategy = AutoscalerStatusStrategy

    def set_defaults(self, obj: JSON) -> None:
        spec = obj["spec"]
        spec.setdefault("minReplicas", 1)
        if not spec.get("metrics"):
            target = {"type": "Utilization", "averageUtilization": 80}
            spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
        behavior = spec.get("behavior")
        if behavior is not None:
            up = [_default_policy("Pods", 4), _default_policy("Percent", 100)]
            first = {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": up}
            behavior["scaleUp"] = {**first, **behavior.get("scaleUp", {})}
            first = {"selectPolicy": "Max", "policies": [_default_policy("Percent", 100)]}
            behavior["scaleDown"] = {**first, **behavior.get("scaleDown", {})}

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        spec = obj["spec"]
        low, high = spec["minReplicas"], spec["maxReplicas"]
        problems: list[FieldProblem] = []
        if low < 1:
            problems.append(invalid("spec.minReplicas", low, "must be greater than or equal to 1"))
        if high < 1:
            problems.append(invalid("spec.maxReplicas", high, "must be greater than 0"))
        if high < low:
            problems.append(invalid("spec.maxReplicas", high, "must be greater than or equal to `minReplicas`"))
        problems += _validate_scale_target(spec["scaleTargetRef"], "spec.scaleTargetRef")
        for index, metric in enumerate(spec.get("metrics", ())):
            problems += _validate_metric(metric, f"spec.metrics[{index}]")
        kinds = {metric.get("type") for metric in spec.get("metrics", ())}
        if low == 0 and not kinds & {"Object", "External"}:
            detail = "must specify at least one Object or External metric to support scaling to zero replicas"
            problems.append(forbidden("spec.metrics", detail))
        for name in ("scaleUp", "scaleDown") if "behavior" in spec else ():
            problems += _validate_scaling_rules(spec["behavior"][name], f"spec.behavior.{name}")
        return problems


class AutoscalerV1Strategy(AutoscalerStrategy):
    """`autoscaling/v1`: objects have the fields of that version, and are validated as `v2`."""

    struct: ClassVar[str] = "autoscaling.v1.HorizontalPodAutoscaler"

    def set_defaults(self, obj: JSON) -> None:
        obj["spec"].setdefault("minReplicas", 1)

    def validate_content(self, obj: JSON) -> list[FieldProblem]:
        return super().validate_content(to_v2(obj))


def _default_policy(kind: str, value: int) -> JSON:
    return {"type": kind, "value": value, "periodSeconds": 15}


def _validate_scale_target(reference: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for name in ("kind", "name"):
        value = reference.get(name, "")
        field_path = f"{path}.{name}"
        problems += (
            invalid_each(field_path, value, formats.path_segment_errors(value)) if value else [required(field_path)]
        )
    version = reference.get("apiVersion", "")
    if "/" not in version:
        problems.append(invalid(f"{path}.apiVersion", version, "apiVersion must specify API group"))
    return problems


def _validate_metric(metric: JSON, path: str) -> list[FieldProblem]:
    kind, problems = metric.get("type", ""), []
    if not kind:
        problems.append(required(f"{path}.type", "must specify a metric source type"))
    supported = sorted(_METRIC_SOURCES)
    if kind not in _METRIC_SOURCES:
        problems.append(unsupported(f"{path}.type", kind, supported))
    present = [name for name in _METRIC_SOURCES.values() if name in metric]
    if present:
        problems += _validate_metric_source(present[0], metric[present[0]], f"{path}.{present[0]}")
    if kind not in _METRIC_SOURCES:
        problems.append(unsupported(f"{path}.type", kind, supported))
    elif _METRIC_SOURCES[kind] not in present:
        detail = "must populate information for the given metric source"
        problems.append(required(f"{path}.{_METRIC_SOURCES[kind]}", detail))
    if len(present) != 1:
        detail = "must populate the given metric source only"
        problems += [forbidden(f"{path}.{name}", detail) for name in present if name != _METRIC_SOURCES.get(kind)]
    return problems


def _validate_metric_source(name: str, source: JSON, path: str) -> list[FieldProblem]:
    if name not in {"resource", "containerResource"}:
        return []
    problems: list[FieldProblem] = []
    if not source.get("name"):
        problems.append(required(f"{path}.name", "must specify a resource name"))
    target = source.get("target", {})
    kind, supported = target.get("type", ""), ("AverageValue", "Utilization", "Value")
    if not kind:
        problems.append(required(f"{path}.target.type", "must specify a metric target type"))
    if kind not in supported:
        field_path = f"{path}.target.type"
        problems.append(invalid(field_path, kind, "must be either Utilization, Value, or AverageValue"))
    utilization = target.get("averageUtilization")
    if utilization is not None and utilization < 1:
        detail = "must be greater than 0"
        problems.append(invalid(f"{path}.target.averageUtilization", utilization, detail))
    if utilization is None and "averageValue" not in target:
        detail = "must set either a target raw value or a target utilization"
        problems.append(required(f"{path}.target.averageUtilization", detail))
    if utilization is not None and "averageValue" in target:
        detail = "may not set both a target raw value and a target utilization"
        problems.append(forbidden(f"{path}.target.averageValue", detail))
    return problems


def _validate_scaling_rules(rules: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    seconds = rules.get("stabilizationWindowSeconds", 0)
    if seconds < 0:
        detail = "must be greater than or equal to zero"
        problems.append(invalid(f"{path}.stabilizationWindowSeconds", seconds, detail))
    if seconds > 3600:
        detail = "must be less than or equal to 3600"
        problems.append(invalid(f"{path}.stabilizationWindowSeconds", seconds, detail))
    policy_choice, supported = rules.get("selectPolicy", "Max"), ("Disabled", "Max", "Min")
    if policy_choice not in supported:
        problems.append(unsupported(f"{path}.selectPolicy", policy_choice, supported))
    if not rules.get("policies"):
        problems.append(required(f"{path}.policies", "must specify at least one Policy"))
    for index, policy in enumerate(rules.get("policies", ())):
        problems += _validate_scaling_policy(policy, f"{path}.policies[{index}]")
    return problems


def _validate_scaling_policy(policy: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    if policy["type"] not in {"Percent", "Pods"}:
        problems.append(unsupported(f"{path}.type", policy["type"], ("Percent", "Pods")))
    problems += [
        invalid(f"{path}.{name}", policy[name], "must be greater than zero")
        for name in ("value", "periodSeconds")
        if policy[name] <= 0
    ]
    if policy["periodSeconds"] > 1800:
        detail = "must be less than or equal to 1800"
        problems.append(invalid(f"{path}.periodSeconds", policy["periodSeconds"], detail))
    return problems


def to_v1(obj: JSON) -> JSON:
    """A stored autoscaler as `autoscaling/v1`. Fields that v1 does not have become annotations."""
    spec, status = dict(obj["spec"]), dict(obj.get("status", {}))
    meta = dict(obj["metadata"])
    annotations = dict(meta.get("annotations", {}))
    others: list[Any] = []
    for metric in spec.pop("metrics", ()):
        resource = metric.get("resource", {})
        percent = resource.get("target", {}).get("averageUtilization")
        if resource.get("name") == "cpu" and percent is not None:
            spec["targetCPUUtilizationPercentage"] = percent
        else:
            others.append(metric)
    if others:
        annotations[_METRICS_ANNOTATION] = json.dumps(others, separators=(",", ":"))
    behavior = spec.pop("behavior", None)
    if behavior is not None:
        annotations[_BEHAVIOR_ANNOTATION] = json.dumps(behavior, separators=(",", ":"))
    if annotations:
        meta["annotations"] = annotations
    converted = {**obj, "apiVersion": "autoscaling/v1", "metadata": meta, "spec": spec, "status": status}
    canonicalizer("autoscaling.v1.HorizontalPodAutoscaler").canonicalize(converted)
    return converted


def to_v2(obj: JSON) -> JSON:
    """An `autoscaling/v1` autoscaler as it is stored: the inverse of `to_v1`."""
    spec, meta = dict(obj["spec"]), dict(obj["metadata"])
    annotations = dict(meta.get("annotations", {}))
    metrics = json.loads(annotations.pop(_METRICS_ANNOTATION, "[]"))
    percent = spec.pop("targetCPUUtilizationPercentage", None)
    if percent is not None:
        target = {"type": "Utilization", "averageUtilization": percent}
        metrics.append({"type": "Resource", "resource": {"name": "cpu", "target": target}})
    if metrics:
        spec["metrics"] = metrics
    behavior = annotations.pop(_BEHAVIOR_ANNOTATION, None)
    if behavior is not None:
        spec["behavior"] = json.loads(behavior)
    meta.pop("annotations", None)
    if annotations:
        meta["annotations"] = annotations
    converted = {
        **obj,
        "apiVersion": "autoscaling/v2",
        "metadata": meta,
        "spec": spec,
        "status": dict(obj.get("status", {})),
    }
    canonicalizer("autoscaling.v2.HorizontalPodAutoscaler").canonicalize(converted)
    return converted
