"""Gangs from pods and PodGroups: requests, allocations, lost members."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.core import PriorityClass
from gangline.api.meta import Key, ObjectMeta
from gangline.api.scheduler_views import Pod
from gangline.api.scheduling import GANG_GATE
from gangline.runtime.informer import Delta
from gangline.scheduler.cache.cache import SchedulerCache
from gangline.scheduler.gangs.gang import GangInfo
from gangline.scheduler.gangs.members import BIND, PIN, GangMember, placement_mode
from gangline.scheduler.gangs.phase import next_state
from gangline.scheduler.gangs.registry import GangRegistry
from gangline.scheduler.pods.decode import shape_of
from gangline.scheduler.settings import SchedulerSettings
from gangline.scheduler.types.cycle import GangRequest
from gangline.scheduler.types.shape import PodShape
from support.builders.gang_pods import START_TIME, make_gang_pod, make_pod_group
from support.builders.scheduler_inputs import make_node_cache, make_scheduler_node, placed_nodes

SHAPES: dict[PodShape, PodShape] = {}


def put(gangs: GangRegistry, *pods: Pod) -> list[GangMember | None]:
    shapes = [shape_of(each) for each in pods]
    return [gangs.put_pod(each, SHAPES.setdefault(shape, shape)) for each, shape in zip(pods, shapes, strict=True)]


def gang_of(gangs: GangRegistry, name: str) -> GangInfo:
    result = gangs.gang_of_group(Key("ns", name))
    assert result is not None
    return result


def workers(count: int, name: str = "g") -> list[Pod]:
    return [make_gang_pod(f"{name}-{number}", name, role="worker", index=number) for number in range(count)]


def only(asks: Sequence[GangRequest]) -> GangRequest:
    (request,) = asks
    return request


# Requests


def test_a_gang_asks_for_all_its_members_at_once() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 4, age=9, queue="red"))
    put(gangs, *workers(4))
    request = only(gangs.requests())
    assert (request.key, request.uid, request.queue, request.min_members) == (Key("ns", "g"), "uid-g", "red", 4)
    assert [(need.role, need.count) for need in request.pod_sets] == [("worker", 4)]
    assert request.created == START_TIME - timedelta(seconds=9)
    assert not request.recovering


def test_it_asks_for_nothing_while_too_few_exist() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 4))
    put(gangs, *workers(3))
    assert gangs.requests() == []
    put(gangs, make_gang_pod("g-3", "g", role="worker", index=3))
    assert only(gangs.requests()).min_members == 4


def test_a_gated_member_counts_as_missing() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 2))
    put(gangs, make_gang_pod("g-0", "g"), make_gang_pod("g-1", "g", gates=["example.com/wait"]))
    assert gangs.requests() == []
    put(gangs, make_gang_pod("g-1", "g"))
    assert only(gangs.requests()).min_members == 2


def test_a_gang_whose_members_are_gated_says_so() -> None:
    gangs = GangRegistry()
    result = gangs.put_group(make_pod_group("g", 2))
    put(gangs, make_gang_pod("g-0", "g"), make_gang_pod("g-1", "g", gates=["example.com/quota"]))
    state = next_state(result.observation(START_TIME))
    assert (state.phase, state.reason) == ("Pending", "")
    assert state.message == "0/2 members running; 1 held back by scheduling gates (example.com/quota)"
    # This member is not required.
    put(gangs, make_gang_pod("g-2", "g"))
    assert next_state(result.observation(START_TIME)).message == "0/2 members running"


def test_pods_whose_group_does_not_exist_wait_for_it() -> None:
    gangs = GangRegistry()
    put(gangs, *workers(2))
    assert gangs.requests() == []
    gangs.put_group(make_pod_group("g", 2))
    assert only(gangs.requests()).min_members == 2


def test_members_above_the_least_are_asked_for_too() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 2))
    put(gangs, *workers(3))
    request = only(gangs.requests())
    assert (request.min_members, request.pod_sets[0].count) == (2, 3)


def test_a_whole_gang_asks_for_what_is_above_its_least_only() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 2, phase="Running"))
    put(
        gangs,
        make_gang_pod("g-0", "g", node="a", phase="Running"),
        make_gang_pod("g-1", "g", node="b", phase="Running"),
    )
    put(gangs, make_gang_pod("g-2", "g"))
    request = only(gangs.requests())
    assert (request.min_members, request.recovering, request.current_nodes) == (0, False, ("a", "b"))


@pytest.mark.parametrize("phase", ["Recovering", "Unschedulable"])
def test_a_broken_gang_asks_for_its_missing_members_before_others(phase: str) -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 2, phase=phase))
    put(gangs, make_gang_pod("g-0", "g", node="a", phase="Running"), make_gang_pod("g-1", "g"))
    request = only(gangs.requests())
    assert (request.min_members, request.recovering, request.current_nodes) == (1, True, ("a",))


def test_a_start_left_half_bound_is_finished_before_others() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 3, phase="Pending"))
    put(gangs, make_gang_pod("g-0", "g", node="a"), make_gang_pod("g-1", "g"), make_gang_pod("g-2", "g"))
    request = only(gangs.requests())
    assert (request.min_members, request.recovering) == (2, True)


def test_members_that_succeeded_are_not_asked_for_again() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 2, phase="Recovering"))
    put(
        gangs,
        make_gang_pod("g-0", "g", node="a", phase="Succeeded", role="worker", index=0),
        make_gang_pod("g-1", "g"),
    )
    assert only(gangs.requests()).min_members == 1
    gangs.drop_pod("uid-g-0")
    assert only(gangs.requests()).min_members == 1


def test_the_least_of_each_role_is_asked_for() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 3, minTaskMember={"master": 1, "worker": 2}))
    put(gangs, *[make_gang_pod(f"w{number}", "g", role="worker", index=number) for number in range(3)])
    # Three exist, and none of them is a master.
    assert gangs.requests() == []
    put(gangs, make_gang_pod("m", "g", role="master", index=0, cpu="2"))
    request = only(gangs.requests())
    assert request.min_by_role == {"master": 1, "worker": 2}
    assert {need.role: need.count for need in request.pod_sets} == {"master": 1, "worker": 3}


def test_enough_of_the_wrong_role_are_not_enough() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 2, phase="Recovering", minTaskMember={"master": 1}))
    put(
        gangs,
        *[make_gang_pod(f"w{n}", "g", role="worker", index=n, node="a", phase="Running") for n in range(2)],
    )
    put(gangs, make_gang_pod("m", "g", role="master", index=0))
    request = only(gangs.requests())
    assert (request.min_members, request.min_by_role) == (1, {"master": 1})


def test_a_pod_alone_is_a_gang_of_one() -> None:
    gangs = GangRegistry()
    put(gangs, make_gang_pod("p"))
    request = only(gangs.requests())
    assert (request.key, request.uid, request.min_members, request.queue) == (Key("ns", "p"), "uid-p", 1, "default")


def test_a_pod_of_another_scheduler_is_no_business_of_ours() -> None:
    gangs = GangRegistry()
    assert put(gangs, make_gang_pod("p", scheduler="default-scheduler")) == [None]
    assert list(gangs) == []


def test_members_and_nodes_are_matched_in_order_of_index() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 12))
    put(gangs, *reversed(workers(12)))
    gangs.requests()
    chosen = list(gang_of(gangs, "g").assignments([[f"n{number}" for number in range(12)]]))
    assert [(member.key.name, node) for member, node in chosen] == [
        (f"g-{number}", f"n{number}") for number in range(12)
    ]


def test_what_is_asked_is_the_same_value_until_the_gang_changes() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 2))
    put(gangs, *workers(2))
    first = only(gangs.requests())
    assert only(gangs.requests()) is first
    gangs.put_group(make_pod_group("g", 1, version="2"))
    assert only(gangs.requests()) is not first


def test_an_older_form_of_a_group_is_not_taken() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 2, version="10"))
    gangs.put_group(make_pod_group("g", 5, version="9"))
    assert gang_of(gangs, "g").spec.min_members == 2


# Priority


def klass(name: str, value: int, policy: str = "PreemptLowerPriority") -> PriorityClass:
    return PriorityClass(metadata=ObjectMeta(name=name), value=value, preemption_policy=policy)


def test_importance_comes_from_the_groups_class_else_from_the_pods() -> None:
    cache = SchedulerCache(SchedulerSettings())
    gangs = cache.gangs
    gangs.put_group(make_pod_group("g", 1, priorityClassName="high"))
    put(gangs, make_gang_pod("g-0", "g", priority=5, preemptionPolicy="Never"))
    request = only(gangs.requests())
    assert (request.priority, request.can_preempt) == (5, False)
    cache.on_priority_class(Delta(None, klass("high", 100)))
    request = only(gangs.requests())
    assert (request.priority, request.can_preempt) == (100, True)
    cache.on_priority_class(Delta(None, klass("high", 50, "Never")))
    request = only(gangs.requests())
    assert (request.priority, request.can_preempt) == (50, False)
    cache.on_priority_class(Delta(klass("high", 50, "Never"), None))
    assert only(gangs.requests()).priority == 5


# Allocations


def test_who_has_a_place_holds_it_from_the_decision_on() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 2))
    first, second = put(gangs, *workers(2))
    assert first is not None
    assert second is not None
    assert gangs.allocations() == []
    gangs.assume(first, "a")
    (allocation,) = gangs.allocations()
    assert [(member.uid, member.node) for member in allocation.pods] == [("uid-g-0", "a")]
    assert only(gangs.requests()).min_members == 1
    gangs.forget("uid-g-0")
    assert gangs.allocations() == []
    assert only(gangs.requests()).min_members == 2


def test_who_is_seen_where_it_was_sent_is_no_longer_assumed() -> None:
    gangs = GangRegistry()
    (member,) = put(gangs, make_gang_pod("p"))
    assert member is not None
    gangs.assume(member, "a")
    put(gangs, make_gang_pod("p", node="a"))
    gangs.forget("uid-p")
    assert member.node == "a"


def test_who_has_ended_holds_nothing_and_who_leaves_has_its_room_until_it_is_gone() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 3))
    put(
        gangs,
        make_gang_pod("g-0", "g", node="a", leaving=True),
        make_gang_pod("g-1", "g", node="a", phase="Succeeded"),
        make_gang_pod("g-2", "g", node="a", phase="Failed"),
        make_gang_pod("g-3", "g", node="a", phase="Running"),
    )
    (allocation,) = gangs.allocations()
    assert [(member.uid, member.terminating) for member in allocation.pods] == [
        ("uid-g-0", True),
        ("uid-g-3", False),
    ]
    # One has succeeded, so two must stay.
    assert allocation.min_members == 2


def test_pods_that_run_the_cluster_are_protected() -> None:
    gangs = GangRegistry()
    put(gangs, make_gang_pod("low", node="a"), make_gang_pod("critical", node="a", priority=2_000_000_000))
    put(gangs, make_gang_pod("system", node="a", namespace="kube-system"))
    kept = {allocation.key.name: bool(allocation.protected_uids) for allocation in gangs.allocations()}
    assert kept == {"low": False, "critical": True, "system": True}


# Lost members


def test_a_vanished_member_is_remembered_until_its_seat_is_taken() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 2))
    put(gangs, *workers(2))
    gangs.drop_pod("uid-g-1")
    (removed,) = gang_of(gangs, "g").members.lost.values()
    assert (removed.name, removed.role, removed.index, removed.succeeded) == ("g-1", "worker", 1, False)
    put(gangs, make_gang_pod("another", "g", role="worker", index=1))
    assert not gang_of(gangs, "g").members.lost


def test_a_member_replaced_before_it_went_is_not_missed() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 1))
    put(
        gangs,
        make_gang_pod("old", "g", role="worker", index=0, leaving=True),
        make_gang_pod("new", "g", role="worker", index=0),
    )
    gangs.drop_pod("uid-old")
    assert not gang_of(gangs, "g").members.lost


def test_a_member_that_changes_its_seat_is_missed_in_the_new_one_only() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 2))
    put(gangs, *workers(2))
    gangs.drop_pod("uid-g-1")
    put(gangs, make_gang_pod("g-0", "g", role="worker", index=1))
    assert not gang_of(gangs, "g").members.lost
    gangs.drop_pod("uid-g-0")
    (removed,) = gang_of(gangs, "g").members.lost.values()
    assert (removed.name, removed.index) == ("g-0", 1)


class Looked(dict[str, GangMember]):
    """Members by uid, counting how often all of them were iterated."""

    looks = 0

    def __iter__(self) -> Iterator[str]:
        self.looks += 1
        return super().__iter__()

    def values(self) -> Any:
        self.looks += 1
        return super().values()

    def items(self) -> Any:
        self.looks += 1
        return super().items()


def test_a_member_that_goes_costs_no_look_at_the_others() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 5000))
    put(gangs, *workers(5000))
    gang = gang_of(gangs, "g")
    gang.members.by_uid = members = Looked(gang.members.by_uid)
    for uid in tuple(gang.members.by_uid):
        gangs.drop_pod(uid)
    # One iteration is by this test.
    assert members.looks == 1
    assert len(gang.members.lost) == 5000


def test_a_pod_is_of_the_group_that_its_annotation_names_now() -> None:
    gangs = GangRegistry()
    for name in ("g", "h"):
        gangs.put_group(make_pod_group(name, 2))
    put(gangs, make_gang_pod("a", "g"), make_gang_pod("b", "h"))
    assert gangs.requests() == []
    put(gangs, make_gang_pod("b", "g"))
    assert only(gangs.requests()).key == Key("ns", "g")
    assert gang_of(gangs, "h").members.by_uid == {}
    # Without the annotation it is a single pod; with it, it no longer is.
    put(gangs, make_gang_pod("b"))
    assert only(gangs.requests()).key == Key("ns", "b")
    put(gangs, make_gang_pod("b", "h"))
    assert gangs.requests() == []
    assert {gang.key.name: list(gang.members.by_uid) for gang in gangs} == {"g": ["uid-a"], "h": ["uid-b"]}


def test_one_on_its_way_to_its_place_gets_there_before_it_changes_its_group() -> None:
    gangs = GangRegistry()
    for name in ("g", "h"):
        gangs.put_group(make_pod_group(name, 1))
    (member,) = put(gangs, make_gang_pod("a", "g"))
    assert member is not None
    gangs.assume(member, "n")
    put(gangs, make_gang_pod("a", "h"))
    assert gangs.gang_of_pod("uid-a") is gang_of(gangs, "g")
    put(gangs, make_gang_pod("a", "h", node="n"))
    put(gangs, make_gang_pod("a", "h", node="n", phase="Running"))
    assert gangs.gang_of_pod("uid-a") is gang_of(gangs, "h")


def test_those_replaced_under_other_names_are_not_remembered_for_ever() -> None:
    gangs = GangRegistry()
    result = gangs.put_group(make_pod_group("g", 2))
    for number in range(500):
        put(gangs, make_gang_pod(f"g-{number}", "g", node="a", phase="Running"))
        gangs.drop_pod(f"uid-g-{number}")
    assert len(result.members.lost) < 50
    assert "g-499" in [removed.name for removed in result.members.lost.values()]


def test_those_who_succeeded_and_went_before_we_were_started_are_in_the_status() -> None:
    def started(*pods: Pod) -> str:
        gangs = GangRegistry()
        before = make_pod_group("g", 3, phase="Running")
        status = msgspec.structs.replace(before.status, running=1, succeeded=2)
        found = gangs.put_group(msgspec.structs.replace(before, status=status))
        put(gangs, *pods)
        return next_state(found.observation(START_TIME)).phase

    assert started(make_gang_pod("g-2", "g", index=2, node="a", phase="Running", age=9)) == "Running"
    assert started(make_gang_pod("g-2", "g", index=2, phase="Succeeded", age=9)) == "Recovering"
    assert started() == "Recovering"
    # When new members come, the count starts anew.
    assert started(make_gang_pod("g-2", "g", index=2, node="a", phase="Running", age=-9)) == "Recovering"


def test_a_seat_is_not_told_the_node_again_that_did_not_take_it() -> None:
    gangs = GangRegistry()
    result = gangs.put_group(make_pod_group("g", 2))
    first, second = put(gangs, *workers(2))
    assert first is not None
    assert second is not None
    gangs.assume(second, "a")
    result.exclude_node(second)
    gangs.forget(second.uid)
    one, other = only(gangs.requests()).pod_sets
    assert (one.shape, one.count, other.count) == (first.shape, 1, 1)
    cluster = make_node_cache(make_scheduler_node("a"), make_scheduler_node("b", cpu=1))
    assert placed_nodes(cluster, only(gangs.requests())) == [["a"], ["b"]]
    # When no other node has room, or all members have nodes, the excluded nodes may have room by now.
    result.excluded_nodes.clear()
    gangs.invalidate(result)
    assert [need.count for need in only(gangs.requests()).pod_sets] == [2]
    result.exclude_node(second)
    gangs.put_group(make_pod_group("g", 2, phase="Running", version="2"))
    assert not result.excluded_nodes


def test_nothing_is_remembered_of_a_group_that_is_gone() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 1))
    put(gangs, make_gang_pod("g-0", "g"))
    gangs.drop_pod("uid-g-0")
    gangs.drop_group(Key("ns", "g"))
    assert list(gangs) == []
    put(gangs, make_gang_pod("p"))
    gangs.drop_pod("uid-p")
    assert list(gangs) == []


def test_members_of_a_deleted_job_are_no_part_of_the_one_made_again_under_its_name() -> None:
    gangs = GangRegistry()
    old = [
        make_gang_pod(f"g-{number}", "g", role="worker", index=number, node="a", phase="Running", owner="Job/g old")
        for number in range(2)
    ]
    waiting = make_gang_pod("g-8", "g", role="worker", index=8, owner="Job/g old")
    put(gangs, *old, waiting)
    gangs.put_group(make_pod_group("g", 2, owner="Job/g new"))
    gang = gang_of(gangs, "g")
    assert gang.observation(START_TIME).members == ()
    new = [make_gang_pod(f"g-{number}", "g", role="worker", index=number, owner="Job/g new") for number in (2, 3)]
    put(gangs, *new)
    request = only(gangs.requests())
    assert (request.min_members, request.pod_sets[0].count, request.recovering) == (2, 2, False)
    assert sum(len(allocation.pods) for allocation in gangs.allocations()) == 2  # their room is still taken
    gangs.drop_pod("uid-g-0")
    assert not gang.members.lost
    gangs.drop_pod("uid-g-3")
    assert [removed.name for removed in gang.members.lost.values()] == ["g-3"]


def test_pods_may_have_another_owner_than_their_group() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 2, owner="JobSet/g 1"))
    put(
        gangs,
        *[make_gang_pod(f"g-{number}", "g", index=number, owner=f"Job/g-{number} 2") for number in range(2)],
    )
    assert only(gangs.requests()).min_members == 2


def test_a_snapshot_has_all_that_the_life_cycle_looks_at() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 2, minTaskMember={"worker": 1}))
    put(
        gangs,
        make_gang_pod(
            "g-0", "g", role="worker", index=0, node="a", phase="Failed", exit_code=137, scheduled=START_TIME
        ),
    )
    (status,) = gang_of(gangs, "g").observation(START_TIME).members
    assert (status.node, status.phase, status.exit_code, status.scheduled_at) == ("a", "Failed", 137, START_TIME)
    assert (status.role, status.index, status.deleting) == ("worker", 0, False)


# Placement modes


@pytest.mark.parametrize(
    ("scheduler", "gates", "mode"),
    [
        ("gangline", [], BIND),
        ("gangline", ["x"], ""),
        ("gangline", [GANG_GATE], ""),
        ("default-scheduler", [GANG_GATE], PIN),
        ("default-scheduler", [GANG_GATE, "x"], ""),
        ("default-scheduler", [], ""),
    ],
)
def test_how_a_pod_is_placed(scheduler: str, gates: list[str], mode: str) -> None:
    assert placement_mode(make_gang_pod("p", "g", scheduler=scheduler, gates=gates), "gangline") == mode


def test_a_way_that_is_switched_off_is_not_gone() -> None:
    gangs = GangRegistry(modes=frozenset({BIND}))
    gangs.put_group(make_pod_group("g", 1))
    put(gangs, make_gang_pod("g-0", "g", scheduler="default-scheduler", gates=[GANG_GATE]))
    assert gangs.requests() == []


def test_who_was_asked_to_leave_is_on_its_way_out() -> None:
    gangs = GangRegistry()
    (member,) = put(gangs, make_gang_pod("p", node="a"))
    gang = gangs.gang_of_pod("uid-p")
    assert member is not None
    assert gang is not None
    member.evicting = True
    gangs.invalidate(gang)
    (allocation,) = gangs.allocations()
    assert [pod.terminating for pod in allocation.pods] == [True]
    assert member.as_bound_pod().terminating


def test_what_a_gang_holds_is_added_up_again_when_one_is_asked_to_leave() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 2))
    first, _ = put(gangs, make_gang_pod("g-0", "g", node="a"), make_gang_pod("g-1", "g", node="a"))
    gang = gangs.gang_of_pod("uid-g-0")
    assert first is not None
    assert gang is not None
    (before,) = gangs.allocations()
    assert before.used["pods"] == before.retained["pods"] == 2
    first.evicting = True
    gangs.invalidate(gang)
    (after,) = gangs.allocations()
    assert (after.used["pods"], after.retained["pods"]) == (2, 1)


def test_who_is_seen_where_it_was_sent_changes_no_answer() -> None:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", 2))
    first, _ = put(gangs, *workers(2))
    assert first is not None
    gangs.assume(first, "a")
    (allocation,) = gangs.allocations()
    request = only(gangs.requests())
    gangs.changed_gangs.clear()
    put(gangs, make_gang_pod("g-0", "g", role="worker", index=0, node="a", scheduled=START_TIME))
    assert gangs.allocations()[0] is allocation
    assert only(gangs.requests()) is request
    assert list(gangs.changed_gangs) == [gang_of(gangs, "g")]
    # On another node it counts as a change.
    put(gangs, make_gang_pod("g-0", "g", role="worker", index=0, node="b", scheduled=START_TIME))
    assert gangs.allocations()[0].pods[0].node == "b"
