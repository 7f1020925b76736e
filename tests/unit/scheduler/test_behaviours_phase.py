"""Edge cases of the phase transitions, each distinguished by one condition."""

from datetime import timedelta

import pytest

from gangline.api.scheduling import PodGroupPhase, PodGroupState
from gangline.scheduler.gangs.phase import (
    GangObservation,
    LostMember,
    MemberStatus,
    PlacementAttempt,
    next_state,
    podgroup_status,
)
from support.builders.gang_pods import START_TIME

NO_ROOM = PlacementAttempt(failed=True, message="0/3 nodes: 3 lack cpu")
LATER = START_TIME + timedelta(minutes=1)


def member(number: int, phase: str = "Running", *, node: str = "a", **more: object) -> MemberStatus:
    status = {"uid": f"uid-{number}", "name": f"g-{number}", "role": "worker", "index": number}
    return MemberStatus(**status, phase=phase, node=node, **more)  # type: ignore[arg-type]


def waits(number: int) -> MemberStatus:
    return member(number, "Pending", node="")


def in_phase(phase: PodGroupPhase) -> PodGroupState:
    return PodGroupState(phase=phase.value, last_probe_time=START_TIME, last_transition_time=START_TIME)


def seen(phase: PodGroupPhase, *members: MemberStatus, least: int = 3, **more: object) -> GangObservation:
    return GangObservation(state=in_phase(phase), min_members=least, members=members, now=LATER, **more)  # type: ignore[arg-type]


def after(found: GangObservation) -> tuple[str, str]:
    state = next_state(found)
    return state.phase, state.reason


# T5


def test_t5_is_not_for_a_replacement_that_has_its_node_and_only_starts() -> None:
    starting = member(2, "Pending")
    result = seen(PodGroupPhase.RECOVERING, member(0), member(1), starting, last_attempt=NO_ROOM)
    assert after(result)[0] == "Recovering"


def test_t5_waits_until_all_who_are_missing_exist_again() -> None:
    removed = LostMember("g-2", "worker", 2)
    result = seen(PodGroupPhase.RECOVERING, member(0), waits(1), lost_members=(removed,), last_attempt=NO_ROOM)
    assert after(result) == ("Recovering", "NotEnoughTasks")


# T6


def test_t6_waits_for_one_that_got_its_node_in_the_very_second_in_which_the_phase_began() -> None:
    held = member(0, scheduled_at=START_TIME)
    assert after(seen(PodGroupPhase.UNSCHEDULABLE, held, waits(1)))[0] == "Unschedulable"
    since = member(0, scheduled_at=START_TIME + timedelta(seconds=1))
    assert after(seen(PodGroupPhase.UNSCHEDULABLE, since, waits(1)))[0] == "Pending"


def test_t6_counts_a_failed_pod_that_is_still_there_as_there() -> None:
    failed = member(0, "Failed", scheduled_at=START_TIME)
    assert after(seen(PodGroupPhase.UNSCHEDULABLE, failed, waits(1), waits(2)))[0] == "Unschedulable"


# D3


def test_d3_a_member_that_succeeded_and_is_being_deleted_is_no_loss() -> None:
    done = member(2, "Succeeded", deleting=True)
    result = seen(PodGroupPhase.RUNNING, member(0), member(1), done)
    assert after(result) == ("Running", "")
    status = podgroup_status(result, next_state(result))
    assert (status.running, status.succeeded, status.failed) == (2, 1, 0)


def test_d3_a_member_that_runs_and_is_being_deleted_is_one() -> None:
    result = seen(PodGroupPhase.RUNNING, member(0), member(1), member(2, deleting=True))
    assert after(result) == ("Recovering", "PodDeleted")
    assert podgroup_status(result, next_state(result)).running == 2


# A5


@pytest.mark.parametrize("phase", list(PodGroupPhase))
def test_a5_a_new_phase_is_written_with_all_five_fields(phase: PodGroupPhase) -> None:
    whole = phase is not PodGroupPhase.RUNNING
    members = (member(0), member(1), member(2) if whole else member(2, "Failed", exit_code=1))
    state = next_state(seen(phase, *members))
    assert state.phase == ("Running" if whole else "Recovering")
    if phase is not PodGroupPhase.RUNNING:
        assert (state.reason, state.message) == ("", "3/3 members running")
    else:
        assert (state.reason, state.message) == (
            "PodFailed",
            "2/3 members running, worker-2 failed (exit 1)",
        )
    assert state.last_probe_time == state.last_transition_time == LATER


def test_a5_the_message_carries_all_counts() -> None:
    members = (member(0), member(1, "Succeeded"), member(2, "Failed", exit_code=9), waits(3))
    state = next_state(seen(PodGroupPhase.RUNNING, *members, least=4))
    assert state.message == "1/4 members running, 1 succeeded, worker-2 failed (exit 9)"


def test_a_phase_that_somebody_else_made_up_is_begun_anew() -> None:
    odd = PodGroupState(phase="Finished", last_probe_time=START_TIME, last_transition_time=START_TIME)
    result = GangObservation(state=odd, min_members=1, members=(member(0),), now=LATER)
    first = next_state(result)
    assert first.phase == "Pending"
    assert next_state(GangObservation(state=first, min_members=1, members=(member(0),), now=LATER)).phase == "Running"
