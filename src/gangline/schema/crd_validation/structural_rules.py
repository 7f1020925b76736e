"""Whether a schema is structural: every field has a type, and value validations only add to the structure."""

from collections.abc import Iterator
from typing import Any

from gangline.schema.problems import FieldProblem, forbidden, invalid, required
from gangline.schema.regex import PatternError, compile_pattern

JSON = dict[str, Any]
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_MISSING_TYPE_MESSAGES = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_FORBIDDEN_JUNCTOR_KEYWORDS = (
    ("type", "must be empty to be structural"),
    ("default", "must be undefined to be structural"),
    ("title", "must be empty to be structural"),
    ("description", "must be empty to be structural"),
    ("nullable", "must be false to be structural"),
    ("x-kubernetes-preserve-unknown-fields", "must be false to be structural"),
    ("x-kubernetes-embedded-resource", "must be false to be structural"),
    ("x-kubernetes-int-or-string", "must be false to be structural"),
    ("x-kubernetes-list-map-keys", "must be empty to be structural"),
    ("x-kubernetes-list-type", "must be undefined to be structural"),
    ("x-kubernetes-map-type", "must be undefined to be structural"),
    ("x-kubernetes-validations", "must be empty to be structural"),
)
_FORBIDDEN_IF_PRESENT = frozenset({"default", "x-kubernetes-list-type", "x-kubernetes-map-type"})
"""Forbidden whenever present; the other keywords only if they are not empty or false."""
_METADATA_KEYWORDS = frozenset({"type", "properties", "default", "example", "externalDocs"})
_LEAF_KEYWORDS = frozenset({"type", "format", "description", "minimum", "maximum", "enum"})
"""With only these keywords and a type other than array, a schema is structural."""
_UNSUPPORTED_KEYWORDS = ("id", "$schema", "$ref", "patternProperties", "dependencies", "additionalItems", "definitions")


def unsupported_keyword(schema: JSON) -> str:
    """What is wrong with the first keyword that no structural schema can have, at any depth; else empty."""
    if not schema.keys().isdisjoint(_UNSUPPORTED_KEYWORDS):
        for name in _UNSUPPORTED_KEYWORDS:
            if schema.get(name):
                go_name = "schema" if name == "$schema" else name
                return f"OpenAPIV3Schema '{go_name}' is not supported"
    if isinstance(schema.get("items"), list):
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        return "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
    for part in subschemas(schema):
        if not part.keys() <= _LEAF_KEYWORDS and (error := unsupported_keyword(part)):
            return error
    return ""


def subschemas(schema: JSON) -> Iterator[JSON]:
    """The schemas directly inside."""
    yield from (part for part in (schema.get("properties") or {}).values() if isinstance(part, dict))
    for name in ("items", "additionalProperties", "not"):
        if isinstance(schema.get(name), dict):
            yield schema[name]
    for name in ("allOf", "anyOf", "oneOf"):
        yield from schema.get(name) or ()


def structural_problems(schema: JSON, path: str) -> list[FieldProblem]:
    """All problems that keep a schema from being structural, sorted."""
    problems = [*_invariant_problems(schema, "root", path), *_completeness_problems(schema, schema, path, path)]
    return sorted(problems, key=str)


def _is_leaf(schema: JSON) -> bool:
    return schema.keys() <= _LEAF_KEYWORDS and bool(schema.get("type")) and schema["type"] != "array"


def _invariant_problems(schema: JSON, level: str, path: str) -> Iterator[FieldProblem]:
    kind, items, additional = schema.get("type") or "", schema.get("items"), schema.get("additionalProperties")
    if kind == "array" and items is None:
        yield required(f"{path}.items", "must be specified")
    if items is not None:
        yield from _invariant_problems(items, "item", f"{path}.items")
    for name, part in (schema.get("properties") or {}).items():
        if not _is_leaf(part):
            yield from _invariant_problems(part, "field", f"{path}.properties[{name}]")
    if additional is not None:
        if level == "root":
            yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
        if isinstance(additional, dict):
            yield from _invariant_problems(additional, "field", f"{path}.additionalProperties")
    yield from _extension_problems(schema, path)
    yield from _value_check_problems(schema, path, is_top=True)
    yield from _type_problems(schema, level, path)
    yield from _metadata_problems(schema, level, path)
    if schema.get("x-kubernetes-embedded-resource") and not (
        schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("properties")
    ):
        detail = (
            "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        )
        yield required(f"{path}.properties", detail)


def _extension_problems(schema: JSON, path: str) -> Iterator[FieldProblem]:
    if schema.get("x-kubernetes-int-or-string"):
        for name in ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource"):
            if schema.get(name):
                detail = "must be false if x-kubernetes-int-or-string is true"
                yield invalid(f"{path}.{name}", value=True, detail=detail)


def _type_problems(schema: JSON, level: str, path: str) -> Iterator[FieldProblem]:
    kind, embedded = schema.get("type") or "", schema.get("x-kubernetes-embedded-resource")
    free = schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields")
    if embedded and kind != "object":
        detail = "must be object if x-kubernetes-embedded-resource is true"
        yield (invalid(f"{path}.type", kind, detail) if kind else required(f"{path}.type", detail))
    elif not kind and not free:
        yield required(f"{path}.type", _MISSING_TYPE_MESSAGES[level])
    if embedded and schema.get("additionalProperties") is not None:
        detail = "must not be used if x-kubernetes-embedded-resource is set"
        yield forbidden(f"{path}.additionalProperties", detail)
    if level == "root" and kind and kind != "object":
        yield invalid(f"{path}.type", kind, "must be object at the root")


def _metadata_problems(schema: JSON, level: str, path: str) -> Iterator[FieldProblem]:
    resource = level == "root" or schema.get("x-kubernetes-embedded-resource")
    properties = schema.get("properties") or {}
    expected = (("kind", "string"), ("apiVersion", "string"), ("metadata", "object"))
    for name, kind in expected if resource else ():
        if name in properties and (properties[name].get("type") or "") != kind:
            type_path = f"{path}.properties[{name}].type"
            yield invalid(type_path, properties[name].get("type") or "", f"must be {kind}")
    if level == "root" and "metadata" in properties:
        metadata = properties["metadata"]
        keywords = {name for name, value in metadata.items() if value not in (None, "", [], {}, False)}
        if keywords - _METADATA_KEYWORDS or (metadata.get("properties") or {}).keys() - {"name", "generateName"}:
            detail = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            yield forbidden(f"{path}.properties[metadata]", detail)


def _value_check_problems(schema: JSON, path: str, *, is_top: bool, skip_any: bool = False) -> Iterator[FieldProblem]:
    """Problems of junctors and the pattern. Types inside are forbidden, except in the two forms of int-or-string."""
    any_of, all_of = schema.get("anyOf") or [], schema.get("allOf") or []
    if not (skip_any or (is_top and any_of == _INT_OR_STRING)):
        for index, part in enumerate(any_of):
            yield from _junctor_problems(part, f"{path}.anyOf[{index}]")
    for index, part in enumerate(all_of):
        skip = is_top and index == 0 and part.get("anyOf") == _INT_OR_STRING
        yield from _junctor_problems(part, f"{path}.allOf[{index}]", skip_any=skip)
    for index, part in enumerate(schema.get("oneOf") or []):
        yield from _junctor_problems(part, f"{path}.oneOf[{index}]")
    if schema.get("not") is not None:
        yield from _junctor_problems(schema["not"], f"{path}.not")
    if schema.get("pattern"):
        try:
            compile_pattern(schema["pattern"])
        except PatternError as error:
            detail = f"must be a valid regular expression, but isn't: {error}"
            yield invalid(f"{path}.pattern", schema["pattern"], detail)


def _junctor_problems(schema: JSON, path: str, *, skip_any: bool = False) -> Iterator[FieldProblem]:
    yield from _value_check_problems(schema, path, is_top=False, skip_any=skip_any)
    if isinstance(schema.get("items"), dict):
        yield from _junctor_problems(schema["items"], f"{path}.items")
    for name, part in (schema.get("properties") or {}).items():
        yield from _junctor_problems(part, f"{path}.properties[{name}]")
    if schema.get("additionalProperties") not in (None, False):
        yield forbidden(f"{path}.additionalProperties", "must be undefined to be structural")
    for name, detail in _FORBIDDEN_JUNCTOR_KEYWORDS:
        value = schema.get(name)
        if value is not None if name in _FORBIDDEN_IF_PRESENT else value:
            yield forbidden(f"{path}.{name}", detail)
    yield from _nested_metadata_problems(schema, path)


def _nested_metadata_problems(schema: JSON, path: str) -> Iterator[FieldProblem]:
    # Value validations may not constrain metadata at any place.
    if "metadata" in (schema.get("properties") or {}):
        yield forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")


def _completeness_problems(values: JSON, schema: JSON | None, path: str, values_path: str) -> Iterator[FieldProblem]:
    """Problems of fields that value validations name, but the structure does not."""
    for name in ("not", "allOf", "anyOf", "oneOf"):
        junctor = values.get(name)
        if isinstance(junctor, dict):
            yield from _missing_structure_problems(junctor, schema, path, f"{values_path}.{name}")
        for index, part in enumerate(junctor if isinstance(junctor, list) else ()):
            yield from _missing_structure_problems(part, schema, path, f"{values_path}.{name}[{index}]")


def _missing_structure_problems(
    values: JSON, schema: JSON | None, path: str, values_path: str
) -> Iterator[FieldProblem]:
    if schema is None:
        yield required(path, f"because it is defined in {values_path}")
        return
    yield from _completeness_problems(values, schema, path, values_path)
    if isinstance(values.get("items"), dict):
        items = schema.get("items")
        yield from _missing_structure_problems(values["items"], items, f"{path}.items", f"{values_path}.items")
    properties = schema.get("properties") or {}
    for name, part in (values.get("properties") or {}).items():
        inner = f".properties[{name}]"
        yield from _missing_structure_problems(part, properties.get(name), f"{path}{inner}", f"{values_path}{inner}")
