"""Which asks are alike."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from gangline.api.meta import Key
from gangline.api.scheduling import Topology
from gangline.scheduler.pods.shape import Shape
from gangline.scheduler.types.cycle import Ask, Need
from gangline.scheduler.types.kinds import SPARE, Kinds

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
ONE = Shape(requests=(("cpu", 1000), ("pods", 1)))


def ask(name: str, members: int = 4, **others: Any) -> Ask:
    made = Ask(
        key=Key("ns", name),
        uid=name,
        queue="default",
        priority=0,
        created=NOW,
        since=NOW,
        broken=False,
        needs=(Need("worker", ONE, members),),
        least=members,
    )
    return msgspec.structs.replace(made, **others)


def test_asks_that_differ_in_name_and_age_alone_are_of_one_kind() -> None:
    kinds, before = Kinds(), NOW - timedelta(hours=1)
    kinds.meet([ask("a"), ask("b", created=before), ask("c", since=before)])
    assert [*kinds.counted().values()] == [3]
    assert kinds.of["a"].total == {"cpu": 4000, "pods": 4}


@pytest.mark.parametrize(
    "change",
    [
        {"queue": "other"},
        {"priority": 1},
        {"broken": True},
        {"needs": (Need("worker", ONE, 5),)},
        {"least": 3},
        {"roles": {"worker": 1}},
        {"topology": Topology(key="rack")},
        {"near": ("node-1",)},
        {"preempts": False},
    ],
    ids=lambda change: next(iter(change)),
)
def test_all_else_makes_a_difference(change: dict[str, Any]) -> None:
    kinds = Kinds()
    kinds.meet([ask("a"), ask("b", **change)])
    assert kinds.of["a"] is not kinds.of["b"]


def test_every_field_of_an_ask_is_looked_at_or_is_its_name_or_its_age() -> None:
    looked_at = {"queue", "priority", "broken", "needs", "least", "roles", "topology", "near", "preempts"}
    assert set(Ask.__struct_fields__) - looked_at == {"key", "uid", "created", "since"}


def test_what_it_needs_at_least_is_known_of_one_that_can_do_with_fewer() -> None:
    kinds = Kinds()
    kinds.meet([ask("a", least=1)])
    assert kinds.of["a"].least == {"cpu": 1000, "pods": 1}


def test_those_that_are_gone_are_forgotten_and_one_that_changed_is_looked_at_again() -> None:
    kinds = Kinds()
    kinds.meet([ask("a"), ask("b")])
    kinds.meet([ask("b", members=7)])
    assert [*kinds.of] == ["b"]
    assert kinds.of["b"].total["pods"] == 7


def test_kinds_do_not_pile_up_over_many_rounds() -> None:
    kinds = Kinds()
    for members in range(1, 3 * SPARE):
        kinds.meet([ask("a", members)])
    assert kinds.remembered <= SPARE + 2
