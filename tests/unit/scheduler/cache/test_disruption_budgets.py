"""Which pods must not be evicted."""

from datetime import timedelta
from typing import Any

import msgspec

from gangline.api.meta import Key, ObjectMeta
from gangline.scheduler.cache.disruption_budgets import (
    REFUSAL_COOLDOWN,
    DisruptionBudgets,
    PodDisruptionBudget,
)
from gangline.scheduler.gangs.registry import GangRegistry
from gangline.scheduler.pods.decode import shape_of
from gangline.scheduler.preemption.preempt import preemption_plan
from gangline.scheduler.types.cycle import BudgetLimit, Placement
from support.builders.gang_pods import START_TIME, make_gang_pod, make_pod_group


def budget(allowed: int, selector: Any, namespace: str = "ns") -> PodDisruptionBudget:
    body = {
        "metadata": {"name": "b", "namespace": namespace},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed},
    }
    return msgspec.convert(body, PodDisruptionBudget)


def protected(budgets: DisruptionBudgets, gangs: GangRegistry) -> set[str]:
    budgets.protect_members(gangs, START_TIME)
    return {uid for allocation in gangs.allocations() for uid in allocation.protected_uids}


def two_pods() -> GangRegistry:
    gangs = GangRegistry()
    for result in (make_gang_pod("one", role="worker", node="a"), make_gang_pod("two", role="ps", node="a")):
        gangs.put_pod(result, shape_of(result))
    return gangs


WORKERS = {"matchLabels": {"training.kubeflow.org/replica-type": "worker"}}


def test_whom_a_spent_budget_covers_is_protected_until_it_is_not() -> None:
    gangs, budgets = two_pods(), DisruptionBudgets()
    assert protected(budgets, gangs) == set()
    budgets.budgets.put(budget(0, WORKERS))
    assert protected(budgets, gangs) == {"uid-one"}
    budgets.budgets.put(budget(1, WORKERS))
    assert protected(budgets, gangs) == set()
    budgets.budgets.put(budget(0, {}))
    assert protected(budgets, gangs) == {"uid-one", "uid-two"}
    budgets.budgets.drop(budget(0, {}))
    assert protected(budgets, gangs) == set()


def workers(count: int) -> GangRegistry:
    gangs = GangRegistry()
    gangs.put_group(make_pod_group("g", count))
    for number in range(count):
        result = make_gang_pod(f"g-{number}", "g", role="worker", index=number, node="a", phase="Running")
        gangs.put_pod(result, shape_of(result))
    return gangs


def two_gangs() -> GangRegistry:
    gangs = GangRegistry()
    for name in ("g", "h"):
        gangs.put_group(make_pod_group(name, 2))
        for number in range(2):
            result = make_gang_pod(f"{name}-{number}", name, role="worker", index=number, node="a", phase="Running")
            gangs.put_pod(result, shape_of(result))
    return gangs


def test_of_a_gang_only_as_many_may_leave_as_the_budget_allows_and_so_it_is_never_ended_in_part() -> None:
    gangs, budgets = workers(4), DisruptionBudgets()
    for allowed, kept in ((0, 4), (1, 3), (3, 1), (4, 0), (9, 0)):
        budgets.budgets.put(budget(allowed, WORKERS))
        assert protected(budgets, gangs) == {f"uid-g-{number}" for number in range(kept)}
        # A preempting gang gets the room of the whole gang, or none.
        (allocation,) = gangs.allocations()
        cleared = preemption_plan([allocation], lambda bundles: Placement(()) if bundles else None, frozenset())
        assert (cleared is None) == bool(kept)


def test_gangs_that_share_a_budget_know_how_many_may_leave_in_all() -> None:
    gangs, budgets = two_gangs(), DisruptionBudgets()
    budgets.budgets.put(budget(3, WORKERS))
    assert protected(budgets, gangs) == set()
    result = {limit for allocation in gangs.allocations() for limit in allocation.budget_limits}
    assert result == {
        BudgetLimit(Key("ns", "b"), 3, frozenset({f"uid-{name}-0", f"uid-{name}-1"})) for name in ("g", "h")
    }


def test_those_who_were_asked_to_leave_count_before_the_budget_knows() -> None:
    gangs, budgets = two_gangs(), DisruptionBudgets()
    budgets.budgets.put(budget(3, WORKERS))
    for uid in ("uid-g-0", "uid-g-1"):
        member = gangs.member(uid)
        assert member is not None
        member.evicting = True
    # One more pod may be evicted, so the other gang cannot be evicted whole.
    assert protected(budgets, gangs) == {"uid-h-0"}


def test_whom_two_budgets_cover_the_server_never_lets_go() -> None:
    gangs, budgets = workers(2), DisruptionBudgets()
    budgets.budgets.put(budget(9, WORKERS))
    budgets.budgets.put(msgspec.structs.replace(budget(9, {}), metadata=ObjectMeta(name="c", namespace="ns")))
    assert protected(budgets, gangs) == {"uid-g-0", "uid-g-1"}


def test_a_budget_may_be_about_one_member() -> None:
    gangs, budgets = workers(2), DisruptionBudgets()
    budgets.budgets.put(budget(0, {"matchLabels": {"training.kubeflow.org/replica-index": "1"}}))
    assert protected(budgets, gangs) == {"uid-g-1"}


def test_a_budget_elsewhere_or_without_a_selector_or_unreadable_protects_nobody() -> None:
    gangs, budgets = two_pods(), DisruptionBudgets()
    for result in (budget(0, WORKERS, "other"), budget(0, None), budget(0, {"matchLabels": {"-": "-"}})):
        budgets.budgets.put(result)
        assert protected(budgets, gangs) == set()


def test_whose_eviction_was_refused_is_left_alone_for_a_while() -> None:
    gangs, budgets = two_pods(), DisruptionBudgets()
    budgets.record_refusal("uid-two", START_TIME - REFUSAL_COOLDOWN + timedelta(seconds=1))
    assert budgets.next_retry_at == START_TIME + timedelta(seconds=1)
    assert protected(budgets, gangs) == {"uid-two"}
    budgets.protect_members(gangs, START_TIME + timedelta(seconds=1))
    assert protected(budgets, gangs) == set()
