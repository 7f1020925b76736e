"""Keeping a cluster up to date, and what-ifs on it."""

import pytest

from gangline.api.quantity import QuantityError
from gangline.api.scheduler_views import PLACING, Node, Pod
from gangline.scheduler.cache.nodes import Cluster
from gangline.scheduler.types.cycle import Placement, Shortage
from support.builders.scheduler_inputs import (
    GPU,
    make_ask,
    make_cluster,
    make_node,
    make_pod,
    make_resident,
    make_shape,
    placed,
    places,
)

ONE = make_shape(cpu=1)


def fitting(cluster: Cluster) -> int:
    """How many pods of one cpu there is room for."""
    found = cluster.trial().place(make_ask((ONE, 1000), least=0))
    return found.placed if isinstance(found, Placement) else 0


def test_saying_the_same_again_changes_nothing() -> None:
    cluster = make_cluster(make_node("n"), residents=[make_resident("x", "n", ONE)])
    cluster.put_namespace("default", {"a": "b"})
    version = cluster.version
    cluster.put_node(make_node("n"))
    cluster.put_pod(make_resident("x", "n", ONE))
    cluster.put_namespace("default", {"a": "b"})
    cluster.drop_pod("unknown")
    cluster.drop_node("unknown")
    cluster.drop_namespace("unknown")
    assert cluster.version == version


@pytest.mark.parametrize(
    "other",
    [
        make_node("n", cpu=5),
        make_node("n", labels={"a": "b"}),
        make_node("n", cordoned=True),
        make_node("n", gpu=1),
    ],
)
def test_every_change_of_a_node_counts(other: Node) -> None:
    cluster = make_cluster(make_node("n"))
    version = cluster.version
    cluster.put_node(other)
    assert cluster.version > version


def test_a_node_that_offers_more_or_less_has_more_or_less_room() -> None:
    cluster = make_cluster(make_node("n", cpu=2))
    rooms = []
    for cpu in (2, 5, 1):
        cluster.put_node(make_node("n", cpu=cpu))
        rooms.append((fitting(cluster), cluster.trial().total()["cpu"]))
    assert rooms == [(2, 2000), (5, 5000), (1, 1000)]


def test_a_pod_may_come_before_its_node_and_stay_after_it() -> None:
    cluster = Cluster()
    cluster.put_pod(make_resident("x", "n", ONE))
    assert len(cluster) == 0
    cluster.put_node(make_node("n", cpu=4))
    assert fitting(cluster) == 3
    cluster.drop_node("n")
    assert fitting(cluster) == 0
    cluster.put_node(make_node("n", cpu=4))
    assert fitting(cluster) == 3
    cluster.drop_node("n")
    cluster.drop_pod("x")
    cluster.put_node(make_node("m", cpu=4))
    assert fitting(cluster) == 4
    assert list(cluster.names) == ["m"]


def test_a_pod_that_grows_or_moves_takes_its_room_along() -> None:
    cluster = make_cluster(make_node("n", cpu=4), make_node("m", cpu=4))
    cluster.put_pod(make_resident("x", "n", ONE))
    cluster.put_pod(make_resident("x", "n", make_shape(cpu=3)))
    assert fitting(cluster) == 5
    cluster.put_pod(make_resident("x", "m", make_shape(cpu=3)))
    assert placed(cluster, make_ask((ONE, 4))) == [["n"] * 4]
    assert cluster.resident("x") == make_resident("x", "m", make_shape(cpu=3))
    cluster.drop_pod("x")
    assert fitting(cluster) == 8
    assert cluster.resident("x") is None


def test_many_nodes_and_resources_come_and_go() -> None:
    cluster = Cluster()
    for number in range(100):
        cluster.put_node(make_node(f"n{number:03}", cpu=2, offers={f"example.com/r{number % 9}": 1}))
    for number in range(100):
        cluster.put_pod(make_resident(f"p{number}", f"n{number:03}", ONE))
    assert fitting(cluster) == 100
    for number in range(0, 100, 2):
        cluster.drop_node(f"n{number:03}")
    assert len(cluster) == 50
    assert fitting(cluster) == 50
    for number in range(100):
        cluster.drop_pod(f"p{number}")
    assert fitting(cluster) == 100


def test_names_that_are_gone_leave_nothing_behind() -> None:
    cluster = Cluster()
    for number in range(200):
        cluster.put_node(make_node(f"n{number}"))
        if number % 2:
            cluster.put_pod(make_resident("x", f"n{number}", ONE))
        cluster.drop_node(f"n{number}")
    cluster.drop_pod("x")
    assert cluster._used.shape == (4, 16)
    assert not cluster._used.any()
    assert not cluster._offered.any()


def test_a_quantity_that_is_none_leaves_the_cluster_as_it_was() -> None:
    cluster = make_cluster(make_node("n", cpu=4))
    with pytest.raises(QuantityError):
        cluster.put_node(make_node("n", cpu="much"))
    assert fitting(cluster) == 4


def test_what_is_taken_is_taken_in_this_trial_only() -> None:
    cluster = make_cluster(make_node("n", cpu=4))
    trial, ask = cluster.trial(), make_ask((ONE, 3))
    found = trial.place(ask)
    assert isinstance(found, Placement)
    assert places(trial, trial.place(ask)) == places(trial, found) == [["n"] * 3]
    trial.take(ask, found)
    assert isinstance(trial.place(ask), Shortage)
    assert trial.free()["cpu"] == 1000
    assert cluster.trial().free()["cpu"] == 4000


def test_those_who_leave_make_room_until_they_are_back() -> None:
    cluster = make_cluster(make_node("n", cpu=4))
    for number in range(4):
        cluster.put_pod(make_resident(f"x{number}", "n", ONE))
    trial, ask = cluster.trial(), make_ask((ONE, 2))
    assert isinstance(trial.place(ask), Shortage)
    assert isinstance(trial.place_after(ask, ["x0"]), Shortage)
    assert places(trial, trial.place_after(ask, ["x0", "x1", "nobody"])) == [["n", "n"]]
    assert isinstance(trial.place(ask), Shortage)
    trial.vacate(["x0", "x1", "x1"])
    trial.vacate(["x0"])
    assert places(trial, trial.place(ask)) == [["n", "n"]]
    trial.restore(["x1"])
    assert isinstance(trial.place(ask), Shortage)
    trial.restore(["x0", "x1", "x3"])
    assert trial.free()["cpu"] == 0
    trial.vacate(["x0", "x1"])
    assert trial.free()["cpu"] == 2000


def test_the_room_of_pods_on_their_way_out_is_used_until_somebody_says_otherwise() -> None:
    cluster = make_cluster(make_node("n", cpu=1), residents=[make_resident("x", "n", ONE, terminating=True)])
    trial, ask = cluster.trial(), make_ask((ONE, 1))
    assert isinstance(trial.place(ask), Shortage)
    assert list(trial.leaving) == ["x"]
    assert isinstance(trial.place_after(ask, trial.leaving), Placement)


def test_room_may_be_promised_before_it_is_free() -> None:
    cluster = make_cluster(make_node("n", cpu=2), residents=[make_resident("x", "n", make_shape(cpu=2))])
    trial, ask = cluster.trial(), make_ask((ONE, 1))
    found = trial.place_after(ask, ["x"])
    assert isinstance(found, Placement)
    trial.take(ask, found)
    assert trial.free()["cpu"] == 0
    assert isinstance(trial.place_after(make_ask((ONE, 2)), ["x"]), Shortage)
    assert isinstance(trial.place_after(ask, ["x"]), Placement)


def test_what_is_held_is_kept_from_others_until_it_is_released() -> None:
    trial = make_cluster(make_node("a", cpu=2), make_node("b", cpu=2)).trial()
    large, small = make_ask((ONE, 8)), make_ask((ONE, 1))
    trial.hold(large)
    assert trial.free()["cpu"] == 0
    assert isinstance(trial.place(small), Shortage)
    trial.release()
    assert isinstance(trial.place(small), Placement)
    trial.release()
    assert trial.free()["cpu"] == 4000


def test_what_it_cannot_use_is_not_held() -> None:
    trial = make_cluster(make_node("a", cpu=2, gpu=1), make_node("b", cpu=2)).trial()
    trial.hold(make_ask((make_shape(cpu=1, gpu=1), 8)))
    assert places(trial, trial.place(make_ask((ONE, 3)))) == [["a"] + ["b"] * 2]
    refused = make_shape(make_pod(spec={"resourceClaims": [{"name": "x"}]}, cpu=1))
    trial.hold(make_ask((refused, 1)))
    assert isinstance(trial.place(make_ask((ONE, 3))), Placement)


def test_totals_are_of_usable_nodes_and_by_resource() -> None:
    cluster = make_cluster(
        make_node("a", cpu=2, gpu=4),
        make_node("b", cpu=2, cordoned=True),
        make_node("c", cpu=2, ready="False"),
        make_node("d", cpu=2, taints=[{"key": "t", "effect": "NoSchedule"}]),
        residents=[
            make_resident("x", "a", make_shape(cpu=1, gpu=3)),
            make_resident("y", "d", make_shape(cpu=9)),
        ],
    )
    trial = cluster.trial()
    assert trial.total()["cpu"] == 4000
    assert trial.free()["cpu"] == 1000
    assert (trial.total()[GPU], trial.free()[GPU]) == (4, 1)
    assert trial.total()["pods"] == 220


def test_trials_number_nodes_by_name() -> None:
    cluster = make_cluster(make_node("b"), make_node("c"), make_node("a"))
    assert list(cluster.names) == list(cluster.trial().names) == ["a", "b", "c"]


def test_the_scheme_knows_what_a_scheduler_watches() -> None:
    assert {resource.name for resource in PLACING} == {
        "pods",
        "nodes",
        "namespaces",
        "persistentvolumeclaims",
        "persistentvolumes",
        "storageclasses.storage.k8s.io",
        "csinodes.storage.k8s.io",
    }
    assert PLACING.of(Pod).plural == "pods"
