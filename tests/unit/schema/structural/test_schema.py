"""Structural schemas: what is pruned, defaulted, refused and tolerated."""

from typing import Any

import pytest

from gangline.schema.structural.embedded_objects import MetadataError
from gangline.schema.structural.schema import StructuralSchema, compiled_schema

NOT_CHECKED = (
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
TEXT: dict[str, Any] = {"type": "string"}
NUMBER: dict[str, Any] = {"type": "integer"}


def fields(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def of(spec: dict[str, Any]) -> StructuralSchema:
    return StructuralSchema.from_schema(fields(spec=spec))


def problem_texts(spec: dict[str, Any], value: Any, old: Any = None) -> list[str]:
    before = {"spec": old} if old is not None else None
    return [str(problem) for problem in of(spec).validate({"spec": value}, before).problems]


def test_unknown_fields_are_dropped_and_named() -> None:
    obj = {"spec": {"a": "x", "b": 1, "l": [{"a": "y", "z": 2}]}, "extra": True}
    structural = of(fields(a=TEXT, l={"type": "array", "items": fields(a=TEXT)}))
    assert structural.prepare(obj) == ["extra", "spec.b", "spec.l[0].z"]
    assert obj == {"spec": {"a": "x", "l": [{"a": "y"}]}}


def test_metadata_and_type_stay_whole_though_no_schema_names_them() -> None:
    obj = {"apiVersion": "a/v1", "kind": "W", "metadata": {"name": "a", "labels": {"b": "c"}}}
    assert StructuralSchema.from_schema(fields()).prepare(obj) == []
    assert list(obj) == ["apiVersion", "kind", "metadata"]


def test_unknown_fields_are_kept_where_the_schema_says_so_but_pruned_again_below() -> None:
    obj = {"spec": {"x": {"y": 1}, "known": {"a": "b", "c": 2}}}
    structural = of({**fields(known=fields(a=TEXT)), "x-kubernetes-preserve-unknown-fields": True})
    assert structural.prepare(obj) == ["spec.known.c"]
    assert obj == {"spec": {"x": {"y": 1}, "known": {"a": "b"}}}


def test_null_is_dropped_replaced_or_kept() -> None:
    spec = fields(plain=TEXT, nullable={**TEXT, "nullable": True}, defaulted={**TEXT, "default": "d"})
    obj = {"spec": {"plain": None, "nullable": None, "defaulted": None}}
    structural = of(spec)
    assert structural.prepare(obj) == []
    assert obj == {"spec": {"nullable": None, "defaulted": "d"}}
    assert structural.validate(obj).problems == []


def test_null_in_a_list_is_invalid() -> None:
    obj: dict[str, Any] = {"spec": ["a", None]}
    structural = of({"type": "array", "items": TEXT})
    structural.prepare(obj)
    assert [str(problem) for problem in structural.validate(obj).problems] == [
        'spec[1]: Invalid value: "null": spec[1] in body must be of type string: "null"'
    ]


def test_each_object_gets_a_default_of_its_own() -> None:
    structural = of(fields(l={"type": "array", "items": TEXT, "default": ["a"]}))
    one: dict[str, Any] = {"spec": {}}
    other: dict[str, Any] = {"spec": {}}
    structural.default(one)
    structural.default(other)
    one["spec"]["l"].append("b")
    assert other == {"spec": {"l": ["a"]}}


def test_defaults_reach_into_maps_and_lists() -> None:
    inner = fields(a={**NUMBER, "default": 1})
    structural = of(fields(m={"type": "object", "additionalProperties": inner}, l={"type": "array", "items": inner}))
    obj: dict[str, Any] = {"spec": {"m": {"k": {}}, "l": [{}, {"a": 2}]}}
    structural.default(obj)
    assert obj == {"spec": {"m": {"k": {"a": 1}}, "l": [{"a": 1}, {"a": 2}]}}


@pytest.mark.parametrize(
    ("schema", "value", "complaint"),
    [
        (NUMBER, "x", 'Invalid value: "string": spec in body must be of type integer: "string"'),
        (NUMBER, 1.5, 'Invalid value: "number": spec in body must be of type integer: "number"'),
        ({**NUMBER, "minimum": 5}, 1, "Invalid value: 1: spec in body should be greater than or equal to 5"),
        ({**NUMBER, "maximum": 5, "exclusiveMaximum": True}, 5, "Invalid value: 5: spec in body should be less than 5"),
        ({**NUMBER, "multipleOf": 3}, 4, "Invalid value: 4: spec in body should be a multiple of 3"),
        ({"type": "number", "maximum": 1e6}, 2e6, "Invalid value: 2e+06: spec in body should be less than or equal to 1e+06"),
        ({**TEXT, "maxLength": 2}, "日本語", "Too long: may not be more than 2 bytes"),
        ({**TEXT, "minLength": 2}, "日", 'Invalid value: "日": spec in body should be at least 2 chars long'),
        ({**TEXT, "pattern": "^a+$"}, "b", "Invalid value: \"b\": spec in body should match '^a+$'"),
        ({**TEXT, "enum": ["a", "b"]}, "c", 'Unsupported value: "c": supported values: "a", "b"'),
        ({**TEXT, "format": "ipv4"}, "x", 'Invalid value: "x": spec in body must be of type ipv4: "x"'),
        ({"type": "array", "items": TEXT, "maxItems": 1}, ["a", "b"], "Too many: 2: must have at most 1 item"),
        ({"type": "object", "minProperties": 1}, {}, "Invalid value: 0: spec in body should have at least 1 properties"),
        ({"x-kubernetes-int-or-string": True}, True, 'Invalid value: "boolean": spec in body must be of type integer,string: "boolean"'),
    ],
)  # fmt: skip
def test_value_is_refused_in_the_servers_words(schema: dict[str, Any], value: Any, complaint: str) -> None:
    assert problem_texts(schema, value) == [f"spec: {complaint}"]


def test_missing_fields_come_in_the_order_they_are_required() -> None:
    spec = {**fields(a=TEXT, b=TEXT), "required": ["b", "a"]}
    assert problem_texts(spec, {}) == ["spec.b: Required value", "spec.a: Required value"]


def test_map_keys_are_dotted_in_schema_errors() -> None:
    result = problem_texts({"type": "object", "additionalProperties": NUMBER}, {"k": "x"})
    assert result == ['spec.k: Invalid value: "string": spec.k in body must be of type integer: "string"']


def test_alternatives_report_what_came_closest() -> None:
    spec = {**fields(a=TEXT, b=TEXT), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}
    assert problem_texts(spec, {"a": "x", "b": "y"}) == [
        '<nil>: Invalid value: "": "spec" must validate one and only one schema (oneOf). Found 2 valid alternatives'
    ]


def test_sets_and_maps_hold_each_element_once() -> None:
    keyed = {**fields(k=TEXT, v=NUMBER), "required": ["k"]}
    as_map = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    spec = fields(
        s={"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
        m={"type": "array", "items": keyed, **as_map},
    )
    result = problem_texts(spec, {"s": ["a", "b", "a", "a"], "m": [{"k": "x", "v": 1}, {"k": "x", "v": 2}]})
    assert result == ['spec.m[1]: Duplicate value: {"k":"x"}', 'spec.s[2]: Duplicate value: "a"']


EMBEDDED = {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}


def test_embedded_resource_needs_a_kind() -> None:
    assert problem_texts(EMBEDDED, {"spec": {}}) == ["spec.apiVersion: Required value", "spec.kind: Required value"]


def test_embedded_metadata_is_pruned_and_checked() -> None:
    structural = of(EMBEDDED)
    obj = {"spec": {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a b": "c"}, "nope": 1}}}
    assert structural.prepare(obj) == ["spec.metadata.nope"]
    (problem,) = structural.validate(obj).problems
    assert problem.field == "spec.metadata.labels"


def test_embedded_metadata_of_the_wrong_type_cannot_be_read() -> None:
    obj = {"spec": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": 5}}}
    with pytest.raises(
        MetadataError, match=r"cannot unmarshal number into Go struct field ObjectMeta\.name of type string"
    ):
        of(EMBEDDED).prepare(obj)


def test_unchanged_invalid_value_is_tolerated_and_a_changed_one_is_not() -> None:
    spec = fields(a={**TEXT, "maxLength": 3}, b=TEXT)
    assert problem_texts(spec, {"a": "long-value", "b": "y"}, {"a": "long-value", "b": "x"}) == []
    assert problem_texts(spec, {"a": "other-long"}, {"a": "long-value"}) == [
        "spec.a: Too long: may not be more than 3 bytes"
    ]


def test_unchanged_element_of_a_keyed_list_is_tolerated_wherever_it_moves() -> None:
    keyed = {**fields(k=TEXT, v={**NUMBER, "maximum": 1}), "required": ["k"]}
    spec = {"type": "array", "items": keyed, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    assert problem_texts(spec, [{"k": "b", "v": 0}, {"k": "a", "v": 9}], [{"k": "a", "v": 9}]) == []
    assert problem_texts(
        {**spec, "x-kubernetes-list-type": "atomic"}, [{"k": "b"}, {"k": "a", "v": 9}], [{"k": "a", "v": 9}]
    )


def test_rule_on_an_unchanged_value_warns() -> None:
    spec = fields(a={**TEXT, "x-kubernetes-validations": [{"rule": "self != 'x'", "message": "no x"}]}, b=TEXT)
    structural = of(spec)
    verdict = structural.validate({"spec": {"a": "x", "b": "2"}}, {"spec": {"a": "x", "b": "1"}})
    assert verdict.problems == []
    assert verdict.warnings == ['spec.a: Invalid value: "string": no x']


def test_rules_are_not_run_on_what_is_not_an_object_of_its_type() -> None:
    spec = {**fields(a=TEXT), "required": ["a"], "x-kubernetes-validations": [{"rule": "self.a == 'x'"}]}
    assert problem_texts(spec, {}) == ["spec.a: Required value", f"<nil>: {NOT_CHECKED}"]


def test_status_is_validated_under_its_own_path() -> None:
    condition = {**fields(type=TEXT, status=TEXT), "required": ["type", "status"]}
    schema = fields(spec={**TEXT, "maxLength": 1}, status=fields(conditions={"type": "array", "items": condition}))
    structural = StructuralSchema.from_schema(schema)
    old = {"spec": "too long", "status": {}}
    verdict = structural.validate_status({**old, "status": {"conditions": [{"type": "Done"}]}}, old)
    assert [str(problem) for problem in verdict.problems] == ["status.conditions[0].status: Required value"]


def test_equal_schemas_are_compiled_once() -> None:
    compiled = compiled_schema(fields(a=TEXT))
    assert compiled_schema(fields(a=TEXT)) is compiled
    assert compiled_schema(fields(b=TEXT)) is not compiled
    assert compiled.validate({"a": "x"}).problems == []
    assert [problem.field for problem in compiled.validate({"a": 1}).problems] == ["a"]
