"""Pods and groups as gangs: who asks, who holds, who is missed."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.core import PriorityClass
from gangline.api.meta import Key, ObjectMeta
from gangline.api.scheduler_views import Pod
from gangline.api.scheduling import GATE
from gangline.scheduler.gangs.gang import Gang
from gangline.scheduler.gangs.member import BIND, PIN, Member, mode_of
from gangline.scheduler.gangs.phase import probe
from gangline.scheduler.gangs.registry import Gangs
from gangline.scheduler.pods.decode import shape_of
from gangline.scheduler.pods.shape import Shape
from gangline.scheduler.types.cycle import Ask
from support.builders.gang_pods import START, group, pod
from support.builders.scheduler_inputs import make_cluster, make_node, placed

SHAPES: dict[Shape, Shape] = {}


def put(gangs: Gangs, *pods: Pod) -> list[Member | None]:
    shapes = [shape_of(each) for each in pods]
    return [
        gangs.put_pod(each, SHAPES.setdefault(shape, shape)) for each, shape in zip(pods, shapes, strict=True)
    ]


def gang_of(gangs: Gangs, name: str) -> Gang:
    found = gangs.group(Key("ns", name))
    assert found is not None
    return found


def workers(count: int, name: str = "g") -> list[Pod]:
    return [pod(f"{name}-{number}", name, role="worker", index=number) for number in range(count)]


def only(asks: Sequence[Ask]) -> Ask:
    (ask,) = asks
    return ask


# Who asks


def test_a_gang_asks_for_all_its_members_at_once() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 4, age=9, queue="red"))
    put(gangs, *workers(4))
    ask = only(gangs.asks())
    assert (ask.key, ask.uid, ask.queue, ask.least) == (Key("ns", "g"), "uid-g", "red", 4)
    assert [(need.role, need.count) for need in ask.needs] == [("worker", 4)]
    assert ask.created == START - timedelta(seconds=9)
    assert not ask.broken


def test_it_asks_for_nothing_while_too_few_exist() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 4))
    put(gangs, *workers(3))
    assert gangs.asks() == []
    put(gangs, pod("g-3", "g", role="worker", index=3))
    assert only(gangs.asks()).least == 4


def test_a_gated_member_counts_as_missing() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 2))
    put(gangs, pod("g-0", "g"), pod("g-1", "g", gates=["example.com/wait"]))
    assert gangs.asks() == []
    put(gangs, pod("g-1", "g"))
    assert only(gangs.asks()).least == 2


def test_a_gang_whose_members_are_gated_says_so() -> None:
    gangs = Gangs()
    found = gangs.put_group(group("g", 2))
    put(gangs, pod("g-0", "g"), pod("g-1", "g", gates=["example.com/quota"]))
    state = probe(found.probed(START))
    assert (state.phase, state.reason) == ("Pending", "")
    assert state.message == "0/2 members running; 1 held back by scheduling gates (example.com/quota)"
    # It does not need this one.
    put(gangs, pod("g-2", "g"))
    assert probe(found.probed(START)).message == "0/2 members running"


def test_pods_whose_group_does_not_exist_wait_for_it() -> None:
    gangs = Gangs()
    put(gangs, *workers(2))
    assert gangs.asks() == []
    gangs.put_group(group("g", 2))
    assert only(gangs.asks()).least == 2


def test_members_above_the_least_are_asked_for_too() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 2))
    put(gangs, *workers(3))
    ask = only(gangs.asks())
    assert (ask.least, ask.needs[0].count) == (2, 3)


def test_a_whole_gang_asks_for_what_is_above_its_least_only() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 2, phase="Running"))
    put(gangs, pod("g-0", "g", node="a", phase="Running"), pod("g-1", "g", node="b", phase="Running"))
    put(gangs, pod("g-2", "g"))
    ask = only(gangs.asks())
    assert (ask.least, ask.broken, ask.near) == (0, False, ("a", "b"))


@pytest.mark.parametrize("phase", ["Recovering", "Unschedulable"])
def test_a_broken_gang_asks_for_its_missing_members_before_others(phase: str) -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 2, phase=phase))
    put(gangs, pod("g-0", "g", node="a", phase="Running"), pod("g-1", "g"))
    ask = only(gangs.asks())
    assert (ask.least, ask.broken, ask.near) == (1, True, ("a",))


def test_a_start_left_half_bound_is_finished_before_others() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 3, phase="Pending"))
    put(gangs, pod("g-0", "g", node="a"), pod("g-1", "g"), pod("g-2", "g"))
    ask = only(gangs.asks())
    assert (ask.least, ask.broken) == (2, True)


def test_members_that_succeeded_are_not_asked_for_again() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 2, phase="Recovering"))
    put(gangs, pod("g-0", "g", node="a", phase="Succeeded", role="worker", index=0), pod("g-1", "g"))
    assert only(gangs.asks()).least == 1
    gangs.drop_pod("uid-g-0")
    assert only(gangs.asks()).least == 1


def test_the_least_of_each_role_is_asked_for() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 3, minTaskMember={"master": 1, "worker": 2}))
    put(gangs, *[pod(f"w{number}", "g", role="worker", index=number) for number in range(3)])
    # Three exist, and none of them is a master.
    assert gangs.asks() == []
    put(gangs, pod("m", "g", role="master", index=0, cpu="2"))
    ask = only(gangs.asks())
    assert ask.roles == {"master": 1, "worker": 2}
    assert {need.role: need.count for need in ask.needs} == {"master": 1, "worker": 3}


def test_enough_of_the_wrong_role_are_not_enough() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 2, phase="Recovering", minTaskMember={"master": 1}))
    put(gangs, *[pod(f"w{n}", "g", role="worker", index=n, node="a", phase="Running") for n in range(2)])
    put(gangs, pod("m", "g", role="master", index=0))
    ask = only(gangs.asks())
    assert (ask.least, ask.roles) == (1, {"master": 1})


def test_a_pod_alone_is_a_gang_of_one() -> None:
    gangs = Gangs()
    put(gangs, pod("p"))
    ask = only(gangs.asks())
    assert (ask.key, ask.uid, ask.least, ask.queue) == (Key("ns", "p"), "uid-p", 1, "default")


def test_a_pod_of_another_scheduler_is_no_business_of_ours() -> None:
    gangs = Gangs()
    assert put(gangs, pod("p", scheduler="default-scheduler")) == [None]
    assert list(gangs) == []


def test_members_and_nodes_are_matched_in_order_of_index() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 12))
    put(gangs, *reversed(workers(12)))
    gangs.asks()
    chosen = list(gang_of(gangs, "g").chosen([[f"n{number}" for number in range(12)]]))
    assert [(member.key.name, node) for member, node in chosen] == [
        (f"g-{number}", f"n{number}") for number in range(12)
    ]


def test_what_is_asked_is_the_same_value_until_the_gang_changes() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 2))
    put(gangs, *workers(2))
    first = only(gangs.asks())
    assert only(gangs.asks()) is first
    gangs.put_group(group("g", 1, version="2"))
    assert only(gangs.asks()) is not first


def test_an_older_form_of_a_group_is_not_taken() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 2, version="10"))
    gangs.put_group(group("g", 5, version="9"))
    assert gang_of(gangs, "g").terms.least == 2


# Importance


def klass(name: str, value: int, policy: str = "PreemptLowerPriority") -> PriorityClass:
    return PriorityClass(metadata=ObjectMeta(name=name), value=value, preemption_policy=policy)


def test_importance_comes_from_the_groups_class_else_from_the_pods() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 1, priorityClassName="high"))
    put(gangs, pod("g-0", "g", priority=5, preemptionPolicy="Never"))
    ask = only(gangs.asks())
    assert (ask.priority, ask.preempts) == (5, False)
    gangs.put_class(klass("high", 100))
    ask = only(gangs.asks())
    assert (ask.priority, ask.preempts) == (100, True)
    gangs.put_class(klass("high", 50, "Never"))
    ask = only(gangs.asks())
    assert (ask.priority, ask.preempts) == (50, False)
    gangs.drop_class("high")
    assert only(gangs.asks()).priority == 5


# Who holds


def test_who_has_a_place_holds_it_from_the_decision_on() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 2))
    first, second = put(gangs, *workers(2))
    assert first is not None
    assert second is not None
    assert gangs.holdings() == []
    gangs.assume(first, "a")
    (holding,) = gangs.holdings()
    assert [(member.uid, member.node) for member in holding.members] == [("uid-g-0", "a")]
    assert only(gangs.asks()).least == 1
    gangs.unassume("uid-g-0")
    assert gangs.holdings() == []
    assert only(gangs.asks()).least == 2


def test_who_is_seen_where_it_was_sent_is_no_longer_assumed() -> None:
    gangs = Gangs()
    (member,) = put(gangs, pod("p"))
    assert member is not None
    gangs.assume(member, "a")
    put(gangs, pod("p", node="a"))
    gangs.unassume("uid-p")
    assert member.node == "a"


def test_who_has_ended_holds_nothing_and_who_leaves_has_its_room_until_it_is_gone() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 3))
    put(
        gangs,
        pod("g-0", "g", node="a", leaving=True),
        pod("g-1", "g", node="a", phase="Succeeded"),
        pod("g-2", "g", node="a", phase="Failed"),
        pod("g-3", "g", node="a", phase="Running"),
    )
    (holding,) = gangs.holdings()
    assert [(member.uid, member.terminating) for member in holding.members] == [
        ("uid-g-0", True),
        ("uid-g-3", False),
    ]
    # One is done, so two must stay.
    assert holding.least == 2


def test_pods_that_run_the_cluster_are_protected() -> None:
    gangs = Gangs()
    put(gangs, pod("low", node="a"), pod("critical", node="a", priority=2_000_000_000))
    put(gangs, pod("system", node="a", namespace="kube-system"))
    kept = {holding.key.name: bool(holding.protected) for holding in gangs.holdings()}
    assert kept == {"low": False, "critical": True, "system": True}


# Who is missed


def test_a_vanished_member_is_remembered_until_its_seat_is_taken() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 2))
    put(gangs, *workers(2))
    gangs.drop_pod("uid-g-1")
    (gone,) = gang_of(gangs, "g").vanished.values()
    assert (gone.name, gone.role, gone.index, gone.succeeded) == ("g-1", "worker", 1, False)
    put(gangs, pod("another", "g", role="worker", index=1))
    assert not gang_of(gangs, "g").vanished


def test_a_member_replaced_before_it_went_is_not_missed() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 1))
    put(gangs, pod("old", "g", role="worker", index=0, leaving=True), pod("new", "g", role="worker", index=0))
    gangs.drop_pod("uid-old")
    assert not gang_of(gangs, "g").vanished


def test_a_member_that_changes_its_seat_is_missed_in_the_new_one_only() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 2))
    put(gangs, *workers(2))
    gangs.drop_pod("uid-g-1")
    put(gangs, pod("g-0", "g", role="worker", index=1))
    assert not gang_of(gangs, "g").vanished
    gangs.drop_pod("uid-g-0")
    (gone,) = gang_of(gangs, "g").vanished.values()
    assert (gone.name, gone.index) == ("g-0", 1)


class Looked(dict[str, Member]):
    """Members, and how often all of them were looked at."""

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
    gangs = Gangs()
    gangs.put_group(group("g", 5000))
    put(gangs, *workers(5000))
    gang = gang_of(gangs, "g")
    gang.members = members = Looked(gang.members)
    for uid in tuple(gang.members):
        gangs.drop_pod(uid)
    # One look is ours.
    assert members.looks == 1
    assert len(gang.vanished) == 5000


def test_a_pod_is_of_the_group_that_its_annotation_names_now() -> None:
    gangs = Gangs()
    for name in ("g", "h"):
        gangs.put_group(group(name, 2))
    put(gangs, pod("a", "g"), pod("b", "h"))
    assert gangs.asks() == []
    put(gangs, pod("b", "g"))
    assert only(gangs.asks()).key == Key("ns", "g")
    assert gang_of(gangs, "h").members == {}
    # Without the annotation it stands alone; with it, it no longer does.
    put(gangs, pod("b"))
    assert only(gangs.asks()).key == Key("ns", "b")
    put(gangs, pod("b", "h"))
    assert gangs.asks() == []
    assert {gang.key.name: list(gang.members) for gang in gangs} == {"g": ["uid-a"], "h": ["uid-b"]}


def test_one_on_its_way_to_its_place_gets_there_before_it_changes_its_group() -> None:
    gangs = Gangs()
    for name in ("g", "h"):
        gangs.put_group(group(name, 1))
    (member,) = put(gangs, pod("a", "g"))
    assert member is not None
    gangs.assume(member, "n")
    put(gangs, pod("a", "h"))
    assert gangs.of("uid-a") is gang_of(gangs, "g")
    put(gangs, pod("a", "h", node="n"))
    put(gangs, pod("a", "h", node="n", phase="Running"))
    assert gangs.of("uid-a") is gang_of(gangs, "h")


def test_those_replaced_under_other_names_are_not_remembered_for_ever() -> None:
    gangs = Gangs()
    found = gangs.put_group(group("g", 2))
    for number in range(500):
        put(gangs, pod(f"g-{number}", "g", node="a", phase="Running"))
        gangs.drop_pod(f"uid-g-{number}")
    assert len(found.vanished) < 50
    assert "g-499" in [gone.name for gone in found.vanished.values()]


def test_those_who_succeeded_and_went_before_we_were_started_are_in_the_status() -> None:
    def started(*pods: Pod) -> str:
        gangs = Gangs()
        before = group("g", 3, phase="Running")
        status = msgspec.structs.replace(before.status, running=1, succeeded=2)
        found = gangs.put_group(msgspec.structs.replace(before, status=status))
        put(gangs, *pods)
        return probe(found.probed(START)).phase

    assert started(pod("g-2", "g", index=2, node="a", phase="Running", age=9)) == "Running"
    assert started(pod("g-2", "g", index=2, phase="Succeeded", age=9)) == "Recovering"
    assert started() == "Recovering"
    # When others come, it is told anew who is there.
    assert started(pod("g-2", "g", index=2, node="a", phase="Running", age=-9)) == "Recovering"


def test_a_seat_is_not_told_the_node_again_that_did_not_take_it() -> None:
    gangs = Gangs()
    found = gangs.put_group(group("g", 2))
    first, second = put(gangs, *workers(2))
    assert first is not None
    assert second is not None
    gangs.assume(second, "a")
    found.shun(second)
    gangs.unassume(second.uid)
    one, other = only(gangs.asks()).needs
    assert (one.shape, one.count, other.count) == (first.shape, 1, 1)
    cluster = make_cluster(make_node("a"), make_node("b", cpu=1))
    assert placed(cluster, only(gangs.asks())) == [["a"], ["b"]]
    # When there is no room elsewhere, or all have their places, it may have some by now.
    gangs.forgive(found)
    assert [need.count for need in only(gangs.asks()).needs] == [2]
    found.shun(second)
    gangs.put_group(group("g", 2, phase="Running", version="2"))
    assert not found.shunned


def test_nothing_is_remembered_of_a_group_that_is_gone() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 1))
    put(gangs, pod("g-0", "g"))
    gangs.drop_pod("uid-g-0")
    gangs.drop_group(Key("ns", "g"))
    assert list(gangs) == []
    put(gangs, pod("p"))
    gangs.drop_pod("uid-p")
    assert list(gangs) == []


def test_members_of_a_deleted_job_are_no_part_of_the_one_made_again_under_its_name() -> None:
    gangs = Gangs()
    old = [
        pod(f"g-{number}", "g", role="worker", index=number, node="a", phase="Running", owner="Job/g old")
        for number in range(2)
    ]
    waiting = pod("g-8", "g", role="worker", index=8, owner="Job/g old")
    put(gangs, *old, waiting)
    gangs.put_group(group("g", 2, owner="Job/g new"))
    gang = gang_of(gangs, "g")
    assert gang.probed(START).members == ()
    new = [pod(f"g-{number}", "g", role="worker", index=number, owner="Job/g new") for number in (2, 3)]
    put(gangs, *new)
    ask = only(gangs.asks())
    assert (ask.least, ask.needs[0].count, ask.broken) == (2, 2, False)
    assert sum(len(holding.members) for holding in gangs.holdings()) == 2  # their room is still taken
    gangs.drop_pod("uid-g-0")
    assert not gang.vanished
    gangs.drop_pod("uid-g-3")
    assert [gone.name for gone in gang.vanished.values()] == ["g-3"]


def test_pods_may_have_another_owner_than_their_group() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 2, owner="JobSet/g 1"))
    put(gangs, *[pod(f"g-{number}", "g", index=number, owner=f"Job/g-{number} 2") for number in range(2)])
    assert only(gangs.asks()).least == 2


def test_a_snapshot_has_all_that_the_life_cycle_looks_at() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 2, minTaskMember={"worker": 1}))
    put(
        gangs,
        pod("g-0", "g", role="worker", index=0, node="a", phase="Failed", exit_code=137, scheduled=START),
    )
    (facts,) = gang_of(gangs, "g").probed(START).members
    assert (facts.node, facts.phase, facts.exit_code, facts.scheduled_at) == ("a", "Failed", 137, START)
    assert (facts.role, facts.index, facts.deleting) == ("worker", 0, False)


# How


@pytest.mark.parametrize(
    ("scheduler", "gates", "mode"),
    [
        ("gangline", [], BIND),
        ("gangline", ["x"], ""),
        ("gangline", [GATE], ""),
        ("default-scheduler", [GATE], PIN),
        ("default-scheduler", [GATE, "x"], ""),
        ("default-scheduler", [], ""),
    ],
)
def test_how_a_pod_is_placed(scheduler: str, gates: list[str], mode: str) -> None:
    assert mode_of(pod("p", "g", scheduler=scheduler, gates=gates), "gangline") == mode


def test_a_way_that_is_switched_off_is_not_gone() -> None:
    gangs = Gangs(modes=frozenset({BIND}))
    gangs.put_group(group("g", 1))
    put(gangs, pod("g-0", "g", scheduler="default-scheduler", gates=[GATE]))
    assert gangs.asks() == []


def test_who_was_asked_to_leave_is_on_its_way_out() -> None:
    gangs = Gangs()
    (member,) = put(gangs, pod("p", node="a"))
    gang = gangs.of("uid-p")
    assert member is not None
    assert gang is not None
    member.leaving = True
    gangs.touch(gang)
    (holding,) = gangs.holdings()
    assert [resident.terminating for resident in holding.members] == [True]
    assert member.resident().terminating


def test_what_a_gang_holds_is_added_up_again_when_one_is_asked_to_leave() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 2))
    first, _ = put(gangs, pod("g-0", "g", node="a"), pod("g-1", "g", node="a"))
    gang = gangs.of("uid-g-0")
    assert first is not None
    assert gang is not None
    (before,) = gangs.holdings()
    assert before.used["pods"] == before.kept["pods"] == 2
    first.leaving = True
    gangs.touch(gang)
    (after,) = gangs.holdings()
    assert (after.used["pods"], after.kept["pods"]) == (2, 1)


def test_who_is_seen_where_it_was_sent_changes_no_answer() -> None:
    gangs = Gangs()
    gangs.put_group(group("g", 2))
    first, _ = put(gangs, *workers(2))
    assert first is not None
    gangs.assume(first, "a")
    (holding,) = gangs.holdings()
    ask = only(gangs.asks())
    gangs.changed.clear()
    put(gangs, pod("g-0", "g", role="worker", index=0, node="a", scheduled=START))
    assert gangs.holdings()[0] is holding
    assert only(gangs.asks()) is ask
    assert list(gangs.changed) == [gang_of(gangs, "g")]
    # Elsewhere is another matter.
    put(gangs, pod("g-0", "g", role="worker", index=0, node="b", scheduled=START))
    assert gangs.holdings()[0].members[0].node == "b"
