"""Placing, against a checker that knows nothing of vectors: one pod, one node, one rule at a time."""

import random
from collections import Counter
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gangline.scheduler.cache.nodes import NodeCache
from gangline.scheduler.pods.decode import shape_of
from gangline.scheduler.types.cycle import GangRequest, Placement, Shortage
from gangline.scheduler.types.shape import PodShape
from support.builders.scheduler_inputs import (
    HOSTNAME_LABEL,
    make_bound_pod,
    make_gang_request,
    make_node_cache,
    make_scheduler_node,
    make_scheduler_pod,
)

ZONE = "zone"


class Machine(NamedTuple):
    name: str
    cpu: int
    gpu: int
    pods: int
    zone: str
    tainted: bool


class Wish(NamedTuple):
    """A kind of pod: what it asks for, what it minds, and at most one rule about others of its kind."""

    cpu: int
    gpu: int
    ssd: bool
    rule: str = ""


class Guest(NamedTuple):
    """A pod that is there already."""

    node: int
    wish: Wish
    kin: bool


RULES = ("", "apart by host", "apart by zone", "together by host", "together by zone", "even", "shunned")
machines = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.integers(0, 2),
        st.integers(0, 4),
        st.sampled_from(["x", "y", "z", ""]),
        st.booleans(),
    ),
    min_size=1,
    max_size=4,
).map(lambda rows: [Machine(f"n{number}", *row) for number, row in enumerate(rows)])
wishes = st.builds(Wish, st.integers(0, 2), st.integers(0, 1), st.booleans(), st.sampled_from(RULES))
plain = st.builds(Wish, st.integers(0, 3), st.integers(0, 1), st.booleans())
guests = st.lists(st.builds(Guest, st.integers(0, 3), plain, st.booleans()), max_size=3)


# --- The world for the engine.


def shape(wish: Wish, labels: dict[str, str]) -> PodShape:
    asked: dict[str, Any] = {"cpu": wish.cpu, "gpu": wish.gpu}
    spec: dict[str, Any] = {}
    if not wish.ssd:
        spec["tolerations"] = [{"operator": "Exists"}]
    selector = {"labelSelector": {"matchLabels": {"kind": "kin"}}}
    side, _, key = wish.rule.partition(" by ")
    if key:
        term = {"topologyKey": HOSTNAME_LABEL if key == "host" else ZONE, **selector}
        name = "podAntiAffinity" if side == "apart" else "podAffinity"
        spec["affinity"] = {name: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    if wish.rule == "even":
        spec["topologySpreadConstraints"] = [
            {"topologyKey": ZONE, "maxSkew": 1, "nodeAffinityPolicy": "Ignore", **selector}
        ]
    return shape_of(make_scheduler_pod(labels=labels, spec=spec, **asked))


def member(wish: Wish) -> PodShape:
    return shape(wish, {"kind": "kin"})


def guest_shape(guest: Guest, *, shunning: bool) -> PodShape:
    wish = guest.wish._replace(rule="apart by zone" if shunning and not guest.kin else "", ssd=False)
    return shape(wish, {"kind": "kin" if guest.kin else "other"})


def world(found: list[Machine], there: list[Guest], *, shunning: bool = False, seed: int | None = None) -> NodeCache:
    nodes = [
        make_scheduler_node(
            each.name,
            labels={ZONE: each.zone} if each.zone else {},
            taints=[{"key": "t", "effect": "NoSchedule"}] if each.tainted else [],
            cpu=each.cpu,
            gpu=each.gpu,
            pods=each.pods,
        )
        for each in found
    ]
    residents = [
        make_bound_pod(f"g{number}", f"n{guest.node}", guest_shape(guest, shunning=shunning))
        for number, guest in enumerate(there)
    ]
    if seed is not None:
        random.Random(seed).shuffle(nodes)
        random.Random(seed).shuffle(residents)
    return make_node_cache(*nodes, residents=residents)


# --- The checker.


class Ledger:
    """Who is where, and whether one more may come."""

    def __init__(self, found: list[Machine], there: list[Guest], *, shunning: bool = False) -> None:
        self.machines, self.shunning = found, shunning
        self.pods: list[tuple[int, Wish, bool]] = [
            (guest.node, guest.wish, guest.kin) for guest in there if guest.node < len(found)
        ]

    def fits(self, wish: Wish, node: int) -> bool:
        machine = self.machines[node]
        if machine.tainted and wish.ssd:
            return False
        here = [other for at, other, _ in self.pods if at == node]
        if len(here) + 1 > machine.pods:
            return False
        # One that asks for nothing of a thing does not mind that it is overdrawn.
        if wish.cpu and sum(other.cpu for other in here) + wish.cpu > machine.cpu:
            return False
        if wish.gpu and sum(other.gpu for other in here) + wish.gpu > machine.gpu:
            return False
        return self._allowed(wish, node)

    def _allowed(self, wish: Wish, node: int) -> bool:
        kin = [at for at, _, kin in self.pods if kin]
        if self.shunning and any(not kin and self._same(at, node, "zone") for at, _, kin in self.pods):
            return False
        side, _, key = wish.rule.partition(" by ")
        if side == "apart":
            return not any(self._same(at, node, key) for at in kin)
        if side == "together":
            labelled = [at for at in kin if key == "host" or self.machines[at].zone]
            if not labelled:
                return key == "host" or bool(self.machines[node].zone)
            return any(self._same(at, node, key) for at in labelled)
        if side == "even":
            zones = Counter({machine.zone: 0 for machine in self.machines if machine.zone})
            zones.update(self.machines[at].zone for at in kin if self.machines[at].zone)
            zone = self.machines[node].zone
            return bool(zone) and zones[zone] + 1 - min(zones.values()) <= 1
        return True

    def _same(self, one: int, other: int, key: str) -> bool:
        if key == "host":
            return one == other
        return bool(self.machines[one].zone) and self.machines[one].zone == self.machines[other].zone

    def most(self, wish: Wish, count: int) -> int:
        """How many of `count` equal pods can be placed one after the other, by trying everything."""
        best = 0
        for node in range(len(self.machines)):
            if best < count and self.fits(wish, node):
                self.pods.append((node, wish, True))
                best = max(best, 1 + self.most(wish, count - 1))
                self.pods.pop()
        return min(best, count)


def nodes_of(found: Placement) -> list[list[int]]:
    return [sorted(int(number) for number in nodes) for nodes in found.nodes]


@settings(max_examples=150, deadline=None)
@given(machines, guests, wishes, st.integers(1, 4))
# The only pod that is meant is on a node without the label: it is in no domain, so the first may go anywhere.
@example(
    [
        Machine("n0", 0, 0, 1, "y", tainted=False),
        Machine("n1", 0, 0, 2, "x", tainted=False),
        Machine("n2", 0, 0, 0, "", tainted=False),
    ],
    [Guest(2, Wish(0, 0, ssd=False, rule=""), kin=True)],
    Wish(0, 0, ssd=False, rule="together by zone"),
    2,
)
def test_a_gang_of_equal_pods_is_placed_exactly_when_some_way_exists(
    found: list[Machine], there: list[Guest], wish: Wish, count: int
) -> None:
    shunning = wish.rule == "shunned"
    most = Ledger(found, there, shunning=shunning).most(wish, count)
    answer = world(found, there, shunning=shunning).what_if().place(make_gang_request((member(wish), count)))
    if isinstance(answer, Placement):
        assert most == count == answer.pod_count
    else:
        assert most < count
        assert answer.fitting_members <= most
        assert sum(answer.nodes_by_reason.values()) <= len(found)
        assert not answer.unsupported


@settings(max_examples=60, deadline=None)
@given(machines, guests, wishes, st.integers(1, 4), st.integers(0, 4))
def test_every_place_is_one_the_checker_allows(
    found: list[Machine], there: list[Guest], wish: Wish, count: int, least: int
) -> None:
    """Members above the least are placed too, in an order in which every one of them was allowed."""
    shunning = wish.rule == "shunned"
    ledger = Ledger(found, there, shunning=shunning)
    answer = (
        world(found, there, shunning=shunning)
        .what_if()
        .place(make_gang_request((member(wish), count), least=min(least, count)))
    )
    if isinstance(answer, Shortage):
        assert ledger.most(wish, count) < max(min(least, count), 1)
        return
    assert answer.pod_count >= min(least, count)
    (nodes,) = answer.nodes
    for node in nodes.tolist():
        assert ledger.fits(wish, node)
        ledger.pods.append((node, wish, True))


def asks_of(first: Wish, second: Wish, counts: tuple[int, int], least: int) -> GangRequest:
    least = min(least, sum(counts))
    return make_gang_request(
        ("ps", member(first), counts[0]),
        ("worker", member(second), counts[1]),
        least=least,
        roles={"ps": min(1, counts[0], least)},
    )


two = st.builds(asks_of, plain, plain, st.tuples(st.integers(0, 3), st.integers(0, 3)), st.integers(0, 6))


@settings(max_examples=60, deadline=None)
@given(machines, guests, st.lists(two, max_size=3))
def test_no_gang_is_placed_in_part_and_no_node_is_overdrawn(
    found: list[Machine], there: list[Guest], asks: list[GangRequest]
) -> None:
    trial = world(found, there).what_if()
    used = [Counter({"pods": 0}) for _ in found]
    touched: set[tuple[int, str]] = set()
    for guest in there:
        if guest.node < len(found):
            used[guest.node].update({"pods": 1, "cpu": guest.wish.cpu * 1000, "nvidia.com/gpu": guest.wish.gpu})
    for ask in asks:
        answer = trial.place(ask)
        if isinstance(answer, Shortage):
            continue
        assert answer.pod_count >= ask.min_members
        for need, nodes in zip(ask.pod_sets, answer.nodes, strict=True):
            assert len(nodes) <= need.count
            assert len(nodes) >= (ask.min_by_role.get(need.role, 0))
            for node in nodes.tolist():
                used[node].update(need.shape.amounts)
                touched.update((node, resource) for resource in need.shape.amounts)
        trial.assume(ask, answer)
    for node, resource in touched:
        machine = found[node]
        offered = {"pods": machine.pods, "cpu": machine.cpu * 1000, "nvidia.com/gpu": machine.gpu}
        assert used[node][resource] <= offered[resource]


@settings(max_examples=60, deadline=None)
@given(machines, guests, st.lists(two, min_size=1, max_size=3), wishes, st.integers(0, 2**16))
def test_the_order_in_which_nodes_and_pods_came_does_not_matter(
    found: list[Machine], there: list[Guest], asks: list[GangRequest], wish: Wish, seed: int
) -> None:
    asks = [*asks, make_gang_request((member(wish), 3), least=1)]
    answers = []
    for order in (None, seed, seed):
        trial = world(found, there, seed=order).what_if()
        told: list[Any] = []
        for ask in asks:
            answer = trial.place(ask)
            told.append(nodes_of(answer) if isinstance(answer, Placement) else (answer.message, answer.nodes_by_reason))
            if isinstance(answer, Placement):
                trial.assume(ask, answer)
        answers.append(told)
    assert answers[0] == answers[1] == answers[2]


@settings(max_examples=60, deadline=None)
@given(machines, guests, two, st.data())
def test_a_trial_is_as_before_when_everything_is_undone(
    found: list[Machine], there: list[Guest], ask: GangRequest, data: st.DataObject
) -> None:
    trial = world(found, there).what_if()
    before = (trial.free(), trial.place(ask))
    gone = data.draw(st.lists(st.sampled_from([f"g{number}" for number in range(4)]), max_size=4))
    trial.reserve(ask)
    after = trial.place_after_eviction(ask, gone)
    trial.release()
    again = trial.place(ask)
    assert trial.free() == before[0]
    assert isinstance(after, Placement | Shortage)
    assert str(again) == str(before[1])
