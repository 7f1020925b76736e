"""Validation of label selectors."""

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats, metadata
from gangline.schema.problems import FieldProblem, forbidden, invalid, invalid_each, required


def validate_label_selector(selector: JSON | None, path: str) -> list[FieldProblem]:
    """Problems of a `LabelSelector`. None and an empty one have none."""
    if not selector:
        return []
    problems = metadata.validate_labels(selector.get("matchLabels", {}), f"{path}.matchLabels")
    for index, requirement in enumerate(selector.get("matchExpressions", ())):
        problems += validate_requirement(requirement, f"{path}.matchExpressions[{index}]")
    return problems


def validate_requirement(requirement: JSON, path: str) -> list[FieldProblem]:
    """Problems of one of `matchExpressions`."""
    key, values = requirement.get("key", ""), requirement.get("values", ())
    problems = validate_operator(requirement.get("operator", ""), values, path)
    problems += invalid_each(f"{path}.key", key, formats.qualified_name_errors(key))
    for index, value in enumerate(values):
        problems += invalid_each(f"{path}.values[{index}]", value, formats.label_value_errors(value))
    return problems


def validate_operator(name: str, values: list[str] | tuple[()], path: str) -> list[FieldProblem]:
    """Problems of an operator together with the number of its values."""
    if name in {"In", "NotIn"}:
        detail = "must be specified when `operator` is 'In' or 'NotIn'"
        return [] if values else [required(f"{path}.values", detail)]
    if name in {"Exists", "DoesNotExist"}:
        detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        return [forbidden(f"{path}.values", detail)] if values else []
    return [invalid(f"{path}.operator", name, "not a valid selector operator")]


def matches_labels(selector: JSON, labels: dict[str, str]) -> bool:
    """Whether a valid selector selects these labels."""
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    return all(_matches_requirement(requirement, labels) for requirement in selector.get("matchExpressions", ()))


def _matches_requirement(requirement: JSON, labels: dict[str, str]) -> bool:
    key, values = requirement.get("key", ""), requirement.get("values", ())
    match requirement.get("operator"):
        case "In":
            return labels.get(key) in values and key in labels
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels
