"""Corners of placing that only one condition tells apart."""

import msgspec

from gangline.api.scheduling import Topology
from gangline.scheduler.cycle.cycle import schedule
from gangline.scheduler.types.cycle import Need, Place, Placement, Policy, Shortage
from support.builders.scheduler_inputs import (
    NOON,
    make_ask,
    make_cluster,
    make_node,
    make_pod,
    make_resident,
    make_shape,
    placed,
    places,
)

RACK = "rack"


def test_with_many_shapes_the_least_of_one_role_leaves_room_for_those_it_waits_for() -> None:
    big = Need("ps", make_shape(cpu=2), 3)
    small = [
        Need("worker", make_shape(make_pod(labels={"kind": str(number)}, cpu=1)), 1) for number in range(6)
    ]
    cluster = make_cluster(make_node("a", cpu=8))
    found = placed(cluster, make_ask(big, *small, least=7, roles={"ps": 1}))
    assert [len(nodes) for nodes in found] == [1, 1, 1, 1, 1, 1, 1]


def test_members_above_the_least_do_not_pull_a_gang_out_of_its_preferred_rack() -> None:
    nodes = [make_node("a", cpu=3, labels={RACK: "left"}), make_node("b", cpu=2, labels={RACK: "right"})]
    ask = make_ask((make_shape(cpu=1), 4), least=2, topology=Topology(key=RACK))
    assert placed(make_cluster(*nodes), ask) == [["a", "a", "a"]]


def test_what_is_given_of_the_room_of_those_who_leave_is_given_once() -> None:
    shape = make_shape(cpu=2)
    cluster = make_cluster(
        make_node("a", cpu=4), residents=[make_resident("r", "a", shape, terminating=True)]
    )
    trial = cluster.trial()
    leaving, ask = frozenset(trial.leaving), make_ask((shape, 2))
    first = trial.place_after(ask, leaving)
    assert isinstance(first, Placement)
    trial.take(ask, first)
    assert isinstance(trial.place_after(ask, leaving), Shortage)
    assert isinstance(trial.place_after(make_ask((shape, 1)), leaving), Shortage)


def test_a_pod_that_is_only_nominated_leaves_no_room_behind() -> None:
    shape = make_shape(cpu=2)
    promised = make_resident("n", "a", shape, nominated=True, priority=9)
    trial = make_cluster(make_node("a", cpu=4), residents=[promised]).trial()
    assert isinstance(trial.place_after(make_ask((shape, 2)), {"n"}), Placement)
    assert isinstance(trial.place_after(make_ask((shape, 3)), {"n"}), Shortage)


def test_room_below_nothing_is_nothing() -> None:
    shape = make_shape(cpu=3)
    over = [make_resident(uid, "a", shape) for uid in ("one", "two")]
    cluster = make_cluster(make_node("a", cpu=4), make_node("b", cpu=4), residents=over)
    trial = cluster.trial()
    assert places(trial, trial.place(make_ask((make_shape(cpu=1), 4)))) == [["b"] * 4]
    assert trial.free()["cpu"] == 4000


def test_members_above_the_least_join_the_rack_of_those_placed_in_the_same_round() -> None:
    nodes = [make_node("a", cpu=3, labels={RACK: "left"}), make_node("b", cpu=2, labels={RACK: "right"})]
    rack = Topology(key=RACK, required=True)
    # The first has to be where there are three; of the second kind only the other rack has room for two.
    ask = make_ask(
        ("worker", make_shape(cpu=1), 3),
        ("extra", make_shape(make_pod(labels={"x": "y"}, cpu=1)), 2),
        least=3,
    )
    ask = msgspec.structs.replace(ask, topology=rack, roles={"worker": 3})
    found = schedule(make_cluster(*nodes).trial(), [ask], [], {}, Policy(), NOON)
    (decision,) = found.decisions
    assert isinstance(decision, Place)
    assert decision.nodes == (("a", "a", "a"), ())
