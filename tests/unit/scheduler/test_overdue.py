"""Which starts are undone, and who is told that they wait."""

from datetime import timedelta
from typing import Any

import pytest

from gangline.api.meta import Key
from gangline.api.placing import Pod
from gangline.scheduler.gang import Gang
from gangline.scheduler.groups import Gangs
from gangline.scheduler.model import Cause, Wait
from gangline.scheduler.overdue import MISSING, half_bound, late_at, undo_at, undone
from gangline.scheduler.reading import shape_of
from gangpods import START, group, pod

MINUTE = timedelta(minutes=1)


def gang(*pods: Pod, least: int = 2, phase: str = "Pending", **spec: Any) -> tuple[Gangs, Gang]:
    gangs = Gangs()
    found = gangs.put_group(group("g", least, phase=phase, **spec))
    for each in pods:
        gangs.put_pod(each, shape_of(each))
    return gangs, found


def bound(number: int, **more: Any) -> Pod:
    return pod(f"g-{number}", "g", role="worker", index=number, node="a", scheduled=START, **more)


def waiting(number: int) -> Pod:
    return pod(f"g-{number}", "g", role="worker", index=number)


def test_a_start_is_half_bound_while_some_have_nodes_and_fewer_than_needed() -> None:
    assert half_bound(gang(bound(0), waiting(1))[1])
    assert not half_bound(gang(bound(0), bound(1))[1])
    assert not half_bound(gang(waiting(0), waiting(1))[1])


@pytest.mark.parametrize("phase", ["Running", "Recovering", "Unschedulable"])
def test_what_was_whole_once_is_not_undone(phase: str) -> None:
    assert not half_bound(gang(bound(0), waiting(1), phase=phase)[1])


@pytest.mark.parametrize("lost", [{"phase": "Failed"}, {"leaving": True}, {"phase": "Unknown"}])
def test_a_start_that_lost_a_member_is_the_owners_to_repair(lost: dict[str, Any]) -> None:
    assert not half_bound(gang(bound(0), bound(1, **lost), waiting(2))[1])


def test_a_start_whose_member_vanished_is_the_owners_to_repair() -> None:
    gangs, found = gang(bound(0), waiting(1))
    gangs.drop_pod("uid-g-1")
    assert not half_bound(found)


def test_it_is_undone_when_its_time_is_over() -> None:
    _, found = gang(bound(0), waiting(1))
    assert undo_at(found, MINUTE) == START + MINUTE
    _, found = gang(bound(0), waiting(1), scheduleTimeoutSeconds=5)
    assert undo_at(found, MINUTE) == START + timedelta(seconds=5)


def test_places_that_nobody_ever_reached_are_given_up_too() -> None:
    gangs, found = gang(waiting(0), waiting(1))
    for uid in ("uid-g-0", "uid-g-1"):
        member = gangs.member(uid)
        assert member is not None
        gangs.assume(member, "a")
    found.decided = START + timedelta(seconds=1)
    assert undo_at(found, MINUTE) == START + timedelta(seconds=61)


def test_only_those_whom_we_placed_are_asked_to_leave() -> None:
    theirs = pod("g-9", "g", node="a", scheduled=START, scheduler="somebody-else")
    _, found = gang(bound(0), theirs, waiting(1), least=3)
    assert [member.key for member in undone(found, "gangline")] == [Key("ns", "g-0")]


def test_one_that_waits_is_late_after_the_same_time() -> None:
    gangs, found = gang(waiting(0), waiting(1), scheduleTimeoutSeconds=5)
    (ask,) = gangs.asks()
    found.wait = Wait(ask, Cause.RESOURCES, "no room")
    assert late_at(found, MINUTE) == START + timedelta(seconds=5)


def test_one_of_which_too_few_exist_is_late_too() -> None:
    assert late_at(gang(waiting(0))[1], MINUTE) == START + MINUTE
    assert late_at(gang()[1], MINUTE) == START + MINUTE


def test_one_that_has_its_places_and_only_starts_is_not_late() -> None:
    assert late_at(gang(bound(0), bound(1))[1], MINUTE) is None


def test_one_that_runs_is_never_late() -> None:
    gangs, found = gang(bound(0), bound(1), waiting(2), phase="Running")
    (ask,) = gangs.asks()
    found.wait = Wait(ask, Cause.RESOURCES, "no room")
    assert late_at(found, MINUTE) is None


def test_pods_whose_group_does_not_exist_are_told_soon() -> None:
    gangs = Gangs()
    for each in (waiting(0), waiting(1)):
        gangs.put_pod(each, shape_of(each))
    found = gangs.group(Key("ns", "g"))
    assert found is not None
    assert late_at(found, MINUTE) == START + MISSING
    # It is there after all, and has its own time.
    found.told_late = True
    gangs.put_group(group("g", 2))
    assert not found.told_late
    assert late_at(found, MINUTE) == START + MINUTE


def test_pods_of_another_scheduler_are_told_nothing_of_a_missing_group() -> None:
    gangs = Gangs()
    theirs = pod("g-0", "g", scheduler="volcano")
    gangs.put_pod(theirs, shape_of(theirs))
    found = gangs.group(Key("ns", "g"))
    assert found is not None
    assert late_at(found, MINUTE) is None
