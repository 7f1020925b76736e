"""Deserved shares: the published example, and the rules behind it."""

import pytest

from gangline.scheduler.quota.fair_share import (
    contended_resources,
    deserved_shares,
    dominant_share,
    max_ratio,
)
from gangline.scheduler.types.cycle import QueueQuota

GI = 1 << 30


def test_the_published_example_comes_out_exactly() -> None:
    """Weights 2:4, 9 cpu and 27 GiB, requests above that: behaviour 41."""
    rules = [QueueQuota("small", weight=2), QueueQuota("large", weight=4)]
    requests = {"small": {"cpu": 5000, "memory": 10 * GI}, "large": {"cpu": 10_000, "memory": 20 * GI}}
    result = deserved_shares({"cpu": 9000, "memory": 27 * GI}, rules, requests)
    assert result == {
        "small": {"cpu": 3000, "memory": 9 * GI},
        "large": {"cpu": 6000, "memory": 18 * GI},
    }


def test_what_one_queue_leaves_the_others_share_by_weight() -> None:
    rules = [QueueQuota("modest", weight=10), QueueQuota("a", weight=1), QueueQuota("b", weight=3)]
    requests = {"modest": {"gpu": 4}, "a": {"gpu": 100}, "b": {"gpu": 100}}
    assert deserved_shares({"gpu": 24}, rules, requests) == {
        "modest": {"gpu": 4},
        "a": {"gpu": 5},
        "b": {"gpu": 15},
    }


def test_with_plenty_everybody_deserves_what_it_requests() -> None:
    rules = [QueueQuota("a"), QueueQuota("b", weight=9)]
    requests = {"a": {"cpu": 700}, "b": {"cpu": 100}}
    assert deserved_shares({"cpu": 1000}, rules, requests) == {"a": {"cpu": 700}, "b": {"cpu": 100}}
    assert contended_resources({"cpu": 1000}, rules, requests) == frozenset()


def test_a_cap_limits_what_a_queue_deserves_and_leaves_the_rest_to_others() -> None:
    rules = [QueueQuota("capped", cap={"gpu": 2}), QueueQuota("open")]
    requests = {"capped": {"gpu": 50}, "open": {"gpu": 50}}
    assert deserved_shares({"gpu": 16}, rules, requests) == {"capped": {"gpu": 2}, "open": {"gpu": 14}}


def test_each_resource_is_shared_for_itself() -> None:
    """A queue that needs much memory and little cpu does not lose its cpu to the others, nor the others theirs."""
    rules = [QueueQuota("a"), QueueQuota("b")]
    requests = {"a": {"cpu": 1000, "memory": 90}, "b": {"cpu": 9000, "memory": 20}}
    result = deserved_shares({"cpu": 8000, "memory": 100}, rules, requests)
    assert result == {"a": {"cpu": 1000, "memory": 80}, "b": {"cpu": 7000, "memory": 20}}


def test_rounding_never_gives_away_more_than_there_is() -> None:
    rules = [QueueQuota(name) for name in "abc"]
    result = deserved_shares({"gpu": 10}, rules, {name: {"gpu": 10} for name in "abc"})
    assert [amounts["gpu"] for amounts in result.values()] == [3, 3, 3]


def test_contended_is_only_what_is_asked_for_beyond_what_there_is() -> None:
    rules = [QueueQuota("a"), QueueQuota("b", cap={"cpu": 100})]
    requests = {"a": {"cpu": 500, "gpu": 9, "pods": 99}, "b": {"cpu": 900, "gpu": 1, "pods": 99}}
    assert contended_resources({"cpu": 600, "gpu": 8, "pods": 10}, rules, requests) == {"gpu"}


def test_dominant_share_is_the_largest_of_all_resources() -> None:
    assert dominant_share({"cpu": 2000, "gpu": 4, "pods": 9}, {"cpu": 8000, "gpu": 8, "pods": 9}) == pytest.approx(0.5)
    assert dominant_share({}, {"cpu": 1}) == 0


def test_holding_what_is_not_due_is_without_bound() -> None:
    assert max_ratio({"gpu": 1}, {}, {"gpu"}) == float("inf")
    assert max_ratio({"gpu": 0}, {}, {"gpu"}) == 0
