"""Which failures and successes of pods decide about a Job."""

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
    found = [too_many(f"{path}.rules", len(rules), 20)] if len(rules) > 20 else []
    inner = spec["template"]["spec"]
    names = {one["name"] for one in [*(inner["containers"] or ()), *inner.get("initContainers", ())]}
    for index, rule in enumerate(rules):
        found += _validate_failure_rule(rule, spec, names, f"{path}.rules[{index}]")
    return found


def _validate_failure_rule(rule: JSON, spec: JSON, names: set[str], path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    action, known = rule.get("action", ""), ("Count", "FailIndex", "FailJob", "Ignore")
    if not action:
        told = " ".join(f'"{one}"' for one in known)
        found.append(required(f"{path}.action", f"valid values: [{told}]"))
    elif action == "FailIndex" and "backoffLimitPerIndex" not in spec:
        found.append(invalid(f"{path}.action", action, "requires the backoffLimitPerIndex to be set"))
    elif action not in known:
        found.append(unsupported(f"{path}.action", action, known))
    codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions", [])
    if codes is not None:
        found += _validate_exit_codes(codes, names, f"{path}.onExitCodes")
    for index, pattern in enumerate(conditions):
        here, kind = f"{path}.onPodConditions[{index}]", pattern.get("type", "")
        found += invalid_each(f"{here}.type", kind, formats.qualified_name_errors(kind))
        if pattern["status"] not in {"False", "True", "Unknown"}:
            found.append(unsupported(f"{here}.status", pattern["status"], ("False", "True", "Unknown")))
    if codes is not None and conditions:
        told = "specifying both OnExitCodes and OnPodConditions is not supported"
        found.append(invalid(path, NO_VALUE, told))
    if codes is None and not conditions:
        told = "specifying one of OnExitCodes and OnPodConditions is required"
        found.append(invalid(path, NO_VALUE, told))
    return found


def _validate_exit_codes(codes: JSON, names: set[str], path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    operator, values = codes.get("operator", ""), codes.get("values") or []
    if not operator:
        found.append(required(f"{path}.operator", 'valid values: ["In" "NotIn"]'))
    elif operator not in {"In", "NotIn"}:
        found.append(unsupported(f"{path}.operator", operator, ("In", "NotIn")))
    if "containerName" in codes and codes["containerName"] not in names:
        told = "must be one of the container or initContainer names in the pod template"
        found.append(invalid(f"{path}.containerName", codes["containerName"], told))
    if not values:
        found.append(invalid(f"{path}.values", values, "at least one value is required"))
    elif len(values) > 255:
        found.append(too_many(f"{path}.values", len(values), 255))
    seen: set[int] = set()
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            found.append(invalid(f"{path}.values[{index}]", 0, "must not be 0 for the In operator"))
        if value in seen:
            found.append(duplicate(f"{path}.values[{index}]", value))
        seen.add(value)
    if values != sorted(values):
        found.append(invalid(f"{path}.values", values, "must be ordered"))
    return found


def validate_success_policy(spec: JSON, path: str) -> list[FieldProblem]:
    policy = spec["successPolicy"]
    if spec.get("completionMode", "NonIndexed") != "Indexed":
        rules = [gostruct.go_struct(rule, gostruct.SUCCESS_RULE_FIELDS) for rule in policy.get("rules") or ()]
        return [invalid(path, {"Rules": rules or None}, "requires indexed completion mode")]
    rules = policy.get("rules") or []
    found: list[FieldProblem] = []
    if not rules:
        told = "at least one rules must be specified when the successPolicy is specified"
        found.append(required(f"{path}.rules", told))
    if len(rules) > 20:
        found.append(too_many(f"{path}.rules", len(rules), 20))
    for index, rule in enumerate(rules):
        here, count = f"{path}.rules[{index}]", rule.get("succeededCount")
        if count is None and "succeededIndexes" not in rule:
            told = "at least one of succeededCount or succeededIndexes must be specified"
            found.append(required(here, told))
        if count is not None:
            found += validate_non_negative(f"{here}.succeededCount", count)
            most = spec.get("completions", 0)
            if count > most:
                told = f"must be less than or equal to {most} (the number of specified completions)"
                found.append(invalid(f"{here}.succeededCount", count, told))
    return found
