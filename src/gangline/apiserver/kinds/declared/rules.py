"""Rules of a kind as data: defaults, required and immutable fields, formats. Pure functions apply them.

A rule names fields by paths: `spec.controller`, or `webhooks[].rules[].scope` for a field of every element.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from gangline.api.meta import JSON
from gangline.apiserver.kinds.machinery import formats
from gangline.apiserver.kinds.machinery.metadata import validate_immutable
from gangline.apiserver.kinds.machinery.selectors import validate_label_selector
from gangline.schema.problems import FieldProblem, forbidden, invalid_each, required, unsupported
from gangline.schema.typed import published

FORMATS: Mapping[str, formats.FormatCheck] = {
    "subdomain": formats.dns_subdomain_errors,
    "label": formats.dns_label_errors,
    "1035 label": formats.dns_1035_label_errors,
    "qualified name": formats.qualified_name_errors,
    "path segment": formats.path_segment_errors,
    "port name": formats.port_name_errors,
    "ip": formats.ip_address_errors,
    "cidr": formats.cidr_errors,
    "any": lambda name: (),
}


class KindRules(msgspec.Struct, frozen=True, kw_only=True):
    """What differs from the rules of every kind."""

    name_format: str = "subdomain"
    generation: tuple[str, ...] = ()
    """The fields whose change increments metadata.generation. Without any, objects have no generation."""
    generation_on_update_only: bool = False
    """New objects have no generation; the first change makes it 1."""
    defaults: Mapping[str, Any] = {}
    """Values of absent fields."""
    zero_defaults: Mapping[str, Any] = {}
    """Values of fields that are absent, zero or empty."""
    required: Mapping[str, str] = {}
    """Fields that must not be empty, with the details of the messages."""
    formats: Mapping[str, str] = {}
    """The formats of fields that are not empty; with an exclamation mark, of empty ones too."""
    choices: Mapping[str, tuple[str, ...]] = {}
    """The values that fields may have, where the published schema does not enumerate them."""
    one_of: Mapping[str, tuple[str, str]] = {}
    """Objects in which exactly one of two fields is set."""
    selectors: tuple[str, ...] = ()
    """Fields that are label selectors."""
    immutable: tuple[str, ...] = ()
    finalizer: str = ""
    """What every new object is protected by."""
    disabled: tuple[str, ...] = ()
    """Fields of features that are off in this version of Kubernetes: they are dropped."""
    fixed: Mapping[str, str] = {}
    """Fields that may not change, with messages of their own."""


NO_RULES = KindRules()


def set_defaults(rules: KindRules, obj: JSON) -> None:
    """Set the defaults in place, where the objects around the fields exist, and drop disabled fields."""
    for path in rules.disabled:
        for parent, name, _ in _parents(obj, path):
            parent.pop(name, None)
    for path, value in rules.defaults.items():
        for parent, name, _ in _parents(obj, path):
            if parent.get(name) is None:
                parent[name] = _copy(value)
    for path, value in rules.zero_defaults.items():
        for parent, name, _ in _parents(obj, path):
            if not parent.get(name):
                parent[name] = _copy(value)


def validate_fields(rules: KindRules, obj: JSON) -> Iterator[FieldProblem]:
    """Problems of a new or a changed object."""
    for path, detail in rules.required.items():
        yield from (required(where, detail) for where, value in values_at(obj, path) if value in (None, "", []))
    for path, name in rules.formats.items():
        for where, value in values_at(obj, path):
            if value or (name.endswith("!") and value is not None):
                yield from invalid_each(where, value, FORMATS[name.removesuffix("!")](value))
    for path, choices in rules.choices.items():
        for where, value in values_at(obj, path):
            if value is not None and value not in choices:
                yield unsupported(where, value, choices)
    for path, names in rules.one_of.items():
        for where, value in values_at(obj, path):
            yield from _validate_one_of(value or {}, names, where)
    for path in rules.selectors:
        for where, value in values_at(obj, path):
            yield from validate_label_selector(value, where)


def _validate_one_of(value: JSON, names: tuple[str, str], path: str) -> Iterator[FieldProblem]:
    detail = f"must specify exactly one of {names[0]} and {names[1]}"
    match sum(name in value for name in names):
        case 0:
            yield required(path, detail)
        case 2:
            yield forbidden(path, detail)


def validate_change(rules: KindRules, obj: JSON, old: JSON) -> Iterator[FieldProblem]:
    """Problems of the change from `old` to `obj`."""
    for path in rules.immutable:
        yield from validate_immutable(field_value(obj, path), field_value(old, path), path)
    for path, detail in rules.fixed.items():
        if field_value(obj, path) != field_value(old, path):
            yield forbidden(path, detail)


def validate_choices(definition: str, value: Any, path: str = "") -> Iterator[FieldProblem]:
    """Problems of fields that take only the values that the published schema enumerates."""
    properties: JSON = published.schemas()[definition].get("properties", {})
    for name, field in value.items() if isinstance(value, dict) else ():
        if name in properties and field is not None:
            yield from _schema_choices(properties[name], field, f"{path}.{name}" if path else name)


def _schema_choices(schema: JSON, value: Any, path: str) -> Iterator[FieldProblem]:
    if "enum" in schema:
        if value not in schema["enum"]:
            yield unsupported(path, value, schema["enum"])
    elif definition := published.ref_name(schema):
        yield from validate_choices(definition, value, path)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _schema_choices(schema.get("items", {}), item, f"{path}[{index}]")


def values_at(obj: JSON, path: str) -> Iterator[tuple[str, Any]]:
    """The paths and values of the fields that a path of a rule names; None for a missing one."""
    for parent, name, where in _parents(obj, path.removesuffix("[]")):
        if not path.endswith("[]"):
            yield where, parent.get(name)
        else:
            yield from ((f"{where}[{index}]", item) for index, item in enumerate(parent.get(name) or ()))


def field_value(obj: JSON, path: str) -> Any:
    """The value at a path without lists; None if any step is missing."""
    value: Any = obj
    for step in path.split("."):
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _parents(obj: JSON, path: str, where: str = "") -> Iterator[tuple[JSON, str, str]]:
    """The objects that have, or could have, the last field of a path; its name, and its full path."""
    head, _, rest = path.partition(".")
    name = head.removesuffix("[]")
    here = f"{where}.{name}" if where else name
    if not rest:
        yield obj, name, here
        return
    value = obj.get(name)
    if head.endswith("[]"):
        for index, item in enumerate(value or ()):
            yield from _parents(item, rest, f"{here}[{index}]")
    elif isinstance(value, dict):
        yield from _parents(value, rest, here)


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, dict | list) else value
