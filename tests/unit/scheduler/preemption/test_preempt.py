"""Preemption: few gangs, surplus members first, nothing in vain, never protected pods."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from gangline.api.meta import Key
from gangline.scheduler.preemption.preempt import FitCheck, VictimSet, lower_priority, preemption_plan
from gangline.scheduler.types.cycle import BoundPod, GangAllocation, GangRequest, Placement
from gangline.scheduler.types.shape import PodShape

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
ONE = PodShape(requests=(("cpu", 1000), ("pods", 1)))
SOMEWHERE = Placement((np.zeros(1, dtype=np.int64),))


def gang(name: str, size: int, *, priority: int = 0, age: int = 0, **others: Any) -> GangAllocation:
    members = tuple(BoundPod(f"{name}-{n}", Key("ns", f"{name}-{n}"), f"node-{n}", ONE) for n in range(size))
    fields: dict[str, Any] = {"min_members": size, "queue": "default"}
    created = NOW - timedelta(seconds=age)
    return GangAllocation(
        key=Key("ns", name),
        uid=name,
        created=created,
        priority=priority,
        pods=members,
        **{**fields, **others},
    )


def once_gone(slots: int) -> FitCheck:
    """The preempting gang fits as soon as this many pods are evicted."""

    def fits(bundles: Sequence[VictimSet]) -> Placement | None:
        gone = {member.uid for bundle in bundles for member in bundle.pods}
        return SOMEWHERE if len(gone) >= slots else None

    return fits


def once_all_gone(*wanted: str) -> FitCheck:
    """The preempting gang fits only on the nodes of these pods."""

    def fits(bundles: Sequence[VictimSet]) -> Placement | None:
        gone = {member.uid for bundle in bundles for member in bundle.pods}
        return SOMEWHERE if gone.issuperset(wanted) else None

    return fits


def victims(holdings: Collection[GangAllocation], fits: FitCheck, gone: Collection[str] = ()) -> list[str]:
    cleared = preemption_plan(holdings, fits, gone)
    return [] if cleared is None else sorted(victim.uid for victim in cleared.victims)


def test_one_gang_ends_where_one_is_enough() -> None:
    """Behaviour 43."""
    assert victims([gang("a", 4, age=9), gang("b", 4)], once_gone(4)) == ["b-0", "b-1", "b-2", "b-3"]


def test_of_those_that_are_enough_alone_the_smallest_ends() -> None:
    assert victims([gang("huge", 90), gang("fair", 5), gang("small", 3)], once_gone(4)) == [
        f"fair-{n}" for n in range(5)
    ]


def test_if_one_is_not_enough_few_end() -> None:
    result = victims([gang("a", 1), gang("b", 3), gang("c", 1), gang("d", 4)], once_gone(7))
    assert result == ["b-0", "b-1", "b-2", "d-0", "d-1", "d-2", "d-3"]


def test_nobody_leaves_if_all_together_were_not_enough() -> None:
    """Behaviour 44."""
    assert preemption_plan([gang("a", 4), gang("b", 4)], once_gone(9), ()) is None
    assert preemption_plan([], once_gone(1), ()) is None


def test_spare_members_leave_before_any_gang_breaks_and_no_more_than_needed() -> None:
    """Behaviour 45: the last members are evicted, so the lower indices stay."""
    result = victims([gang("elastic", 12, min_members=4), gang("fixed", 4)], once_gone(3))
    assert result == ["elastic-10", "elastic-11", "elastic-9"]


def test_spare_members_help_a_whole_gang_out() -> None:
    result = victims([gang("elastic", 6, min_members=4), gang("fixed", 4, age=9)], once_gone(5))
    assert result == ["elastic-5", "fixed-0", "fixed-1", "fixed-2", "fixed-3"]


def test_a_role_keeps_what_it_needs() -> None:
    roles = {f"team-{n}": "master" if n == 3 else "worker" for n in range(4)}
    team = gang("team", 4, min_members=2, min_by_role={"master": 1}, role_by_uid=roles)
    assert victims([team], once_gone(2)) == ["team-1", "team-2"]


def test_the_least_important_gang_that_is_enough_ends_however_large() -> None:
    result = victims([gang("mid", 4, priority=5), gang("low", 9, priority=1)], once_gone(4))
    assert result == [f"low-{n}" for n in range(9)]


def test_a_more_important_gang_ends_only_where_it_must() -> None:
    allocations = [gang("mid", 1, priority=5), gang("low", 1, priority=1), gang("high", 1, priority=7)]
    assert victims(allocations, once_gone(2)) == ["low-0", "mid-0"]


def test_of_equals_the_youngest_ends() -> None:
    assert victims([gang("old", 2, age=9), gang("new", 2), gang("older", 2, age=99)], once_gone(1)) == [
        "new-0",
        "new-1",
    ]


def test_protected_members_never_leave_nor_do_the_others_of_a_gang_that_so_cannot_end() -> None:
    """Behaviour 46."""
    critical = gang("critical", 4, protected_uids=frozenset({"critical-1"}))
    assert victims([critical], once_gone(2)) == []
    assert victims([critical, gang("plain", 2, priority=3)], once_gone(2)) == ["plain-0", "plain-1"]
    spare = gang("spare", 4, min_members=1, protected_uids=frozenset({"spare-3", "spare-2"}))
    assert victims([spare], once_gone(2)) == ["spare-0", "spare-1"]
    assert victims([spare], once_gone(3)) == []


def test_those_already_leaving_are_not_asked_again() -> None:
    assert victims([gang("a", 2)], once_gone(1), gone={"a-0"}) == ["a-1"]
    assert victims([gang("a", 2)], once_gone(1), gone={"a-0", "a-1"}) == []


def test_only_those_in_the_way_leave() -> None:
    """There are a thousand gangs, and three particular ones have the nodes that are needed."""
    crowd = [gang(f"g{n}", 1, age=n) for n in range(1000)]
    assert victims(crowd, once_all_gone("g17-0", "g500-0", "g999-0")) == ["g17-0", "g500-0", "g999-0"]


def test_finding_them_does_not_take_a_question_per_gang() -> None:
    asked = 0
    fits = once_all_gone("g17-0", "g500-0")

    def counting(bundles: Sequence[VictimSet]) -> Placement | None:
        nonlocal asked
        asked += 1
        return fits(bundles)

    preemption_plan([gang(f"g{n}", 1, age=n) for n in range(1000)], counting, ())
    assert asked < 100


def test_also_where_more_room_can_be_worse_those_who_leave_were_seen_to_be_enough() -> None:
    """Constraints between pods can do that: here an odd number of victims never fits."""

    def fits(bundles: Sequence[VictimSet]) -> Placement | None:
        return SOMEWHERE if len(bundles) in (2, 6) else None

    assert len(victims([gang(f"g{n}", 1) for n in range(6)], fits)) in (2, 6)


def test_only_strictly_less_important_gangs_have_to_give_way_and_never_the_same_gang() -> None:
    request = GangRequest(
        key=Key("ns", "me"),
        uid="me",
        queue="default",
        priority=5,
        created=NOW,
        waiting_since=NOW,
        recovering=False,
        pod_sets=(),
        min_members=1,
    )
    allocations = [gang("me", 1, priority=1), gang("equal", 1, priority=5), gang("low", 1, priority=4)]
    assert [allocation.uid for allocation in lower_priority(allocations, request)] == ["low"]
