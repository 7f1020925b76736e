"""The engine on virtual time: jobs come, wait, run and go, and every decision is made as the scheduler makes it.

No clock and no chance: the same jobs, nodes and settings give the same events. What is not modelled: how long binding
and starting takes, failures, and that a job with fewer members works more slowly.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from itertools import count
from operator import attrgetter

import msgspec
import numpy as np

from gangline.api.meta import Key, ObjectMeta
from gangline.api.scheduler_views import Node, NodeStatus
from gangline.scheduler.cache.nodes import Cluster
from gangline.scheduler.cycle.cycle import schedule
from gangline.scheduler.pods.shape import Shape
from gangline.scheduler.simulation.work import Work
from gangline.scheduler.types.cycle import (
    Ask,
    Decision,
    Evict,
    Held,
    Holding,
    Need,
    Place,
    Policy,
    QueueRule,
    Resident,
    Wait,
)
from gangline.scheduler.types.kinds import Kinds
from gangline.scheduler.types.requests import add
from gangline.scheduler.types.resources import PODS, amounts

BEGIN = datetime(2000, 1, 1, tzinfo=UTC)
"""When virtual time begins. Any moment would do."""

_LEAST = attrgetter("least")

ROOMY = "110"
"""How many pods a node takes that does not say."""


class Park(msgspec.Struct, frozen=True):
    """So many nodes, all alike."""

    count: int
    # By resource, as in a Node's `status.allocatable`.
    capacity: Mapping[str, str]


class Rules(msgspec.Struct, frozen=True):
    """How the simulated cluster is run."""

    queues: Mapping[str, QueueRule] = {}
    policy: Policy = Policy()
    # At most one round in so many seconds.
    cycle: float = 1.0
    # How long a pod takes to leave.
    grace: float = 30.0
    # How often a job saves where it is: so much of its work, at most, is lost when it has to leave. 0: never, all is.
    checkpoint: float = 0.0


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the log."""

    at: float
    event: str
    job: str
    # How many members it is about.
    members: int = 0
    # Node -> how many of them.
    nodes: Mapping[str, int] = {}
    cause: str = ""
    message: str = ""


class Sample(msgspec.Struct, frozen=True):
    """How things stood after one round."""

    at: float
    waiting: int
    running: int
    # Resource -> part of it in use.
    used: Mapping[str, float]
    # Of what is free of the scarcest resource, the part on nodes that are not wholly free.
    fragmented: float


class Life(msgspec.Struct, frozen=True):
    """What became of one job. No start: it never got its places."""

    work: Work
    started: float | None = None
    ended: float | None = None
    # How often it had to leave, and how many seconds of work that cost.
    evicted: int = 0
    lost: float = 0.0

    @property
    def waited(self) -> float | None:
        return None if self.started is None else self.started - self.work.arrival


class Outcome(msgspec.Struct, frozen=True):
    """What came out."""

    lives: list[Life]
    samples: list[Sample]
    scarcest: str
    rounds: int
    decisions: int
    placed: int
    # Times gangs had to leave whole, and pods that had to leave in all.
    preempted: int
    victims: int
    # Seconds that each round's decisions took, by the stopwatch given; empty without one.
    took: list[float]


class _Then(IntEnum):
    """What is due; of what is due at the same time, in this order."""

    LEAVE = 0
    END = 1
    ARRIVE = 2
    LOOK = 3


class _Job:
    """A job on its way. All that changes about it."""

    def __init__(self, work: Work, shape: Shape) -> None:
        self.work, self.shape = work, shape
        self.members: dict[str, Resident] = {}
        self.left = work.duration
        self.began = 0.0
        self.started: float | None = None
        self.ended: float | None = None
        self.evicted = 0
        self.lost = 0.0
        # Counts starts: an end that was planned for an earlier one is void.
        self.run = 0
        self.cause = ""
        self.serial = count()
        # Members that are not on their way out.
        self.staying = 0


class Simulation:
    """Runs once."""

    def __init__(
        self,
        parks: Iterable[Park],
        works: Iterable[Work],
        rules: Rules,
        *,
        note: Callable[[Event], None] | None = None,
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        self._rules, self._note, self._stopwatch = rules, note, stopwatch
        parks, works = list(parks), list(works)
        self._cluster, self._meter = Cluster(), Meter(parks, works)
        for node in nodes_of(parks):
            self._cluster.put_node(node)
        # When, what, the order of planning, and of whom: a job, and a member or a run of it.
        self._due: list[tuple[float, int, int, str, str]] = []
        self._order = count()
        self._jobs: dict[str, _Job] = {}
        # By the name of the job.
        self._waiting: dict[str, Ask] = {}
        self._holding: dict[str, Holding] = {}
        self._kinds = Kinds()
        shapes: dict[tuple[tuple[str, int], ...], Shape] = {}
        for work in works:
            # Equal shapes are one object: they are compared and hashed all the time.
            self._jobs[work.name] = _Job(work, shapes.setdefault(work.request, Shape(requests=work.request)))
            self._plan(work.arrival, _Then.ARRIVE, work.name)
        self._used: dict[str, dict[str, int]] = {}
        self._kept: dict[str, dict[str, int]] = {}
        self._samples: list[Sample] = []
        self._took: list[float] = []
        self._rounds = self._decisions = self._placed = self._preempted = self._victims = 0

    def run(self) -> Outcome:
        """Until nothing can happen any more. Jobs that never fit are left without a start."""
        while self._due:
            now = self._tick(self._due[0][0])
            while self._due and self._due[0][0] <= now:
                at, then, _, name, detail = heapq.heappop(self._due)
                self._happen(_Then(then), name, detail, at)
            self._round(now)
        lives = [Life(job.work, job.started, job.ended, job.evicted, job.lost) for job in self._jobs.values()]
        return Outcome(
            lives,
            self._samples,
            self._meter.scarcest,
            self._rounds,
            self._decisions,
            self._placed,
            self._preempted,
            self._victims,
            self._took,
        )

    @property
    def held(self) -> Mapping[str, Mapping[str, int]]:
        """What queues hold at this moment."""
        return self._used

    def _tick(self, at: float) -> float:
        cycle = self._rules.cycle
        return math.ceil(round(at / cycle, 9)) * cycle if cycle > 0 else at

    def _plan(self, at: float, then: _Then, name: str = "", detail: str = "") -> None:
        heapq.heappush(self._due, (at, then, next(self._order), name, detail))

    def _tell(self, event: Event) -> None:
        if self._note is not None:
            self._note(event)

    # What happens

    def _happen(self, then: _Then, name: str, detail: str, at: float) -> None:
        match then:
            case _Then.ARRIVE:
                self._tell(Event(at, "arrive", name, self._jobs[name].work.members))
                self._wait(self._jobs[name], at)
            case _Then.END if self._jobs[name].run == int(detail):
                self._end(self._jobs[name], at)
            case _Then.LEAVE:
                self._gone(self._jobs[name], detail, at)
            case _:
                pass

    def _wait(self, job: _Job, since: float) -> None:
        """Ask for all members that are not there: less than all once some are."""
        missing = job.work.members - job.staying
        least = max(0, job.work.needed - job.staying)
        start = BEGIN + timedelta(seconds=since)
        self._waiting[job.work.name] = Ask(
            key=Key("", job.work.name),
            uid=job.work.name,
            queue=job.work.queue,
            priority=job.work.priority,
            created=BEGIN + timedelta(seconds=job.work.arrival),
            since=start,
            broken=False,
            needs=(Need("member", job.shape, missing),),
            least=least,
        )

    def _end(self, job: _Job, at: float) -> None:
        self._tell(Event(at, "end", job.work.name, len(job.members)))
        job.ended = at
        self._waiting.pop(job.work.name, None)
        for uid in list(job.members):
            self._drop(job, uid)
        self._hold(job)

    def _gone(self, job: _Job, member: str, at: float) -> None:
        if member not in job.members:
            return
        self._drop(job, member)
        self._hold(job)
        if job.ended is None and not any(other.terminating for other in job.members.values()):
            self._tell(Event(at, "left", job.work.name, job.work.members - len(job.members)))
            self._wait(job, at)

    # What is decided

    def _round(self, now: float) -> None:
        if not self._waiting:
            self._sample(now)
            return
        before = self._stopwatch() if self._stopwatch else 0.0
        moment = BEGIN + timedelta(seconds=now)
        rules = self._rules
        found = schedule(
            self._cluster.trial(),
            self._waiting.values(),
            self._holding.values(),
            rules.queues,
            rules.policy,
            moment,
            Held(self._used, self._kept),
            self._kinds,
        )
        if self._stopwatch:
            self._took.append(self._stopwatch() - before)
        self._rounds += 1
        self._decisions += len(found.decisions)
        for decision in found.decisions:
            # Most of them, and of most nothing is new.
            if not isinstance(decision, Wait) or self._jobs[decision.ask.uid].cause != decision.cause:
                self._carry_out(decision, now)
        if found.again is not None and found.again > moment:
            self._plan((found.again - BEGIN).total_seconds(), _Then.LOOK)
        self._sample(now)

    def _carry_out(self, decision: Decision, now: float) -> None:
        job = self._jobs[decision.ask.uid]
        match decision:
            case Place(nodes=nodes):
                self._place(job, nodes[0], now)
            case Evict(victims=victims):
                self._evict(victims, now)
            case Wait(ask=ask, cause=cause, message=message):
                job.cause = cause
                if self._note is not None:
                    self._tell(Event(now, "wait", job.work.name, ask.least, cause=cause, message=message))

    def _place(self, job: _Job, nodes: tuple[str, ...], now: float) -> None:
        name = job.work.name
        started = job.staying < job.work.needed
        for node in nodes:
            uid = f"{name}-{next(job.serial)}"
            member = Resident(uid, Key("", uid), node, job.shape, job.work.priority)
            job.members[uid] = member
            self._cluster.put_pod(member)
            self._meter.add(node, job.shape, 1)
        job.staying += len(nodes)
        self._count(self._used, job, len(nodes))
        self._count(self._kept, job, len(nodes))
        self._placed += len(nodes)
        self._tell(Event(now, "start" if started else "grow", name, len(nodes), _counted(nodes)))
        del self._waiting[name]
        job.cause = ""
        if started:
            job.run += 1
            job.began = now
            job.started = now if job.started is None else job.started
            self._plan(now + job.left, _Then.END, name, str(job.run))
        self._hold(job)
        if job.staying < job.work.members:
            self._wait(job, now)

    def _evict(self, victims: Iterable[Resident], now: float) -> None:
        gangs: dict[str, list[Resident]] = {}
        for victim in victims:
            gangs.setdefault(victim.uid.rpartition("-")[0], []).append(victim)
        for name, leaving in gangs.items():
            job = self._jobs[name]
            for victim in leaving:
                gone = msgspec.structs.replace(victim, terminating=True)
                job.members[victim.uid] = gone
                self._cluster.put_pod(gone)
                self._plan(now + self._rules.grace, _Then.LEAVE, name, victim.uid)
            job.staying -= len(leaving)
            self._count(self._kept, job, -len(leaving))
            self._victims += len(leaving)
            self._waiting.pop(name, None)
            whole = job.staying < job.work.needed
            self._tell(Event(now, "evict" if whole else "shrink", name, len(leaving)))
            if whole:
                self._stop(job, now)
            self._hold(job)

    def _stop(self, job: _Job, now: float) -> None:
        """It has to begin again, where it last saved what it had."""
        done, every = now - job.began, self._rules.checkpoint
        lost = done if every <= 0 else math.fmod(done, every)
        job.left -= done - lost
        job.lost += lost
        job.evicted += 1
        job.run += 1
        self._preempted += 1

    def _drop(self, job: _Job, uid: str) -> None:
        member = job.members.pop(uid)
        self._count(self._used, job, -1)
        if not member.terminating:
            job.staying -= 1
            self._count(self._kept, job, -1)
        self._cluster.drop_pod(uid)
        self._meter.add(member.node, job.shape, -1)

    def _count(self, account: dict[str, dict[str, int]], job: _Job, members: int) -> None:
        add(account.setdefault(job.work.queue, {}), job.shape.amounts, members)

    def _hold(self, job: _Job) -> None:
        """What the engine is to know of what the job holds."""
        name = job.work.name
        if not job.members:
            self._holding.pop(name, None)
            return
        members = tuple(job.members.values())
        self._holding[name] = Holding(
            key=Key("", name),
            uid=name,
            queue=job.work.queue,
            priority=job.work.priority,
            created=BEGIN + timedelta(seconds=job.work.arrival),
            least=job.work.needed,
            members=members,
        )

    def _sample(self, now: float) -> None:
        # The others have started, and want more members.
        waiting = sum(map(bool, map(_LEAST, self._waiting.values())))
        used, fragmented = self._meter.used(), self._meter.fragmented()
        self._samples.append(Sample(now, waiting, len(self._holding), used, fragmented))


class Meter:
    """How full the nodes are."""

    def __init__(self, parks: Iterable[Park], works: Iterable[Work]) -> None:
        parks = list(parks)
        offered = [amounts(park.capacity) for park in parks]
        counts = [park.count for park in parks]
        self._number = {name: number for number, name in enumerate(names_of(parks))}
        self._wanted = _wanted(works)
        self._total = {
            name: sum(n * each.get(name, 0) for n, each in zip(counts, offered, strict=True))
            for name in self._wanted
        }
        self.scarcest = max(sorted(self._wanted), key=self._pressure, default="")
        self._offered = np.repeat([each.get(self.scarcest, 0) for each in offered], counts).astype(np.int64)
        self._free = self._offered.copy()
        self._pods = np.zeros(len(self._number), dtype=np.int64)
        self._used = dict.fromkeys(self._wanted, 0)

    def add(self, node: str, shape: Shape, sign: int) -> None:
        """One more, or one less, of a shape on a node."""
        number = self._number[node]
        self._pods[number] += sign
        for name, amount in shape.requests:
            if name in self._used:
                self._used[name] += sign * amount
            if name == self.scarcest:
                self._free[number] -= sign * amount

    def used(self) -> dict[str, float]:
        return {
            name: used / self._total[name] if self._total[name] else 0.0 for name, used in self._used.items()
        }

    def fragmented(self) -> float:
        free = int(self._free.sum())
        return int(self._free[self._pods > 0].sum()) / free if free > 0 else 0.0

    def _pressure(self, name: str) -> float:
        return self._wanted[name] / self._total[name] if self._total[name] else math.inf


def _wanted(works: Iterable[Work]) -> dict[str, float]:
    """Resource -> how much of it, for how long, all jobs need."""
    found: dict[str, float] = {}
    for work in works:
        for name, amount in work.request:
            if name != PODS:
                found[name] = found.get(name, 0.0) + amount * work.members * work.duration
    return dict(sorted(found.items()))


def capacity_of(parks: Iterable[Park]) -> dict[str, int]:
    """What all nodes offer together. Raises `QuantityError`."""
    total: dict[str, int] = {}
    for park in parks:
        add(total, amounts({PODS: ROOMY, **park.capacity}), park.count)
    return total


def names_of(parks: Iterable[Park]) -> list[str]:
    total = sum(park.count for park in parks)
    return [f"node-{number:0{len(str(max(1, total - 1)))}}" for number in range(total)]


def nodes_of(parks: Iterable[Park]) -> list[Node]:
    parks = list(parks)
    kinds = [
        NodeStatus(allocatable={PODS: ROOMY, **park.capacity}) for park in parks for _ in range(park.count)
    ]
    return [
        Node(metadata=ObjectMeta(name=name), status=status)
        for name, status in zip(names_of(parks), kinds, strict=True)
    ]


def _counted(nodes: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(nodes).items()))
