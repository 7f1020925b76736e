"""Which starts are rolled back, and which gangs get a warning."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.meta import Key
from gangline.api.scheduler_views import Pod
from gangline.scheduler.gangs.gang import GangInfo
from gangline.scheduler.gangs.members import GangMember
from gangline.scheduler.gangs.registry import GangRegistry
from gangline.scheduler.gangs.timeouts import (
    MISSING_GROUP_DELAY,
    PIN_REJECTED_TIMEOUT,
    is_half_bound,
    members_to_evict,
    rollback_at,
    rollback_message,
    timeout_warning_at,
)
from gangline.scheduler.pods.decode import shape_of
from gangline.scheduler.types.cycle import Pending, PendingReason
from support.builders.gang_pods import START_TIME, make_gang_pod, make_pod_group

MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)


def gang(*pods: Pod, least: int = 2, phase: str = "Pending", **spec: Any) -> tuple[GangRegistry, GangInfo]:
    gangs = GangRegistry()
    result = gangs.put_group(make_pod_group("g", least, phase=phase, **spec))
    for each in pods:
        gangs.put_pod(each, shape_of(each))
    return gangs, result


def bound(number: int, **more: Any) -> Pod:
    return make_gang_pod(f"g-{number}", "g", role="worker", index=number, node="a", scheduled=START_TIME, **more)


def waiting(number: int) -> Pod:
    return make_gang_pod(f"g-{number}", "g", role="worker", index=number)


def test_a_start_is_half_bound_while_some_have_nodes_and_fewer_than_needed() -> None:
    assert is_half_bound(gang(bound(0), waiting(1))[1])
    assert not is_half_bound(gang(bound(0), bound(1))[1])
    assert not is_half_bound(gang(waiting(0), waiting(1))[1])


@pytest.mark.parametrize("phase", ["Running", "Recovering", "Unschedulable"])
def test_what_was_whole_once_is_not_undone(phase: str) -> None:
    assert not is_half_bound(gang(bound(0), waiting(1), phase=phase)[1])


@pytest.mark.parametrize("lost", [{"phase": "Failed"}, {"leaving": True}, {"phase": "Unknown"}])
def test_a_start_that_lost_a_member_is_the_owners_to_repair(lost: dict[str, Any]) -> None:
    assert not is_half_bound(gang(bound(0), bound(1, **lost), waiting(2))[1])


def test_a_start_whose_member_vanished_is_the_owners_to_repair() -> None:
    gangs, result = gang(bound(0), waiting(1))
    gangs.drop_pod("uid-g-1")
    assert not is_half_bound(result)


def test_it_is_undone_when_its_time_is_over() -> None:
    _, result = gang(bound(0), waiting(1))
    assert rollback_at(result, MINUTE) == START_TIME + MINUTE
    _, result = gang(bound(0), waiting(1), scheduleTimeoutSeconds=5)
    assert rollback_at(result, MINUTE) == START_TIME + timedelta(seconds=5)


def test_a_start_that_was_begun_long_ago_has_its_time_from_when_it_is_gone_on_with() -> None:
    gangs, result = gang(bound(0), waiting(1))
    member = gangs.member("uid-g-1")
    assert member is not None
    gangs.assume(member, "a")
    result.progress.placed_at = START_TIME + 10 * MINUTE
    assert rollback_at(result, MINUTE) == START_TIME + 11 * MINUTE


def test_places_that_nobody_ever_reached_are_given_up_too() -> None:
    gangs, result = gang(waiting(0), waiting(1))
    for uid in ("uid-g-0", "uid-g-1"):
        member = gangs.member(uid)
        assert member is not None
        gangs.assume(member, "a")
    result.progress.placed_at = START_TIME + timedelta(seconds=1)
    assert rollback_at(result, MINUTE) == START_TIME + timedelta(seconds=61)


def test_only_those_whom_we_placed_are_asked_to_leave() -> None:
    theirs = make_gang_pod("g-9", "g", node="a", scheduled=START_TIME, scheduler="somebody-else")
    _, result = gang(bound(0), theirs, waiting(1), least=3)
    assert [member.key for member in members_to_evict(result, "gangline")] == [Key("ns", "g-0")]


# Pins whose node was taken by another scheduler


def pinned(number: int, *, said: str = "", **more: Any) -> Pod:
    """A pinned pod that is not bound. `said`: the reason that its own scheduler reports."""
    return make_gang_pod(
        f"g-{number}",
        "g",
        role="worker",
        index=number,
        scheduler="default-scheduler",
        condition=("False", said) if said else None,
        **more,
    )


def recovering(*pods: Pod, phase: str = "Recovering", **spec: Any) -> GangInfo:
    """A gang whose unplaced pods are pinned to node `a`, placed one second after the start."""
    gangs, result = gang(*pods, phase=phase, **spec)
    for each in pods:
        member = gangs.member(each.metadata.uid)
        assert member is not None
        if member.is_unplaced and not member.mode:
            gangs.assume(member, "a")
    result.progress.placed_at = START_TIME + timedelta(seconds=1)
    return result


def names(members: list[GangMember]) -> list[str]:
    return [member.key.name for member in members]


@pytest.mark.parametrize("phase", ["Recovering", "Unschedulable", "Running"])
def test_a_pin_that_its_scheduler_finds_no_room_for_is_given_up_soon_and_nobody_else_is_touched(
    phase: str,
) -> None:
    result = recovering(bound(0), pinned(1, said="Unschedulable"), pinned(2), phase=phase)
    assert rollback_at(result, MINUTE) == START_TIME + timedelta(seconds=1) + PIN_REJECTED_TIMEOUT
    assert names(members_to_evict(result, "gangline")) == ["g-1"]


def test_a_pin_that_is_not_reached_is_given_up_when_the_groups_time_is_over() -> None:
    result = recovering(bound(0), pinned(1), pinned(2, said="SchedulingGated"))
    assert rollback_at(result, MINUTE) == START_TIME + timedelta(seconds=61)
    assert names(members_to_evict(result, "gangline")) == ["g-1", "g-2"]
    assert rollback_at(recovering(bound(0), pinned(1), scheduleTimeoutSeconds=5), MINUTE) == START_TIME + 6 * SECOND


def test_a_pin_whose_scheduler_makes_room_for_it_has_its_time() -> None:
    one = pinned(1, said="Unschedulable")
    nominated = msgspec.structs.replace(one, status=msgspec.structs.replace(one.status, nominated_node_name="a"))
    result = recovering(bound(0), nominated)
    assert rollback_at(result, MINUTE) == START_TIME + timedelta(seconds=61)


def test_pins_that_are_bound_leave_or_have_ended_are_none_to_give_up() -> None:
    there = pinned(1, said="Unschedulable", node="a")
    leaving = pinned(2, said="Unschedulable", leaving=True)
    ended = pinned(3, said="Unschedulable", phase="Failed")
    result = recovering(bound(0), there, leaving, ended)
    assert rollback_at(result, MINUTE) is None
    assert members_to_evict(result, "gangline") == []


def test_a_pin_in_a_start_is_undone_with_the_start() -> None:
    result = recovering(bound(0), pinned(1, said="Unschedulable"), phase="Pending")
    assert rollback_at(result, MINUTE) == START_TIME + SECOND + MINUTE
    assert names(members_to_evict(result, "gangline")) == ["g-0", "g-1"]


def test_a_pin_of_a_scheduler_before_us_is_given_up_only_if_there_is_no_room_for_it() -> None:
    result = recovering(bound(0), pinned(1))
    result.progress.placed_at = None
    assert rollback_at(result, MINUTE) is None
    result = recovering(bound(0), pinned(1, said="Unschedulable"))
    result.progress.placed_at = None
    assert rollback_at(result, MINUTE) == START_TIME + PIN_REJECTED_TIMEOUT


def test_who_did_not_leave_is_asked_again_only_after_as_much_time() -> None:
    result = recovering(bound(0), pinned(1, said="Unschedulable"))
    result.progress.rolled_back_at = START_TIME + MINUTE
    assert rollback_at(result, MINUTE) == START_TIME + MINUTE + PIN_REJECTED_TIMEOUT


def test_the_owner_is_told_what_became_of_a_start_and_of_a_pin() -> None:
    start = rollback_message(recovering(bound(0), waiting(1), phase="Pending"), 1, MINUTE)
    assert start.startswith("only 1 of 2 members could be placed in 60 s; ")
    messages = rollback_message(recovering(bound(0), pinned(1), phase="Pending"), 2, MINUTE)
    assert messages.startswith("only 1 of 2 members could be placed in 60 s; ")
    pin = rollback_message(recovering(bound(0), pinned(1)), 1, MINUTE)
    assert pin.startswith("1 member was not bound to the chosen node")


def test_that_there_is_no_room_for_a_pin_is_noticed_though_nothing_else_changes() -> None:
    gangs, result = gang(bound(0), pinned(1), phase="Recovering")
    member = gangs.member("uid-g-1")
    assert member is not None
    gangs.assume(member, "a")
    gangs.changed_gangs.clear()
    for said, news in (("Unschedulable", True), ("Unschedulable", False), ("Waiting", True)):
        each = pinned(1, said=said)
        gangs.put_pod(each, member.shape)
        assert (result in gangs.changed_gangs) is news
        gangs.changed_gangs.clear()


# Warnings


def test_one_that_waits_is_late_after_the_same_time() -> None:
    gangs, result = gang(waiting(0), waiting(1), scheduleTimeoutSeconds=5)
    (request,) = gangs.requests()
    result.progress.pending = Pending(request, PendingReason.RESOURCES, "no room")
    assert timeout_warning_at(result, MINUTE) == START_TIME + timedelta(seconds=5)


def test_one_of_which_too_few_exist_is_late_too() -> None:
    assert timeout_warning_at(gang(waiting(0))[1], MINUTE) == START_TIME + MINUTE
    assert timeout_warning_at(gang()[1], MINUTE) == START_TIME + MINUTE


def test_one_that_has_its_places_and_only_starts_is_not_late() -> None:
    assert timeout_warning_at(gang(bound(0), bound(1))[1], MINUTE) is None


def test_one_that_runs_is_never_late() -> None:
    gangs, result = gang(bound(0), bound(1), waiting(2), phase="Running")
    (request,) = gangs.requests()
    result.progress.pending = Pending(request, PendingReason.RESOURCES, "no room")
    assert timeout_warning_at(result, MINUTE) is None


def test_pods_whose_group_does_not_exist_are_told_soon() -> None:
    gangs = GangRegistry()
    for each in (waiting(0), waiting(1)):
        gangs.put_pod(each, shape_of(each))
    result = gangs.gang_of_group(Key("ns", "g"))
    assert result is not None
    assert timeout_warning_at(result, MINUTE) == START_TIME + MISSING_GROUP_DELAY
    # The PodGroup exists now, and has its own timeout.
    result.progress.warned_timeout = True
    gangs.put_group(make_pod_group("g", 2))
    assert not result.progress.warned_timeout
    assert timeout_warning_at(result, MINUTE) == START_TIME + MINUTE


def test_pods_of_another_scheduler_are_told_nothing_of_a_missing_group() -> None:
    gangs = GangRegistry()
    theirs = make_gang_pod("g-0", "g", scheduler="volcano")
    gangs.put_pod(theirs, shape_of(theirs))
    result = gangs.gang_of_group(Key("ns", "g"))
    assert result is not None
    assert timeout_warning_at(result, MINUTE) is None
