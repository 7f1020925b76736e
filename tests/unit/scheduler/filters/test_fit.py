"""Filters on a node's own properties: K14, tolerations, node affinity, ports."""

from typing import Any

import pytest

from gangline.scheduler.cache.nodes import NodeCache
from gangline.scheduler.types.cycle import Placement
from gangline.scheduler.types.shape import PodShape
from support.builders.scheduler_inputs import (
    make_bound_pod,
    make_gang_request,
    make_node_cache,
    make_pod_shape,
    make_scheduler_node,
    make_scheduler_pod,
    placed_nodes,
    placement_shortage,
)

TAINT = {"key": "dedicated", "value": "training", "effect": "NoSchedule"}
PORT = {"containers": [{"name": "main", "ports": [{"hostPort": 80}]}]}


def fits(cluster: NodeCache, shape: PodShape) -> bool:
    return isinstance(cluster.what_if().place(make_gang_request((shape, 1))), Placement)


def shape_with(**spec: Any) -> PodShape:
    return make_pod_shape(make_scheduler_pod(spec=spec))


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_an_untolerated_taint_is_tainted(effect: str) -> None:
    cluster = make_node_cache(make_scheduler_node("n", taints=[{"key": "dedicated", "effect": effect}]))
    assert placement_shortage(cluster, make_gang_request((make_pod_shape(cpu=1), 1))).message == "0/1 nodes: 1 tainted"


def test_a_cordoned_node_is_cordoned() -> None:
    cluster = make_node_cache(make_scheduler_node("n", cordoned=True))
    assert placement_shortage(cluster, make_gang_request((make_pod_shape(cpu=1), 1))).message == "0/1 nodes: 1 cordoned"


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_node_that_is_not_ready_is_not_ready(ready: str) -> None:
    cluster = make_node_cache(make_scheduler_node("n", ready=ready))
    assert (
        placement_shortage(cluster, make_gang_request((make_pod_shape(cpu=1), 1))).message == "0/1 nodes: 1 not ready"
    )


def test_a_node_of_other_labels_does_not_match_the_selector() -> None:
    shape = shape_with(nodeSelector={"disk": "ssd"})
    cluster = make_node_cache(make_scheduler_node("n", labels={"disk": "hdd"}), make_scheduler_node("m"))
    assert (
        placement_shortage(cluster, make_gang_request((shape, 1))).message
        == "0/2 nodes: 2 do not match the node selector"
    )
    cluster.put_node(make_scheduler_node("o", labels={"disk": "ssd"}))
    assert placed_nodes(cluster, make_gang_request((shape, 1))) == [["o"]]


def test_a_host_port_in_use_is_in_use() -> None:
    shape = shape_with(**PORT)
    cluster = make_node_cache(make_scheduler_node("n"), residents=[make_bound_pod("x", "n", shape)])
    assert (
        placement_shortage(cluster, make_gang_request((shape, 1))).message == "0/1 nodes: 1 have the host port in use"
    )


def test_every_node_is_counted_once_under_the_first_reason() -> None:
    cluster = make_node_cache(
        make_scheduler_node("a", cpu=1, taints=[TAINT]),
        make_scheduler_node("b", cpu=1, cordoned=True, taints=[TAINT]),
        make_scheduler_node("c", cpu=1, gpu=1),
        *(make_scheduler_node(f"d{number}", cpu=1) for number in range(3)),
    )
    result = placement_shortage(cluster, make_gang_request((make_pod_shape(cpu=2, gpu=1), 1)))
    assert result.message == "0/6 nodes: 3 lack nvidia.com/gpu, 1 cordoned, 1 lack cpu, 1 tainted"


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"key": "dedicated", "operator": "Equal", "value": "training", "effect": "NoSchedule"}, True),
        ({"key": "dedicated", "value": "training"}, True),
        ({"key": "dedicated", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "dedicated", "value": "serving"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "dedicated", "operator": "Exists", "effect": "PreferNoSchedule"}, False),
        ({"key": "dedicated", "operator": "Gt", "value": "5"}, False),
    ],
)
def test_a_toleration_covers_a_taint_or_not(toleration: dict[str, str], *, expected: bool) -> None:
    cluster = make_node_cache(make_scheduler_node("n", taints=[TAINT]))
    assert fits(cluster, shape_with(tolerations=[toleration])) is expected


@pytest.mark.parametrize(
    ("operator", "limit", "expected"),
    [
        ("Gt", "900", True),
        ("Gt", "950", False),
        ("Lt", "960", True),
        ("Lt", "950", False),
        ("Gt", "x", False),
    ],
)
def test_a_taint_with_a_number_is_compared(operator: str, limit: str, *, expected: bool) -> None:
    cluster = make_node_cache(make_scheduler_node("n", taints=[{"key": "sla", "value": "950", "effect": "NoSchedule"}]))
    shape = shape_with(tolerations=[{"key": "sla", "operator": operator, "value": limit}])
    assert fits(cluster, shape) is expected


def test_all_taints_must_be_tolerated() -> None:
    cluster = make_node_cache(make_scheduler_node("n", taints=[TAINT, {"key": "other", "effect": "NoSchedule"}]))
    assert not fits(cluster, shape_with(tolerations=[{"key": "dedicated", "operator": "Exists"}]))


def test_who_tolerates_a_cordon_or_an_absence_goes_there_all_the_same() -> None:
    cluster = make_node_cache(make_scheduler_node("n", cordoned=True, ready="Unknown"))
    keys = ("node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready")
    some = [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]
    assert fits(cluster, shape_with(tolerations=some))
    assert not fits(cluster, shape_with(tolerations=some[:1]))
    # The tolerations that admission adds to every pod concern eviction, not placement.
    assert not fits(cluster, shape_with(tolerations=[some[0], some[1] | {"effect": "NoExecute"}]))


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": list(terms)}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        ("In", ["3", "7"], True),
        ("In", ["3"], False),
        ("NotIn", ["3"], True),
        ("NotIn", ["7"], False),
        ("Exists", [], True),
        ("DoesNotExist", [], False),
        ("Gt", ["6"], True),
        ("Gt", ["7"], False),
        ("Lt", ["8"], True),
        ("Lt", ["7"], False),
    ],
)
def test_node_affinity_compares_labels(operator: str, values: list[str], *, expected: bool) -> None:
    term = {"matchExpressions": [{"key": "gen", "operator": operator, "values": values}]}
    assert (
        fits(
            make_node_cache(make_scheduler_node("n", labels={"gen": "7"})),
            shape_with(affinity=affinity(term)),
        )
        is expected
    )


@pytest.mark.parametrize(
    ("operator", "expected"),
    [("In", False), ("NotIn", True), ("Exists", False), ("DoesNotExist", True), ("Gt", False)],
)
def test_a_label_that_is_missing_is_not_in_anything(operator: str, *, expected: bool) -> None:
    values = ["5"] if operator in ("In", "NotIn", "Gt") else []
    term = {"matchExpressions": [{"key": "gen", "operator": operator, "values": values}]}
    assert fits(make_node_cache(make_scheduler_node("n")), shape_with(affinity=affinity(term))) is expected


def test_terms_are_alternatives_and_expressions_are_not() -> None:
    one = {"key": "a", "operator": "Exists"}
    two = {"key": "b", "operator": "Exists"}
    cluster = make_node_cache(make_scheduler_node("n", labels={"a": "1"}))
    assert fits(cluster, shape_with(affinity=affinity({"matchExpressions": [one]}, {"matchExpressions": [two]})))
    assert not fits(cluster, shape_with(affinity=affinity({"matchExpressions": [one, two]})))
    assert not fits(cluster, shape_with(affinity=affinity({})))
    assert not fits(cluster, shape_with(affinity=affinity({"matchExpressions": [one]}), nodeSelector={"b": "1"}))


def test_fields_name_the_node() -> None:
    cluster = make_node_cache(make_scheduler_node("n"), make_scheduler_node("m"))
    here = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["m"]}]}
    assert placed_nodes(cluster, make_gang_request((shape_with(affinity=affinity(here)), 1))) == [["m"]]
    elsewhere = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["m"]}]}
    assert placed_nodes(cluster, make_gang_request((shape_with(affinity=affinity(elsewhere)), 1))) == [["n"]]


def test_what_is_preferred_is_taken_first_and_no_more() -> None:
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    preferred = [{"weight": 10, "preference": term}]
    shape = make_pod_shape(
        make_scheduler_pod(
            cpu=1,
            spec={"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}},
        )
    )
    cluster = make_node_cache(make_scheduler_node("a", cpu=3), make_scheduler_node("b", cpu=2, labels={"disk": "ssd"}))
    assert placed_nodes(cluster, make_gang_request((make_pod_shape(cpu=1), 3))) == [["a"] * 3]
    assert placed_nodes(cluster, make_gang_request((shape, 3))) == [["a"] + ["b"] * 2]


def test_a_soft_taint_is_avoided_as_long_as_there_is_room_elsewhere() -> None:
    soft = {"key": "spot", "effect": "PreferNoSchedule"}
    cluster = make_node_cache(make_scheduler_node("a", cpu=1, taints=[soft]), make_scheduler_node("b", cpu=1))
    shape = make_pod_shape(cpu=1)
    assert placed_nodes(cluster, make_gang_request((shape, 1))) == [["b"]]
    assert placed_nodes(cluster, make_gang_request((shape, 2))) == [["a", "b"]]
    tolerant = make_pod_shape(make_scheduler_pod(cpu=1, spec={"tolerations": [{"key": "spot", "operator": "Exists"}]}))
    assert placed_nodes(cluster, make_gang_request((tolerant, 1))) == [["a"]]


@pytest.mark.parametrize(
    ("theirs", "ours", "clashes"),
    [
        ({"hostPort": 80}, {"hostPort": 80}, True),
        ({"hostPort": 80}, {"hostPort": 81}, False),
        ({"hostPort": 80}, {"hostPort": 80, "protocol": "UDP"}, False),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.2"}, False),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80}, True),
        ({"hostPort": 80, "hostIP": "0.0.0.0"}, {"hostPort": 80, "hostIP": "10.0.0.2"}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.1"}, True),
        ({"hostPort": 80, "hostIP": "::"}, {"hostPort": 80, "hostIP": "10.0.0.1"}, False),
        ({"hostPort": 80, "hostIP": "::"}, {"hostPort": 80}, True),
    ],
)
def test_ports_clash_on_the_same_address_or_on_all(
    theirs: dict[str, Any], ours: dict[str, Any], *, clashes: bool
) -> None:
    there = shape_with(containers=[{"name": "main", "ports": [theirs]}])
    shape = shape_with(containers=[{"name": "main", "ports": [ours]}])
    cluster = make_node_cache(make_scheduler_node("n"), residents=[make_bound_pod("x", "n", there)])
    assert fits(cluster, shape) is not clashes


def test_members_with_a_host_port_go_to_a_node_each() -> None:
    shape = shape_with(**PORT)
    cluster = make_node_cache(*(make_scheduler_node(f"n{number}") for number in range(3)))
    assert placed_nodes(cluster, make_gang_request((shape, 3))) == [["n0", "n1", "n2"]]
    assert placement_shortage(cluster, make_gang_request((shape, 4))).fitting_members == 3


def test_the_ports_of_one_role_are_in_the_way_of_another() -> None:
    shape = shape_with(**PORT)
    cluster = make_node_cache(make_scheduler_node("n"), make_scheduler_node("m"))
    other = make_pod_shape(make_scheduler_pod(spec=PORT | {"nodeSelector": {"kubernetes.io/hostname": "m"}}))
    assert placed_nodes(cluster, make_gang_request(("a", shape, 1), ("b", other, 1))) == [["n"], ["m"]]
    what_if = cluster.what_if()
    result = what_if.place(make_gang_request((shape, 2)))
    assert isinstance(result, Placement)
    what_if.assume(make_gang_request((shape, 2)), result)
    assert not isinstance(what_if.place(make_gang_request((shape, 1))), Placement)


def test_a_port_of_one_who_leaves_is_free() -> None:
    shape = shape_with(**PORT)
    cluster = make_node_cache(make_scheduler_node("n"), residents=[make_bound_pod("x", "n", shape)])
    assert isinstance(cluster.what_if().place_after_eviction(make_gang_request((shape, 1)), ["x"]), Placement)
