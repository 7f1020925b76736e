"""Who may not be asked to leave."""

from datetime import timedelta
from typing import Any

import msgspec

from gangline.api.meta import Key, ObjectMeta
from gangline.scheduler.cache.disruption_budgets import REFUSED, Budget, Budgets
from gangline.scheduler.gangs.registry import Gangs
from gangline.scheduler.pods.decode import shape_of
from gangline.scheduler.preemption.preempt import clear
from gangline.scheduler.types.cycle import Limit, Placement
from support.builders.gang_pods import START, group, pod


def budget(allowed: int, selector: Any, namespace: str = "ns") -> Budget:
    body = {
        "metadata": {"name": "b", "namespace": namespace},
        "spec": {"selector": selector},
        "status": {"disruptionsAllowed": allowed},
    }
    return msgspec.convert(body, Budget)


def protected(budgets: Budgets, gangs: Gangs) -> set[str]:
    budgets.protect(gangs, START)
    return {uid for holding in gangs.holdings() for uid in holding.protected}


def two_pods() -> Gangs:
    gangs = Gangs()
    for found in (pod("one", role="worker", node="a"), pod("two", role="ps", node="a")):
        gangs.put_pod(found, shape_of(found))
    return gangs


WORKERS = {"matchLabels": {"training.kubeflow.org/replica-type": "worker"}}


def test_whom_a_spent_budget_covers_is_protected_until_it_is_not() -> None:
    gangs, budgets = two_pods(), Budgets()
    assert protected(budgets, gangs) == set()
    budgets.put(budget(0, WORKERS))
    assert protected(budgets, gangs) == {"uid-one"}
    budgets.put(budget(1, WORKERS))
    assert protected(budgets, gangs) == set()
    budgets.put(budget(0, {}))
    assert protected(budgets, gangs) == {"uid-one", "uid-two"}
    budgets.drop(Key("ns", "b"))
    assert protected(budgets, gangs) == set()


def workers(count: int) -> Gangs:
    gangs = Gangs()
    gangs.put_group(group("g", count))
    for number in range(count):
        found = pod(f"g-{number}", "g", role="worker", index=number, node="a", phase="Running")
        gangs.put_pod(found, shape_of(found))
    return gangs


def two_gangs() -> Gangs:
    gangs = Gangs()
    for name in ("g", "h"):
        gangs.put_group(group(name, 2))
        for number in range(2):
            found = pod(f"{name}-{number}", name, role="worker", index=number, node="a", phase="Running")
            gangs.put_pod(found, shape_of(found))
    return gangs


def test_of_a_gang_only_as_many_may_leave_as_the_budget_allows_and_so_it_is_never_ended_in_part() -> None:
    gangs, budgets = workers(4), Budgets()
    for allowed, kept in ((0, 4), (1, 3), (3, 1), (4, 0), (9, 0)):
        budgets.put(budget(allowed, WORKERS))
        assert protected(budgets, gangs) == {f"uid-g-{number}" for number in range(kept)}
        # Whoever wants the room gets it from the whole gang, or from nobody.
        (holding,) = gangs.holdings()
        cleared = clear([holding], lambda bundles: Placement(()) if bundles else None, frozenset())
        assert (cleared is None) == bool(kept)


def test_gangs_that_share_a_budget_know_how_many_may_leave_in_all() -> None:
    gangs, budgets = two_gangs(), Budgets()
    budgets.put(budget(3, WORKERS))
    assert protected(budgets, gangs) == set()
    found = {limit for holding in gangs.holdings() for limit in holding.limits}
    assert found == {
        Limit(Key("ns", "b"), 3, frozenset({f"uid-{name}-0", f"uid-{name}-1"})) for name in ("g", "h")
    }


def test_those_who_were_asked_to_leave_count_before_the_budget_knows() -> None:
    gangs, budgets = two_gangs(), Budgets()
    budgets.put(budget(3, WORKERS))
    for uid in ("uid-g-0", "uid-g-1"):
        member = gangs.member(uid)
        assert member is not None
        member.leaving = True
    # One more may leave, and so the other gang cannot end.
    assert protected(budgets, gangs) == {"uid-h-0"}


def test_whom_two_budgets_cover_the_server_never_lets_go() -> None:
    gangs, budgets = workers(2), Budgets()
    budgets.put(budget(9, WORKERS))
    budgets.put(msgspec.structs.replace(budget(9, {}), metadata=ObjectMeta(name="c", namespace="ns")))
    assert protected(budgets, gangs) == {"uid-g-0", "uid-g-1"}


def test_a_budget_may_be_about_one_member() -> None:
    gangs, budgets = workers(2), Budgets()
    budgets.put(budget(0, {"matchLabels": {"training.kubeflow.org/replica-index": "1"}}))
    assert protected(budgets, gangs) == {"uid-g-1"}


def test_a_budget_elsewhere_or_without_a_selector_or_unreadable_protects_nobody() -> None:
    gangs, budgets = two_pods(), Budgets()
    for found in (budget(0, WORKERS, "other"), budget(0, None), budget(0, {"matchLabels": {"-": "-"}})):
        budgets.put(found)
        assert protected(budgets, gangs) == set()


def test_whose_eviction_was_refused_is_left_alone_for_a_while() -> None:
    gangs, budgets = two_pods(), Budgets()
    budgets.refuse("uid-two", START - REFUSED + timedelta(seconds=1))
    assert budgets.until == START + timedelta(seconds=1)
    assert protected(budgets, gangs) == {"uid-two"}
    budgets.protect(gangs, START + timedelta(seconds=1))
    assert protected(budgets, gangs) == set()
