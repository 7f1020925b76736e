import pytest

from gangline.apiserver.apply.fieldset import (
    FieldSet,
    decode_field_set,
    difference,
    field_paths,
    has_field,
    intersection,
    key_path_element,
    path_element_text,
    path_set,
    recursive_difference,
    union,
    value_path_element,
)

BOTH: FieldSet = {"f:a": {".": {}, "f:b": {}}}
CHILD: FieldSet = {"f:a": {"f:b": {}}}
PARENT: FieldSet = {"f:a": {}}


def test_a_node_with_children_is_a_member_only_with_a_dot() -> None:
    assert has_field(BOTH, "f:a")
    assert not has_field(CHILD, "f:a")
    assert has_field(PARENT, "f:a")
    assert not has_field(PARENT, "f:a", "f:b")


def test_union_keeps_membership_of_parents_and_children_apart() -> None:
    assert union(PARENT, CHILD) == union(CHILD, PARENT) == BOTH
    assert union({}, CHILD) == CHILD


def test_difference_removes_members_but_not_their_children() -> None:
    assert difference(BOTH, PARENT) == CHILD
    assert difference(BOTH, CHILD) == PARENT
    assert difference(CHILD, PARENT) == CHILD
    assert difference(BOTH, BOTH) == {}


def test_recursive_difference_removes_members_and_their_children() -> None:
    assert recursive_difference({**BOTH, "f:c": {}}, PARENT) == {"f:c": {}}
    assert recursive_difference(BOTH, CHILD) == PARENT


def test_intersection_is_of_members() -> None:
    assert intersection(BOTH, CHILD) == CHILD
    assert intersection(PARENT, CHILD) == {}


def test_operations_change_none_of_their_arguments() -> None:
    before = repr((BOTH, CHILD, PARENT))
    for act in (union, difference, recursive_difference, intersection):
        act(BOTH, CHILD)
        act(CHILD, PARENT)
    assert repr((BOTH, CHILD, PARENT)) == before


def test_paths_are_sorted_members_first() -> None:
    fields = {
        "f:spec": {
            "f:ports": {
                'k:{"port":80,"protocol":"TCP"}': {"f:name": {}},
                'k:{"port":9,"protocol":"TCP"}': {"f:name": {}},
            },
            "f:selector": {},
            "f:set": {'v:"b"': {}, 'v:"a"': {}},
        }
    }
    assert list(field_paths(fields)) == [
        ".spec.selector",
        '.spec.ports[port=9,protocol="TCP"].name',
        '.spec.ports[port=80,protocol="TCP"].name',
        '.spec.set[="a"]',
        '.spec.set[="b"]',
    ]


def test_keys_are_encoded_as_in_go() -> None:
    assert key_path_element({"b": 1, "a": "<&>"}) == 'k:{"a":"\\u003c\\u0026\\u003e","b":1}'
    assert value_path_element("x") == 'v:"x"'
    assert path_element_text("i:3") == "[3]"


def test_decoded_sets_have_canonical_keys_and_no_unknown_ones() -> None:
    sent = {"f:a": {'k:{ "n" : "x" }': {"f:v": {}}, "x:later": {}}, "f:b": {".": {}}, "f:c": {"x:only": {}}}
    assert decode_field_set(sent) == {"f:a": {'k:{"n":"x"}': {"f:v": {}}}, "f:b": {}, "f:c": {}}
    assert decode_field_set(None) == {}


@pytest.mark.parametrize("sent", [{"a": {}}, {"fa": {}}, {"k:x": {}}, {"k:[]": {}}, {"i:x": {}}, {"f:a": 1}, []])
def test_undecodable_sets_are_an_error(sent: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_field_set(sent)


def test_a_path_makes_a_set_of_one() -> None:
    assert path_set("f:spec", "f:replicas") == {"f:spec": {"f:replicas": {}}}
