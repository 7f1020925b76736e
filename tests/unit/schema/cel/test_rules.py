"""Rules of schemas: messages, paths, transitions, budgets."""

from typing import Any

import pytest

from gangline.schema.cel.rules import RuleResult, compile_rules
from gangline.schema.correlation import CorrelatedValue
from gangline.schema.nodes import SchemaNode

TEXT: dict[str, Any] = {"type": "string"}


def run(schema: dict[str, Any], value: Any, old: Any = None) -> RuleResult:
    node = SchemaNode(schema)
    rules = compile_rules(node, root=True)
    assert rules is not None
    return rules.run(value, old, pair=CorrelatedValue(value, old, node) if old is not None else None)


def problem_texts(schema: dict[str, Any], value: Any, old: Any = None) -> list[str]:
    return [str(problem) for problem in run(schema, value, old).problems]


def with_rule(schema: dict[str, Any], rule: str, **more: Any) -> dict[str, Any]:
    return {**schema, "x-kubernetes-validations": [{"rule": rule, **more}]}


def inside(spec: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"spec": spec}}


SPEC: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "c": TEXT,
        "d": {"type": "object", "properties": {"e": TEXT}},
        "m": {"type": "object", "additionalProperties": TEXT},
    },
}


def test_failed_rule_names_itself_unless_it_has_a_message() -> None:
    assert problem_texts(inside(with_rule(SPEC, "self.a < 5")), {"spec": {"a": 7}}) == [
        'spec: Invalid value: "object": failed rule: self.a < 5'
    ]
    assert problem_texts(inside(with_rule(SPEC, "self.a < 5", message=" too big ")), {"spec": {"a": 7}}) == [
        'spec: Invalid value: "object": too big'
    ]


def test_message_may_be_computed() -> None:
    schema = inside(with_rule(SPEC, "self.c == 'ok'", messageExpression="'c is ' + self.c + ', want ok'"))
    assert problem_texts(schema, {"spec": {"c": "bad"}}) == ['spec: Invalid value: "object": c is bad, want ok']


@pytest.mark.parametrize("expression", ["''", "'a\\nb'", "self.c.substring(50)", "'x' + self.d.e"])
def test_useless_computed_message_falls_back(expression: str) -> None:
    schema = inside(with_rule(SPEC, "self.c == 'ok'", message="plain", messageExpression=expression))
    assert problem_texts(schema, {"spec": {"c": "bad"}}) == ['spec: Invalid value: "object": plain']


@pytest.mark.parametrize(
    ("reason", "path", "complaint"),
    [
        ("FieldValueForbidden", ".d.e", "spec.d.e: Forbidden: no"),
        ("FieldValueRequired", ".m['a.b']", "spec.m[a.b]: Required value: no"),
        ("FieldValueDuplicate", "", 'spec: Duplicate value: "object"'),
        ("FieldValueInvalid", ".m.x", 'spec.m[x]: Invalid value: "object": no'),
    ],
)
def test_reason_and_field_path_shape_the_problem(reason: str, path: str, complaint: str) -> None:
    schema = inside(with_rule(SPEC, "false", message="no", reason=reason, fieldPath=path))
    assert problem_texts(schema, {"spec": {}}) == [complaint]


def test_rule_at_the_root_sees_names_and_type_and_reports_no_field() -> None:
    schema = with_rule(inside(SPEC), "self.metadata.name.startsWith('ok-') && self.kind == 'W'")
    assert problem_texts(schema, {"kind": "W", "metadata": {"name": "no"}}) == [
        "<nil>: Invalid value: \"object\": failed rule: self.metadata.name.startsWith('ok-') && self.kind == 'W'"
    ]


def test_error_in_a_rule_is_reported_with_its_reason() -> None:
    assert problem_texts(inside(with_rule(SPEC, "self.a == 1")), {"spec": {}}) == [
        'spec: Invalid value: "object": no such key: a evaluating rule: self.a == 1'
    ]


def test_wrong_types_behind_dyn_are_reported_as_such() -> None:
    schema = inside({"type": "object", "properties": {"x": {"x-kubernetes-int-or-string": True}}})
    schema["properties"]["spec"] = with_rule(schema["properties"]["spec"], "self.x < 5")
    (result,) = problem_texts(schema, {"spec": {"x": "5%"}})
    assert result.startswith("spec: Invalid value: \"object\": 'no such overload': call arguments did not match")


def test_rules_of_elements_use_brackets_and_indices() -> None:
    items = with_rule(TEXT, "self != ''", message="empty")
    schema = {
        "type": "object",
        "properties": {"l": {"type": "array", "items": items}, "m": {"type": "object", "additionalProperties": items}},
    }
    assert problem_texts(schema, {"l": ["a", ""], "m": {"k": ""}}) == [
        'l[1]: Invalid value: "string": empty',
        'm[k]: Invalid value: "string": empty',
    ]


def test_transition_rule_waits_for_an_old_value() -> None:
    schema = inside(with_rule(TEXT, "self == oldSelf", message="immutable"))
    assert problem_texts(schema, {"spec": "a"}) == []
    assert problem_texts(schema, {"spec": "a"}, {"spec": "a"}) == []
    assert problem_texts(schema, {"spec": "b"}, {"spec": "a"}) == ['spec: Invalid value: "string": immutable']
    assert problem_texts(schema, {"spec": "b"}, {}) == []


def test_optional_old_self_runs_on_create_too() -> None:
    schema = inside(with_rule(TEXT, "oldSelf.hasValue() || self == 'first'", optionalOldSelf=True, message="no"))
    assert problem_texts(schema, {"spec": "first"}) == []
    assert problem_texts(schema, {"spec": "second"}) == ['spec: Invalid value: "string": no']
    assert problem_texts(schema, {"spec": "second"}, {"spec": "first"}) == []


def test_old_elements_are_found_by_key() -> None:
    item = with_rule(
        {"type": "object", "required": ["k"], "properties": {"k": TEXT, "v": {"type": "integer"}}},
        "self.v >= oldSelf.v",
        message="shrinks",
    )
    schema = {"type": "object", "properties": {"l": {"type": "array", "items": item}}}
    schema["properties"]["l"] |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}  # type: ignore[index]
    old = {"l": [{"k": "a", "v": 1}, {"k": "b", "v": 5}]}
    assert problem_texts(schema, {"l": [{"k": "b", "v": 4}, {"k": "c", "v": 0}, {"k": "a", "v": 1}]}, old) == [
        'l[0]: Invalid value: "object": shrinks'
    ]


def test_later_element_decides_despite_an_earlier_error() -> None:
    schema = inside(with_rule({"type": "array", "items": TEXT}, "self.exists(x, int(x) == 1)"))
    assert problem_texts(schema, {"spec": ["x", "1"]}) == []
    (result,) = problem_texts(schema, {"spec": ["x", "2"]})
    assert result.startswith("spec: Invalid value: \"array\": type conversion error from 'string' to 'int' evaluating")


def test_expensive_rule_is_stopped_and_the_rest_is_skipped() -> None:
    rules = [
        {"rule": "self.all(a, self.all(b, self.all(c, a + b + c >= 0)))", "message": "slow"},
        {"rule": "false", "message": "never asked"},
    ]
    schema = inside({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": rules})
    (result,) = problem_texts(schema, {"spec": list(range(120))})
    assert "operation cancelled: actual cost limit exceeded" in result
    assert result.endswith("call cost exceeds limit for rule: slow")


def test_fields_with_odd_names_are_written_escaped() -> None:
    schema = {"type": "object", "properties": {"x-y": TEXT, "namespace": TEXT, "a.b": TEXT, "u__v": TEXT}}
    rule = "self.x__dash__y + self.__namespace__ + self.a__dot__b + self.u__underscores__v == 'abcd'"
    value = {"x-y": "a", "namespace": "b", "a.b": "c", "u__v": "d"}
    assert problem_texts(with_rule(schema, rule), value) == []


def test_path_that_begins_with_a_key_is_reported_as_the_server_words_it() -> None:
    values = {"type": "object", "additionalProperties": {"type": "string"}}
    schema = inside({**SPEC, "properties": {"m": with_rule(values, "false", message="no", fieldPath=".x")}})
    assert problem_texts(schema, {"spec": {"m": {}}}) == ['spec.m.[x]: Invalid value: "object": no']
