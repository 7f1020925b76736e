"""The order of requests."""

from datetime import UTC, datetime, timedelta
from typing import Any

from gangline.api.meta import Key
from gangline.scheduler.cycle.ordering import by_waiting_time, fair_order, requests_by_rank
from gangline.scheduler.types.cycle import GangRequest

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)


def ask(name: str, *, age: int = 0, queue: str = "default", **others: Any) -> GangRequest:
    created = NOW - timedelta(seconds=age)
    fields: dict[str, Any] = {
        "priority": 0,
        "waiting_since": created,
        "recovering": False,
        "pod_sets": (),
        "min_members": 1,
    }
    return GangRequest(key=Key("default", name), uid=name, queue=queue, created=created, **{**fields, **others})


def within(_: GangRequest) -> bool:
    return False


def in_ranks(*asks: GangRequest) -> list[list[str]]:
    return [[each.uid for each in group] for _, group in requests_by_rank(asks, lambda each: each.recovering)]


def test_the_important_come_before_the_broken_and_these_before_the_old() -> None:
    requests = [
        ask("old", age=900),
        ask("broken", recovering=True),
        ask("high", priority=5),
        ask("high-broken", priority=5, recovering=True),
    ]
    assert in_ranks(*requests) == [["high-broken"], ["high"], ["broken"], ["old"]]


def test_of_equals_the_older_comes_first_and_then_the_lower_uid() -> None:
    assert in_ranks(ask("b"), ask("c", age=10), ask("a")) == [["c", "a", "b"]]


def test_the_order_given_does_not_matter() -> None:
    requests = [ask("a"), ask("b", priority=3), ask("c", recovering=True), ask("d", age=4)]
    assert in_ranks(*requests) == in_ranks(*reversed(requests))


def test_the_queue_with_the_lowest_share_has_its_turn_and_shares_change_on_the_way() -> None:
    """Two queues of equal weight take turns, however many requests the older one has."""
    shares = {"a": 0.0, "b": 0.0}
    requests = [
        *(ask(f"a{n}", age=90, queue="a") for n in range(3)),
        *(ask(f"b{n}", queue="b") for n in range(3)),
    ]
    result = []
    for each in fair_order(requests, shares.__getitem__, within):
        result.append(each.uid)
        shares[each.queue] += 1
    assert result == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_one_that_takes_its_queue_over_its_share_comes_after_all_that_do_not() -> None:
    requests = [ask("big", age=9, queue="a"), ask("small", age=5, queue="a"), ask("other", queue="b")]
    shares = {"a": 0.1, "b": 0.9}
    result = [each.uid for each in fair_order(requests, shares.__getitem__, lambda each: each.uid == "big")]
    assert result == ["small", "other", "big"]


def test_every_ask_has_exactly_one_turn() -> None:
    requests = [ask(f"{queue}{n}", queue=queue, age=n) for queue in "abc" for n in range(5)]
    result = [each.uid for each in fair_order(requests, lambda _: 0.0, lambda each: each.uid.endswith("3"))]
    assert sorted(result) == sorted(each.uid for each in requests)


def test_the_one_that_has_waited_longest_comes_first_whenever_it_was_created() -> None:
    requests = [ask("new"), ask("evicted", age=90, waiting_since=NOW), ask("old", age=9), ask("a", age=9)]
    assert [each.uid for each in by_waiting_time(requests)] == ["a", "old", "evicted", "new"]


def test_a_queue_is_passed_on_the_way_as_soon_as_another_has_as_little() -> None:
    """Queues with the same share take turns by age."""
    shares = {"a": 0.0, "b": 2.0, "c": 2.0}
    requests = [
        *(ask(f"a{n}", age=50 - n, queue="a") for n in range(4)),
        ask("b0", age=90, queue="b"),
        ask("c0", age=1, queue="c"),
    ]
    result = []
    for each in fair_order(requests, shares.__getitem__, within):
        result.append(each.uid)
        shares[each.queue] += each.queue == "a"
    assert result == ["a0", "a1", "b0", "a2", "c0", "a3"]
