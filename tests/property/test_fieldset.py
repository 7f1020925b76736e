"""Sets of fields obey the laws of sets, and apply comes to rest."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gangline.apiserver.apply.apply import server_side_apply
from gangline.apiserver.apply.fieldset import (
    decode_field_set,
    difference,
    field_paths,
    intersection,
    recursive_difference,
    union,
)
from gangline.apiserver.apply.managed_fields import updated_managed_fields
from gangline.apiserver.apply.managed_kind import managed_kind
from gangline.apiserver.patch.json_patch import drop_nulls
from gangline.schema.typed.openapi import crd_type

KEYS = st.sampled_from(["f:a", "f:b", 'k:{"n":1}', 'v:"x"'])
SETS: st.SearchStrategy[dict[str, Any]] = st.recursive(
    st.just({}),
    lambda below: st.dictionaries(KEYS, st.tuples(below, st.booleans()).map(lambda pair: _node(*pair)), max_size=3),
    max_leaves=8,
)


def _node(children: dict[str, Any], member: bool) -> dict[str, Any]:
    return {".": {}, **children} if member and children else children


def members(fields: dict[str, Any]) -> set[str]:
    return set(field_paths(fields))


@given(SETS, SETS)
def test_operations_do_to_members_what_they_say(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert members(union(left, right)) == members(left) | members(right)
    assert members(difference(left, right)) == members(left) - members(right)
    assert members(intersection(left, right)) == members(left) & members(right)
    assert members(recursive_difference(left, right)) <= members(difference(left, right))


@given(SETS, SETS)
def test_equal_members_are_equal_sets(left: dict[str, Any], right: dict[str, Any]) -> None:
    """There is one way to write a set, so that `==` tells whether two are the same."""
    assert union(left, right) == union(right, left)
    assert union(difference(left, right), intersection(left, right)) == left
    assert decode_field_set(left) == left


SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer"},
                "roles": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "properties": {"name": {"type": "string"}, "n": {"type": "integer"}},
                    },
                },
                "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
            },
        }
    },
}
THING = managed_kind("example.com/v1", "Thing", crd_type(SCHEMA), custom=True)
# Not empty: applying an empty list or map over one that goes is not idempotent in Kubernetes either.
NAMES = st.lists(st.sampled_from("abcd"), unique=True, min_size=1, max_size=4)
SPECS = st.fixed_dictionaries(
    {"size": st.integers(0, 2)},
    optional={
        "roles": NAMES.flatmap(
            lambda names: st.tuples(
                *(st.fixed_dictionaries({"name": st.just(each)}, optional={"n": st.integers(0, 2)}) for each in names)
            ).map(list)
        ),
        "tags": NAMES,
        "map": st.dictionaries(st.sampled_from("xyz"), st.sampled_from("12"), min_size=1),
    },
)


def thing(spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": spec}


@given(st.lists(st.tuples(st.sampled_from("mn"), SPECS), min_size=1, max_size=4))
def test_applying_twice_is_applying_once(steps: list[tuple[str, dict[str, Any]]]) -> None:
    live: dict[str, Any] | None = None
    managed: list[dict[str, Any]] = []
    for manager, spec in steps:
        result = server_side_apply(live, thing(spec), THING, manager=manager, now="1", force=True)
        managed = result.managed_fields
        live = {
            **result.object,
            "metadata": {**result.object["metadata"], "managedFields": result.managed_fields},
        }
        drop_nulls(live["spec"])  # as the server does before it stores
    again = server_side_apply(live, thing(steps[-1][1]), THING, manager=steps[-1][0], now="2")
    assert not again.changed
    assert again.managed_fields == managed


@given(SPECS, SPECS)
def test_updates_hand_every_changed_field_to_one_owner(first: dict[str, Any], second: dict[str, Any]) -> None:
    live = thing(first)
    live["metadata"]["managedFields"] = updated_managed_fields(None, live, THING, manager="one", now="1")
    entries = updated_managed_fields(live, thing(second), THING, manager="two", now="2")
    everything = updated_managed_fields(None, thing(second), THING, manager="all", now="1")
    owned = [members(entry["fieldsV1"]) for entry in entries]
    assert sum(map(len, owned)) == len(set().union(*owned))
    assert set().union(*owned) == set().union(*(members(entry["fieldsV1"]) for entry in everything))
