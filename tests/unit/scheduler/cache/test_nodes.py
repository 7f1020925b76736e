"""Updates of the node cache, and what-ifs on it."""

import pytest

from gangline.api.meta import ObjectMeta
from gangline.api.quantity import QuantityError
from gangline.api.scheduler_views import PLACEMENT_SCHEME, Namespace, Node, Pod
from gangline.scheduler.cache.nodes import NodeCache
from gangline.scheduler.types.cycle import Placement, Shortage
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
)

ONE = make_pod_shape(cpu=1)


def fitting(cluster: NodeCache) -> int:
    """How many pods of one cpu fit."""
    result = cluster.what_if().place(make_gang_request((ONE, 1000), least=0))
    return result.pod_count if isinstance(result, Placement) else 0


def test_saying_the_same_again_changes_nothing() -> None:
    cluster = make_node_cache(make_scheduler_node("n"), residents=[make_bound_pod("x", "n", ONE)])
    namespace = Namespace(metadata=ObjectMeta(name="default", labels={"a": "b"}))
    cluster.namespaces.put(namespace)
    version = cluster.version
    cluster.put_node(make_scheduler_node("n"))
    cluster.put_pod(make_bound_pod("x", "n", ONE))
    cluster.namespaces.put(namespace)
    cluster.drop_pod("unknown")
    cluster.drop_node("unknown")
    cluster.namespaces.drop(Namespace(metadata=ObjectMeta(name="unknown")))
    assert cluster.version == version


@pytest.mark.parametrize(
    "other",
    [
        make_scheduler_node("n", cpu=5),
        make_scheduler_node("n", labels={"a": "b"}),
        make_scheduler_node("n", cordoned=True),
        make_scheduler_node("n", gpu=1),
    ],
)
def test_every_change_of_a_node_counts(other: Node) -> None:
    cluster = make_node_cache(make_scheduler_node("n"))
    version = cluster.version
    cluster.put_node(other)
    assert cluster.version > version


def test_a_node_that_offers_more_or_less_has_more_or_less_room() -> None:
    cluster = make_node_cache(make_scheduler_node("n", cpu=2))
    rooms = []
    for cpu in (2, 5, 1):
        cluster.put_node(make_scheduler_node("n", cpu=cpu))
        rooms.append((fitting(cluster), cluster.what_if().total()["cpu"]))
    assert rooms == [(2, 2000), (5, 5000), (1, 1000)]


def test_a_pod_may_come_before_its_node_and_stay_after_it() -> None:
    cluster = NodeCache()
    cluster.put_pod(make_bound_pod("x", "n", ONE))
    assert len(cluster) == 0
    cluster.put_node(make_scheduler_node("n", cpu=4))
    assert fitting(cluster) == 3
    cluster.drop_node("n")
    assert fitting(cluster) == 0
    cluster.put_node(make_scheduler_node("n", cpu=4))
    assert fitting(cluster) == 3
    cluster.drop_node("n")
    cluster.drop_pod("x")
    cluster.put_node(make_scheduler_node("m", cpu=4))
    assert fitting(cluster) == 4
    assert list(cluster.what_if().node_names) == ["m"]


def test_a_pod_that_grows_or_moves_takes_its_room_along() -> None:
    cluster = make_node_cache(make_scheduler_node("n", cpu=4), make_scheduler_node("m", cpu=4))
    cluster.put_pod(make_bound_pod("x", "n", ONE))
    cluster.put_pod(make_bound_pod("x", "n", make_pod_shape(cpu=3)))
    assert fitting(cluster) == 5
    cluster.put_pod(make_bound_pod("x", "m", make_pod_shape(cpu=3)))
    assert placed_nodes(cluster, make_gang_request((ONE, 4))) == [["n"] * 4]
    assert cluster.bound_pod("x") == make_bound_pod("x", "m", make_pod_shape(cpu=3))
    cluster.drop_pod("x")
    assert fitting(cluster) == 8
    assert cluster.bound_pod("x") is None


def test_many_nodes_and_resources_come_and_go() -> None:
    cluster = NodeCache()
    for number in range(100):
        cluster.put_node(make_scheduler_node(f"n{number:03}", cpu=2, offers={f"example.com/r{number % 9}": 1}))
    for number in range(100):
        cluster.put_pod(make_bound_pod(f"p{number}", f"n{number:03}", ONE))
    assert fitting(cluster) == 100
    for number in range(0, 100, 2):
        cluster.drop_node(f"n{number:03}")
    assert len(cluster) == 50
    assert fitting(cluster) == 50
    for number in range(100):
        cluster.drop_pod(f"p{number}")
    assert fitting(cluster) == 100


def test_names_that_are_gone_leave_nothing_behind() -> None:
    cluster = NodeCache()
    for number in range(200):
        cluster.put_node(make_scheduler_node(f"n{number}"))
        if number % 2:
            cluster.put_pod(make_bound_pod("x", f"n{number}", ONE))
        cluster.drop_node(f"n{number}")
    cluster.drop_pod("x")
    assert cluster._used.shape == (4, 16)
    assert not cluster._used.any()
    assert not cluster._allocatable.any()


def test_a_quantity_that_is_none_leaves_the_cluster_as_it_was() -> None:
    cluster = make_node_cache(make_scheduler_node("n", cpu=4))
    with pytest.raises(QuantityError):
        cluster.put_node(make_scheduler_node("n", cpu="much"))
    assert fitting(cluster) == 4


def test_what_is_taken_is_taken_in_this_trial_only() -> None:
    cluster = make_node_cache(make_scheduler_node("n", cpu=4))
    what_if, request = cluster.what_if(), make_gang_request((ONE, 3))
    result = what_if.place(request)
    assert isinstance(result, Placement)
    assert node_names(what_if, what_if.place(request)) == node_names(what_if, result) == [["n"] * 3]
    what_if.assume(request, result)
    assert isinstance(what_if.place(request), Shortage)
    assert what_if.free()["cpu"] == 1000
    assert cluster.what_if().free()["cpu"] == 4000


def test_those_who_leave_make_room_in_what_is_asked_and_nowhere_else() -> None:
    cluster = make_node_cache(make_scheduler_node("n", cpu=4))
    for number in range(4):
        cluster.put_pod(make_bound_pod(f"x{number}", "n", ONE))
    what_if, request = cluster.what_if(), make_gang_request((ONE, 2))
    assert isinstance(what_if.place(request), Shortage)
    assert isinstance(what_if.place_after_eviction(request, ["x0"]), Shortage)
    assert node_names(what_if, what_if.place_after_eviction(request, ["x0", "x1", "nobody"])) == [["n", "n"]]
    assert isinstance(what_if.place(request), Shortage)
    assert node_names(what_if, what_if.place_after_eviction(request, ["x0", "x1", "x1"])) == [["n", "n"]]
    assert what_if.free()["cpu"] == 0


def test_the_room_of_pods_on_their_way_out_is_used_until_somebody_says_otherwise() -> None:
    cluster = make_node_cache(
        make_scheduler_node("n", cpu=1), residents=[make_bound_pod("x", "n", ONE, terminating=True)]
    )
    what_if, request = cluster.what_if(), make_gang_request((ONE, 1))
    assert isinstance(what_if.place(request), Shortage)
    assert list(what_if.terminating) == ["x"]
    assert isinstance(what_if.place_after_eviction(request, what_if.terminating), Placement)


def test_room_may_be_promised_before_it_is_free() -> None:
    cluster = make_node_cache(
        make_scheduler_node("n", cpu=2), residents=[make_bound_pod("x", "n", make_pod_shape(cpu=2))]
    )
    what_if, request = cluster.what_if(), make_gang_request((ONE, 1))
    result = what_if.place_after_eviction(request, ["x"])
    assert isinstance(result, Placement)
    what_if.assume(request, result)
    assert what_if.free()["cpu"] == 0
    assert isinstance(what_if.place_after_eviction(make_gang_request((ONE, 2)), ["x"]), Shortage)
    assert isinstance(what_if.place_after_eviction(request, ["x"]), Placement)


def test_what_is_held_is_kept_from_others_until_it_is_released() -> None:
    what_if = make_node_cache(make_scheduler_node("a", cpu=2), make_scheduler_node("b", cpu=2)).what_if()
    large, small = make_gang_request((ONE, 8)), make_gang_request((ONE, 1))
    what_if.reserve(large)
    assert what_if.free()["cpu"] == 0
    assert isinstance(what_if.place(small), Shortage)
    what_if.release()
    assert isinstance(what_if.place(small), Placement)
    what_if.release()
    assert what_if.free()["cpu"] == 4000


def test_what_it_cannot_use_is_not_held() -> None:
    what_if = make_node_cache(make_scheduler_node("a", cpu=2, gpu=1), make_scheduler_node("b", cpu=2)).what_if()
    what_if.reserve(make_gang_request((make_pod_shape(cpu=1, gpu=1), 8)))
    assert node_names(what_if, what_if.place(make_gang_request((ONE, 3)))) == [["a"] + ["b"] * 2]
    refused = make_pod_shape(make_scheduler_pod(spec={"resourceClaims": [{"name": "x"}]}, cpu=1))
    what_if.reserve(make_gang_request((refused, 1)))
    assert isinstance(what_if.place(make_gang_request((ONE, 3))), Placement)


def test_totals_are_of_usable_nodes_and_by_resource() -> None:
    cluster = make_node_cache(
        make_scheduler_node("a", cpu=2, gpu=4),
        make_scheduler_node("b", cpu=2, cordoned=True),
        make_scheduler_node("c", cpu=2, ready="False"),
        make_scheduler_node("d", cpu=2, taints=[{"key": "t", "effect": "NoSchedule"}]),
        residents=[
            make_bound_pod("x", "a", make_pod_shape(cpu=1, gpu=3)),
            make_bound_pod("y", "d", make_pod_shape(cpu=9)),
        ],
    )
    what_if = cluster.what_if()
    assert what_if.total()["cpu"] == 4000
    assert what_if.free()["cpu"] == 1000
    assert (what_if.total()[GPU_RESOURCE], what_if.free()[GPU_RESOURCE]) == (4, 1)
    assert what_if.total()["pods"] == 220


def test_trials_number_nodes_by_name() -> None:
    cluster = make_node_cache(make_scheduler_node("b"), make_scheduler_node("c"), make_scheduler_node("a"))
    assert list(cluster.what_if().node_names) == ["a", "b", "c"]


def test_the_scheme_knows_what_a_scheduler_watches() -> None:
    assert {resource.name for resource in PLACEMENT_SCHEME} == {
        "pods",
        "nodes",
        "namespaces",
        "persistentvolumeclaims",
        "persistentvolumes",
        "storageclasses.storage.k8s.io",
        "csinodes.storage.k8s.io",
    }
    assert PLACEMENT_SCHEME.of(Pod).plural == "pods"
