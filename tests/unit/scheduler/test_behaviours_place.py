"""Edge cases of placement, each distinguished by one condition."""

import msgspec

from gangline.api.scheduling import GangTopology
from gangline.scheduler.cycle.cycle import schedule
from gangline.scheduler.types.cycle import Bind, Placement, PodSet, SchedulerPolicy, Shortage
from support.builders.scheduler_inputs import (
    GANG_CREATED_AT,
    make_bound_pod,
    make_gang_request,
    make_node_cache,
    make_pod_shape,
    make_scheduler_node,
    make_scheduler_pod,
    node_names,
    placed_nodes,
)

RACK = "rack"


def test_with_many_shapes_the_least_of_one_role_leaves_room_for_those_it_waits_for() -> None:
    big = PodSet("ps", make_pod_shape(cpu=2), 3)
    small = [
        PodSet("worker", make_pod_shape(make_scheduler_pod(labels={"kind": str(number)}, cpu=1)), 1)
        for number in range(6)
    ]
    cluster = make_node_cache(make_scheduler_node("a", cpu=8))
    result = placed_nodes(cluster, make_gang_request(big, *small, least=7, roles={"ps": 1}))
    assert [len(nodes) for nodes in result] == [1, 1, 1, 1, 1, 1, 1]


def test_members_above_the_least_do_not_pull_a_gang_out_of_its_preferred_rack() -> None:
    nodes = [
        make_scheduler_node("a", cpu=3, labels={RACK: "left"}),
        make_scheduler_node("b", cpu=2, labels={RACK: "right"}),
    ]
    request = make_gang_request((make_pod_shape(cpu=1), 4), least=2, topology=GangTopology(key=RACK))
    assert placed_nodes(make_node_cache(*nodes), request) == [["a", "a", "a"]]


def test_what_is_given_of_the_room_of_those_who_leave_is_given_once() -> None:
    shape = make_pod_shape(cpu=2)
    cluster = make_node_cache(
        make_scheduler_node("a", cpu=4), residents=[make_bound_pod("r", "a", shape, terminating=True)]
    )
    what_if = cluster.what_if()
    leaving, request = frozenset(what_if.terminating), make_gang_request((shape, 2))
    first = what_if.place_after_eviction(request, leaving)
    assert isinstance(first, Placement)
    what_if.assume(request, first)
    assert isinstance(what_if.place_after_eviction(request, leaving), Shortage)
    assert isinstance(what_if.place_after_eviction(make_gang_request((shape, 1)), leaving), Shortage)


def test_a_pod_that_is_only_nominated_leaves_no_room_behind() -> None:
    shape = make_pod_shape(cpu=2)
    promised = make_bound_pod("n", "a", shape, nominated=True, priority=9)
    what_if = make_node_cache(make_scheduler_node("a", cpu=4), residents=[promised]).what_if()
    assert isinstance(what_if.place_after_eviction(make_gang_request((shape, 2)), {"n"}), Placement)
    assert isinstance(what_if.place_after_eviction(make_gang_request((shape, 3)), {"n"}), Shortage)


def test_room_below_nothing_is_nothing() -> None:
    shape = make_pod_shape(cpu=3)
    over = [make_bound_pod(uid, "a", shape) for uid in ("one", "two")]
    cluster = make_node_cache(make_scheduler_node("a", cpu=4), make_scheduler_node("b", cpu=4), residents=over)
    what_if = cluster.what_if()
    assert node_names(what_if, what_if.place(make_gang_request((make_pod_shape(cpu=1), 4)))) == [["b"] * 4]
    assert what_if.free()["cpu"] == 4000


def test_members_above_the_least_join_the_rack_of_those_placed_in_the_same_round() -> None:
    nodes = [
        make_scheduler_node("a", cpu=3, labels={RACK: "left"}),
        make_scheduler_node("b", cpu=2, labels={RACK: "right"}),
    ]
    rack = GangTopology(key=RACK, required=True)
    # The workers need the rack with room for three; two of the extra members would fit only in the other rack.
    request = make_gang_request(
        ("worker", make_pod_shape(cpu=1), 3),
        ("extra", make_pod_shape(make_scheduler_pod(labels={"x": "y"}, cpu=1)), 2),
        least=3,
    )
    request = msgspec.structs.replace(request, topology=rack, min_by_role={"worker": 3})
    result = schedule(make_node_cache(*nodes).what_if(), [request], [], {}, SchedulerPolicy(), GANG_CREATED_AT)
    (decision,) = result.decisions
    assert isinstance(decision, Bind)
    assert decision.nodes == (("a", "a", "a"), ())
