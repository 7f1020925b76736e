"""Every row of the transition table, transitions that must not happen, and the rules of time."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.codec.codec import encode
from gangline.api.core import PodPhase
from gangline.api.scheduling import PodGroupPhase, PodGroupReason, PodGroupState, PodGroupStatus
from gangline.scheduler.gangs.phase import (
    HEARTBEAT_INTERVAL,
    GangObservation,
    LostMember,
    MemberStatus,
    PlacementAttempt,
    next_state,
    podgroup_status,
)

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
NO_ROOM = PlacementAttempt(failed=True, message="0/12 nodes: 8 lack nvidia.com/gpu, 4 tainted")
P, R, C, U = (
    PodGroupPhase.PENDING,
    PodGroupPhase.RUNNING,
    PodGroupPhase.RECOVERING,
    PodGroupPhase.UNSCHEDULABLE,
)


def member(index: int, phase: str = "Running", role: str = "worker", **others: Any) -> MemberStatus:
    node = others.pop("node", "" if phase == PodPhase.PENDING else f"node-{index}")
    scheduled = others.pop("scheduled_at", NOW - timedelta(hours=1) if node else None)
    name = f"job-{role}-{index}"
    uid = others.pop("uid", f"uid-{name}")
    return MemberStatus(
        uid=uid, name=name, role=role, index=index, phase=phase, node=node, scheduled_at=scheduled, **others
    )


def team(*phases: str) -> tuple[MemberStatus, ...]:
    return tuple(member(index, phase) for index, phase in enumerate(phases))


def running(count: int) -> tuple[MemberStatus, ...]:
    return team(*["Running"] * count)


def state(phase: str = "", reason: str = "", message: str = "", at: datetime = NOW) -> PodGroupState:
    if not phase:
        return PodGroupState()
    return PodGroupState(phase=phase, reason=reason, message=message, last_probe_time=at, last_transition_time=at)


LATER = NOW + timedelta(seconds=5)


def look(before: PodGroupState, *members: MemberStatus, least: int = 4, **others: Any) -> PodGroupState:
    others.setdefault("now", LATER)
    return next_state(GangObservation(state=before, min_members=least, members=members, **others))


def told(after: PodGroupState) -> tuple[str, str]:
    return after.phase, after.reason


# --- the table


@pytest.mark.parametrize(("there", "reason"), [(0, "NotEnoughTasks"), (3, "NotEnoughTasks"), (4, "")])
def test_t0_a_new_group_is_pending(there: int, reason: str) -> None:
    after = look(state(), *team(*["Pending"] * there))
    assert told(after) == (P, reason)
    assert after.last_probe_time == after.last_transition_time == LATER


def test_t1_a_group_is_running_when_as_many_run_as_it_needs() -> None:
    after = look(state(P), *running(4))
    assert told(after) == (R, "")
    assert after.message == "4/4 members running"
    assert after.last_transition_time == LATER


@pytest.mark.parametrize(
    "word", ["OutOfcpu", "OutOfmemory", "OutOfpods", "OutOfnvidia.com/gpu", "NodeAffinity", "NodePorts"]
)
def test_t2_a_member_turned_away_by_a_kubelet_is_recovered_while_others_run(word: str) -> None:
    rejected = member(2, "Failed", reason=word, node="gpu-7")
    after = look(state(P), *running(2), rejected, member(3, "Pending"))
    assert told(after) == (C, "PodFailed")
    assert after.message == f"2/4 members running, job-worker-2 rejected on gpu-7 ({word})"


def test_t3_a_member_that_fails_makes_a_running_group_recover() -> None:
    after = look(state(R), *running(2), member(2, "Failed", exit_code=137), member(3))
    assert told(after) == (C, "PodFailed")
    assert after.message == "3/4 members running, worker-2 failed (exit 137)"
    assert after.last_transition_time == LATER


@pytest.mark.parametrize("gone", [True, False])
def test_t3_a_member_that_is_deleted_makes_a_running_group_recover(gone: bool) -> None:
    others = (member(0), member(1), member(3))
    if gone:
        after = look(state(R), *others, lost_members=(LostMember("job-worker-2", "worker", 2),))
    else:
        after = look(state(R), *others, member(2, deleting=True))
    assert told(after) == (C, "PodDeleted")
    assert after.message == "3/4 members running, worker-2 deleted"


def test_t4_a_group_that_is_whole_again_is_running() -> None:
    after = look(state(C, "PodFailed"), *running(4))
    assert told(after) == (R, "")
    assert after.message == "4/4 members running"


def test_t5_a_replacement_without_room_makes_the_group_unschedulable() -> None:
    after = look(state(C, "PodFailed"), *running(3), member(3, "Pending"), last_attempt=NO_ROOM)
    assert told(after) == (U, "NotEnoughResources")
    assert after.message == f"3/4 members running; {NO_ROOM.message}"


def test_t6_the_group_starts_again_when_all_who_held_a_node_are_gone() -> None:
    again = tuple(member(index, "Pending", uid=f"new-{index}") for index in range(4))
    after = look(state(U, "NotEnoughResources"), *again, last_attempt=NO_ROOM)
    assert told(after) == (P, "PodDeleted")
    assert after.message == "all members deleted, group starts again"


def test_t6_waits_for_those_who_are_still_on_their_way_out() -> None:
    before = state(U, "NotEnoughResources")
    after = look(before, member(0, deleting=True), *(member(index, "Pending") for index in range(1, 4)))
    assert after.phase == U


def test_t6_does_not_wait_for_a_replacement_placed_since() -> None:
    late = member(3, "Pending", node="node-9", scheduled_at=NOW + timedelta(seconds=3))
    after = look(state(U, at=NOW), late)
    assert after.phase == P


def test_t6_fires_once() -> None:
    again = tuple(member(index, "Pending") for index in range(4))
    first = look(state(U), *again, last_attempt=NO_ROOM)
    second = look(first, *again, last_attempt=NO_ROOM, now=LATER + timedelta(seconds=5))
    assert told(second) == (P, "NotEnoughResources")
    assert second.last_transition_time == first.last_transition_time
    third = look(second, *running(4), now=LATER + timedelta(seconds=9))
    assert told(third) == (R, "")


def test_t7_a_group_that_finds_its_room_after_all_is_running() -> None:
    after = look(state(U, "NotEnoughResources"), *running(4), last_attempt=NO_ROOM)
    assert told(after) == (R, "")


# --- what never happens

# Every kind of snapshot, to be met in every phase.
SNAPSHOTS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "all wait": {"members": team(*["Pending"] * 4)},
    "all wait without room": {"members": team(*["Pending"] * 4), "last_attempt": NO_ROOM},
    "some run": {"members": (*running(3), member(3, "Pending"))},
    "some run, no room": {"members": (*running(3), member(3, "Pending")), "last_attempt": NO_ROOM},
    "some run, one failed": {"members": (*running(3), member(3, "Failed"))},
    "some run, one failed, no room": {"members": (*running(3), member(3, "Failed")), "last_attempt": NO_ROOM},
    "some run, one going": {"members": (*running(3), member(3, deleting=True))},
    "some run, one gone": {"members": running(3), "lost_members": (LostMember("job-worker-3", "worker", 3),)},
    "all failed": {"members": team(*["Failed"] * 4)},
    "all going": {"members": tuple(member(index, deleting=True) for index in range(4))},
    "all gone": {"lost_members": tuple(LostMember(f"job-worker-{n}", "worker", n) for n in range(4))},
    "one lost with its node": {"members": (*running(3), member(3, "Unknown"))},
    "all run": {"members": running(4)},
    "all succeeded": {"members": team(*["Succeeded"] * 4)},
}
ALLOWED = {(P, R), (P, C), (R, C), (C, R), (C, U), (U, P), (U, R)}
FORBIDDEN = {(P, U), (R, P), (R, U), (C, P), (U, C)}


def test_the_full_matrix_of_phases() -> None:
    steps = {(phase, look_at(state(phase), name).phase) for phase in PodGroupPhase for name in SNAPSHOTS}
    moves = {(one, two) for one, two in steps if one != two}
    assert moves == ALLOWED
    assert not moves & FORBIDDEN
    assert len(ALLOWED | FORBIDDEN | {(phase, phase) for phase in PodGroupPhase}) == 16
    # A group stays where it is, whichever phase that is, on some snapshot.
    assert {(phase, phase) for phase in PodGroupPhase} <= steps


def look_at(before: PodGroupState, name: str, now: datetime = LATER) -> PodGroupState:
    return next_state(GangObservation(state=before, min_members=4, now=now, **SNAPSHOTS[name]))


@pytest.mark.parametrize("name", SNAPSHOTS)
@pytest.mark.parametrize(("one", "two"), sorted(FORBIDDEN))
def test_a_forbidden_step_is_never_made(one: PodGroupPhase, two: PodGroupPhase, name: str) -> None:
    assert look_at(state(one), name).phase != two


def test_a_group_of_which_nothing_runs_is_never_unschedulable() -> None:
    assert told(look_at(state(P), "all wait without room")) == (P, "NotEnoughResources")
    assert told(look_at(state(C), "all wait without room")) == (C, "NotEnoughResources")


@pytest.mark.parametrize("name", SNAPSHOTS)
@pytest.mark.parametrize("phase", ["", "Completed", *PodGroupPhase])
def test_the_same_facts_come_to_rest_after_three_probes(phase: str, name: str) -> None:
    now = state(phase)
    for _ in range(3):
        now = look_at(now, name)
    assert look_at(now, name) is now


# --- our decisions where the table has holes


@pytest.mark.parametrize(
    ("lost", "reason"),
    [
        (member(3, "Failed", exit_code=1), "PodFailed"),
        (member(3, deleting=True), "PodDeleted"),
        (member(3, "Unknown"), "PodFailed"),
    ],
)
def test_d2_a_member_lost_before_the_group_was_ever_whole_is_recovered(lost: MemberStatus, reason: str) -> None:
    assert told(look(state(P), *running(2), member(2, "Pending"), lost)) == (C, reason)


def test_d2_if_all_failed_and_nothing_runs_the_group_stays_pending() -> None:
    assert told(look_at(state(P), "all failed")) == (P, "PodFailed")


def test_d3_a_member_that_succeeded_counts() -> None:
    after = look(state(P), *running(2), member(2, "Succeeded"), member(3, "Succeeded"))
    assert told(after) == (R, "")
    assert after.message == "2/4 members running, 2 succeeded"


def test_d3_a_member_that_succeeded_and_was_cleaned_up_is_no_loss() -> None:
    removed = (LostMember("job-worker-3", "worker", 3, succeeded=True),)
    assert told(look(state(R), *running(3), lost_members=removed)) == (R, "")


def test_d4_nobody_replaced_the_lost_member() -> None:
    before = state(C, "PodDeleted")
    after = look(before, *running(3), lost_members=(LostMember("job-worker-3", "worker", 3),))
    assert told(after) == (C, "NotEnoughTasks")
    assert after.message == "3/4 members running, worker-3 deleted, 3 of 4 exist"
    assert after.last_transition_time == before.last_transition_time
    assert after.last_probe_time == LATER


def test_d5_a_larger_minimum_is_judged_at_the_next_probe() -> None:
    assert told(look(state(R), *running(4), least=6, recorded_count=4)) == (C, "NotEnoughTasks")
    waiting = (member(4, "Pending"), member(5, "Pending"))
    assert told(look(state(R), *running(4), *waiting, least=6, recorded_count=4)) == (C, "")


def test_d5_a_smaller_minimum_makes_a_group_whole() -> None:
    after = look(state(U, "NotEnoughResources"), *running(3), member(3, "Pending"), least=3, last_attempt=NO_ROOM)
    assert told(after) == (R, "")


@pytest.mark.parametrize("lost", [member(3, "Unknown"), member(3, deleting=True)])
def test_d6_a_member_lost_with_its_node_is_an_exception(lost: MemberStatus) -> None:
    assert look(state(R), *running(3), lost).phase == C


def test_d8_members_evicted_by_ourselves_count_as_deleted() -> None:
    removed = (LostMember("job-worker-3", "worker", 3),)
    some = look(state(P), *running(2), member(2, "Pending"), lost_members=removed)
    assert told(some) == (C, "PodDeleted")
    none = look(state(P), *team("Pending", "Pending", "Pending"), lost_members=removed)
    assert told(none) == (P, "PodDeleted")


def test_d9_no_verdict_while_the_room_of_a_terminating_member_may_do() -> None:
    # The attempt counted that room as free, so it did not fail.
    before = state(C, "PodDeleted")
    after = look(
        before,
        *running(3),
        member(3, deleting=True, uid="old"),
        member(3, "Pending"),
        last_attempt=PlacementAttempt(failed=False, message="waits for job-worker-3 to end"),
    )
    assert told(after) == (C, "")
    assert after.message == "3/4 members running; waits for job-worker-3 to end"


def test_a_wait_for_a_queue_is_no_shortage() -> None:
    waits = PlacementAttempt(failed=False, message="queue research has what it may have")
    after = look(state(P), *team(*["Pending"] * 4), last_attempt=waits)
    assert told(after) == (P, "")
    assert after.message == "0/4 members running; queue research has what it may have"
    assert look(state(C), *running(3), member(3, "Pending"), last_attempt=waits).phase == C


# --- reasons


def test_the_reasons_have_an_order() -> None:
    failed, going, removed = (
        member(1, "Failed"),
        member(2, deleting=True),
        LostMember("job-worker-3", "worker", 3),
    )
    first = look(state(P), failed, going, lost_members=(removed,), last_attempt=NO_ROOM)
    assert first.reason == PodGroupReason.POD_FAILED
    second = look(state(P), member(1, "Pending"), going, lost_members=(removed,), last_attempt=NO_ROOM)
    assert second.reason == PodGroupReason.POD_DELETED
    third = look(state(P), member(1, "Pending"), last_attempt=NO_ROOM)
    assert third.reason == PodGroupReason.NOT_ENOUGH_TASKS
    fourth = look(state(P), *team(*["Pending"] * 4), last_attempt=NO_ROOM)
    assert fourth.reason == PodGroupReason.NOT_ENOUGH_RESOURCES


def test_a_failed_member_counts_until_its_replacement_exists() -> None:
    failed, again = member(3, "Failed", uid="old"), member(3, "Pending", uid="new")
    assert look(state(C), *running(3), failed).reason == "PodFailed"
    assert look(state(C), *running(3), failed, again).reason == ""
    elsewhere = member(4, "Pending")
    assert look(state(C), *running(3), failed, elsewhere).reason == "PodFailed"


def test_a_member_without_a_number_is_replaced_by_any_other() -> None:
    failed = msgspec.structs.replace(member(3, "Failed"), index=None)
    assert look(state(C), *running(3), failed).reason == "PodFailed"
    assert look(state(C), *running(3), failed, member(9, "Pending")).reason == ""


def test_a_member_that_went_unseen_was_deleted() -> None:
    assert told(look(state(R), *running(3), recorded_count=4)) == (C, "PodDeleted")
    assert told(look(state(R), *running(3), member(3, "Pending"), recorded_count=4)) == (C, "PodDeleted")


def test_a_message_names_a_few_and_counts_the_others() -> None:
    after = look(state(R), *running(3), *(member(n, "Failed", exit_code=1) for n in range(3, 10)), least=10)
    assert after.message == (
        "3/10 members running, worker-3 failed (exit 1), worker-4 failed (exit 1), worker-5 failed (exit 1), "
        "4 more lost"
    )


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (member(3, "Failed", reason="Evicted"), "worker-3 failed on node-3 (Evicted)"),
        (member(3, "Failed", reason="Error", exit_code=1), "worker-3 failed (exit 1)"),
        (member(3, "Failed"), "worker-3 failed"),
        (member(3, "Unknown"), "job-worker-3 lost on node-3"),
        (member(3, deleting=True), "worker-3 deleted"),
    ],
)
def test_a_message_says_what_became_of_a_member(facts: MemberStatus, said: str) -> None:
    assert look(state(R), *running(3), facts).message == f"3/4 members running, {said}"


# --- roles


def test_a_role_below_its_minimum_is_not_made_up_for_by_another() -> None:
    roles = {"master": 1, "worker": 2}
    workers = running(4)
    first = look(state(P), *workers, min_by_role=roles)
    assert told(first) == (P, "NotEnoughTasks")
    assert first.message == "4/4 members running, master 0/1, 4 of 4 exist"
    second = look(state(P), *workers, member(0, "Pending", "master"), min_by_role=roles)
    assert (second.phase, second.message) == (P, "4/4 members running, master 0/1")
    assert look(state(P), *workers, member(0, "Running", "master"), min_by_role=roles).phase == R


# --- the behaviours


def test_k31_members_above_the_minimum_may_go() -> None:
    two_gone = (*running(4), member(4, "Failed"), member(5, deleting=True))
    assert told(look(state(R), *two_gone)) == (R, "")
    three_gone = (*running(3), member(3, "Failed"), member(4, "Failed"), member(5, deleting=True))
    assert told(look(state(R), *three_gone)) == (C, "PodFailed")


def test_k32_a_container_restarted_in_place_is_not_seen() -> None:
    before = look(state(P), *running(4))
    # The pod stays Running; only its container's last state has an exit code.
    assert look(before, *running(3), member(3, exit_code=1)) is before


def test_k33_members_succeed_one_after_another() -> None:
    now = look(state(P), *running(4))
    for done in range(5):
        now = look(now, *team(*["Succeeded"] * done, *["Running"] * (4 - done)))
        assert told(now) == (R, "")
        assert now.last_transition_time == LATER


def test_k37_a_state_that_does_not_change_is_stamped_every_thirty_seconds_at_most() -> None:
    now = before = look(state(P), *running(4), now=NOW)
    writes = 0
    for second in range(1, 301):
        after = look(now, *running(4), now=NOW + timedelta(seconds=second))
        writes += after is not now
        now = after
    assert writes == 300 // HEARTBEAT_INTERVAL.total_seconds()
    assert now.last_transition_time == before.last_transition_time
    assert now.last_probe_time == NOW + timedelta(seconds=300)


@pytest.mark.parametrize("name", SNAPSHOTS)
@pytest.mark.parametrize("phase", PodGroupPhase)
def test_k38_neither_time_moves_back_with_the_clock(phase: PodGroupPhase, name: str) -> None:
    after = look_at(state(phase), name, NOW - timedelta(hours=1))
    assert after.last_probe_time == after.last_transition_time == NOW


def test_k39_a_group_made_anew_starts_at_the_beginning() -> None:
    after = look(state(), *team(*["Pending"] * 4), now=NOW + timedelta(days=1))
    assert told(after) == (P, "")
    assert after.last_probe_time == after.last_transition_time == NOW + timedelta(days=1)


# --- times and text on the wire


def test_times_are_whole_seconds() -> None:
    after = look(state(P), *running(4), now=NOW + timedelta(seconds=1, microseconds=999_999))
    written = msgspec.json.decode(encode(after))
    assert written["lastProbeTime"] == written["lastTransitionTime"] == "2026-11-16T12:00:01Z"


def test_the_same_phase_with_another_message_keeps_its_transition_time() -> None:
    before = look(state(P), *running(4))
    after = look(before, *running(5), now=LATER + timedelta(seconds=1))
    assert after.message == "5/4 members running"
    assert after.last_transition_time == LATER
    assert after.last_probe_time == LATER + timedelta(seconds=1)


def test_an_empty_reason_is_left_out() -> None:
    assert set(msgspec.json.decode(encode(look(state(P), *running(4))))) == {
        "phase",
        "lastProbeTime",
        "lastTransitionTime",
        "message",
    }


def test_the_older_counters_stand_beside_the_state() -> None:
    members = (member(0), member(1, deleting=True), member(2, "Succeeded"), member(3, "Failed"))
    seen = GangObservation(state=state(R), min_members=4, members=members, now=LATER)
    after = next_state(seen)
    assert podgroup_status(seen, after) == PodGroupStatus(state=after, running=1, succeeded=1, failed=1)


def test_of_those_without_an_index_only_as_many_are_missed_as_are_lacking() -> None:
    # Two were replaced, under other names, long ago; the third was not.
    removed = tuple(LostMember(name=f"set-{name}") for name in "abc")
    there = [msgspec.structs.replace(member(number), index=None) for number in range(3)]
    after = look(state(R), *there, lost_members=removed)
    assert told(after) == (C, "PodDeleted")
    assert after.message == "3/4 members running, set-c deleted"
    failed = [msgspec.structs.replace(member(number, "Failed"), name=f"set-{number}", index=None) for number in (7, 8)]
    after = look(state(R), *there, *failed, lost_members=removed)
    assert told(after) == (C, "PodFailed")
    assert after.message == "3/4 members running, set-8 failed"
