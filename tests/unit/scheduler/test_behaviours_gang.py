"""Behaviours of gangs between the phase transitions and the scheduler: what is remembered, and for how long."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.scheduler_views import Pod
from gangline.api.scheduling import PodGroup
from gangline.scheduler.gangs.gang import GangInfo
from gangline.scheduler.gangs.phase import PlacementAttempt, next_state
from gangline.scheduler.gangs.registry import GangRegistry
from gangline.scheduler.gangs.timeouts import is_half_bound, rollback_at
from gangline.scheduler.pods.decode import shape_of
from gangline.scheduler.types.cycle import Pending, PendingReason
from support.builders.gang_pods import START_TIME, make_gang_pod, make_pod_group

MINUTE = timedelta(minutes=1)
LATER = START_TIME + timedelta(hours=1)


def member(number: int, **more: Any) -> Pod:
    return make_gang_pod(f"g-{number}", "g", role="worker", index=number, **more)


def runs(number: int, **more: Any) -> Pod:
    return member(number, node="a", phase="Running", scheduled=START_TIME, **more)


def made(found: PodGroup, *pods: Pod) -> tuple[GangRegistry, GangInfo]:
    gangs = GangRegistry()
    gang = gangs.put_group(found)
    for each in pods:
        gangs.put_pod(each, shape_of(each))
    return gangs, gang


def put(gangs: GangRegistry, *pods: Pod) -> None:
    for each in pods:
        gangs.put_pod(each, shape_of(each))


def counted(found: PodGroup, running: int) -> PodGroup:
    return msgspec.structs.replace(found, status=msgspec.structs.replace(found.status, running=running))


def in_vain(gang: GangInfo, gangs: GangRegistry) -> None:
    """The last cycle found no room for the current request."""
    (request,) = gangs.requests()
    gang.progress.pending, gang.progress.last_attempt = (
        Pending(request, PendingReason.RESOURCES, "no room"),
        PlacementAttempt(failed=True, message="no room"),
    )


def after(gang: GangInfo) -> tuple[str, str]:
    state = next_state(gang.observation(LATER))
    return state.phase, state.reason


# Lost members


def test_a_member_deleted_while_no_scheduler_ran_was_deleted() -> None:
    result = counted(make_pod_group("g", 3, phase="Running"), 3)
    _, gang = made(result, runs(0), runs(1))
    assert after(gang) == ("Recovering", "PodDeleted")


def test_a_gang_that_starts_again_is_not_blamed_for_whom_it_lost_before() -> None:
    gangs, gang = made(make_pod_group("g", 3, phase="Unschedulable"), *(runs(number) for number in range(3)))
    for number in range(3):
        gangs.drop_pod(f"uid-g-{number}")
    assert len(gang.members.lost) == 3
    # The gang starts again, with fewer members.
    gangs.put_group(make_pod_group("g", 2, phase="Pending", version="2"))
    put(gangs, runs(0, uid="new-0"), member(1, uid="new-1"))
    assert after(gang) == ("Pending", "")


def test_a_group_of_the_same_name_made_anew_has_lost_nobody() -> None:
    gangs, gang = made(make_pod_group("g", 2, phase="Running"), runs(0), runs(1))
    gangs.drop_pod("uid-g-1")
    gang.progress.warned_timeout, gang.progress.placed_at = True, START_TIME
    # The watch was interrupted while the old PodGroup was replaced by the new one.
    gangs.put_group(make_pod_group("g", 2, uid="another", version="9"))
    assert not gang.members.lost
    assert not gang.progress.warned_timeout
    assert gang.progress.placed_at is None


def test_a_gang_needs_as_many_as_its_roles_need_together() -> None:
    roles = {"master": 1, "worker": 3}
    gangs, gang = made(make_pod_group("g", 2, minTaskMember=roles), member(0), member(1))
    assert gang.spec.min_members == 4
    assert gangs.requests() == []
    assert after(gang) == ("Pending", "NotEnoughTasks")


# Placement attempts


def test_t5_takes_a_try_for_the_members_that_are_missing_now() -> None:
    extras = (member(4), member(5))
    gangs, gang = made(make_pod_group("g", 4, phase="Running"), *(runs(number) for number in range(4)), *extras)
    in_vain(gang, gangs)
    assert after(gang)[0] == "Running"
    # Two are killed. The members that did not fit before were others: no attempt was made for these two yet.
    for number in (0, 1):
        gangs.drop_pod(f"uid-g-{number}")
    gangs.put_group(make_pod_group("g", 4, phase="Recovering", version="2"))
    assert after(gang) == ("Recovering", "PodDeleted")
    put(gangs, member(0, uid="new-0"), member(1, uid="new-1"))
    assert after(gang) == ("Recovering", "")
    in_vain(gang, gangs)
    assert after(gang) == ("Unschedulable", "NotEnoughResources")


def test_a_reason_does_not_come_and_go_while_a_waiting_gang_is_looked_at() -> None:
    gangs, gang = made(make_pod_group("g", 2, phase="Pending"), member(0), member(1))
    in_vain(gang, gangs)
    assert after(gang) == ("Pending", "NotEnoughResources")
    # A pod changed, and the next cycle is still to come.
    put(gangs, member(1, condition=("False", "Unschedulable")))
    assert after(gang) == ("Pending", "NotEnoughResources")


# D8: when a start is rolled back


def test_d8_a_replacement_has_its_time_however_long_the_others_have_been_there() -> None:
    gangs, gang = made(make_pod_group("g", 2, phase="Pending"), member(0, node="a", scheduled=START_TIME - 10 * MINUTE))
    put(gangs, member(1, age=30))
    assert rollback_at(gang, MINUTE) == START_TIME + timedelta(seconds=30)


def test_d8_a_large_gang_has_time_as_long_as_it_gets_on() -> None:
    times = (START_TIME, START_TIME + MINUTE)
    bound = [member(number, node="a", scheduled=time) for number, time in enumerate(times)]
    _, gang = made(make_pod_group("g", 3, phase="Pending"), *bound, member(2, age=60))
    assert rollback_at(gang, MINUTE) == START_TIME + 2 * MINUTE


def test_d8_one_who_refused_to_leave_is_not_asked_again_at_once() -> None:
    _, gang = made(make_pod_group("g", 2, phase="Pending"), member(0, node="a", scheduled=START_TIME), member(1))
    assert is_half_bound(gang)
    gang.progress.rolled_back_at = START_TIME + MINUTE
    assert rollback_at(gang, MINUTE) == START_TIME + 2 * MINUTE


@pytest.mark.parametrize("phase", ["", "Pending"])
def test_d8_a_start_all_of_which_is_bound_may_take_as_long_as_it_likes(phase: str) -> None:
    _, gang = made(
        make_pod_group("g", 2, phase=phase),
        *(member(number, node="a", scheduled=START_TIME) for number in range(2)),
    )
    assert rollback_at(gang, MINUTE) is None
