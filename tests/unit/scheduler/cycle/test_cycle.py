"""One scheduling cycle on a real node cache: all or nothing, the order of gangs, and why the others wait."""

import random
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from gangline.api.meta import Key, ObjectMeta
from gangline.api.scheduler_views import Node, NodePlacementStatus
from gangline.scheduler.cache.nodes import NodeCache
from gangline.scheduler.cycle.cycle import schedule
from gangline.scheduler.placement.whatif import WhatIf
from gangline.scheduler.types.cycle import (
    Bind,
    BoundPod,
    CycleResult,
    GangAllocation,
    GangRequest,
    Pending,
    PendingReason,
    PodSet,
    Preempt,
    QueueQuota,
    SchedulerPolicy,
)
from gangline.scheduler.types.shape import PodShape

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
ONE = PodShape(requests=(("cpu", 1000), ("pods", 1)))
GPU = PodShape(requests=(("cpu", 1000), ("nvidia.com/gpu", 1), ("pods", 1)))


def ask(
    name: str, count: int = 4, *, shape: PodShape = ONE, age: int = 0, queue: str = "default", **others: Any
) -> GangRequest:
    created = NOW - timedelta(seconds=age)
    fields: dict[str, Any] = {
        "priority": 0,
        "waiting_since": created,
        "recovering": False,
        "pod_sets": (PodSet("worker", shape, count),),
        "min_members": count,
    }
    return GangRequest(key=Key("default", name), uid=name, queue=queue, created=created, **{**fields, **others})


def holding(name: str, nodes: Iterable[str], *, shape: PodShape = ONE, age: int = 0, **others: Any) -> GangAllocation:
    """An allocation with one member on each of these nodes."""
    terminating = others.pop("terminating", False)
    priority = others.pop("priority", 0)
    members = tuple(
        BoundPod(f"{name}-{n}", Key("default", f"{name}-{n}"), node, shape, priority, terminating=terminating)
        for n, node in enumerate(nodes)
    )
    fields: dict[str, Any] = {"queue": "default", "min_members": len(members)}
    return GangAllocation(
        key=Key("default", name),
        uid=name,
        created=NOW - timedelta(seconds=age),
        priority=priority,
        pods=members,
        **{**fields, **others},
    )


class World:
    """Nodes, and gangs on them."""

    def __init__(self, nodes: Mapping[str, int], holdings: Iterable[GangAllocation] = (), **extra: int) -> None:
        self.cluster, self.holdings = NodeCache(), list(holdings)
        for name, cpu in nodes.items():
            amounts = {"cpu": str(cpu), "pods": "110"} | {key.replace("_", "/"): str(n) for key, n in extra.items()}
            self.cluster.put_node(Node(metadata=ObjectMeta(name=name), status=NodePlacementStatus(allocatable=amounts)))
        for each in self.holdings:
            for member in each.pods:
                self.cluster.put_pod(member)

    def round(
        self, *asks: GangRequest, queues: Iterable[QueueQuota] = (), now: datetime = NOW, **policy: Any
    ) -> CycleResult:
        rules = {rule.name: rule for rule in queues}
        return schedule(self.cluster.what_if(), asks, self.holdings, rules, SchedulerPolicy(**policy), now)


def placed(found: CycleResult) -> dict[str, int]:
    """Gang -> how many of its members were placed."""
    return {each.request.uid: sum(map(len, each.nodes)) for each in found.decisions if isinstance(each, Bind)}


def causes(found: CycleResult) -> dict[str, PendingReason]:
    return {each.request.uid: each.reason for each in found.decisions if isinstance(each, Pending)}


def evicted(found: CycleResult) -> dict[str, list[str]]:
    """Gang -> pods that are evicted for it."""
    return {
        each.request.uid: sorted(victim.uid for victim in each.victims)
        for each in found.decisions
        if isinstance(each, Preempt)
    }


def message(found: CycleResult, name: str) -> str:
    return next(each.message for each in found.decisions if isinstance(each, Pending) and each.request.uid == name)


# All or nothing


def test_a_gang_that_does_not_fit_whole_gets_nothing_and_lacks_resources() -> None:
    """Behaviour 1."""
    result = World({"n1": 2, "n2": 1}).round(ask("four"))
    assert placed(result) == {}
    assert causes(result) == {"four": PendingReason.RESOURCES}
    assert message(result, "four") == "3 of 4 fit: 0/2 nodes: 2 lack cpu"


def test_it_is_placed_whole_as_soon_as_there_is_room() -> None:
    """Behaviour 2."""
    assert placed(World({"n1": 2, "n2": 2}).round(ask("four"))) == {"four": 4}


def test_a_gang_of_which_members_do_not_exist_yet_waits_for_them_not_for_nodes() -> None:
    """Behaviour 3."""
    result = World({"n1": 9}).round(ask("three", 3, min_members=4))
    assert causes(result) == {"three": PendingReason.TASKS}
    assert message(result, "three") == "3 of 4 members exist"


def test_of_two_gangs_that_fit_one_at_a_time_one_is_whole_and_one_has_nothing() -> None:
    """Behaviour 4 and guard L1: never half and half, whatever the order and the nodes."""
    dice = random.Random(4)
    for _ in range(100):
        sizes = dice.choice([[6], [3, 3], [2, 2, 2], [1, 5], [1] * 6])
        cache = World({f"n{dice.random()}": size for size in sizes})
        requests = [ask("a", age=dice.randrange(3)), ask("b", age=dice.randrange(3))]
        dice.shuffle(requests)
        result = cache.round(*requests)
        assert list(placed(result).values()) == [4]
        assert list(causes(result).values()) == [PendingReason.RESOURCES]


def test_a_gang_that_cannot_fit_does_not_stop_a_later_one_that_can() -> None:
    """Behaviour 5."""
    result = World({"n1": 10}).round(ask("twelve", 12, age=60), ask("three", 3))
    assert placed(result) == {"three": 3}
    assert causes(result) == {"twelve": PendingReason.RESOURCES}


def test_members_beyond_the_least_are_placed_as_far_as_there_is_room() -> None:
    """Behaviour 6."""
    result = World({"n1": 5}).round(ask("six", 6, min_members=4))
    assert placed(result) == {"six": 5}


def test_nothing_is_placed_when_a_role_has_no_room() -> None:
    """Behaviour 7, and guard L9: all roles of a gang are one unit."""
    needs = (PodSet("master", PodShape(requests=(("cpu", 3000), ("pods", 1))), 1), PodSet("worker", ONE, 4))
    team = ask("team", pod_sets=needs, min_members=4, min_by_role={"master": 1, "worker": 3})
    cache = World({"n1": 2, "n2": 2})
    assert causes(cache.round(team)) == {"team": PendingReason.RESOURCES}
    assert placed(World({"n1": 2, "n2": 2, "n3": 3}).round(team)) == {"team": 5}


def test_a_role_of_which_members_do_not_exist_yet_is_waited_for() -> None:
    result = World({"n1": 9}).round(ask("team", 4, min_by_role={"master": 1}))
    assert causes(result) == {"team": PendingReason.TASKS}
    assert message(result, "team") == "0 of 1 members of role master exist"


@pytest.mark.parametrize("shuffled", range(10))
def test_the_older_of_equals_wins_then_the_lower_uid(shuffled: int) -> None:
    """Behaviour 8."""
    requests = [ask("b"), ask("a"), ask("old", age=9)]
    random.Random(shuffled).shuffle(requests)
    assert list(placed(World({"n1": 8}).round(*requests))) == ["old", "a"]


def test_the_more_important_gang_is_placed_first() -> None:
    """Behaviour 9."""
    result = World({"n1": 6}).round(ask("low", age=99), ask("high", priority=10))
    assert placed(result) == {"high": 4}


def test_a_broken_gang_gets_the_slot_that_frees_before_a_newcomer() -> None:
    """Behaviour 36 and guard L7; even if the new gang requested first."""
    broken = holding("broken", ["n1", "n1", "n1"], min_members=4)
    cache = World({"n1": 4}, [broken])
    result = cache.round(ask("newcomer", 1, age=99), ask("broken", 1, recovering=True))
    assert placed(result) == {"broken": 1}


def test_members_that_a_gang_can_do_without_come_after_gangs_that_need_theirs() -> None:
    cache = World({"n1": 8})
    result = cache.round(ask("elastic", 8, min_members=2, age=60), ask("fixed", 4))
    assert placed(result) == {"elastic": 4, "fixed": 4}


def test_a_broken_gang_gets_what_it_needs_first_and_what_it_does_not_need_last() -> None:
    cache = World({"n1": 7}, [holding("broken", ["n1"] * 3, min_members=4)])
    result = cache.round(ask("broken", 4, min_members=1, recovering=True), ask("new", 3))
    assert placed(result) == {"broken": 1, "new": 3}


def test_a_gang_that_is_whole_asks_for_more_last_of_all_its_equals() -> None:
    cache = World({"n1": 4})
    result = cache.round(ask("whole", 4, min_members=0, age=60), ask("new", 3))
    assert placed(result) == {"new": 3, "whole": 1}


def test_more_members_that_find_no_room_at_all_are_told_why() -> None:
    result = World({"n1": 3}).round(ask("whole", 2, min_members=0, age=60), ask("new", 3))
    assert causes(result) == {"whole": PendingReason.RESOURCES}


def test_any_members_may_be_the_least_where_no_role_says_otherwise() -> None:
    """The first three members would include two with GPUs, of which there are none: three others do."""
    result = World({"n1": 3}).round(ask("mixed", pod_sets=(PodSet("a", GPU, 2), PodSet("b", ONE, 3)), min_members=3))
    assert placed(result) == {"mixed": 3}


def test_a_member_that_cannot_be_placed_by_us_is_refused_by_name() -> None:
    odd = PodShape(requests=ONE.requests, unsupported="spec.resourceClaims is not supported")
    result = World({"n1": 9}).round(ask("odd", shape=odd))
    assert causes(result) == {"odd": PendingReason.REFUSED}
    assert "spec.resourceClaims" in message(result, "odd")


def test_the_result_and_its_order_do_not_depend_on_the_order_of_the_input() -> None:
    requests = [ask(f"g{n}", 1 + n % 3, age=n % 4, priority=n % 2, queue=f"q{n % 2}") for n in range(12)]
    queues = [QueueQuota("q0"), QueueQuota("q1", weight=2)]
    cache = World({"n1": 5, "n2": 6})
    assert cache.round(*requests, queues=queues) == cache.round(*reversed(requests), queues=queues)


# Queues


def test_queues_get_places_by_their_weights() -> None:
    requests = [ask(f"{queue}{n}", 1, queue=queue) for queue in "ab" for n in range(12)]
    result = World({"n1": 12}).round(*requests, queues=[QueueQuota("a", weight=1), QueueQuota("b", weight=3)])
    assert result.allocated["a"]["cpu"] == 3000
    assert result.allocated["b"]["cpu"] == 9000
    assert result.deserved == {"a": {"cpu": 3000}, "b": {"cpu": 9000}}


def test_what_a_queue_has_counts_before_it_gets_more() -> None:
    rich = holding("rich", ["n1"] * 4, queue="a")
    requests = [ask("more", 1, queue="a", age=60), ask("first", 1, queue="b")]
    result = World({"n1": 5}, [rich]).round(*requests, queues=[QueueQuota("a"), QueueQuota("b")])
    assert placed(result) == {"first": 1}


def test_room_that_no_other_queue_can_use_is_used_beyond_the_share() -> None:
    requests = [ask(f"a{n}", 1, queue="a") for n in range(8)]
    result = World({"n1": 8}).round(*requests, ask("b", 20, queue="b"), queues=[QueueQuota("a"), QueueQuota("b")])
    assert result.allocated["a"]["cpu"] == 8000
    assert causes(result) == {"b": PendingReason.RESOURCES}


def test_at_its_cap_a_gang_waits_for_its_queue_and_not_for_nodes() -> None:
    """Behaviour 42: it is not reported to autoscalers."""
    cache = World({"n1": 100}, [holding("there", ["n1"] * 8, queue="q")])
    result = cache.round(ask("more", 4, queue="q"), queues=[QueueQuota("q", cap={"cpu": 10_000})])
    assert causes(result) == {"more": PendingReason.QUEUE}
    assert message(result, "more") == "queue 'q' may have 10 cpu and holds 8; 4 more are needed"


def test_a_cap_holds_against_gangs_of_one_round_together() -> None:
    requests = [ask(f"g{n}", 4, queue="q") for n in range(4)]
    result = World({"n1": 100}).round(*requests, queues=[QueueQuota("q", cap={"cpu": 10_000})])
    assert placed(result) == {"g0": 4, "g1": 4}
    assert causes(result) == {"g2": PendingReason.QUEUE, "g3": PendingReason.QUEUE}


def test_up_to_its_cap_a_queue_gets_members_beyond_the_least() -> None:
    result = World({"n1": 100}).round(
        ask("six", 6, min_members=2, queue="q"), queues=[QueueQuota("q", cap={"cpu": 5000})]
    )
    assert placed(result) == {"six": 5}


def test_pods_on_their_way_out_count_against_the_cap_until_they_are_gone() -> None:
    leaving = holding("leaving", ["n1"] * 8, queue="q", terminating=True)
    result = World({"n1": 100}, [leaving]).round(
        ask("next", 4, queue="q"), queues=[QueueQuota("q", cap={"cpu": 10_000})]
    )
    assert causes(result) == {"next": PendingReason.VICTIMS}


def test_a_queue_nobody_made_is_named() -> None:
    result = World({"n1": 9}).round(ask("lost", queue="nobody"))
    assert causes(result) == {"lost": PendingReason.QUEUE}
    assert message(result, "lost") == "queue 'nobody' does not exist: create it, or use 'default'"


def test_the_default_queue_need_not_exist_but_may() -> None:
    cache = World({"n1": 9})
    assert placed(cache.round(ask("plain", 2))) == {"plain": 2}
    capped = [QueueQuota("default", cap={"cpu": 1000})]
    assert causes(cache.round(ask("plain", 2), queues=capped)) == {"plain": PendingReason.QUEUE}


# Preemption


def test_a_gang_that_needs_the_room_of_one_other_ends_exactly_one_whole() -> None:
    """Behaviour 43."""
    cache = World({"n1": 4, "n2": 4}, [holding("a", ["n1"] * 4, age=60), holding("b", ["n2"] * 4)])
    result = cache.round(ask("high", priority=10))
    assert evicted(result) == {"high": ["b-0", "b-1", "b-2", "b-3"]}
    preempt = result.decisions[0]
    assert isinstance(preempt, Preempt)
    assert preempt.nodes == (("n2",) * 4,)


def test_nobody_leaves_for_a_gang_that_would_not_fit_even_then() -> None:
    """Behaviour 44."""
    cache = World({"n1": 4, "n2": 4}, [holding("a", ["n1"] * 4), holding("b", ["n2"] * 4)])
    result = cache.round(ask("huge", 9, priority=10))
    assert evicted(result) == {}
    assert causes(result) == {"huge": PendingReason.RESOURCES}


def test_nobody_leaves_for_one_of_equal_importance() -> None:
    result = World({"n1": 4}, [holding("a", ["n1"] * 4, priority=5)]).round(ask("equal", priority=5))
    assert causes(result) == {"equal": PendingReason.RESOURCES}


def test_nobody_leaves_for_one_that_may_not_preempt_or_where_it_is_switched_off() -> None:
    cache = World({"n1": 4}, [holding("a", ["n1"] * 4)])
    assert causes(cache.round(ask("polite", priority=9, can_preempt=False))) == {"polite": PendingReason.RESOURCES}
    assert causes(cache.round(ask("high", priority=9), preemption=False)) == {"high": PendingReason.RESOURCES}


def test_while_victims_leave_the_gang_waits_for_them_and_nobody_else_has_to_go() -> None:
    """Guard L10, and A7: it is not reported to autoscalers."""
    removed = holding("gone", ["n1"] * 4, terminating=True)
    cache = World({"n1": 4, "n2": 4}, [removed, holding("b", ["n2"] * 4)])
    result = cache.round(ask("high", priority=10))
    assert evicted(result) == {}
    assert causes(result) == {"high": PendingReason.VICTIMS}


def test_room_that_is_being_made_for_one_is_not_given_to_another() -> None:
    cache = World({"n1": 5}, [holding("low", ["n1"] * 4)])
    result = cache.round(ask("high", 5, priority=10), ask("sneaky", 1))
    assert evicted(result) == {"high": ["low-0", "low-1", "low-2", "low-3"]}
    assert causes(result) == {"sneaky": PendingReason.RESOURCES}


def test_what_victims_leave_over_is_not_used_before_they_are_gone() -> None:
    """Six pods are evicted for four: nothing may be placed on the other two places yet, but a gang may wait for them."""
    cache = World({"n1": 6}, [holding("low", ["n1"] * 6)])
    result = cache.round(ask("high", 4, priority=10), ask("later", 2))
    assert len(evicted(result)["high"]) == 6
    assert causes(result) == {"later": PendingReason.VICTIMS}


def test_what_one_was_told_is_not_told_to_its_like_once_others_have_to_leave() -> None:
    cache = World({"n1": 6}, [holding("low", ["n1"] * 6)])
    polite: dict[str, Any] = {"priority": 10, "can_preempt": False}
    requests = (
        ask("before", 2, age=3, **polite),
        ask("high", 4, priority=10, age=2),
        ask("after", 2, age=1, **polite),
    )
    result = cache.round(*requests)
    assert len(evicted(result)["high"]) == 6
    assert causes(result) == {"before": PendingReason.RESOURCES, "after": PendingReason.VICTIMS}


def test_two_gangs_of_one_round_do_not_count_on_the_same_victims() -> None:
    cache = World({"n1": 4, "n2": 4}, [holding("a", ["n1"] * 4, age=60), holding("b", ["n2"] * 4)])
    result = cache.round(ask("first", priority=10, age=1), ask("second", priority=10))
    assert {name: victims[0][0] for name, victims in evicted(result).items()} == {"first": "b", "second": "a"}


def test_at_its_cap_a_queue_makes_room_among_its_own() -> None:
    cache = World({"n1": 100}, [holding("mine", ["n1"] * 4, queue="q"), holding("theirs", ["n1"] * 4)])
    capped = [QueueQuota("q", cap={"cpu": 4000})]
    result = cache.round(ask("high", 4, queue="q", priority=5), queues=capped)
    assert evicted(result) == {"high": ["mine-0", "mine-1", "mine-2", "mine-3"]}
    assert causes(cache.round(ask("huge", 5, queue="q", priority=5), queues=capped)) == {"huge": PendingReason.QUEUE}


# Reclaim


def test_a_queue_below_its_share_takes_from_one_above_its_own() -> None:
    rich = [holding(f"rich{n}", ["n1"] * 2, queue="a", age=n) for n in range(4)]
    result = World({"n1": 8}, rich).round(ask("due", 4, queue="b"), queues=[QueueQuota("a"), QueueQuota("b")])
    assert evicted(result) == {"due": ["rich0-0", "rich0-1", "rich1-0", "rich1-1"]}


def test_nothing_is_taken_beyond_what_a_queue_deserves() -> None:
    rich = [holding(f"rich{n}", ["n1"] * 2, queue="a") for n in range(4)]
    cache = World({"n1": 8}, rich)
    queues = [QueueQuota("a"), QueueQuota("b")]
    assert causes(cache.round(ask("greedy", 5, queue="b"), queues=queues)) == {"greedy": PendingReason.RESOURCES}
    assert causes(cache.round(ask("due", 4, queue="b"), queues=queues, reclaim=False)) == {
        "due": PendingReason.RESOURCES
    }


def test_nothing_is_taken_from_a_queue_that_says_so_or_from_the_more_important() -> None:
    queues = [QueueQuota("a", reclaimable=False), QueueQuota("b")]
    cache = World({"n1": 4}, [holding("rich", ["n1"] * 4, queue="a")])
    assert causes(cache.round(ask("due", 2, queue="b"), queues=queues)) == {"due": PendingReason.RESOURCES}
    cache = World({"n1": 4}, [holding("rich", ["n1"] * 4, queue="a", priority=1)])
    result = cache.round(ask("due", 2, queue="b"), queues=[QueueQuota("a"), QueueQuota("b")])
    assert causes(result) == {"due": PendingReason.RESOURCES}


def test_what_was_taken_back_is_not_taken_again() -> None:
    """The evicted gang returns, recovering and old: it waits, and the other keeps its nodes."""
    queues = [QueueQuota("a"), QueueQuota("b")]
    requests = [ask("rich", 8, queue="a", age=900, recovering=True), ask("due", 4, queue="b")]
    cache = World({"n1": 8})
    result = cache.round(*requests, queues=queues)
    assert placed(result) == {"due": 4}
    assert causes(result) == {"rich": PendingReason.RESOURCES}


def test_nobody_takes_from_a_gang_that_was_given_places_in_the_same_round() -> None:
    """It would be left with the new members only."""
    cache = World({"n1": 8}, [holding("broken", ["n1"] * 5, queue="a", min_members=6)])
    requests = [ask("broken", 1, queue="a", recovering=True), ask("due", 4, queue="b")]
    result = cache.round(*requests, queues=[QueueQuota("a"), QueueQuota("b")])
    assert placed(result) == {"broken": 1}
    assert causes(result) == {"due": PendingReason.RESOURCES}


def test_a_gang_that_gives_way_gets_no_places_in_the_same_round() -> None:
    cache = World({"n1": 4, "n2": 3}, [holding("low", ["n1"] * 4, min_members=2)])
    result = cache.round(ask("high", 5, priority=5), ask("low", 2, min_members=0))
    assert evicted(result) == {"high": ["low-2", "low-3"]}
    assert causes(result) == {"low": PendingReason.HELD}


# The starvation timeout


def test_small_gangs_pass_a_big_one_until_its_patience_is_over() -> None:
    """Guard L8, first half."""
    cache = World({"n1": 8}, [holding("there", ["n1"] * 4)])
    result = cache.round(ask("big", 8, age=299), ask("small", 2), starvation_timeout=timedelta(minutes=5))
    assert placed(result) == {"small": 2}
    assert result.recheck_at == NOW + timedelta(seconds=1)


def test_after_that_what_frees_up_is_held_for_it() -> None:
    """Guard L8, second half. Only what the gang needs is reserved: a GPU would be no use to it."""
    cache = World({"n1": 8}, [holding("there", ["n1"] * 4)])
    cache.cluster.put_node(
        Node(
            metadata=ObjectMeta(name="other"),
            status=NodePlacementStatus(allocatable={"memory": "2", "pods": "9"}),
        )
    )
    frugal = PodShape(requests=(("memory", 1), ("pods", 1)))
    requests = [
        ask("big", 8, age=300),
        ask("small", 2, age=400, waiting_since=NOW),
        ask("frugal", 2, shape=frugal),
    ]
    result = cache.round(*requests, starvation_timeout=timedelta(minutes=5))
    assert placed(result) == {"frugal": 2}
    assert causes(result) == {"big": PendingReason.RESOURCES, "small": PendingReason.HELD}
    assert message(result, "small") == "what is free is held for default/big, which has waited longest"
    assert message(result, "big").endswith("it has waited longest: what frees up is held for it")


def test_only_one_gang_is_held_for_and_it_is_the_one_that_has_waited_longest() -> None:
    cache = World({"n1": 10}, [holding("there", ["n1"] * 4)])
    requests = [
        ask("big", 8, age=400),
        ask("bigger", 9, age=900, waiting_since=NOW - timedelta(seconds=350)),
        ask("tiny", 1),
    ]
    result = cache.round(*requests, starvation_timeout=timedelta(minutes=5))
    assert "held for it" in message(result, "big")
    assert causes(result) == {
        "big": PendingReason.RESOURCES,
        "bigger": PendingReason.RESOURCES,
        "tiny": PendingReason.HELD,
    }


def test_a_gang_that_waits_too_long_for_its_share_holds_back_its_own_queue_only() -> None:
    """No gang of its queue passes it any more; what other queues deserve goes first."""
    cache = World({"n1": 8}, [holding("there", ["n1"] * 2, queue="a")])
    requests = [ask("big", 4, queue="a", age=900), ask("small", 1, queue="a"), ask("due", 4, queue="b")]
    result = cache.round(*requests, queues=[QueueQuota("a"), QueueQuota("b")])
    assert placed(result) == {"due": 4}
    assert causes(result) == {"big": PendingReason.RESOURCES, "small": PendingReason.HELD}


def test_a_gang_larger_than_the_share_of_its_queue_holds_back_nobody_within_a_share() -> None:
    cache = World({"n1": 8}, [holding("there", ["n1"] * 2, queue="a")])
    mine = [ask("huge", 6, queue="a", age=900), ask("small", 1, queue="a")]
    others = [ask("due", 3, queue="b", age=60), ask("beyond", 2, queue="b")]
    result = cache.round(*mine, *others, queues=[QueueQuota("a"), QueueQuota("b")])
    assert placed(result) == {"due": 3, "small": 1}
    assert causes(result) == {"huge": PendingReason.RESOURCES, "beyond": PendingReason.HELD}


def test_a_more_important_gang_does_not_care_what_is_held_for_others() -> None:
    cache = World({"n1": 8}, [holding("there", ["n1"] * 4)])
    result = cache.round(ask("big", 8, age=900), ask("high", 2, priority=1))
    assert placed(result) == {"high": 2}


def test_nothing_is_held_for_a_gang_that_would_never_fit() -> None:
    cache = World({"n1": 8}, [holding("there", ["n1"] * 4)])
    result = cache.round(ask("never", 9, age=900), ask("small", 2))
    assert placed(result) == {"small": 2}


def test_a_gang_that_would_never_fit_does_not_make_its_queue_wait() -> None:
    cache = World({"n1": 8})
    requests = [ask("never", 9, queue="a", age=900), ask("mine", 4, queue="a", age=60)]
    others = [ask(f"b{n}", 4, queue="b") for n in range(2)]
    result = cache.round(*requests, *others, queues=[QueueQuota("a"), QueueQuota("b")])
    assert placed(result) == {"mine": 4, "b0": 4}


def test_nothing_is_held_for_a_queue_that_has_what_it_deserves() -> None:
    cache = World({"n1": 8}, [holding("there", ["n1"] * 4, queue="a")])
    requests = [ask("big", 8, queue="a", age=900), ask("due", 4, queue="b")]
    result = cache.round(*requests, queues=[QueueQuota("a"), QueueQuota("b")])
    assert placed(result) == {"due": 4}


def test_without_patience_nothing_is_ever_held() -> None:
    cache = World({"n1": 8}, [holding("there", ["n1"] * 4)])
    result = cache.round(ask("big", 8, age=9000), ask("small", 2), starvation_timeout=None)
    assert placed(result) == {"small": 2}
    assert result.recheck_at is None


def test_one_whose_patience_is_over_goes_before_its_equals() -> None:
    cache = World({"n1": 4})
    requests = [ask("young", 4, age=500, waiting_since=NOW), ask("waiting", 4, age=400)]
    assert placed(cache.round(*requests, starvation_timeout=timedelta(minutes=5))) == {"waiting": 4}


# The cost of a cycle


class Counting:
    """A what-if that counts placements."""

    def __init__(self, trial: WhatIf) -> None:
        self._trial, self.looks = trial, 0

    def __getattr__(self, name: str) -> Any:
        if name in ("place", "place_after"):
            self.looks += 1
        return getattr(self._trial, name)


def looks(world: World, *asks: GangRequest) -> tuple[int, CycleResult]:
    room = Counting(world.cluster.what_if())
    result = schedule(cast("WhatIf", room), asks, world.holdings, {}, SchedulerPolicy(), NOW)
    return room.looks, result


def test_of_a_thousand_equal_gangs_that_do_not_fit_one_is_tried() -> None:
    cache = World({"n1": 4}, [holding("there", ["n1"])])
    count, result = looks(cache, *(ask(f"g{n:03}", 4) for n in range(1000)))
    assert len(causes(result)) == 1000
    assert count == 1


def test_of_a_thousand_sizes_of_one_kind_those_above_one_that_does_not_fit_are_not_tried() -> None:
    cache = World({"n1": 4}, [holding("there", ["n1"])])
    count, result = looks(cache, *(ask(f"g{n:04}", n, age=200 - n // 10) for n in range(4, 1004)))
    assert count == 1
    assert message(result, "g0500") == "3 of 500 fit: 0/1 nodes: 1 lack cpu"


def test_many_different_gangs_that_cannot_fit_by_their_sums_are_not_all_tried() -> None:
    cache = World({"n1": 4}, [holding("there", ["n1"])])
    classes = [PodShape(requests=(("cpu", 4000 + n), ("pods", 1))) for n in range(500)]
    count, result = looks(cache, *(ask(f"g{n:03}", 2, shape=kind) for n, kind in enumerate(classes)))
    assert len(causes(result)) == 500
    assert count < 80
    assert message(result, "g400") == "8800m cpu needed, 3 free in all"


def test_small_ones_are_still_tried_after_larger_ones_of_their_kind() -> None:
    requests = [ask(f"g{n}", n, age=n) for n in (9, 7, 5, 3)]
    count, result = looks(World({"n1": 4}), *requests)
    assert placed(result) == {"g3": 3}
    assert count == 4
