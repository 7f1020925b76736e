"""Validation of a Job's failure and success policies."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, gostruct
from gangline.apiserver.kinds.machinery.metadata import validate_non_negative
from gangline.schema.problems import (
    NO_VALUE,
    FieldProblem,
    duplicate,
    invalid,
    invalid_each,
    required,
    too_many,
    unsupported,
)


def validate_failure_policy(spec: JSON, path: str) -> list[FieldProblem]:
    rules = spec["podFailurePolicy"].get("rules") or []
    problems = [too_many(f"{path}.rules", len(rules), 20)] if len(rules) > 20 else []
    inner = spec["template"]["spec"]
    names = {container["name"] for container in [*(inner["containers"] or ()), *inner.get("initContainers", ())]}
    for index, rule in enumerate(rules):
        problems += _validate_failure_rule(rule, spec, names, f"{path}.rules[{index}]")
    return problems


def _validate_failure_rule(rule: JSON, spec: JSON, names: set[str], path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    action, supported = rule.get("action", ""), ("Count", "FailIndex", "FailJob", "Ignore")
    if not action:
        detail = " ".join(f'"{action_name}"' for action_name in supported)
        problems.append(required(f"{path}.action", f"valid values: [{detail}]"))
    elif action == "FailIndex" and "backoffLimitPerIndex" not in spec:
        problems.append(invalid(f"{path}.action", action, "requires the backoffLimitPerIndex to be set"))
    elif action not in supported:
        problems.append(unsupported(f"{path}.action", action, supported))
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions", [])
    if codes is not None:
        problems += _validate_exit_codes(codes, names, f"{path}.onExitCodes")
    for index, pattern in enumerate(conditions):
        item_path, kind = f"{path}.onPodConditions[{index}]", pattern.get("type", "")
        problems += invalid_each(f"{item_path}.type", kind, formats.qualified_name_errors(kind))
        if pattern["status"] not in {"False", "True", "Unknown"}:
            problems.append(unsupported(f"{item_path}.status", pattern["status"], ("False", "True", "Unknown")))
    if codes is not None and conditions:
        detail = "specifying both OnExitCodes and OnPodConditions is not supported"
        problems.append(invalid(path, NO_VALUE, detail))
    if codes is None and not conditions:
        detail = "specifying one of OnExitCodes and OnPodConditions is required"
        problems.append(invalid(path, NO_VALUE, detail))
    return problems


def _validate_exit_codes(codes: JSON, names: set[str], path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    operator, values = codes.get("operator", ""), codes.get("values") or []
    if not operator:
        problems.append(required(f"{path}.operator", 'valid values: ["In" "NotIn"]'))
    elif operator not in {"In", "NotIn"}:
        problems.append(unsupported(f"{path}.operator", operator, ("In", "NotIn")))
    if "containerName" in codes and codes["containerName"] not in names:
        detail = "must be one of the container or initContainer names in the pod template"
        problems.append(invalid(f"{path}.containerName", codes["containerName"], detail))
    if not values:
        problems.append(invalid(f"{path}.values", values, "at least one value is required"))
    elif len(values) > 255:
        problems.append(too_many(f"{path}.values", len(values), 255))
    earlier_values: set[int] = set()
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            problems.append(invalid(f"{path}.values[{index}]", 0, "must not be 0 for the In operator"))
        if value in earlier_values:
            problems.append(duplicate(f"{path}.values[{index}]", value))
        earlier_values.add(value)
    if values != sorted(values):
        problems.append(invalid(f"{path}.values", values, "must be ordered"))
    return problems


def validate_success_policy(spec: JSON, path: str) -> list[FieldProblem]:
    policy = spec["successPolicy"]
    if spec.get("completionMode", "NonIndexed") != "Indexed":
        rules = [gostruct.go_struct(rule, gostruct.SUCCESS_RULE_FIELDS) for rule in policy.get("rules") or ()]
        return [invalid(path, {"Rules": rules or None}, "requires indexed completion mode")]
    rules = policy.get("rules") or []
    problems: list[FieldProblem] = []
    if not rules:
        detail = "at least one rules must be specified when the successPolicy is specified"
        problems.append(required(f"{path}.rules", detail))
    if len(rules) > 20:
        problems.append(too_many(f"{path}.rules", len(rules), 20))
    for index, rule in enumerate(rules):
        item_path, count = f"{path}.rules[{index}]", rule.get("succeededCount")
        if count is None and "succeededIndexes" not in rule:
            detail = "at least one of succeededCount or succeededIndexes must be specified"
            problems.append(required(item_path, detail))
        if count is not None:
            problems += validate_non_negative(f"{item_path}.succeededCount", count)
            most = spec.get("completions", 0)
            if count > most:
                detail = f"must be less than or equal to {most} (the number of specified completions)"
                problems.append(invalid(f"{item_path}.succeededCount", count, detail))
    return problems
