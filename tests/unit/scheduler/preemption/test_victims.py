"""Gangs that share a disruption budget: no pod is evicted in vain because the budget allows only some evictions."""

from collections.abc import Mapping
from datetime import UTC, datetime

from gangline.api.meta import Key
from gangline.scheduler.cache.nodes import NodeCache
from gangline.scheduler.cycle.cycle import schedule
from gangline.scheduler.types.cycle import BudgetLimit, CycleResult, GangAllocation, Preempt, SchedulerPolicy
from gangline.scheduler.types.shape import PodShape
from support.builders.scheduler_inputs import (
    make_bound_pod,
    make_gang_request,
    make_pod_shape,
    make_scheduler_node,
)

ONE: PodShape = make_pod_shape(cpu=1)
BUDGET = Key("default", "budget")
NOW = datetime(2026, 3, 1, 13, tzinfo=UTC)


def gang(name: str, node: str, *, allowed: int | None = None, least: int = 2, age: int = 0) -> GangAllocation:
    """Two members on one node; `allowed`: the evictions that their budget allows."""
    members = tuple(make_bound_pod(f"{name}-{number}", node, ONE) for number in range(2))
    uids = frozenset(member.uid for member in members)
    return GangAllocation(
        key=Key("default", name),
        uid=name,
        queue="default",
        priority=0,
        created=datetime(2026, 3, 1, 12, 59 - age, tzinfo=UTC),
        min_members=least,
        pods=members,
        budget_limits=() if allowed is None else (BudgetLimit(BUDGET, allowed, uids),),
    )


def decided(wanted: Mapping[str, int], *holdings: GangAllocation) -> CycleResult:
    """The decisions about high-priority gangs of these sizes, where every gang has its own node."""
    cluster = NodeCache()
    for allocation in holdings:
        cluster.put_node(make_scheduler_node(allocation.pods[0].node, cpu=2))
        for member in allocation.pods:
            cluster.put_pod(member)
    requests = [make_gang_request((ONE, count), name=name, priority=9) for name, count in wanted.items()]
    return schedule(cluster.what_if(), requests, holdings, {}, SchedulerPolicy(), NOW)


def leaving(found: CycleResult) -> list[str]:
    return sorted(victim.uid for each in found.decisions if isinstance(each, Preempt) for victim in each.victims)


def test_two_gangs_do_not_both_end_if_the_budget_lets_only_one_go() -> None:
    assert leaving(decided({"high": 4}, gang("a", "n1", allowed=3), gang("b", "n2", allowed=3))) == []
    both = decided({"high": 4}, gang("a", "n1", allowed=4), gang("b", "n2", allowed=4))
    assert leaving(both) == ["a-0", "a-1", "b-0", "b-1"]


def test_another_gang_ends_in_the_place_of_one_that_the_budget_keeps() -> None:
    shared = (gang("a", "n1", allowed=2), gang("b", "n2", allowed=2))
    assert leaving(decided({"high": 4}, *shared, gang("c", "n3", age=9))) == ["a-0", "a-1", "c-0", "c-1"]


def test_what_one_has_used_of_a_budget_is_left_to_no_other_in_the_same_round() -> None:
    shared = (gang("a", "n1", allowed=3), gang("b", "n2", allowed=3))
    assert leaving(decided({"first": 2, "second": 2}, *shared)) == ["a-0", "a-1"]


def test_spare_members_of_several_gangs_share_it_too() -> None:
    shared = [gang(name, f"n{name}", allowed=1, least=1) for name in ("a", "b")]
    assert leaving(decided({"high": 2}, *shared)) == []
    assert leaving(decided({"high": 1}, *shared)) == ["a-1"]


def test_a_member_that_is_in_two_bundles_counts_once() -> None:
    # The surplus members of one gang and all members of another are needed.
    mixed = (gang("a", "n1", allowed=3, least=1), gang("b", "n2", allowed=3))
    assert leaving(decided({"high": 3}, *mixed)) == ["a-1", "b-0", "b-1"]
