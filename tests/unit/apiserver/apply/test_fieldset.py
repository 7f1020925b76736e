import pytest

from gangline.apiserver.apply.fieldset import (
    Fields,
    at,
    decoded,
    difference,
    has,
    intersection,
    key_of,
    paths,
    shown,
    union,
    value_of,
    without,
)

BOTH: Fields = {"f:a": {".": {}, "f:b": {}}}
CHILD: Fields = {"f:a": {"f:b": {}}}
PARENT: Fields = {"f:a": {}}


def test_a_node_with_children_is_a_member_only_if_it_says_so() -> None:
    assert has(BOTH, "f:a")
    assert not has(CHILD, "f:a")
    assert has(PARENT, "f:a")
    assert not has(PARENT, "f:a", "f:b")


def test_union_keeps_membership_of_parents_and_children_apart() -> None:
    assert union(PARENT, CHILD) == union(CHILD, PARENT) == BOTH
    assert union({}, CHILD) == CHILD


def test_difference_takes_members_and_leaves_what_is_below_them() -> None:
    assert difference(BOTH, PARENT) == CHILD
    assert difference(BOTH, CHILD) == PARENT
    assert difference(CHILD, PARENT) == CHILD
    assert difference(BOTH, BOTH) == {}


def test_without_takes_members_and_all_below_them() -> None:
    assert without({**BOTH, "f:c": {}}, PARENT) == {"f:c": {}}
    assert without(BOTH, CHILD) == PARENT


def test_intersection_is_of_members() -> None:
    assert intersection(BOTH, CHILD) == CHILD
    assert intersection(PARENT, CHILD) == {}


def test_operations_change_none_of_their_arguments() -> None:
    before = repr((BOTH, CHILD, PARENT))
    for act in (union, difference, without, intersection):
        act(BOTH, CHILD)
        act(CHILD, PARENT)
    assert repr((BOTH, CHILD, PARENT)) == before


def test_paths_are_told_members_first_and_sorted() -> None:
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
    assert list(paths(fields)) == [
        ".spec.selector",
        '.spec.ports[port=9,protocol="TCP"].name',
        '.spec.ports[port=80,protocol="TCP"].name',
        '.spec.set[="a"]',
        '.spec.set[="b"]',
    ]


def test_keys_are_spelled_as_go_spells_them() -> None:
    assert key_of({"b": 1, "a": "<&>"}) == 'k:{"a":"\\u003c\\u0026\\u003e","b":1}'
    assert value_of("x") == 'v:"x"'
    assert shown("i:3") == "[3]"


def test_sets_of_clients_are_spelled_anew_and_unknown_keys_dropped() -> None:
    sent = {"f:a": {'k:{ "n" : "x" }': {"f:v": {}}, "x:later": {}}, "f:b": {".": {}}, "f:c": {"x:only": {}}}
    assert decoded(sent) == {"f:a": {'k:{"n":"x"}': {"f:v": {}}}, "f:b": {}, "f:c": {}}
    assert decoded(None) == {}


@pytest.mark.parametrize(
    "sent", [{"a": {}}, {"fa": {}}, {"k:x": {}}, {"k:[]": {}}, {"i:x": {}}, {"f:a": 1}, []]
)
def test_sets_that_cannot_be_read_are_an_error(sent: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        decoded(sent)


def test_a_path_makes_a_set_of_one() -> None:
    assert at("f:spec", "f:replicas") == {"f:spec": {"f:replicas": {}}}
