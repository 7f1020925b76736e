"""Placing whole gangs: K1 to K13, K21, K22."""

import pytest

from gangline.api.scheduler_views import Node
from gangline.api.scheduling import GangTopology
from gangline.scheduler.types.cycle import Placement, PodSet, Shortage
from support.builders.scheduler_inputs import (
    GPU_RESOURCE,
    make_bound_pod,
    make_gang_request,
    make_node_cache,
    make_pod_shape,
    make_scheduler_node,
    make_scheduler_pod,
    node_names,
    placed_nodes,
    placement_shortage,
)

RACK = "example.com/rack"


def in_rack(name: str, rack: str, gpus: int) -> Node:
    return make_scheduler_node(name, labels={RACK: rack}, cpu=64, gpu=gpus)


def test_a_gang_of_four_gets_nothing_where_three_fit() -> None:
    cluster = make_node_cache(*(make_scheduler_node(f"n{number}", cpu=1) for number in range(3)))
    result = placement_shortage(cluster, make_gang_request((make_pod_shape(cpu=1), 4)))
    assert result.fitting_members == 3
    assert result.message == "3 of 4 fit: 0/3 nodes: 3 lack cpu"
    assert result.nodes_by_reason == {"lack cpu": 3}
    assert not result.unsupported


def test_a_fourth_slot_lets_all_four_in() -> None:
    cluster = make_node_cache(*(make_scheduler_node(f"n{number}", cpu=1) for number in range(3)))
    request = make_gang_request((make_pod_shape(cpu=1), 4))
    placement_shortage(cluster, request)
    cluster.put_node(make_scheduler_node("n3", cpu=1))
    assert placed_nodes(cluster, request) == [["n0", "n1", "n2", "n3"]]


def test_three_of_four_members_that_exist_are_not_placed() -> None:
    cluster = make_node_cache(make_scheduler_node("n", cpu=64))
    result = placement_shortage(cluster, make_gang_request((make_pod_shape(cpu=1), 3), least=4))
    assert result.message == "3 of 4 members exist"


def test_of_two_gangs_of_four_on_six_slots_one_is_whole_and_one_has_nothing() -> None:
    what_if = make_node_cache(*(make_scheduler_node(f"n{number}", cpu=2) for number in range(3))).what_if()
    first, second = (make_gang_request((make_pod_shape(cpu=1), 4), name=name) for name in ("a", "b"))
    result = what_if.place(first)
    assert isinstance(result, Placement)
    what_if.assume(first, result)
    assert isinstance(what_if.place(second), Shortage)


def test_asking_uses_up_no_room() -> None:
    """Pods that request nothing fit as often as the node takes pods."""
    what_if = make_node_cache(make_scheduler_node("a", labels={RACK: "1"}), make_scheduler_node("b")).what_if()
    before = what_if.free()
    picky = make_pod_shape(make_scheduler_pod(spec={"nodeSelector": {RACK: "1"}}))
    assert isinstance(what_if.place(make_gang_request((picky, 4))), Placement)
    assert what_if.free() == before


def test_a_gang_that_cannot_fit_leaves_the_room_to_a_later_one() -> None:
    what_if = make_node_cache(make_scheduler_node("n", cpu=10)).what_if()
    assert isinstance(what_if.place(make_gang_request((make_pod_shape(cpu=1), 12))), Shortage)
    assert node_names(what_if, what_if.place(make_gang_request((make_pod_shape(cpu=1), 3)))) == [["n"] * 3]


def test_members_above_the_least_are_placed_as_far_as_they_fit() -> None:
    cluster = make_node_cache(*(make_scheduler_node(f"n{number}", cpu=1) for number in range(5)))
    assert placed_nodes(cluster, make_gang_request((make_pod_shape(cpu=1), 6), least=4)) == [
        ["n0", "n1", "n2", "n3", "n4"]
    ]


def test_a_whole_gang_gets_places_for_its_extras_or_a_reason() -> None:
    cluster = make_node_cache(make_scheduler_node("n", cpu=1))
    assert placed_nodes(cluster, make_gang_request((make_pod_shape(cpu=1), 2), least=0)) == [["n"]]
    result = placement_shortage(cluster, make_gang_request((make_pod_shape(cpu=2), 2), least=0))
    assert result.message == "0/1 nodes: 1 lack cpu"


def test_nothing_binds_when_the_workers_fit_but_no_master() -> None:
    cluster = make_node_cache(make_scheduler_node("n", cpu=4))
    master, worker = make_pod_shape(cpu=8), make_pod_shape(cpu=1)
    request = make_gang_request(("master", master, 1), ("worker", worker, 4), least=4, roles={"master": 1, "worker": 3})
    assert placement_shortage(cluster, request).message == "0 of 1 of role master fit: 0/1 nodes: 1 lack cpu"
    assert placed_nodes(cluster, make_gang_request(("master", master, 1), ("worker", worker, 4), least=4)) == [
        [],
        ["n"] * 4,
    ]


def test_the_least_of_every_role_comes_before_more_of_another() -> None:
    # Room for six units: a master of three, and three workers; or six workers and no master.
    cluster = make_node_cache(make_scheduler_node("n", cpu=6))
    request = make_gang_request(
        ("master", make_pod_shape(cpu=3), 1),
        ("worker", make_pod_shape(cpu=1), 6),
        least=4,
        roles={"master": 1, "worker": 2},
    )
    assert placed_nodes(cluster, request) == [["n"], ["n"] * 3]


def test_a_role_with_too_few_members_is_named() -> None:
    request = make_gang_request(("worker", make_pod_shape(cpu=1), 4), roles={"master": 1})
    assert (
        placement_shortage(make_node_cache(make_scheduler_node("n")), request).message
        == "0 of 1 members of role master exist"
    )


@pytest.mark.parametrize(("asked", "fits"), [("2000m", True), ("2001m", False)])
def test_two_thousand_of_two_thousand_fit_and_one_more_does_not(asked: str, *, fits: bool) -> None:
    what_if = make_node_cache(make_scheduler_node("n", cpu=2)).what_if()
    assert isinstance(what_if.place(make_gang_request((make_pod_shape(cpu=asked), 1))), Placement) is fits


def test_gpus_are_packed_onto_the_one_node_that_takes_all() -> None:
    half, whole = make_scheduler_node("a", cpu=64, gpu=8), make_scheduler_node("b", cpu=64, gpu=8)
    cluster = make_node_cache(
        half,
        whole,
        make_scheduler_node("c", cpu=64),
        residents=[
            make_bound_pod("x", "a", make_pod_shape(cpu=1, gpu=6)),
            make_bound_pod("y", "b", make_pod_shape(cpu=1, gpu=4)),
        ],
    )
    assert placed_nodes(cluster, make_gang_request((make_pod_shape(cpu=1, gpu=1), 4))) == [["b"] * 4]
    assert placed_nodes(cluster, make_gang_request((make_pod_shape(cpu=1, gpu=1), 2))) == [["a"] * 2]


def test_all_go_to_the_node_with_the_least_room_to_spare() -> None:
    # `a` is the fullest, `b` the one that would be filled completely.
    cluster = make_node_cache(
        make_scheduler_node("a", cpu=64, gpu=16),
        make_scheduler_node("b", cpu=64, gpu=4),
        residents=[
            make_bound_pod("x", "a", make_pod_shape(gpu=13)),
            make_bound_pod("y", "b", make_pod_shape(gpu=2)),
        ],
    )
    assert placed_nodes(cluster, make_gang_request((make_pod_shape(gpu=1), 2))) == [["b"] * 2]


def test_a_large_gang_fills_nodes_one_by_one_and_the_fullest_first() -> None:
    cluster = make_node_cache(*(make_scheduler_node(f"n{number}", cpu=64, gpu=8) for number in range(6)))
    cluster.put_pod(make_bound_pod("x", "n4", make_pod_shape(gpu=3)))
    assert placed_nodes(cluster, make_gang_request((make_pod_shape(gpu=1), 20))) == [
        ["n0"] * 8 + ["n1"] * 7 + ["n4"] * 5
    ]


def test_pods_without_gpus_leave_nodes_with_gpus_for_last() -> None:
    cluster = make_node_cache(
        make_scheduler_node("a", cpu=4, gpu=8),
        make_scheduler_node("b", cpu=4),
        make_scheduler_node("c", cpu=4),
    )
    assert placed_nodes(cluster, make_gang_request((make_pod_shape(cpu=1), 6))) == [["b"] * 4 + ["c"] * 2]
    assert placed_nodes(cluster, make_gang_request((make_pod_shape(cpu=1), 9))) == [["a"] + ["b"] * 4 + ["c"] * 4]


def test_a_required_rack_takes_all_or_the_best_one_is_named_with_its_gap() -> None:
    nodes = [in_rack(f"a{number}", "left", 4) for number in range(2)]
    nodes += [in_rack(f"b{number}", "right", 4) for number in range(3)]
    cluster = make_node_cache(*nodes)
    rack = GangTopology(key=RACK, required=True)
    result = placement_shortage(cluster, make_gang_request((make_pod_shape(gpu=1), 16), topology=rack))
    assert result.message.startswith(
        "no rack holds all 16, the best is right with room for 12 (4 missing): 0/5 nodes: "
    )
    assert result.nodes_by_reason == {f"lack {GPU_RESOURCE}": 3, "outside the topology domain": 2}
    assert result.fitting_members == 12
    preferred = placed_nodes(cluster, make_gang_request((make_pod_shape(gpu=1), 16), topology=GangTopology(key=RACK)))
    assert [name[0] for name in preferred[0]] == ["a"] * 4 + ["b"] * 12


def test_a_gang_goes_into_the_tightest_rack_that_holds_it() -> None:
    nodes = [in_rack(f"a{number}", "large", 4) for number in range(3)]
    nodes += [in_rack(f"b{number}", "small", 4) for number in range(2)]
    rack = GangTopology(key=RACK, required=True)
    result = placed_nodes(make_node_cache(*nodes), make_gang_request((make_pod_shape(gpu=1), 8), topology=rack))
    assert result == [["b0"] * 4 + ["b1"] * 4]


def test_members_join_the_rack_where_the_others_are() -> None:
    nodes = [in_rack("a", "left", 4), in_rack("b", "right", 8), make_scheduler_node("c", cpu=64, gpu=8)]
    rack = GangTopology(key=RACK, required=True)
    cluster = make_node_cache(*nodes)
    assert placed_nodes(cluster, make_gang_request((make_pod_shape(gpu=1), 4), topology=rack, near=("b", "gone"))) == [
        ["b"] * 4
    ]
    result = placement_shortage(cluster, make_gang_request((make_pod_shape(gpu=1), 8), topology=rack, near=("a",)))
    assert "the best is left with room for 4 (4 missing)" in result.message


def test_with_a_preferred_rack_the_others_go_near_first() -> None:
    cluster = make_node_cache(in_rack("a", "left", 2), in_rack("b", "right", 8))
    request = make_gang_request((make_pod_shape(gpu=1), 4), topology=GangTopology(key=RACK), near=("a",))
    assert placed_nodes(cluster, request) == [["a"] * 2 + ["b"] * 2]


def test_a_topology_that_no_node_has_is_a_shortage() -> None:
    rack = GangTopology(key=RACK, required=True)
    result = placement_shortage(
        make_node_cache(make_scheduler_node("n", cpu=64)),
        make_gang_request((make_pod_shape(cpu=1), 1), topology=rack),
    )
    assert result.nodes_by_reason == {"outside the topology domain": 1}


def test_roles_of_several_shapes_share_one_rack() -> None:
    cluster = make_node_cache(
        in_rack("a", "left", 4), in_rack("b", "right", 4), make_scheduler_node("c", labels={RACK: "left"})
    )
    request = make_gang_request(
        ("ps", make_pod_shape(cpu=50), 2),
        ("worker", make_pod_shape(gpu=2), 2),
        topology=GangTopology(key=RACK, required=True),
    )
    assert "no rack holds all 4" in placement_shortage(cluster, request).message
    cluster.put_node(make_scheduler_node("d", labels={RACK: "left"}, cpu=64))
    assert placed_nodes(cluster, request) == [["a", "d"], ["a", "a"]]


def test_the_scarcest_shape_is_placed_first() -> None:
    # A worker on the GPU node would leave no room for the pod that needs the GPU.
    cluster = make_node_cache(make_scheduler_node("a", cpu=4, gpu=1), make_scheduler_node("b", cpu=4))
    request = make_gang_request(("worker", make_pod_shape(cpu=4), 1), ("trainer", make_pod_shape(cpu=4, gpu=1), 1))
    assert placed_nodes(cluster, request) == [["b"], ["a"]]


def test_another_order_is_tried_before_it_is_said_not_to_fit() -> None:
    # `narrow` has more room in all, but the first pod on the node with the disk decides.
    cluster = make_node_cache(make_scheduler_node("a", cpu=8, disk=2), make_scheduler_node("b", cpu=4))
    request = make_gang_request(("wide", make_pod_shape(cpu=4), 2), ("disk", make_pod_shape(cpu=2, disk=1), 2))
    assert placed_nodes(cluster, request) == [["a", "b"], ["a", "a"]]


def test_with_many_shapes_the_scarcest_still_goes_first() -> None:
    cluster = make_node_cache(make_scheduler_node("a", cpu=1, labels={"only": "here"}), make_scheduler_node("b", cpu=6))
    bound = make_pod_shape(make_scheduler_pod(cpu=1, spec={"nodeSelector": {"only": "here"}}))
    free = [("worker", make_pod_shape(make_scheduler_pod(cpu=1, labels={"n": str(number)})), 1) for number in range(6)]
    assert placed_nodes(cluster, make_gang_request(*free, ("worker", bound, 1))) == [["b"]] * 6 + [["a"]]


def test_with_many_shapes_no_role_gets_more_than_its_least_before_the_others_have_theirs() -> None:
    cluster = make_node_cache(make_scheduler_node("n", cpu=3))
    many = [("a", make_pod_shape(make_scheduler_pod(cpu=1, labels={"n": str(number)})), 1) for number in range(6)]
    request = make_gang_request(*many, ("b", make_pod_shape(cpu=1), 1), least=3, roles={"a": 2, "b": 1})
    result = placed_nodes(cluster, request)
    assert sum(map(len, result[:6])) == 2
    assert result[6] == ["n"]


def test_a_node_full_by_number_of_pods_is_refused_for_that() -> None:
    cluster = make_node_cache(
        make_scheduler_node("n", cpu=64, pods=1), residents=[make_bound_pod("x", "n", make_pod_shape(cpu=1))]
    )
    assert placement_shortage(cluster, make_gang_request((make_pod_shape(cpu=1), 1))).nodes_by_reason == {
        "at their limit of pods": 1
    }


def test_an_extended_resource_that_nobody_has_is_a_shortage() -> None:
    result = placement_shortage(
        make_node_cache(make_scheduler_node("n")),
        make_gang_request((make_pod_shape(cpu=1, asks={"example.com/x": 1}), 1)),
    )
    assert result.nodes_by_reason == {"lack example.com/x": 1}
    assert not result.unsupported


def test_room_nominated_to_a_pod_is_kept_from_those_not_more_important() -> None:
    waiting = make_bound_pod("x", "n", make_pod_shape(cpu=3), priority=10, nominated=True)
    cluster = make_node_cache(make_scheduler_node("n", cpu=4), residents=[waiting])
    shape = make_pod_shape(cpu=2)
    assert isinstance(cluster.what_if().place(make_gang_request((shape, 1), priority=9)), Shortage)
    assert isinstance(cluster.what_if().place(make_gang_request((shape, 1), priority=10)), Shortage)
    assert placed_nodes(cluster, make_gang_request((shape, 1), priority=11)) == [["n"]]
    what_if = cluster.what_if()
    assert isinstance(what_if.place_after_eviction(make_gang_request((shape, 1), priority=9), ["x"]), Placement)
    assert isinstance(what_if.place(make_gang_request((shape, 1), priority=9)), Shortage)


def test_a_pod_that_is_bound_after_it_was_nominated_counts_for_everybody() -> None:
    shape = make_pod_shape(cpu=3)
    cluster = make_node_cache(make_scheduler_node("n", cpu=4))
    cluster.put_pod(make_bound_pod("x", "n", shape, priority=1, nominated=True))
    cluster.put_pod(make_bound_pod("x", "n", shape, priority=1))
    assert isinstance(cluster.what_if().place(make_gang_request((make_pod_shape(cpu=2), 1), priority=5)), Shortage)
    cluster.drop_pod("x")
    assert placed_nodes(cluster, make_gang_request((make_pod_shape(cpu=2), 1))) == [["n"]]


def test_no_nodes_at_all_is_said() -> None:
    assert (
        placement_shortage(make_node_cache(), make_gang_request((make_pod_shape(cpu=1), 1))).message
        == "0/0 nodes: there are none"
    )
    rack = GangTopology(key=RACK, required=True)
    assert (
        placement_shortage(
            make_node_cache(), make_gang_request((make_pod_shape(cpu=1), 1), topology=rack)
        ).fitting_members
        == 0
    )


def test_a_need_of_nobody_is_no_need() -> None:
    cluster = make_node_cache(make_scheduler_node("n", cpu=1))
    shape = make_pod_shape(cpu=1)
    assert placed_nodes(cluster, make_gang_request(PodSet("a", make_pod_shape(cpu=9), 0), PodSet("b", shape, 1))) == [
        [],
        ["n"],
    ]
    assert placed_nodes(cluster, make_gang_request(PodSet("a", shape, 0))) == [[]]


def test_names_and_not_the_order_of_arrival_decide() -> None:
    nodes = [make_scheduler_node(f"n{number}", cpu=2) for number in range(9)]
    request = make_gang_request((make_pod_shape(cpu=1), 7))
    there = placed_nodes(make_node_cache(*nodes), request)
    assert (
        placed_nodes(make_node_cache(*reversed(nodes)), request)
        == there
        == [["n0"] * 2 + ["n1"] * 2 + ["n2"] * 2 + ["n3"]]
    )
