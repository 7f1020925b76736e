"""Validation of where a pod may run: affinity, tolerations, spread."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, selectors
from gangline.schema.problems import FieldProblem, duplicate, forbidden, invalid, invalid_each, required, unsupported

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def validate_affinity(found_affinity: JSON, path: str) -> list[FieldProblem]:
    """`validate_affinity` of a pod spec."""
    found: list[FieldProblem] = []
    if "nodeAffinity" in found_affinity:
        found += _validate_node_affinity(found_affinity["nodeAffinity"], f"{path}.nodeAffinity")
    for name in ("podAffinity", "podAntiAffinity"):
        if name in found_affinity:
            found += _validate_pod_affinity(found_affinity[name], f"{path}.{name}")
    return found


def _validate_node_affinity(node: JSON, path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    if _REQUIRED in node:
        found += validate_node_selector(node[_REQUIRED], f"{path}.{_REQUIRED}")
    for index, term in enumerate(node.get(_PREFERRED, ())):
        here = f"{path}.{_PREFERRED}[{index}]"
        found += _validate_weight(term.get("weight", 0), f"{here}.weight")
        found += _validate_node_term(term.get("preference", {}), f"{here}.preference", values=False)
    return found


def validate_node_selector(selector: JSON, path: str) -> list[FieldProblem]:
    """A `NodeSelector`, of a pod or a volume."""
    terms, here = selector.get("nodeSelectorTerms") or (), f"{path}.nodeSelectorTerms"
    if not terms:
        return [required(here, "must have at least one node selector term")]
    found: list[FieldProblem] = []
    for index, term in enumerate(terms):
        found += _validate_node_term(term, f"{here}[{index}]", values=True)
    return found


def _validate_node_term(term: JSON, path: str, *, values: bool) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    for index, one in enumerate(term.get("matchExpressions", ())):
        found += _validate_node_requirement(one, f"{path}.matchExpressions[{index}]", values=values)
    for index, one in enumerate(term.get("matchFields", ())):
        found += _validate_node_field(one, f"{path}.matchFields[{index}]")
    return found


def _validate_node_requirement(one: JSON, path: str, *, values: bool) -> list[FieldProblem]:
    key, given = one.get("key", ""), one.get("values", ())
    if one.get("operator") in {"Gt", "Lt"}:
        told = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        found = [] if len(given) == 1 else [required(f"{path}.values", told)]
    else:
        found = selectors.validate_operator(one.get("operator", ""), given, path)
    found += invalid_each(f"{path}.key", key, formats.qualified_name_errors(key))
    for index, value in enumerate(given if values else ()):
        found += invalid_each(f"{path}.values[{index}]", value, formats.label_value_errors(value))
    return found


def _validate_node_field(one: JSON, path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    key, values = one.get("key", ""), one.get("values", ())
    if one.get("operator") not in {"In", "NotIn"}:
        found.append(invalid(f"{path}.operator", one.get("operator", ""), "not a valid selector operator"))
    elif len(values) != 1:
        told = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        found.append(required(f"{path}.values", told))
    if key != "metadata.name":
        found.append(invalid(f"{path}.key", key, "not a valid field selector key"))
    else:
        for index, value in enumerate(values):
            found += invalid_each(f"{path}.values[{index}]", value, formats.dns_subdomain_errors(value))
    return found


def _validate_weight(weight: int, path: str) -> list[FieldProblem]:
    return [] if 0 < weight <= 100 else [invalid(path, weight, "must be in the range 1-100")]


def _validate_pod_affinity(pods: JSON, path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    for index, term in enumerate(pods.get(_REQUIRED, ())):
        found += _validate_pod_term(term, f"{path}.{_REQUIRED}[{index}]")
    for index, weighted in enumerate(pods.get(_PREFERRED, ())):
        here = f"{path}.{_PREFERRED}[{index}]"
        found += _validate_weight(weighted.get("weight", 0), f"{here}.weight")
        found += _validate_pod_term(weighted.get("podAffinityTerm", {}), f"{here}.podAffinityTerm")
    return found


def _validate_pod_term(term: JSON, path: str) -> list[FieldProblem]:
    found = selectors.validate_label_selector(term.get("labelSelector"), f"{path}.labelSelector")
    found += selectors.validate_label_selector(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for name in term.get("namespaces", ()):
        found += invalid_each(f"{path}.namespace", name, formats.dns_label_errors(name))
    found += _validate_label_keys(term, path)
    key = term.get("topologyKey", "")
    if not key:
        found.append(required(f"{path}.topologyKey", "can not be empty"))
    return found + invalid_each(f"{path}.topologyKey", key, formats.qualified_name_errors(key))


def _validate_label_keys(term: JSON, path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    selector = term.get("labelSelector")
    same, other = term.get("matchLabelKeys", ()), term.get("mismatchLabelKeys", ())
    for name, keys in (("matchLabelKeys", same), ("mismatchLabelKeys", other)):
        if keys and selector is None:
            found.append(forbidden(f"{path}.{name}", "must not be specified when labelSelector is not set"))
        elif keys:
            for index, key in enumerate(keys):
                found += invalid_each(f"{path}.{name}[{index}]", key, formats.qualified_name_errors(key))
    if selector is not None and same:
        found += _validate_label_keys_unique(selector, same, path)
    for index, key in enumerate(same):
        if key in other:
            told = "exists in both matchLabelKeys and mismatchLabelKeys"
            found.append(invalid(f"{path}.matchLabelKeys[{index}]", key, told))
    return found


def _validate_label_keys_unique(selector: JSON, keys: list[str], path: str) -> list[FieldProblem]:
    # `create` has already added one expression per key: a key seen twice was in the selector before.
    found: list[FieldProblem] = []
    seen = set(selector.get("matchLabels", ()))
    for one in selector.get("matchExpressions", ()):
        key = one.get("key", "")
        if key in seen and key in keys:
            told = "exists in both matchLabelKeys and labelSelector"
            found.append(invalid(f"{path}[{keys.index(key)}]", key, told))
        seen.add(key)
    return found


def merge_label_keys(term: JSON, labels: dict[str, str]) -> None:
    """Turn `matchLabelKeys` and `mismatchLabelKeys` into expressions of the selector, in place."""
    selector = term.get("labelSelector")
    if selector is None:
        return
    for name, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(name, ()):
            if key in labels:
                one = {"key": key, "operator": operator, "values": [labels[key]]}
                selector.setdefault("matchExpressions", []).append(one)


def validate_tolerations(listed: list[JSON], path: str) -> list[FieldProblem]:
    """`validate_tolerations` of a pod spec."""
    found: list[FieldProblem] = []
    for index, one in enumerate(listed):
        key, operator, effect = one.get("key", ""), one.get("operator", ""), one.get("effect", "")
        if (
            operator == "Exists"
            and effect == "NoExecute"
            and "value" not in one
            and not formats.qualified_name_errors(key or "x")
        ):
            continue
        found += _validate_toleration(one, key, operator, effect, f"{path}[{index}]")
    return found


def _validate_toleration(one: JSON, key: str, operator: str, effect: str, path: str) -> list[FieldProblem]:
    found = invalid_each(f"{path}.key", key, formats.qualified_name_errors(key)) if key else []
    value = one.get("value", "")
    if not key and operator != "Exists":
        told = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        found.append(invalid(f"{path}.operator", operator, told))
    if "tolerationSeconds" in one and effect != "NoExecute":
        told = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        found.append(invalid(f"{path}.effect", effect, told))
    if operator in {"Equal", ""}:
        if said := formats.label_value_errors(value):
            found.append(invalid(f"{path}.operator", value, ";".join(said)))
    elif operator != "Exists":
        found.append(unsupported(f"{path}.operator", operator, ("Equal", "Exists")))
    elif value:
        told = "value must be empty when `operator` is 'Exists'"
        found.append(invalid(f"{path}.operator", value, told))
    if effect and effect not in TAINT_EFFECTS:
        found.append(unsupported(f"{path}.effect", effect, TAINT_EFFECTS))
    return found


def validate_spread_constraints(constraints: list[JSON], path: str) -> list[FieldProblem]:
    """`topologySpreadConstraints` of a pod spec."""
    found: list[FieldProblem] = []
    for index, one in enumerate(constraints):
        here = f"{path}[{index}]"
        found += _validate_spread_constraint(one, here)
        pair = (one.get("topologyKey", ""), one.get("whenUnsatisfiable", ""))
        later = (
            (other.get("topologyKey", ""), other.get("whenUnsatisfiable", "")) for other in constraints[index + 1 :]
        )
        if pair in later:
            found.append(duplicate(f"{here}.{{topologyKey, whenUnsatisfiable}}", f"{{{pair[0]}, {pair[1]}}}"))
        found += _validate_spread_options(one, pair[1], here)
    return found


def _validate_spread_constraint(one: JSON, path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    if one.get("maxSkew", 0) <= 0:
        found.append(invalid(f"{path}.maxSkew", one.get("maxSkew", 0), "must be greater than zero"))
    if not one.get("topologyKey"):
        found.append(required(f"{path}.topologyKey", "can not be empty"))
    known, action = ("DoNotSchedule", "ScheduleAnyway"), one.get("whenUnsatisfiable", "")
    if action not in known:
        found.append(unsupported(f"{path}.whenUnsatisfiable", action, known))
    return found


def _validate_spread_options(one: JSON, action: str, path: str) -> list[FieldProblem]:
    found: list[FieldProblem] = []
    domains = one.get("minDomains")
    if domains is not None:
        if domains <= 0:
            found.append(invalid(f"{path}.minDomains", domains, "must be greater than zero"))
        if action != "DoNotSchedule":
            told = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            found.append(invalid(f"{path}.minDomains", domains, told))
    known = ("Honor", "Ignore")
    found += [
        unsupported(f"{path}.{name}", one[name], known)
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy")
        if name in one and one[name] not in known
    ]
    found += _validate_label_keys(one, path)
    return found + selectors.validate_label_selector(one.get("labelSelector"), f"{path}.labelSelector")
