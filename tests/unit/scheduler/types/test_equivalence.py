"""Which requests are equivalent."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.meta import Key
from gangline.api.scheduling import GangTopology
from gangline.scheduler.types.cycle import GangRequest, PodSet
from gangline.scheduler.types.equivalence import MAX_STALE_CLASSES, EquivalenceClasses
from gangline.scheduler.types.shape import PodShape

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
ONE = PodShape(requests=(("cpu", 1000), ("pods", 1)))


def ask(name: str, members: int = 4, **others: Any) -> GangRequest:
    made = GangRequest(
        key=Key("ns", name),
        uid=name,
        queue="default",
        priority=0,
        created=NOW,
        waiting_since=NOW,
        recovering=False,
        pod_sets=(PodSet("worker", ONE, members),),
        min_members=members,
    )
    return msgspec.structs.replace(made, **others)


def test_asks_that_differ_in_name_and_age_alone_are_of_one_kind() -> None:
    classes, before = EquivalenceClasses(), NOW - timedelta(hours=1)
    classes.update([ask("a"), ask("b", created=before), ask("c", waiting_since=before)])
    assert [*classes.counts().values()] == [3]
    assert classes.by_uid["a"].total_amounts == {"cpu": 4000, "pods": 4}


@pytest.mark.parametrize(
    "change",
    [
        {"queue": "other"},
        {"priority": 1},
        {"recovering": True},
        {"pod_sets": (PodSet("worker", ONE, 5),)},
        {"min_members": 3},
        {"min_by_role": {"worker": 1}},
        {"topology": GangTopology(key="rack")},
        {"current_nodes": ("node-1",)},
        {"can_preempt": False},
    ],
    ids=lambda change: next(iter(change)),
)
def test_all_else_makes_a_difference(change: dict[str, Any]) -> None:
    classes = EquivalenceClasses()
    classes.update([ask("a"), ask("b", **change)])
    assert classes.by_uid["a"] is not classes.by_uid["b"]


def test_every_field_of_an_ask_is_looked_at_or_is_its_name_or_its_age() -> None:
    looked_at = {"queue", "priority", "recovering", "pod_sets", "min_members", "min_by_role", "topology"}
    looked_at |= {"current_nodes", "can_preempt"}
    assert set(GangRequest.__struct_fields__) - looked_at == {"key", "uid", "created", "waiting_since"}


def test_what_it_needs_at_least_is_known_of_one_that_can_do_with_fewer() -> None:
    classes = EquivalenceClasses()
    classes.update([ask("a", min_members=1)])
    assert classes.by_uid["a"].min_amounts == {"cpu": 1000, "pods": 1}


def test_those_that_are_gone_are_forgotten_and_one_that_changed_is_looked_at_again() -> None:
    classes = EquivalenceClasses()
    classes.update([ask("a"), ask("b")])
    classes.update([ask("b", members=7)])
    assert [*classes.by_uid] == ["b"]
    assert classes.by_uid["b"].total_amounts["pods"] == 7


def test_kinds_do_not_pile_up_over_many_rounds() -> None:
    classes = EquivalenceClasses()
    for members in range(1, 3 * MAX_STALE_CLASSES):
        classes.update([ask("a", members)])
    assert len(classes._by_key) <= MAX_STALE_CLASSES + 2
