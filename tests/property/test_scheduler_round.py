"""What holds of every round, whatever the cluster and whoever asks."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gangline.api.meta import Key, ObjectMeta
from gangline.api.scheduler_views import Node, NodePlacementStatus
from gangline.scheduler.cache.nodes import NodeCache
from gangline.scheduler.cycle.cycle import schedule
from gangline.scheduler.types.cycle import (
    Bind,
    BoundPod,
    CycleResult,
    GangAllocation,
    GangRequest,
    PodSet,
    Preempt,
    QueueQuota,
    SchedulerPolicy,
    Shortage,
)
from gangline.scheduler.types.equivalence import EquivalenceClass, EquivalenceClasses
from gangline.scheduler.types.shape import PodShape

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)
SHAPES = [
    PodShape(requests=(("cpu", 1000), ("pods", 1))),
    PodShape(requests=(("cpu", 2000), ("pods", 1))),
    PodShape(requests=(("cpu", 1000), ("nvidia.com/gpu", 1), ("pods", 1))),
]
RULES = {
    "default": QueueQuota("default"),
    "light": QueueQuota("light", weight=1, cap={"cpu": 6000}),
    "heavy": QueueQuota("heavy", weight=3, reclaimable=False),
}
QUEUES = st.sampled_from(sorted(RULES))
AGES = st.integers(0, 900).map(lambda seconds: NOW - timedelta(seconds=seconds))


class World:
    """Nodes with room, and gangs that fit on them."""

    def __init__(self, nodes: dict[str, dict[str, int]], holdings: list[GangAllocation]) -> None:
        self.nodes, self.holdings = nodes, holdings

    def cluster(self) -> NodeCache:
        cluster = NodeCache()
        for name, amounts in self.nodes.items():
            text = {key: f"{amount}m" if key == "cpu" else str(amount) for key, amount in amounts.items()}
            cluster.put_node(Node(metadata=ObjectMeta(name=name), status=NodePlacementStatus(allocatable=text)))
        for holding in self.holdings:
            for member in holding.pods:
                cluster.put_pod(member)
        return cluster

    def round(
        self, asks: list[GangRequest], policy: SchedulerPolicy, kinds: EquivalenceClasses | None = None
    ) -> CycleResult:
        return schedule(self.cluster().what_if(), asks, self.holdings, RULES, policy, NOW, classes=kinds)

    def used(self, without: frozenset[str] = frozenset()) -> dict[str, Counter[str]]:
        found = {name: Counter[str]() for name in self.nodes}
        for holding in self.holdings:
            for member in holding.pods:
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
    nodes = {f"n{n}": {"cpu": cpu * 1000, "nvidia.com/gpu": gpu, "pods": 9} for n, (cpu, gpu) in enumerate(sizes)}
    world = World(nodes, [])
    for number in range(draw(st.integers(0, 5))):
        holding = _held(draw, world, f"h{number}")
        if holding.pods:
            world.holdings.append(holding)
    return world


def _held(draw: st.DrawFn, world: World, name: str) -> GangAllocation:
    """A gang whose members are where there is room for them."""
    priority, members = draw(st.integers(0, 3)), list[BoundPod]()
    gone, shape = draw(st.booleans()), draw(st.sampled_from(SHAPES))
    for number, node in enumerate(draw(st.lists(st.sampled_from(sorted(world.nodes)), max_size=4))):
        uid = f"{name}-{number}"
        member = BoundPod(uid, Key("ns", uid), node, shape, priority, terminating=gone and number == 0)
        probe = World(world.nodes, [*world.holdings, _holding(name, "default", priority, [*members, member], NOW, 0)])
        if not probe.over_full(probe.used()):
            members.append(member)
    least = draw(st.integers(0, len(members)))
    protected = frozenset(member.uid for member in members if draw(st.integers(0, 5)) == 0)
    return _holding(name, draw(QUEUES), priority, members, draw(AGES), least, protected)


def _holding(
    name: str,
    queue: str,
    priority: int,
    members: list[BoundPod],
    created: datetime,
    least: int,
    protected: frozenset[str] = frozenset(),
) -> GangAllocation:
    return GangAllocation(
        Key("ns", name), name, queue, priority, created, least, tuple(members), protected_uids=protected
    )


@st.composite
def asking(draw: st.DrawFn, name: str) -> GangRequest:
    roles = draw(st.lists(st.sampled_from(["master", "worker"]), min_size=1, max_size=2, unique=True))
    needs = tuple(PodSet(role, draw(st.sampled_from(SHAPES)), draw(st.integers(1, 4))) for role in roles)
    count = sum(need.count for need in needs)
    return GangRequest(
        key=Key("ns", name),
        uid=name,
        queue=draw(QUEUES),
        priority=draw(st.integers(0, 3)),
        created=draw(AGES),
        waiting_since=draw(AGES),
        recovering=draw(st.booleans()),
        pod_sets=needs,
        min_members=draw(st.integers(0, count)),
        min_by_role={needs[0].role: 1} if draw(st.booleans()) else {},
        can_preempt=draw(st.booleans()),
    )


@st.composite
def crowds(draw: st.DrawFn) -> list[GangRequest]:
    """Some of them are gangs that hold places already, and want more."""
    names = draw(st.lists(st.sampled_from(["h0", "h1", "h2", *(f"a{n}" for n in range(4))]), max_size=6, unique=True))
    return [draw(asking(name)) for name in names]


@st.composite
def alike(draw: st.DrawFn) -> list[GangRequest]:
    """Many that differ in name and age alone, or in size as well."""
    models = draw(st.lists(asking("model"), min_size=1, max_size=2))
    if draw(st.booleans()):
        models = [_sized(models[0], members) for members in range(1, 9, 2)]
    found = list[GangRequest]()
    for age, since, number in draw(st.lists(st.tuples(AGES, AGES, st.integers(0, 3)), max_size=12)):
        # Gangs that hold places already may be among them.
        uid = f"h{len(found)}" if len(found) < 2 else f"a{len(found)}"
        changes = {"key": Key("ns", uid), "uid": uid, "created": age, "waiting_since": since}
        found.append(msgspec.structs.replace(models[number % len(models)], **changes))
    return found


def _sized(model: GangRequest, members: int) -> GangRequest:
    need = msgspec.structs.replace(model.pod_sets[0], count=members)
    return msgspec.structs.replace(model, pod_sets=(need,), min_members=members, min_by_role={})


class Apart(EquivalenceClasses):
    """Nobody is like anybody else: every ask is judged by itself."""

    def class_of(self, ask: GangRequest) -> EquivalenceClass:
        return EquivalenceClass(ask)


POLICIES = st.builds(
    SchedulerPolicy,
    starvation_timeout=st.sampled_from([None, timedelta(minutes=5), timedelta(0)]),
    preemption=st.booleans(),
    reclaim=st.booleans(),
)


def add(used: dict[str, Counter[str]], decision: Bind | Preempt) -> None:
    for need, nodes in zip(decision.request.pod_sets, decision.nodes, strict=True):
        for node in nodes:
            used[node].update(need.shape.amounts)


@settings(max_examples=60, deadline=None)
@given(worlds(), crowds(), POLICIES)
def test_every_gang_is_decided_once_and_gets_all_it_needs_or_nothing(
    world: World, asks: list[GangRequest], policy: SchedulerPolicy
) -> None:
    found = world.round(asks, policy)
    assert sorted(each.request.uid for each in found.decisions) == sorted(ask.uid for ask in asks)
    for each in found.decisions:
        if isinstance(each, Bind | Preempt):
            sizes = [len(nodes) for nodes in each.nodes]
            assert sum(sizes) >= max(1, each.request.min_members)
            assert all(size <= need.count for size, need in zip(sizes, each.request.pod_sets, strict=True))
            for role, least in each.request.min_by_role.items():
                if each.request.min_members:
                    given = zip(sizes, each.request.pod_sets, strict=True)
                    assert sum(size for size, need in given if need.role == role) >= least


@settings(max_examples=60, deadline=None)
@given(worlds(), crowds(), POLICIES)
def test_no_node_and_no_cap_is_ever_exceeded(world: World, asks: list[GangRequest], policy: SchedulerPolicy) -> None:
    """With all that are placed now, while all victims are still there."""
    found, used = world.round(asks, policy), world.used()
    for each in found.decisions:
        if isinstance(each, Bind):
            add(used, each)
    assert not world.over_full(used)
    for queue, rule in RULES.items():
        placed = [each for each in found.decisions if isinstance(each, Bind) and each.request.queue == queue]
        held = [member for each in world.holdings if each.queue == queue for member in each.pods]
        for name, cap in rule.cap.items():
            before = sum(member.shape.amounts.get(name, 0) for member in held)
            more = sum(
                need.shape.amounts.get(name, 0) * len(nodes)
                for each in placed
                for need, nodes in zip(each.request.pod_sets, each.nodes, strict=True)
            )
            assert not more or before + more <= cap


@settings(max_examples=60, deadline=None)
@given(worlds(), crowds(), POLICIES)
def test_whoever_makes_others_leave_fits_when_they_are_gone(
    world: World, asks: list[GangRequest], policy: SchedulerPolicy
) -> None:
    """And with all others that were placed, or for whom others leave."""
    found = world.round(asks, policy)
    leaving = {member.uid for each in world.holdings for member in each.pods if member.terminating}
    leaving |= {victim.uid for each in found.decisions if isinstance(each, Preempt) for victim in each.victims}
    used = world.used(frozenset(leaving))
    for each in found.decisions:
        if isinstance(each, Bind | Preempt):
            add(used, each)
    assert not world.over_full(used)


@settings(max_examples=60, deadline=None)
@given(worlds(), crowds(), POLICIES)
def test_only_those_leave_who_may_be_asked_to(world: World, asks: list[GangRequest], policy: SchedulerPolicy) -> None:
    holdings = {member.uid: each for each in world.holdings for member in each.pods}
    seen = Counter[str]()
    for each in world.round(asks, policy).decisions:
        if not isinstance(each, Preempt):
            continue
        seen.update(victim.uid for victim in each.victims)
        for victim in each.victims:
            holding = holdings[victim.uid]
            assert not victim.terminating
            assert victim.uid not in holding.protected_uids
            lower = policy.preemption and each.request.can_preempt and holding.priority < each.request.priority
            taken_back = policy.reclaim and holding.queue != each.request.queue and RULES[holding.queue].reclaimable
            assert lower or (taken_back and holding.priority <= each.request.priority)
    assert all(count == 1 for count in seen.values())


@settings(max_examples=60, deadline=None)
@given(worlds(), crowds(), POLICIES)
def test_a_gang_keeps_what_it_needs_or_loses_all(
    world: World, asks: list[GangRequest], policy: SchedulerPolicy
) -> None:
    found = world.round(asks, policy)
    victims = {victim.uid for each in found.decisions if isinstance(each, Preempt) for victim in each.victims}
    for holding in world.holdings:
        there = [member for member in holding.pods if not member.terminating]
        left = [member for member in there if member.uid not in victims]
        assert len(left) in (0, len(there)) or len(left) >= holding.min_members


@settings(max_examples=60, deadline=None)
@given(worlds(), crowds(), POLICIES)
def test_no_gang_gets_places_while_members_of_it_have_to_leave(
    world: World, asks: list[GangRequest], policy: SchedulerPolicy
) -> None:
    found = world.round(asks, policy)
    served = {each.request.key for each in found.decisions if isinstance(each, Bind | Preempt)}
    ending = {key for each in found.decisions if isinstance(each, Preempt) for key in each.victim_gangs}
    assert not served & ending


@settings(max_examples=60, deadline=None)
@given(worlds(), asking("only"))
def test_nobody_leaves_who_could_have_stayed(world: World, ask: GangRequest) -> None:
    """Without any one gang, or spare member, of the victims it would not fit."""
    for each in world.round([ask], SchedulerPolicy(reclaim=False)).decisions:
        if isinstance(each, Preempt):
            trial, cap = world.cluster().what_if(), RULES[ask.queue].cap
            if cap:
                continue
            leaving = {victim.uid for victim in each.victims} | set(trial.terminating)
            for gang in each.victim_gangs:
                stays = {victim.uid for victim in each.victims if victim.uid.startswith(f"{gang.name}-")}
                assert isinstance(trial.place_after_eviction(ask, leaving - stays), Shortage)


@settings(max_examples=60, deadline=None)
@given(worlds(), crowds(), POLICIES)
def test_the_result_does_not_depend_on_the_order_of_the_input_and_replays_are_equal(
    world: World, asks: list[GangRequest], policy: SchedulerPolicy
) -> None:
    first = world.round(asks, policy)
    assert world.round(asks, policy) == first
    shuffled = World(dict(reversed(world.nodes.items())), list(reversed(world.holdings)))
    assert shuffled.round(list(reversed(asks)), policy) == first


@settings(max_examples=150, deadline=None)
@given(worlds(), alike(), POLICIES)
def test_asks_that_are_alike_are_told_what_each_would_be_told_by_itself(
    world: World, asks: list[GangRequest], policy: SchedulerPolicy
) -> None:
    assert world.round(asks, policy) == world.round(asks, policy, Apart())


@settings(max_examples=60, deadline=None)
@given(worlds(), st.lists(alike(), min_size=2, max_size=3), POLICIES)
def test_what_is_kept_from_earlier_rounds_changes_no_decision(
    world: World, rounds: list[list[GangRequest]], policy: SchedulerPolicy
) -> None:
    """Asks come, go, change under the same name, and stay as they are."""
    kept = EquivalenceClasses()
    for asks in (*rounds, [*rounds[0][:2], *rounds[1][2:]], rounds[0]):
        assert world.round(asks, policy, kept) == world.round(asks, policy)
