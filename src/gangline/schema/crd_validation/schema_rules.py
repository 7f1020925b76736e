"""Validation of the schema of a CustomResourceDefinition: all problems that kube-apiserver would report."""

from collections.abc import Iterator

import msgspec

from gangline.schema.crd_validation.defaults import default_problems
from gangline.schema.crd_validation.rule_validation import CostContext, RuleValidator, rule_text_problems
from gangline.schema.crd_validation.structural_rules import JSON, structural_problems, unsupported_keyword
from gangline.schema.nodes import META_FIELDS, SchemaNode
from gangline.schema.problems import FieldProblem, forbidden, invalid, required, unsupported

SHARED_SCHEMA_PATH = "spec.validation.openAPIV3Schema"
"""The path of the schema when all versions share one."""
_JSON_TYPES = ("array", "boolean", "integer", "number", "object", "string")
_LEAF_KEYWORDS = frozenset(
    {"type", "format", "description", "title", "minimum", "maximum", "enum", "pattern", "nullable"}
)
"""With these keywords and an existing type, nothing in a schema can be wrong here."""
_UNSUPPORTED_KEYWORDS = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_UNSUPPORTED_KEYWORD_SET = frozenset(_UNSUPPORTED_KEYWORDS)
_JUNCTORS = frozenset({"not", "allOf", "oneOf", "anyOf", "definitions"})
_STATUS_ROOT_FIELDS = (
    "Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern"
    " MaxItems MinItems UniqueItems MultipleOf Required Items Properties ExternalDocs Example"
    " XPreserveUnknownFields XValidations"
)
_STATUS_ROOT_KEYWORDS = (
    "description type format title maximum exclusiveMaximum minimum exclusiveMinimum maxLength minLength pattern"
    " maxItems minItems uniqueItems multipleOf required items properties externalDocs example nullable"
    " x-kubernetes-preserve-unknown-fields x-kubernetes-validations"
)
_STATUS_ROOT_KEYWORD_SET = frozenset(_STATUS_ROOT_KEYWORDS.split())


def check_crd_schema(schema: JSON, path: str = SHARED_SCHEMA_PATH, *, status: bool = False) -> list[FieldProblem]:
    """All problems of the schema of a version, in kube-apiserver's words and order.

    Args:
        schema: `openAPIV3Schema` of the version.
        path: the path of the schema: `SHARED_SCHEMA_PATH` when all versions have the same one, else
            `spec.versions[i].schema.openAPIV3Schema`.
        status: whether the status subresource is enabled, which restricts the root of the schema.
    """
    problems = list(_root_problems(schema, path, status=status))
    conversion_error = unsupported_keyword(schema)
    context: CostContext | None = None
    if not conversion_error:
        node = SchemaNode(schema)
        structure = structural_problems(schema, path) or default_problems(node, path)
        problems += structure
        context = None if structure else CostContext(node, limit=1)
    validator = _SchemaValidator()
    validator.validate(schema, path, _SchemaContext(root=True), context)
    problems += validator.problems + validator.rules.problems
    if conversion_error and not problems:
        problems.append(invalid(path, "", conversion_error))
    return problems + validator.rules.total_cost_problems(path)


def _root_problems(schema: JSON, path: str, *, status: bool) -> Iterator[FieldProblem]:
    if status:
        kind = schema.get("type")
        if kind and kind != "object":
            detail = (
                'only "object" is allowed as the type at the root of the schema if the status subresource is enabled'
            )
            yield invalid(f"{path}.type", kind, detail)
        keywords = {name for name, value in schema.items() if value not in (None, "", [], {}, False)}
        if keywords - _STATUS_ROOT_KEYWORD_SET:
            detail = f"only [{_STATUS_ROOT_FIELDS}] fields are allowed at the root of the schema if the status subresource is enabled"
            yield invalid(path, schema, detail)
    if schema.get("nullable"):
        yield forbidden(f"{path}.nullable", "nullable cannot be true at the root")


class _SchemaContext(msgspec.Struct, frozen=True):
    """What the place of a schema forbids."""

    root: bool = False
    inside_meta: bool = False
    no_defaults: str = ""
    """Why no default may be set; empty where one may."""
    uncorrelated: str = ""
    """The path of the list or map whose elements have no identity, so that old and new ones cannot be compared."""


class _SchemaValidator:
    """Walks over a schema and collects all problems except those that keep it from being structural."""

    def __init__(self) -> None:
        self.problems: list[FieldProblem] = []
        self.rules = RuleValidator()

    def validate(self, schema: JSON, path: str, place: _SchemaContext, cost: CostContext | None) -> None:
        """Check a schema and everything inside it. `cost` is None where rules are not compiled."""
        before = len(self.problems)
        self.problems += _keyword_problems(schema, path, place)
        self._validate_properties(schema, path, place, cost)
        self._validate_junctors(schema, path, place)
        self._validate_items(schema, path, place, cost)
        self.problems += _extension_problems(schema, path)
        self.problems += _list_map_problems(schema, path)
        if schema.get("x-kubernetes-validations"):
            self.problems += rule_text_problems(schema, path, cost)
            if cost is not None and len(self.problems) == before:
                self.rules.validate(schema, path, cost, root=place.root, uncorrelated=place.uncorrelated)

    def _validate_properties(self, schema: JSON, path: str, place: _SchemaContext, cost: CostContext | None) -> None:
        additional, properties = schema.get("additionalProperties"), schema.get("properties") or {}
        if additional is None and not properties:
            return
        if additional is not None and properties and additional is not True:
            detail = "additionalProperties and properties are mutual exclusive"
            self.problems.append(forbidden(f"{path}.additionalProperties", detail))
        inner = msgspec.structs.replace(place, root=False)
        if isinstance(additional, dict):
            reason = "inside additionalProperties applying to object metadata"
            below = msgspec.structs.replace(inner, no_defaults=reason) if place.inside_meta else inner
            child_cost = cost and cost.child(cost.node.additional_properties)
            self.validate(additional, f"{path}.additionalProperties", below, child_cost)
        resource = place.root or schema.get("x-kubernetes-embedded-resource")
        for name, part in sorted(properties.items()):
            if part.keys() <= _LEAF_KEYWORDS and part.get("type") in _JSON_TYPES:
                continue
            below = inner
            if resource and name in META_FIELDS:
                reason = f"in top-level {name}" if place.root else inner.no_defaults
                below = msgspec.structs.replace(inner, inside_meta=True, no_defaults=reason)
            child = cost.node.properties.get(name) if cost else None
            self.validate(part, f"{path}.properties[{name}]", below, cost and cost.child(child))

    def _validate_junctors(self, schema: JSON, path: str, place: _SchemaContext) -> None:
        if _JUNCTORS.isdisjoint(schema):
            return
        inner = msgspec.structs.replace(place, root=False)
        if isinstance(schema.get("not"), dict):
            self.validate(schema["not"], f"{path}.not", inner, None)
        for name in ("allOf", "oneOf", "anyOf"):
            for index, part in enumerate(schema.get(name) or ()):
                self.validate(part, f"{path}.{name}[{index}]", inner, None)
        for name, part in sorted((schema.get("definitions") or {}).items()):
            self.validate(part, f"{path}.definitions[{name}]", inner, None)

    def _validate_items(self, schema: JSON, path: str, place: _SchemaContext, cost: CostContext | None) -> None:
        items = schema.get("items")
        if items is None:
            return
        inner = msgspec.structs.replace(place, root=False)
        if schema.get("x-kubernetes-list-type") != "map" and not inner.uncorrelated:
            inner = msgspec.structs.replace(inner, uncorrelated=path)
        if isinstance(items, dict):
            self.validate(items, f"{path}.items", inner, cost and cost.child(cost.node.items))
        for index, part in enumerate(items if isinstance(items, list) else ()):
            self.validate(part, f"{path}.items[{index}]", inner, None)


def _keyword_problems(schema: JSON, path: str, place: _SchemaContext) -> Iterator[FieldProblem]:
    kind = schema.get("type") or ""
    if kind and kind not in _JSON_TYPES:
        yield unsupported(f"{path}.type", kind, _JSON_TYPES)
    if schema.get("default") is not None and place.no_defaults:
        yield forbidden(f"{path}.default", f"must not be set {place.no_defaults}")
    for name in () if _UNSUPPORTED_KEYWORD_SET.isdisjoint(schema) else _UNSUPPORTED_KEYWORDS:
        if schema.get(name) not in (None, "", {}) or (name == "additionalItems" and name in schema):
            yield forbidden(f"{path}.{name}", f"{name} is not supported")
    if kind == "null":
        yield forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    if isinstance(schema.get("items"), list) and schema["items"]:
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    if place.inside_meta and schema.get("x-kubernetes-embedded-resource"):
        yield forbidden(f"{path}.x-kubernetes-embedded-resource", "must not be used inside of resource meta")
    if schema.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", detail)


def _extension_problems(schema: JSON, path: str) -> Iterator[FieldProblem]:
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        detail = "must be true or undefined"
        yield invalid(f"{path}.x-kubernetes-preserve-unknown-fields", value=False, detail=detail)
    for name, expected_type, supported in (
        ("x-kubernetes-map-type", "object", ("atomic", "granular")),
        ("x-kubernetes-list-type", "array", ("atomic", "set", "map")),
    ):
        value = schema.get(name)
        if value is None:
            continue
        if (schema.get("type") or "") != expected_type:
            yield _wrong_value(f"{path}.type", schema.get("type"), f"must be {expected_type} if {name} is specified")
        elif value == "set":
            yield from _set_item_problems(schema, path)
        if value not in supported:
            yield unsupported(f"{path}.{name}", value, supported)


def _wrong_value(path: str, value: str | None, detail: str) -> FieldProblem:
    return invalid(path, value, detail) if value else required(path, detail)


def _set_item_problems(schema: JSON, path: str) -> Iterator[FieldProblem]:
    items = schema.get("items")
    if not isinstance(items, dict):
        return
    detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
    list_type = items.get("x-kubernetes-list-type")
    if items.get("type") == "array" and list_type not in (None, "atomic"):
        yield invalid(f"{path}.items.x-kubernetes-list-type", list_type, detail)
    if items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        yield invalid(f"{path}.items.x-kubernetes-map-type", list_type, detail)


def _list_map_problems(schema: JSON, path: str) -> Iterator[FieldProblem]:
    list_type, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or []
    if keys and list_type != "map":
        detail = "must be map if x-kubernetes-list-map-keys is non-empty"
        if list_type is None:
            yield required(f"{path}.x-kubernetes-list-type", detail)
        else:
            yield invalid(f"{path}.x-kubernetes-list-type", list_type, detail)
    items = schema.get("items")
    if list_type == "map":
        if not keys:
            detail = "must not be empty if x-kubernetes-list-type is map"
            yield required(f"{path}.x-kubernetes-list-map-keys", detail)
        if items is None:
            yield required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
        elif isinstance(items, dict):
            yield from _map_item_problems(items, keys, path)
    if isinstance(items, dict) and list_type in ("set", "map"):
        yield from _key_property_problems(items, keys if list_type == "map" else [], list_type, path)


def _map_item_problems(items: JSON, keys: list[str], path: str) -> Iterator[FieldProblem]:
    kind = items.get("type") or ""
    if kind != "object":
        yield invalid(f"{path}.items.type", kind, "must be object if parent array's x-kubernetes-list-type is map")
        return
    properties = items.get("properties") or {}
    keys_path = f"{path}.x-kubernetes-list-map-keys"
    for index, key in enumerate(keys):
        if key not in properties:
            yield invalid(keys_path, keys, "entries must all be names of item properties")
        elif properties[key].get("type") in ("array", "object"):
            detail = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid(f"{path}.items.properties[{key}].type", kind, detail)
        if key in keys[:index]:
            yield invalid(keys_path, keys, "must not contain duplicate entries")


def _key_property_problems(items: JSON, keys: list[str], list_type: str, path: str) -> Iterator[FieldProblem]:
    if items.get("nullable"):
        yield forbidden(f"{path}.items.nullable", f"cannot be nullable when x-kubernetes-list-type is {list_type}")
    for key in keys:
        part = (items.get("properties") or {}).get(key)
        if part is None:
            continue
        key_path = f"{path}.items.properties[{key}]"
        subject = "this property is in x-kubernetes-list-map-keys, so it"
        if key not in (items.get("required") or []) and part.get("default") is None:
            yield required(f"{key_path}.default", f"{subject} must have a default or be a required property")
        if part.get("nullable"):
            yield forbidden(f"{key_path}.nullable", f"{subject} cannot be nullable")
