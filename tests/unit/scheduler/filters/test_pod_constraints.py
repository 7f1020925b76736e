"""Pod affinity, anti-affinity of both sides (K16), topology spread."""

from typing import Any

import pytest

from gangline.api.meta import ObjectMeta
from gangline.api.scheduler_views import Namespace
from gangline.api.scheduling import GangTopology
from gangline.scheduler.cache.nodes import NodeCache
from gangline.scheduler.pods.decode import bound_pod_of, shape_of
from gangline.scheduler.types.cycle import Placement, Shortage
from gangline.scheduler.types.shape import PodShape
from support.builders.scheduler_inputs import (
    HOSTNAME_LABEL,
    make_bound_pod,
    make_gang_request,
    make_node_cache,
    make_scheduler_node,
    make_scheduler_pod,
    node_names,
    placed_nodes,
    placement_shortage,
)

ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def term(key: str = HOSTNAME_LABEL, labels: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": labels or {"app": "a"}}, **more}


def shape_of_rules(
    *,
    labels: dict[str, str] | None = None,
    near: list[dict[str, Any]] | None = None,
    apart: list[dict[str, Any]] | None = None,
    spread: list[dict[str, Any]] | None = None,
    namespace: str = "default",
    cpu: int = 1,
    **spec: Any,
) -> PodShape:
    affinity: dict[str, Any] = {}
    if near:
        affinity["podAffinity"] = {REQUIRED: near}
    if apart:
        affinity["podAntiAffinity"] = {REQUIRED: apart}
    if affinity:
        spec["affinity"] = affinity
    if spread:
        spec["topologySpreadConstraints"] = spread
    return shape_of(make_scheduler_pod(namespace=namespace, labels=labels or {"app": "a"}, spec=spec, cpu=cpu))


def zoned(*zones: str, cpu: int = 4) -> NodeCache:
    """Nodes n0, n1 ... in these zones; `-` is a node in none."""
    return make_node_cache(
        *(
            make_scheduler_node(f"n{number}", cpu=cpu, labels={} if zone == "-" else {ZONE: zone})
            for number, zone in enumerate(zones)
        )
    )


PLAIN_A = shape_of_rules()
PLAIN_B = shape_of_rules(labels={"app": "b"})


def test_members_that_keep_apart_get_a_node_each() -> None:
    shape = shape_of_rules(apart=[term()])
    cluster = zoned("x", "x", "y")
    assert placed_nodes(cluster, make_gang_request((shape, 3))) == [["n0", "n1", "n2"]]
    result = placement_shortage(cluster, make_gang_request((shape, 4)))
    assert result.message == "3 of 4 fit: 0/3 nodes: 3 excluded by pod anti-affinity"


def test_members_that_keep_apart_by_zone_get_a_zone_each() -> None:
    shape = shape_of_rules(apart=[term(ZONE)])
    cluster = zoned("x", "x", "y", "-")
    # A node without the label is in no zone: anti-affinity does not apply there.
    assert placed_nodes(cluster, make_gang_request((shape, 4))) == [["n0", "n2", "n3", "n3"]]
    assert placement_shortage(zoned("x", "x", "y"), make_gang_request((shape, 3))).fitting_members == 2


def test_a_resident_keeps_others_from_its_domain_though_they_have_no_rule() -> None:
    shy = shape_of_rules(labels={"app": "shy"}, apart=[term(ZONE)])
    cluster = zoned("x", "x", "y")
    cluster.put_pod(make_bound_pod("r", "n0", shy))
    assert placed_nodes(cluster, make_gang_request((PLAIN_A, 2))) == [["n2", "n2"]]
    assert placement_shortage(cluster, make_gang_request((PLAIN_A, 9))).nodes_by_reason == {
        "excluded by pod anti-affinity": 2,
        "lack cpu": 1,
    }
    assert placed_nodes(cluster, make_gang_request((PLAIN_B, 2))) == [["n0", "n0"]]
    what_if = cluster.what_if()
    assert node_names(what_if, what_if.place_after_eviction(make_gang_request((PLAIN_A, 3)), ["r"])) == [["n0"] * 3]
    cluster.drop_pod("r")
    assert isinstance(cluster.what_if().place(make_gang_request((PLAIN_A, 9))), Placement)


def test_a_resident_with_the_very_same_rule_keeps_us_away_though_the_rule_does_not_mean_it() -> None:
    rule = [term(ZONE, {"app": "a"})]
    cluster = zoned("x", "y")
    cluster.put_pod(make_bound_pod("r", "n0", shape_of_rules(labels={"app": "b"}, apart=rule)))
    assert placed_nodes(cluster, make_gang_request((shape_of_rules(apart=rule), 1))) == [["n1"]]


def test_a_resident_of_another_namespace_means_its_own_unless_it_says_otherwise() -> None:
    cluster = zoned("x")
    cluster.put_pod(make_bound_pod("r", "n0", shape_of_rules(apart=[term()], namespace="other")))
    assert placed_nodes(cluster, make_gang_request((PLAIN_A, 1))) == [["n0"]]
    named = shape_of_rules(apart=[term(namespaces=["default"])], namespace="other")
    cluster.put_pod(make_bound_pod("r", "n0", named))
    assert isinstance(cluster.what_if().place(make_gang_request((PLAIN_A, 1))), Shortage)


def test_namespaces_are_chosen_by_their_labels_too() -> None:
    chosen = shape_of_rules(apart=[term(namespaceSelector={"matchLabels": {"team": "red"}})], namespace="other")
    cluster = zoned("x")
    cluster.put_pod(make_bound_pod("r", "n0", chosen))
    assert placed_nodes(cluster, make_gang_request((PLAIN_A, 1))) == [["n0"]]
    red = Namespace(metadata=ObjectMeta(name="default", labels={"team": "red"}))
    cluster.namespaces.put(red)
    assert isinstance(cluster.what_if().place(make_gang_request((PLAIN_A, 1))), Shortage)
    cluster.namespaces.drop(red)
    everywhere = shape_of_rules(apart=[term(namespaceSelector={})], namespace="other")
    cluster.put_pod(make_bound_pod("r", "n0", everywhere))
    assert isinstance(cluster.what_if().place(make_gang_request((PLAIN_A, 1))), Shortage)


def test_own_anti_affinity_looks_at_who_is_there() -> None:
    cluster = zoned("x", "y")
    cluster.put_pod(make_bound_pod("r", "n0", PLAIN_B))
    shape = shape_of_rules(apart=[term(labels={"app": "b"})])
    assert placed_nodes(cluster, make_gang_request((shape, 3))) == [["n1"] * 3]


def test_the_first_of_its_kind_may_go_anywhere_and_the_others_go_with_it() -> None:
    shape = shape_of_rules(near=[term(ZONE)])
    cluster = zoned("x", "y", "y", "-")
    # Zone y is the only one with room for six.
    assert placed_nodes(cluster, make_gang_request((shape, 6))) == [["n1"] * 4 + ["n2"] * 2]
    # The tightest zone that takes all.
    assert placed_nodes(cluster, make_gang_request((shape, 4))) == [["n0"] * 4]
    result = placement_shortage(cluster, make_gang_request((shape, 9)))
    assert result.message.startswith("no zone holds all 9, the best is y with room for 8 (1 missing): 0/4 nodes: ")


def test_who_wants_to_be_with_others_goes_where_they_are() -> None:
    shape = shape_of_rules(labels={"app": "c"}, near=[term(ZONE, {"app": "b"})])
    cluster = zoned("x", "y", "y")
    result = placement_shortage(cluster, make_gang_request((shape, 1)))
    assert result.message == "0/3 nodes: 3 do not match the pod affinity"
    cluster.put_pod(make_bound_pod("r", "n1", PLAIN_B))
    assert set(placed_nodes(cluster, make_gang_request((shape, 7)))[0]) == {"n1", "n2"}
    assert placement_shortage(cluster, make_gang_request((shape, 8))).nodes_by_reason == {
        "do not match the pod affinity": 1,
        "lack cpu": 2,
    }


def test_a_pod_counts_for_affinity_only_if_all_terms_mean_it() -> None:
    shape = shape_of_rules(labels={"app": "c"}, near=[term(ZONE, {"app": "b"}), term(HOSTNAME_LABEL, {"tier": "x"})])
    cluster = zoned("x")
    cluster.put_pod(make_bound_pod("r", "n0", PLAIN_B))
    assert isinstance(cluster.what_if().place(make_gang_request((shape, 1))), Shortage)
    cluster.put_pod(make_bound_pod("r", "n0", shape_of_rules(labels={"app": "b", "tier": "x"})))
    assert placed_nodes(cluster, make_gang_request((shape, 1))) == [["n0"]]


def test_roles_that_want_each_other_share_the_zone_that_takes_both() -> None:
    job = {"job": "j"}
    wanting = [term(ZONE, job)]
    ps = shape_of_rules(labels=job | {"role": "ps"}, near=wanting, cpu=3)
    worker = shape_of_rules(labels=job | {"role": "worker"}, near=wanting)
    cluster = zoned("x", "y", "y")
    result = placed_nodes(cluster, make_gang_request(("ps", ps, 1), ("worker", worker, 4)))
    assert {name for names in result for name in names} == {"n1", "n2"}


def test_a_follower_is_placed_after_the_one_it_follows() -> None:
    leader = shape_of_rules(labels={"role": "leader"}, cpu=1)
    follower = shape_of_rules(labels={"role": "follower"}, near=[term(HOSTNAME_LABEL, {"role": "leader"})], cpu=1)
    cluster = zoned("x", "y", cpu=3)
    assert placed_nodes(cluster, make_gang_request(("follower", follower, 2), ("leader", leader, 1))) == [
        ["n0"] * 2,
        ["n0"],
    ]


def test_a_follower_goes_with_its_leader_to_a_zone_that_takes_both_not_to_the_tightest() -> None:
    leader = shape_of_rules(labels={"app": "leader"})
    follower = shape_of_rules(labels={"app": "f"}, near=[term(ZONE, {"app": "leader"})])
    cluster = make_node_cache(
        make_scheduler_node("x", labels={ZONE: "x"}, cpu=1),
        make_scheduler_node("y", labels={ZONE: "y"}, cpu=2),
        make_scheduler_node("z", labels={ZONE: "z"}, cpu=3),
    )
    assert placed_nodes(cluster, make_gang_request(("leader", leader, 1), ("worker", follower, 1))) == [
        ["y"],
        ["y"],
    ]
    assert placed_nodes(cluster, make_gang_request(("leader", leader, 1), ("worker", follower, 2))) == [
        ["z"],
        ["z", "z"],
    ]
    # Within a topology that is required just so.
    required = make_gang_request(
        ("leader", leader, 1), ("worker", follower, 2), topology=GangTopology(key=ZONE, required=True)
    )
    assert placed_nodes(cluster, required) == [["z"], ["z", "z"]]


def test_those_whom_others_want_to_be_with_need_not_all_be_in_one_place() -> None:
    anchor = shape_of_rules(labels={"app": "anchor"}, cpu=2)
    follower = shape_of_rules(labels={"app": "f"}, near=[term(HOSTNAME_LABEL, {"app": "anchor"})])
    cluster = make_node_cache(make_scheduler_node("x", cpu=3), make_scheduler_node("y", cpu=2))
    assert placed_nodes(cluster, make_gang_request(("anchor", anchor, 2), ("worker", follower, 1))) == [
        ["x", "y"],
        ["x"],
    ]


def test_followers_may_be_with_several_leaders_if_no_place_takes_all() -> None:
    server = shape_of_rules(labels={"app": "ps"})
    worker = shape_of_rules(labels={"app": "w"}, near=[term(HOSTNAME_LABEL, {"app": "ps"})])
    cluster = make_node_cache(
        make_scheduler_node("x", cpu=3), make_scheduler_node("y", cpu=3), make_scheduler_node("z", cpu=1)
    )
    team = make_gang_request(("ps", server, 2), ("worker", worker, 4))
    assert placed_nodes(cluster, team) == [["x", "y"], ["x", "x", "y", "y"]]
    larger = make_gang_request(("ps", server, 2), ("worker", worker, 5))
    assert placement_shortage(cluster, larger).message.startswith(
        "no hostname holds all 7, the best is x with room for 3 "
    )
    required = make_gang_request(*team.pod_sets, topology=GangTopology(key=HOSTNAME_LABEL, required=True))
    assert placement_shortage(cluster, required).message.startswith("no hostname holds all 6, ")


def test_terms_on_two_keys_hold_both() -> None:
    shape = shape_of_rules(near=[term(ZONE), term("rack")])
    cluster = make_node_cache(
        make_scheduler_node("a", cpu=2, labels={ZONE: "x", "rack": "1"}),
        make_scheduler_node("b", cpu=2, labels={ZONE: "x", "rack": "2"}),
        make_scheduler_node("c", cpu=2, labels={ZONE: "x", "rack": "2"}),
    )
    assert placement_shortage(cluster, make_gang_request((shape, 5))).fitting_members == 4
    assert placed_nodes(cluster, make_gang_request((shape, 4))) == [["b"] * 2 + ["c"] * 2]


def test_two_keys_that_cross_both_bind_after_the_first() -> None:
    shape = shape_of_rules(near=[term("rack"), term("row")])
    cluster = make_node_cache(
        make_scheduler_node("a", cpu=2, labels={"rack": "1", "row": "1"}),
        make_scheduler_node("b", cpu=2, labels={"rack": "1", "row": "2"}),
        make_scheduler_node("c", cpu=2, labels={"rack": "2", "row": "1"}),
    )
    assert placed_nodes(cluster, make_gang_request((shape, 2)))[0] in (["a", "a"], ["b", "b"], ["c", "c"])
    assert placement_shortage(cluster, make_gang_request((shape, 3))).fitting_members == 2


def even(key: str = ZONE, skew: int = 1, **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "topologyKey": key,
            "maxSkew": skew,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "a"}},
            **more,
        }
    ]


def zones_of(cluster: NodeCache, found: list[list[str]], zones: tuple[str, ...]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for name in found[0]:
        zone = zones[int(name[1:])]
        counts[zone] = counts.get(zone, 0) + 1
    return counts


@pytest.mark.parametrize(("count", "expected"), [(5, {"x": 3, "y": 2}), (6, {"x": 3, "y": 3})])
def test_members_are_spread_evenly(count: int, expected: dict[str, int]) -> None:
    zones = ("x", "x", "y", "y")
    cluster = zoned(*zones)
    result = placed_nodes(cluster, make_gang_request((shape_of_rules(spread=even()), count)))
    assert zones_of(cluster, result, zones) == expected


def test_a_zone_that_is_full_holds_the_others_back() -> None:
    cluster = make_node_cache(
        make_scheduler_node("a", cpu=1, labels={ZONE: "x"}),
        make_scheduler_node("b", cpu=64, labels={ZONE: "y"}),
    )
    result = placement_shortage(cluster, make_gang_request((shape_of_rules(spread=even()), 4)))
    assert result.fitting_members == 3
    assert result.nodes_by_reason == {"lack cpu": 1, "would break the topology spread": 1}
    assert len(placed_nodes(cluster, make_gang_request((shape_of_rules(spread=even(skew=3)), 5)))[0]) == 5


def test_who_is_there_already_counts_and_who_leaves_does_not() -> None:
    cluster = zoned("x", "y")
    shape = shape_of_rules(spread=even())
    cluster.put_pod(make_bound_pod("r", "n0", PLAIN_A))
    assert placed_nodes(cluster, make_gang_request((shape, 1))) == [["n1"]]
    cluster.put_pod(make_bound_pod("r", "n0", PLAIN_A, terminating=True))
    assert placed_nodes(cluster, make_gang_request((shape, 1))) == [["n0"]]


def test_fewer_zones_than_asked_for_count_the_emptiest_as_empty() -> None:
    shape = shape_of_rules(spread=even(minDomains=3))
    cluster = zoned("x", "y")
    assert placement_shortage(cluster, make_gang_request((shape, 3))).fitting_members == 2
    cluster.put_node(make_scheduler_node("n2", labels={ZONE: "z"}))
    assert len(placed_nodes(cluster, make_gang_request((shape, 6)))[0]) == 6


def test_zones_the_pod_cannot_be_in_do_not_count_unless_told_to() -> None:
    cluster = make_node_cache(
        make_scheduler_node("a", cpu=9, labels={ZONE: "x", "disk": "ssd"}),
        make_scheduler_node("b", labels={ZONE: "y"}),
    )
    honor = shape_of_rules(spread=even(), nodeSelector={"disk": "ssd"})
    assert placed_nodes(cluster, make_gang_request((honor, 3))) == [["a"] * 3]
    ignore = shape_of_rules(spread=even(nodeAffinityPolicy="Ignore"), nodeSelector={"disk": "ssd"})
    assert placement_shortage(cluster, make_gang_request((ignore, 3))).fitting_members == 1


def test_pods_on_nodes_it_cannot_be_on_do_not_count() -> None:
    cluster = make_node_cache(
        make_scheduler_node("a", labels={ZONE: "x", "disk": "ssd"}),
        make_scheduler_node("b", labels={ZONE: "x"}),
        make_scheduler_node("c", labels={ZONE: "y", "disk": "ssd"}),
        residents=[make_bound_pod(f"r{number}", "b", PLAIN_A) for number in range(3)],
    )
    shape = shape_of_rules(spread=even(), nodeSelector={"disk": "ssd"})
    assert placed_nodes(cluster, make_gang_request((shape, 2))) == [["a", "c"]]


def test_zones_that_are_tainted_count_unless_told_not_to() -> None:
    cluster = make_node_cache(
        make_scheduler_node("a", cpu=9, labels={ZONE: "x"}),
        make_scheduler_node("b", labels={ZONE: "y"}, taints=[{"key": "t", "effect": "NoSchedule"}]),
    )
    assert placement_shortage(cluster, make_gang_request((shape_of_rules(spread=even()), 2))).fitting_members == 1
    honor = shape_of_rules(spread=even(nodeTaintsPolicy="Honor"))
    assert placed_nodes(cluster, make_gang_request((honor, 3))) == [["a"] * 3]


def test_a_node_without_the_label_takes_nobody_who_is_spread() -> None:
    result = placement_shortage(zoned("-"), make_gang_request((shape_of_rules(spread=even()), 1)))
    assert result.nodes_by_reason == {"would break the topology spread": 1}


def test_a_spread_that_asks_for_no_labels_counts_nobody_as_with_kube_scheduler() -> None:
    spread = {"topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    shape = shape_of_rules(spread=[spread])
    cluster = make_node_cache(
        make_scheduler_node("a", labels={ZONE: "x"}), make_scheduler_node("b", labels={ZONE: "y"}, cpu=1)
    )
    cluster.put_pod(make_bound_pod("r", "b", shape_of_rules()))
    assert placed_nodes(cluster, make_gang_request((shape, 3))) == [["a", "a", "a"]]


def test_what_is_only_wished_for_is_not_looked_at() -> None:
    shape = shape_of_rules(spread=even(whenUnsatisfiable="ScheduleAnyway"))
    assert placed_nodes(zoned("x", "y"), make_gang_request((shape, 4))) == [["n0"] * 4]


def test_only_pods_with_the_same_label_value_are_spread_against_each_other() -> None:
    rule = even(matchLabelKeys=["version"])
    new = shape_of_rules(labels={"app": "a", "version": "2"}, spread=rule)
    old = shape_of_rules(labels={"app": "a", "version": "1"})
    cluster = zoned("x", "y")
    for number in range(3):
        cluster.put_pod(make_bound_pod(f"r{number}", "n0", old))
    assert zones_of(cluster, placed_nodes(cluster, make_gang_request((new, 2))), ("x", "y")) == {
        "x": 1,
        "y": 1,
    }


def test_a_rule_about_one_members_index_is_kept() -> None:
    """Identity labels are left out of shapes, but selectors that use them still match."""
    index = "training.kubeflow.org/replica-index"
    cluster = zoned("x", "y")
    for number in range(2):
        pod = make_scheduler_pod(f"r{number}", labels={index: str(number)}, spec={"nodeName": f"n{number}"}, cpu=1)
        resident = bound_pod_of(pod)
        assert resident is not None
        assert index not in dict(resident.shape.labels)
        cluster.put_pod(resident)
    shape = shape_of_rules(labels={"app": "c"}, near=[term(HOSTNAME_LABEL, {index: "1"})])
    assert placed_nodes(cluster, make_gang_request((shape, 2))) == [["n1"] * 2]
    cluster.put_pod(
        make_bound_pod("shy", "n0", shape_of_rules(labels={"app": "d"}, apart=[term(HOSTNAME_LABEL, {index: "7"})]))
    )
    assert index in cluster.selected_labels
    seventh = shape_of(make_scheduler_pod("m", labels={index: "7"}, cpu=1), selected_labels=cluster.selected_labels)
    assert placed_nodes(cluster, make_gang_request((seventh, 1))) == [["n1"]]


def test_those_placed_before_in_the_same_round_are_seen() -> None:
    what_if = zoned("x", "y").what_if()
    first = make_gang_request((shape_of_rules(apart=[term(ZONE)]), 1))
    result = what_if.place(first)
    assert isinstance(result, Placement)
    what_if.assume(first, result)
    there = node_names(what_if, result)[0][0]
    second = node_names(what_if, what_if.place(make_gang_request((PLAIN_A, 4))))[0]
    assert set(second).isdisjoint({there})


def test_nobody_counts_on_a_pod_that_is_only_nominated() -> None:
    cluster = zoned("x", "y")
    cluster.put_pod(make_bound_pod("r", "n1", PLAIN_B, priority=9, nominated=True))
    follower = shape_of_rules(labels={"app": "c"}, near=[term(HOSTNAME_LABEL, {"app": "b"})])
    assert isinstance(cluster.what_if().place(make_gang_request((follower, 1))), Shortage)
    shy = shape_of_rules(labels={"app": "c"}, apart=[term(HOSTNAME_LABEL, {"app": "b"})])
    assert placed_nodes(cluster, make_gang_request((shy, 1))) == [["n0"]]
