"""What holds of every round, whatever the cluster and whoever asks."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.api.meta import Key, ObjectMeta
from gangline.api.scheduler_views import Node, NodeStatus
from gangline.scheduler.cache.nodes import Cluster
from gangline.scheduler.cycle.cycle import schedule
from gangline.scheduler.pods.shape import Shape
from gangline.scheduler.types.cycle import (
    Ask,
    Evict,
    Holding,
    Need,
    Place,
    Policy,
    QueueRule,
    Resident,
    Round,
    Shortage,
)
from gangline.scheduler.types.kinds import Kind, Kinds

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
SHAPES = [
    Shape(requests=(("cpu", 1000), ("pods", 1))),
    Shape(requests=(("cpu", 2000), ("pods", 1))),
    Shape(requests=(("cpu", 1000), ("nvidia.com/gpu", 1), ("pods", 1))),
]
RULES = {
    "default": QueueRule("default"),
    "light": QueueRule("light", weight=1, cap={"cpu": 6000}),
    "heavy": QueueRule("heavy", weight=3, reclaimable=False),
}
QUEUES = st.sampled_from(sorted(RULES))
AGES = st.integers(0, 900).map(lambda seconds: NOW - timedelta(seconds=seconds))


class World:
    """Nodes with room, and gangs that fit on them."""

    def __init__(self, nodes: dict[str, dict[str, int]], holdings: list[Holding]) -> None:
        self.nodes, self.holdings = nodes, holdings

    def cluster(self) -> Cluster:
        cluster = Cluster()
        for name, amounts in self.nodes.items():
            text = {key: f"{amount}m" if key == "cpu" else str(amount) for key, amount in amounts.items()}
            cluster.put_node(Node(metadata=ObjectMeta(name=name), status=NodeStatus(allocatable=text)))
        for holding in self.holdings:
            for member in holding.members:
                cluster.put_pod(member)
        return cluster

    def round(self, asks: list[Ask], policy: Policy, kinds: Kinds | None = None) -> Round:
        return schedule(self.cluster().trial(), asks, self.holdings, RULES, policy, NOW, kinds=kinds)

    def used(self, without: frozenset[str] = frozenset()) -> dict[str, Counter[str]]:
        found = {name: Counter[str]() for name in self.nodes}
        for holding in self.holdings:
            for member in holding.members:
                if member.uid not in without:
                    found[member.node].update(member.shape.amounts)
        return found

    def over_full(self, used: dict[str, Counter[str]]) -> list[str]:
        return [
            name
            for name, amounts in used.items()
            if any(amount > self.nodes[name].get(key, 0) for key, amount in amounts.items())
        ]


@st.composite
def worlds(draw: st.DrawFn) -> World:
    sizes = draw(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 2)), min_size=1, max_size=5))
    nodes = {
        f"n{n}": {"cpu": cpu * 1000, "nvidia.com/gpu": gpu, "pods": 9} for n, (cpu, gpu) in enumerate(sizes)
    }
    world = World(nodes, [])
    for number in range(draw(st.integers(0, 5))):
        holding = _held(draw, world, f"h{number}")
        if holding.members:
            world.holdings.append(holding)
    return world


def _held(draw: st.DrawFn, world: World, name: str) -> Holding:
    """A gang whose members are where there is room for them."""
    priority, members = draw(st.integers(0, 3)), list[Resident]()
    gone, shape = draw(st.booleans()), draw(st.sampled_from(SHAPES))
    for number, node in enumerate(draw(st.lists(st.sampled_from(sorted(world.nodes)), max_size=4))):
        uid = f"{name}-{number}"
        member = Resident(uid, Key("ns", uid), node, shape, priority, terminating=gone and number == 0)
        probe = World(
            world.nodes, [*world.holdings, _holding(name, "default", priority, [*members, member], NOW, 0)]
        )
        if not probe.over_full(probe.used()):
            members.append(member)
    least = draw(st.integers(0, len(members)))
    protected = frozenset(member.uid for member in members if draw(st.integers(0, 5)) == 0)
    return _holding(name, draw(QUEUES), priority, members, draw(AGES), least, protected)


def _holding(
    name: str,
    queue: str,
    priority: int,
    members: list[Resident],
    created: datetime,
    least: int,
    protected: frozenset[str] = frozenset(),
) -> Holding:
    return Holding(
        Key("ns", name), name, queue, priority, created, least, tuple(members), protected=protected
    )


@st.composite
def asking(draw: st.DrawFn, name: str) -> Ask:
    roles = draw(st.lists(st.sampled_from(["master", "worker"]), min_size=1, max_size=2, unique=True))
    needs = tuple(Need(role, draw(st.sampled_from(SHAPES)), draw(st.integers(1, 4))) for role in roles)
    count = sum(need.count for need in needs)
    return Ask(
        key=Key("ns", name),
        uid=name,
        queue=draw(QUEUES),
        priority=draw(st.integers(0, 3)),
        created=draw(AGES),
        since=draw(AGES),
        broken=draw(st.booleans()),
        needs=needs,
        least=draw(st.integers(0, count)),
        roles={needs[0].role: 1} if draw(st.booleans()) else {},
        preempts=draw(st.booleans()),
    )


@st.composite
def crowds(draw: st.DrawFn) -> list[Ask]:
    """Some of them are gangs that hold places already, and want more."""
    names = draw(
        st.lists(st.sampled_from(["h0", "h1", "h2", *(f"a{n}" for n in range(4))]), max_size=6, unique=True)
    )
    return [draw(asking(name)) for name in names]


@st.composite
def alike(draw: st.DrawFn) -> list[Ask]:
    """Many that differ in name and age alone, or in size as well."""
    models = draw(st.lists(asking("model"), min_size=1, max_size=2))
    if draw(st.booleans()):
        models = [_sized(models[0], members) for members in range(1, 9, 2)]
    found = list[Ask]()
    for age, since, number in draw(st.lists(st.tuples(AGES, AGES, st.integers(0, 3)), max_size=12)):
        # Gangs that hold places already may be among them.
        uid = f"h{len(found)}" if len(found) < 2 else f"a{len(found)}"
        changes = {"key": Key("ns", uid), "uid": uid, "created": age, "since": since}
        found.append(msgspec.structs.replace(models[number % len(models)], **changes))
    return found


def _sized(model: Ask, members: int) -> Ask:
    need = msgspec.structs.replace(model.needs[0], count=members)
    return msgspec.structs.replace(model, needs=(need,), least=members, roles={})


class Apart(Kinds):
    """Nobody is like anybody else: every ask is judged by itself."""

    def kind(self, ask: Ask) -> Kind:
        return Kind(ask)


POLICIES = st.builds(
    Policy,
    patience=st.sampled_from([None, timedelta(minutes=5), timedelta(0)]),
    preemption=st.booleans(),
    reclaim=st.booleans(),
)


def add(used: dict[str, Counter[str]], decision: Place | Evict) -> None:
    for need, nodes in zip(decision.ask.needs, decision.nodes, strict=True):
        for node in nodes:
            used[node].update(need.shape.amounts)


@settings(max_examples=60, deadline=None)
@given(worlds(), crowds(), POLICIES)
def test_every_gang_is_decided_once_and_gets_all_it_needs_or_nothing(
    world: World, asks: list[Ask], policy: Policy
) -> None:
    found = world.round(asks, policy)
    assert sorted(each.ask.uid for each in found.decisions) == sorted(ask.uid for ask in asks)
    for each in found.decisions:
        if isinstance(each, Place | Evict):
            sizes = [len(nodes) for nodes in each.nodes]
            assert sum(sizes) >= max(1, each.ask.least)
            assert all(size <= need.count for size, need in zip(sizes, each.ask.needs, strict=True))
            for role, least in each.ask.roles.items():
                if each.ask.least:
                    given = zip(sizes, each.ask.needs, strict=True)
                    assert sum(size for size, need in given if need.role == role) >= least


@settings(max_examples=60, deadline=None)
@given(worlds(), crowds(), POLICIES)
def test_no_node_and_no_cap_is_ever_exceeded(world: World, asks: list[Ask], policy: Policy) -> None:
    """With all that are placed now, while all victims are still there."""
    found, used = world.round(asks, policy), world.used()
    for each in found.decisions:
        if isinstance(each, Place):
            add(used, each)
    assert not world.over_full(used)
    for queue, rule in RULES.items():
        placed = [each for each in found.decisions if isinstance(each, Place) and each.ask.queue == queue]
        held = [member for each in world.holdings if each.queue == queue for member in each.members]
        for name, cap in rule.cap.items():
            before = sum(member.shape.amounts.get(name, 0) for member in held)
            more = sum(
                need.shape.amounts.get(name, 0) * len(nodes)
                for each in placed
                for need, nodes in zip(each.ask.needs, each.nodes, strict=True)
            )
            assert not more or before + more <= cap


@settings(max_examples=60, deadline=None)
@given(worlds(), crowds(), POLICIES)
def test_whoever_makes_others_leave_fits_when_they_are_gone(
    world: World, asks: list[Ask], policy: Policy
) -> None:
    """And with all others that were placed, or for whom others leave."""
    found = world.round(asks, policy)
    leaving = {member.uid for each in world.holdings for member in each.members if member.terminating}
    leaving |= {victim.uid for each in found.decisions if isinstance(each, Evict) for victim in each.victims}
    used = world.used(frozenset(leaving))
    for each in found.decisions:
        if isinstance(each, Place | Evict):
            add(used, each)
    assert not world.over_full(used)


@settings(max_examples=60, deadline=None)
@given(worlds(), crowds(), POLICIES)
def test_only_those_leave_who_may_be_asked_to(world: World, asks: list[Ask], policy: Policy) -> None:
    holdings = {member.uid: each for each in world.holdings for member in each.members}
    seen = Counter[str]()
    for each in world.round(asks, policy).decisions:
        if not isinstance(each, Evict):
            continue
        seen.update(victim.uid for victim in each.victims)
        for victim in each.victims:
            holding = holdings[victim.uid]
            assert not victim.terminating
            assert victim.uid not in holding.protected
            lower = policy.preemption and each.ask.preempts and holding.priority < each.ask.priority
            taken_back = (
                policy.reclaim and holding.queue != each.ask.queue and RULES[holding.queue].reclaimable
            )
            assert lower or (taken_back and holding.priority <= each.ask.priority)
    assert all(count == 1 for count in seen.values())


@settings(max_examples=60, deadline=None)
@given(worlds(), crowds(), POLICIES)
def test_a_gang_keeps_what_it_needs_or_loses_all(world: World, asks: list[Ask], policy: Policy) -> None:
    found = world.round(asks, policy)
    victims = {victim.uid for each in found.decisions if isinstance(each, Evict) for victim in each.victims}
    for holding in world.holdings:
        there = [member for member in holding.members if not member.terminating]
        left = [member for member in there if member.uid not in victims]
        assert len(left) in (0, len(there)) or len(left) >= holding.least


@settings(max_examples=60, deadline=None)
@given(worlds(), crowds(), POLICIES)
def test_no_gang_gets_places_while_members_of_it_have_to_leave(
    world: World, asks: list[Ask], policy: Policy
) -> None:
    found = world.round(asks, policy)
    served = {each.ask.key for each in found.decisions if isinstance(each, Place | Evict)}
    ending = {key for each in found.decisions if isinstance(each, Evict) for key in each.gangs}
    assert not served & ending


@settings(max_examples=60, deadline=None)
@given(worlds(), asking("only"))
def test_nobody_leaves_who_could_have_stayed(world: World, ask: Ask) -> None:
    """Without any one gang, or spare member, of the victims it would not fit."""
    for each in world.round([ask], Policy(reclaim=False)).decisions:
        if isinstance(each, Evict):
            trial, cap = world.cluster().trial(), RULES[ask.queue].cap
            if cap:
                continue
            leaving = {victim.uid for victim in each.victims} | set(trial.leaving)
            for gang in each.gangs:
                stays = {victim.uid for victim in each.victims if victim.uid.startswith(f"{gang.name}-")}
                assert isinstance(trial.place_after(ask, leaving - stays), Shortage)


@settings(max_examples=60, deadline=None)
@given(worlds(), crowds(), POLICIES)
def test_the_result_does_not_depend_on_the_order_of_the_input_and_replays_are_equal(
    world: World, asks: list[Ask], policy: Policy
) -> None:
    first = world.round(asks, policy)
    assert world.round(asks, policy) == first
    shuffled = World(dict(reversed(world.nodes.items())), list(reversed(world.holdings)))
    assert shuffled.round(list(reversed(asks)), policy) == first


@settings(max_examples=150, deadline=None)
@given(worlds(), alike(), POLICIES)
def test_asks_that_are_alike_are_told_what_each_would_be_told_by_itself(
    world: World, asks: list[Ask], policy: Policy
) -> None:
    assert world.round(asks, policy) == world.round(asks, policy, Apart())


@settings(max_examples=60, deadline=None)
@given(worlds(), st.lists(alike(), min_size=2, max_size=3), POLICIES)
def test_what_is_kept_from_earlier_rounds_changes_no_decision(
    world: World, rounds: list[list[Ask]], policy: Policy
) -> None:
    """Asks come, go, change under the same name, and stay as they are."""
    kept = Kinds()
    for asks in (*rounds, [*rounds[0][:2], *rounds[1][2:]], rounds[0]):
        assert world.round(asks, policy, kept) == world.round(asks, policy)
