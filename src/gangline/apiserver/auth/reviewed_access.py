"""What an access review asks about, and what is wrong with its spec. Pure."""

from collections.abc import Iterator

import msgspec

from gangline.api.meta import JSON
from gangline.api.selectors import LabelSelector, SelectorError, is_field_selector
from gangline.apiserver.auth.attributes import AccessAttributes
from gangline.apiserver.kinds.machinery import selectors
from gangline.apiserver.kinds.machinery.gostruct import go_struct
from gangline.apiserver.registry.writes import with_sorted_keys
from gangline.apiserver.users import UserInfo
from gangline.schema.problems import FieldProblem, invalid, required

LABEL_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_SELECTOR_FIELDS = ("fieldSelector", "labelSelector")


def reviewed_user(spec: JSON) -> UserInfo:
    """The user that a SubjectAccessReview asks about."""
    extra = {key: tuple(values or ()) for key, values in (spec.get("extra") or {}).items()}
    return UserInfo(spec.get("user") or "", tuple(spec.get("groups") or ()), spec.get("uid") or "", extra)


def reviewed_attributes(user: UserInfo, spec: JSON) -> AccessAttributes:
    """What the spec of an access review asks about."""
    nonresource = spec.get("nonResourceAttributes")
    if nonresource is not None:
        return AccessAttributes(user, nonresource.get("verb") or "", path=nonresource.get("path") or "")
    attributes = spec["resourceAttributes"]
    return AccessAttributes(
        user,
        attributes.get("verb") or "",
        attributes.get("group") or "",
        attributes.get("version") or "*",
        attributes.get("resource") or "",
        attributes.get("subresource") or "",
        attributes.get("namespace") or "",
        attributes.get("name") or "",
    )


def attribute_problems(spec: JSON) -> list[FieldProblem]:
    """What is wrong with the request that a review asks about, without its selectors."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        detail = "cannot be specified in combination with resourceAttributes"
        return [invalid("spec.nonResourceAttributes", go_struct(path, "Path Verb"), detail)]
    if resource is None and path is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [invalid("spec.resourceAttributes", None, detail)]
    return []


def subject_problems(spec: JSON) -> list[FieldProblem]:
    """What is wrong with the user that a review asks about."""
    if spec.get("user") or spec.get("groups"):
        return []
    return [invalid("spec.user", "", "at least one of user or group must be specified")]


def selector_problems(spec: JSON) -> list[FieldProblem]:
    """What is wrong with the field selector and the label selector of a review."""
    return [problem for field in _SELECTOR_FIELDS for problem in _selector_problems(spec, field)]


def _selector_problems(spec: JSON, field: str) -> Iterator[FieldProblem]:
    selector, path = _selector(spec, field), f"spec.resourceAttributes.{field}"
    if selector is None:
        return
    raw, requirements = selector.get("rawSelector") or "", selector.get("requirements") or ()
    if raw and requirements:
        yield invalid(f"{path}.rawSelector", raw, "may not specified at the same time as requirements")
    if not raw and not requirements:
        detail = f"when {path} is specified, requirements or rawSelector is required"
        yield required(f"{path}.requirements", detail)
    for index, requirement in enumerate(requirements):
        yield from _requirement_problems(requirement, f"{path}.requirements[{index}]", field)


def _requirement_problems(requirement: JSON, path: str, field: str) -> list[FieldProblem]:
    # A newer client may know operators that this server does not know.
    if field == "labelSelector":
        problems = selectors.validate_requirement(requirement, path)
        return [problem for problem in problems if problem.field != f"{path}.operator"]
    problems = [] if requirement.get("key") else [required(f"{path}.key", "must be specified")]
    operator, values = requirement.get("operator") or "", requirement.get("values") or ()
    return (
        [*problems, *selectors.validate_operator(operator, values, path)] if operator in LABEL_OPERATORS else problems
    )


def ignored_selectors_text(spec: JSON) -> str:
    """The evaluation error of a review whose selectors, or parts of them, cannot be parsed; empty if all can."""
    texts = []
    for field in _SELECTOR_FIELDS:
        selector = _selector(spec, field)
        if selector is None:
            continue
        requirements = selector.get("requirements") or ()
        parsed = [_is_supported(requirement, field) for requirement in requirements]
        if selector.get("rawSelector") and not requirements:
            parsed = [_can_parse(selector["rawSelector"], field)]
        if not all(parsed):
            texts.append(
                f"spec.resourceAttributes.{field} {'partially ' if any(parsed) else ''}ignored due to parse error"
            )
    return "; ".join(texts)


def _selector(spec: JSON, field: str) -> JSON | None:
    return (spec.get("resourceAttributes") or {}).get(field)


def _is_supported(requirement: JSON, field: str) -> bool:
    operator = requirement.get("operator")
    if field == "labelSelector":
        return operator in LABEL_OPERATORS
    return operator in ("In", "NotIn") and len(requirement.get("values") or ()) == 1


def _can_parse(text: str, field: str) -> bool:
    if field == "fieldSelector":
        return is_field_selector(text)
    try:
        LabelSelector.parse(text)
    except SelectorError:
        return False
    return True


_METADATA_ORDER = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
]


def metadata_problems(metadata: JSON, *, local: bool) -> list[FieldProblem]:
    """What is wrong with the metadata of a review: it must be empty, except for the namespace of a local review."""
    if not {name for name, value in metadata.items() if value} - {"managedFields", "namespace" if local else ""}:
        return []
    ordered = {name: metadata[name] for name in _METADATA_ORDER if metadata.get(name)}
    ordered["managedFields"] = [
        {**entry, "fieldsV1": with_sorted_keys(entry["fieldsV1"])} for entry in metadata.get("managedFields", ())
    ]
    detail = "must be empty except for namespace" if local else "must be empty"
    return [invalid("metadata", msgspec.Raw(msgspec.json.encode(ordered)), detail)]
