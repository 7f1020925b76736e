"""Validation of where a pod may run: affinity, tolerations, topology spread."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, selectors
from gangline.schema.problems import FieldProblem, duplicate, forbidden, invalid, invalid_each, required, unsupported

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def validate_affinity(affinity: JSON, path: str) -> list[FieldProblem]:
    """Problems of the `affinity` of a pod spec."""
    problems: list[FieldProblem] = []
    if "nodeAffinity" in affinity:
        problems += _validate_node_affinity(affinity["nodeAffinity"], f"{path}.nodeAffinity")
    for name in ("podAffinity", "podAntiAffinity"):
        if name in affinity:
            problems += _validate_pod_affinity(affinity[name], f"{path}.{name}")
    return problems


def _validate_node_affinity(node: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    if _REQUIRED in node:
        problems += validate_node_selector(node[_REQUIRED], f"{path}.{_REQUIRED}")
    for index, term in enumerate(node.get(_PREFERRED, ())):
        item_path = f"{path}.{_PREFERRED}[{index}]"
        problems += _validate_weight(term.get("weight", 0), f"{item_path}.weight")
        problems += _validate_node_term(term.get("preference", {}), f"{item_path}.preference", values=False)
    return problems


def validate_node_selector(selector: JSON, path: str) -> list[FieldProblem]:
    """Problems of a `NodeSelector`, of a pod or a volume."""
    terms, field_path = selector.get("nodeSelectorTerms") or (), f"{path}.nodeSelectorTerms"
    if not terms:
        return [required(field_path, "must have at least one node selector term")]
    problems: list[FieldProblem] = []
    for index, term in enumerate(terms):
        problems += _validate_node_term(term, f"{field_path}[{index}]", values=True)
    return problems


def _validate_node_term(term: JSON, path: str, *, values: bool) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for index, requirement in enumerate(term.get("matchExpressions", ())):
        problems += _validate_node_requirement(requirement, f"{path}.matchExpressions[{index}]", values=values)
    for index, requirement in enumerate(term.get("matchFields", ())):
        problems += _validate_node_field(requirement, f"{path}.matchFields[{index}]")
    return problems


def _validate_node_requirement(requirement: JSON, path: str, *, values: bool) -> list[FieldProblem]:
    key, operands = requirement.get("key", ""), requirement.get("values", ())
    if requirement.get("operator") in {"Gt", "Lt"}:
        detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        problems = [] if len(operands) == 1 else [required(f"{path}.values", detail)]
    else:
        problems = selectors.validate_operator(requirement.get("operator", ""), operands, path)
    problems += invalid_each(f"{path}.key", key, formats.qualified_name_errors(key))
    for index, value in enumerate(operands if values else ()):
        problems += invalid_each(f"{path}.values[{index}]", value, formats.label_value_errors(value))
    return problems


def _validate_node_field(requirement: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    key, values = requirement.get("key", ""), requirement.get("values", ())
    if requirement.get("operator") not in {"In", "NotIn"}:
        problems.append(invalid(f"{path}.operator", requirement.get("operator", ""), "not a valid selector operator"))
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        problems.append(required(f"{path}.values", detail))
    if key != "metadata.name":
        problems.append(invalid(f"{path}.key", key, "not a valid field selector key"))
    else:
        for index, value in enumerate(values):
            problems += invalid_each(f"{path}.values[{index}]", value, formats.dns_subdomain_errors(value))
    return problems


def _validate_weight(weight: int, path: str) -> list[FieldProblem]:
    return [] if 0 < weight <= 100 else [invalid(path, weight, "must be in the range 1-100")]


def _validate_pod_affinity(pods: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    for index, term in enumerate(pods.get(_REQUIRED, ())):
        problems += _validate_pod_term(term, f"{path}.{_REQUIRED}[{index}]")
    for index, weighted in enumerate(pods.get(_PREFERRED, ())):
        item_path = f"{path}.{_PREFERRED}[{index}]"
        problems += _validate_weight(weighted.get("weight", 0), f"{item_path}.weight")
        problems += _validate_pod_term(weighted.get("podAffinityTerm", {}), f"{item_path}.podAffinityTerm")
    return problems


def _validate_pod_term(term: JSON, path: str) -> list[FieldProblem]:
    problems = selectors.validate_label_selector(term.get("labelSelector"), f"{path}.labelSelector")
    problems += selectors.validate_label_selector(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for name in term.get("namespaces", ()):
        problems += invalid_each(f"{path}.namespace", name, formats.dns_label_errors(name))
    problems += _validate_label_keys(term, path)
    key = term.get("topologyKey", "")
    if not key:
        problems.append(required(f"{path}.topologyKey", "can not be empty"))
    return problems + invalid_each(f"{path}.topologyKey", key, formats.qualified_name_errors(key))


def _validate_label_keys(term: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    selector = term.get("labelSelector")
    same, other = term.get("matchLabelKeys", ()), term.get("mismatchLabelKeys", ())
    for name, keys in (("matchLabelKeys", same), ("mismatchLabelKeys", other)):
        if keys and selector is None:
            problems.append(forbidden(f"{path}.{name}", "must not be specified when labelSelector is not set"))
        elif keys:
            for index, key in enumerate(keys):
                problems += invalid_each(f"{path}.{name}[{index}]", key, formats.qualified_name_errors(key))
    if selector is not None and same:
        problems += _validate_label_keys_unique(selector, same, path)
    for index, key in enumerate(same):
        if key in other:
            detail = "exists in both matchLabelKeys and mismatchLabelKeys"
            problems.append(invalid(f"{path}.matchLabelKeys[{index}]", key, detail))
    return problems


def _validate_label_keys_unique(selector: JSON, keys: list[str], path: str) -> list[FieldProblem]:
    # `prepare_for_create` added one expression per key, so a key that occurs twice was in the selector before.
    problems: list[FieldProblem] = []
    earlier_keys = set(selector.get("matchLabels", ()))
    for requirement in selector.get("matchExpressions", ()):
        key = requirement.get("key", "")
        if key in earlier_keys and key in keys:
            detail = "exists in both matchLabelKeys and labelSelector"
            problems.append(invalid(f"{path}[{keys.index(key)}]", key, detail))
        earlier_keys.add(key)
    return problems


def merge_label_keys(term: JSON, labels: dict[str, str]) -> None:
    """Turn `matchLabelKeys` and `mismatchLabelKeys` into expressions of the selector, in place."""
    selector = term.get("labelSelector")
    if selector is None:
        return
    for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(name, ()):
            if key in labels:
                requirement = {"key": key, "operator": operator, "values": [labels[key]]}
                selector.setdefault("matchExpressions", []).append(requirement)


def validate_tolerations(tolerations: list[JSON], path: str) -> list[FieldProblem]:
    """Problems of the `tolerations` of a pod spec."""
    problems: list[FieldProblem] = []
    for index, toleration in enumerate(tolerations):
        key, operator, effect = toleration.get("key", ""), toleration.get("operator", ""), toleration.get("effect", "")
        if (
            operator == "Exists"
            and effect == "NoExecute"
            and "value" not in toleration
            and not formats.qualified_name_errors(key or "x")
        ):
            continue
        problems += _validate_toleration(toleration, key, operator, effect, f"{path}[{index}]")
    return problems


def _validate_toleration(toleration: JSON, key: str, operator: str, effect: str, path: str) -> list[FieldProblem]:
    problems = invalid_each(f"{path}.key", key, formats.qualified_name_errors(key)) if key else []
    value = toleration.get("value", "")
    if not key and operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        problems.append(invalid(f"{path}.operator", operator, detail))
    if "tolerationSeconds" in toleration and effect != "NoExecute":
        detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        problems.append(invalid(f"{path}.effect", effect, detail))
    if operator in {"Equal", ""}:
        if errors := formats.label_value_errors(value):
            problems.append(invalid(f"{path}.operator", value, ";".join(errors)))
    elif operator != "Exists":
        problems.append(unsupported(f"{path}.operator", operator, ("Equal", "Exists")))
    elif value:
        detail = "value must be empty when `operator` is 'Exists'"
        problems.append(invalid(f"{path}.operator", value, detail))
    if effect and effect not in TAINT_EFFECTS:
        problems.append(unsupported(f"{path}.effect", effect, TAINT_EFFECTS))
    return problems


def validate_spread_constraints(constraints: list[JSON], path: str) -> list[FieldProblem]:
    """Problems of the `topologySpreadConstraints` of a pod spec."""
    problems: list[FieldProblem] = []
    for index, constraint in enumerate(constraints):
        item_path = f"{path}[{index}]"
        problems += _validate_spread_constraint(constraint, item_path)
        pair = (constraint.get("topologyKey", ""), constraint.get("whenUnsatisfiable", ""))
        later = (
            (other.get("topologyKey", ""), other.get("whenUnsatisfiable", "")) for other in constraints[index + 1 :]
        )
        if pair in later:
            problems.append(duplicate(f"{item_path}.{{topologyKey, whenUnsatisfiable}}", f"{{{pair[0]}, {pair[1]}}}"))
        problems += _validate_spread_options(constraint, pair[1], item_path)
    return problems


def _validate_spread_constraint(constraint: JSON, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    if constraint.get("maxSkew", 0) <= 0:
        problems.append(invalid(f"{path}.maxSkew", constraint.get("maxSkew", 0), "must be greater than zero"))
    if not constraint.get("topologyKey"):
        problems.append(required(f"{path}.topologyKey", "can not be empty"))
    supported, action = ("DoNotSchedule", "ScheduleAnyway"), constraint.get("whenUnsatisfiable", "")
    if action not in supported:
        problems.append(unsupported(f"{path}.whenUnsatisfiable", action, supported))
    return problems


def _validate_spread_options(constraint: JSON, action: str, path: str) -> list[FieldProblem]:
    problems: list[FieldProblem] = []
    domains = constraint.get("minDomains")
    if domains is not None:
        if domains <= 0:
            problems.append(invalid(f"{path}.minDomains", domains, "must be greater than zero"))
        if action != "DoNotSchedule":
            detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            problems.append(invalid(f"{path}.minDomains", domains, detail))
    supported = ("Honor", "Ignore")
    problems += [
        unsupported(f"{path}.{name}", constraint[name], supported)
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy")
        if name in constraint and constraint[name] not in supported
    ]
    problems += _validate_label_keys(constraint, path)
    return problems + selectors.validate_label_selector(constraint.get("labelSelector"), f"{path}.labelSelector")
