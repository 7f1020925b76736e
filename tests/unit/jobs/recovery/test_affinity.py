"""Pods keep away from nodes, together with the affinity that a user wrote."""

from typing import Any

from gangline.jobs.plan.recovery.affinity import NodeAvoidance, keep_away
from support.builders.scheduler_inputs import (
    make_gang_request,
    make_node_cache,
    make_pod_shape,
    make_scheduler_node,
    make_scheduler_pod,
    placed_nodes,
)

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


def test_our_scheduler_places_pods_so() -> None:
    cluster = make_node_cache(*(make_scheduler_node(name, labels={"zone": "a"}) for name in ("m", "n", "o")))

    def placed(spec: dict[str, Any], *excluded: str, disliked: tuple[str, ...] = ()) -> set[str]:
        keep_away(spec, NodeAvoidance(excluded, disliked))
        shape = make_pod_shape(make_scheduler_pod(cpu=1, spec=spec))
        return {name for names in placed_nodes(cluster, make_gang_request((shape, 2))) for name in names}

    own = {
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [ZONE]}, {"matchExpressions": [DISK]}]}}
    }
    assert placed({}, "m", "n") == {"o"}
    assert placed({"affinity": own}, "m", "o") == {"n"}
    assert placed({}, "m", disliked=("n",)) == {"o"}
