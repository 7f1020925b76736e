"""Pods keep away from nodes, together with the affinity that a user wrote."""

from typing import Any

from gangline.jobs.plan.recovery.affinity import NodeAvoidance, keep_away

REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
ZONE = {"key": "zone", "operator": "In", "values": ["a"]}
DISK = {"key": "disk", "operator": "Exists"}


def other_than(name: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "NotIn", "values": [name]}


def affinity_of(spec: dict[str, Any], *excluded: str, disliked: tuple[str, ...] = ()) -> Any:
    keep_away(spec, NodeAvoidance(excluded, disliked))
    return spec.get("affinity")


def test_nothing_is_added_where_no_node_is_avoided() -> None:
    spec: dict[str, Any] = {"containers": []}
    assert affinity_of(spec) is None
    assert spec == {"containers": []}


def test_each_excluded_node_is_a_requirement_of_its_own() -> None:
    term = {"matchFields": [other_than("a"), other_than("b")]}
    assert affinity_of({}, "a", "b") == {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}


def test_the_exclusion_goes_into_every_alternative() -> None:
    own: dict[str, Any] = {
        "podAffinity": {"x": 1},
        "nodeAffinity": {
            REQUIRED: {
                "nodeSelectorTerms": [
                    {"matchExpressions": [ZONE]},
                    {"matchFields": [other_than("z")]},
                    {"matchExpressions": [DISK], "matchFields": [other_than("y")]},
                ]
            }
        },
    }
    before = repr(own)
    assert affinity_of({"affinity": own}, "a") == {
        "podAffinity": {"x": 1},
        "nodeAffinity": {
            REQUIRED: {
                "nodeSelectorTerms": [
                    {"matchExpressions": [ZONE], "matchFields": [other_than("a")]},
                    {"matchFields": [other_than("z"), other_than("a")]},
                    {"matchExpressions": [DISK], "matchFields": [other_than("y"), other_than("a")]},
                ]
            }
        },
    }
    assert repr(own) == before


def test_a_term_that_matches_no_node_still_matches_none() -> None:
    terms = [{}, {"matchExpressions": []}, {"matchFields": None}, {"matchExpressions": [ZONE]}]
    own = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    merged = affinity_of({"affinity": own}, "a")["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    assert merged == [*terms[:3], {"matchExpressions": [ZONE], "matchFields": [other_than("a")]}]


def test_disliked_nodes_are_a_preference_beside_those_of_the_user() -> None:
    own = {"nodeAffinity": {PREFERRED: [{"weight": 1, "preference": {"matchExpressions": [ZONE]}}]}}
    merged = affinity_of({"affinity": own}, disliked=("a", "b"))
    assert merged == {
        "nodeAffinity": {
            PREFERRED: [
                {"weight": 1, "preference": {"matchExpressions": [ZONE]}},
                {"weight": 100, "preference": {"matchFields": [other_than("a")]}},
                {"weight": 100, "preference": {"matchFields": [other_than("b")]}},
            ]
        }
    }
