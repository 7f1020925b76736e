"""Structural schemas over generated schemas and objects."""

import copy
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from gangline.schema.correlation import CorrelatedValue
from gangline.schema.crd_validation.schema_rules import check_crd_schema
from gangline.schema.structural.fast_path import compile_check
from gangline.schema.structural.list_types import duplicate_problems
from gangline.schema.structural.schema import StructuralSchema
from gangline.schema.structural.validation import validate

YES = st.just(value=True)
NAMES = st.sampled_from("abcd")
TEXTS = st.sampled_from(["", "a", "abc", "2020-01-01", "日本"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from([0.5, 2.0]) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def _kind(name: str, **keywords: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    flags = {"nullable": YES}
    return st.fixed_dictionaries({"type": st.just(name)}, optional={**flags, **keywords})


SCALARS = st.one_of(
    _kind(
        "string",
        maxLength=st.integers(0, 3),
        enum=st.just(["a", "abc"]),
        format=st.just("date"),
        default=TEXTS,
    ),
    _kind("integer", minimum=st.integers(-2, 2), multipleOf=st.integers(1, 3), default=st.integers(-5, 5)),
    _kind("boolean", default=st.booleans()),
    st.just({"x-kubernetes-int-or-string": True}),
    st.just({"x-kubernetes-preserve-unknown-fields": True}),
)
SCHEMAS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=3)},
            optional={"required": st.lists(NAMES, max_size=2), "nullable": YES},
        ),
        _kind("object", additionalProperties=inner, maxProperties=st.integers(0, 2)),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}, optional={"maxItems": st.integers(0, 2)}),
    ),
    max_leaves=6,
)
ROOTS = SCHEMAS.map(lambda schema: {"type": "object", "properties": {"spec": schema}})


@given(ROOTS, VALUES)
def test_preparing_twice_changes_nothing_more(schema: dict[str, Any], value: Any) -> None:
    structural = StructuralSchema.from_schema(schema)
    obj = {"spec": value}
    structural.prepare(obj)
    once = copy.deepcopy(obj)
    assert structural.prepare(obj) == []
    assert obj == once


@given(ROOTS, VALUES)
def test_pruning_and_defaulting_are_idempotent_on_their_own(schema: dict[str, Any], value: Any) -> None:
    structural = StructuralSchema.from_schema(schema)
    pruned, defaulted = {"spec": copy.deepcopy(value)}, {"spec": copy.deepcopy(value)}
    structural.prune(pruned)
    structural.default(defaulted)
    once = copy.deepcopy((pruned, defaulted))
    assert structural.prune(pruned) == []
    structural.default(defaulted)
    assert (pruned, defaulted) == once


@given(ROOTS, VALUES)
def test_prepared_object_is_judged_the_same_when_prepared_again(schema: dict[str, Any], value: Any) -> None:
    structural = StructuralSchema.from_schema(schema)
    obj = {"spec": value}
    structural.prepare(obj)
    first = structural.validate(obj)
    structural.prepare(obj)
    assert structural.validate(obj) == first


@given(ROOTS, VALUES)
def test_what_is_surely_valid_has_no_problems(schema: dict[str, Any], value: Any) -> None:
    node = StructuralSchema.from_schema(schema).node
    if compile_check(node)({"spec": value}):
        assert validate({"spec": value}, node) == []
        assert duplicate_problems({"spec": value}, node) == []


@given(ROOTS, VALUES)
def test_an_object_that_does_not_change_is_tolerated(schema: dict[str, Any], value: Any) -> None:
    # The server knows no old value of fields that no schema names, and does not tolerate those.
    assume("preserve" not in str(schema))
    structural = StructuralSchema.from_schema(schema)
    node = structural.node
    obj = {"spec": value}
    structural.prepare(obj)
    assert validate(obj, node, pair=CorrelatedValue(obj, copy.deepcopy(obj), node)) == []


@given(ROOTS)
def test_defaults_of_an_accepted_schema_are_valid(schema: dict[str, Any]) -> None:
    if check_crd_schema(schema):
        return
    structural = StructuralSchema.from_schema(schema)
    obj: dict[str, Any] = {}
    structural.prepare(obj)
    assert structural.validate(obj).problems == []
