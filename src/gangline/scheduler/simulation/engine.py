"""The scheduling cycle on virtual time: jobs arrive, wait, run and end, and the scheduler's code decides.

Deterministic: the same jobs, nodes and settings give the same events. Not modelled: the time that binding and starting
take, failures, and that a job with fewer members works more slowly.
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
from gangline.api.scheduler_views import Node, NodePlacementStatus
from gangline.scheduler.cache.nodes import NodeCache
from gangline.scheduler.cycle.cycle import schedule
from gangline.scheduler.simulation.workload import WorkloadJob
from gangline.scheduler.types.cycle import (
    Bind,
    BoundPod,
    Decision,
    GangAllocation,
    GangRequest,
    Pending,
    PodSet,
    Preempt,
    QueueQuota,
    QueueUsage,
    SchedulerPolicy,
)
from gangline.scheduler.types.equivalence import EquivalenceClasses
from gangline.scheduler.types.resources import PODS, add_amounts, amounts
from gangline.scheduler.types.shape import PodShape

START_TIME = datetime(2000, 1, 1, tzinfo=UTC)
"""The beginning of virtual time; arbitrary."""

_MIN_MEMBERS = attrgetter("min_members")

DEFAULT_MAX_PODS = "110"
"""The number of pods a node takes if its capacity does not say."""


class NodePool(msgspec.Struct, frozen=True):
    """A number of identical nodes."""

    count: int
    # By resource, as in a Node's `status.allocatable`.
    capacity: Mapping[str, str]


class SimulationRules(msgspec.Struct, frozen=True):
    """Queues, policy and timing of the simulated cluster."""

    queues: Mapping[str, QueueQuota] = {}
    policy: SchedulerPolicy = SchedulerPolicy()
    # At most one cycle in this many seconds.
    cycle: float = 1.0
    # How many seconds a pod takes to terminate.
    grace: float = 30.0
    # Seconds between checkpoints of a job: at most this much work is lost by an eviction. 0: no checkpoints, all is
    # lost.
    checkpoint: float = 0.0


class SimulationEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the event log."""

    at: float
    event: str
    job: str
    # How many members the event is about.
    members: int = 0
    # Node -> number of members.
    nodes: Mapping[str, int] = {}
    cause: str = ""
    message: str = ""


class UsageSample(msgspec.Struct, frozen=True):
    """The state of the cluster after one cycle."""

    at: float
    waiting: int
    running: int
    # Resource -> fraction in use.
    used: Mapping[str, float]
    # The fraction of the free amount of the scarcest resource that is on partly used nodes.
    fragmentation: float


class SimulatedJob(msgspec.Struct, frozen=True):
    """The history of one job. `started` is None if it was never placed."""

    job: WorkloadJob
    started: float | None = None
    ended: float | None = None
    # How often the whole job was evicted, and how many seconds of work that cost.
    evictions: int = 0
    lost_seconds: float = 0.0

    @property
    def wait_seconds(self) -> float | None:
        return None if self.started is None else self.started - self.job.arrival


class SimulationResult(msgspec.Struct, frozen=True):
    """The result of a simulation."""

    jobs: list[SimulatedJob]
    samples: list[UsageSample]
    scarcest: str
    cycles: int
    decisions: int
    placed: int
    # How often whole gangs were evicted, and how many pods were evicted in all.
    preempted: int
    victims: int
    # How many seconds each cycle took by the given stopwatch; empty without one.
    cycle_seconds: list[float]


class _EventKind(IntEnum):
    """Kinds of events; events of the same time are handled in this order."""

    LEAVE = 0
    END = 1
    ARRIVE = 2
    RECHECK = 3


class _JobState:
    """The mutable state of one job."""

    def __init__(self, workload: WorkloadJob, shape: PodShape) -> None:
        self.workload, self.shape = workload, shape
        self.members: dict[str, BoundPod] = {}
        self.remaining_seconds = workload.duration
        self.run_started_at = 0.0
        self.started: float | None = None
        self.ended: float | None = None
        self.evictions = 0
        self.lost_seconds = 0.0
        # Counts starts: an end scheduled for an earlier start is void.
        self.run_number = 0
        self.pending_reason = ""
        self.serial = count()
        # Members that are not terminating.
        self.staying_count = 0


class Simulation:
    """One simulation; it can be run once."""

    def __init__(
        self,
        pools: Iterable[NodePool],
        jobs: Iterable[WorkloadJob],
        rules: SimulationRules,
        *,
        on_event: Callable[[SimulationEvent], None] | None = None,
        stopwatch: Callable[[], float] | None = None,
    ) -> None:
        self._rules, self._on_event, self._stopwatch = rules, on_event, stopwatch
        pools, jobs = list(pools), list(jobs)
        self._nodes, self._usage = NodeCache(), ClusterUsage(pools, jobs)
        for node in pool_nodes(pools):
            self._nodes.put_node(node)
        # Time, kind, serial number, job, and detail: a member or the number of a run.
        self._events: list[tuple[float, int, int, str, str]] = []
        self._event_serial = count()
        self._jobs: dict[str, _JobState] = {}
        # By the name of the job.
        self._requests: dict[str, GangRequest] = {}
        self._allocations: dict[str, GangAllocation] = {}
        self._classes = EquivalenceClasses()
        shapes: dict[tuple[tuple[str, int], ...], PodShape] = {}
        for job in jobs:
            # Equal shapes are one object: they are compared and hashed all the time.
            self._jobs[job.name] = _JobState(job, shapes.setdefault(job.request, PodShape(requests=job.request)))
            self._schedule_event(job.arrival, _EventKind.ARRIVE, job.name)
        self._used: dict[str, dict[str, int]] = {}
        self._retained: dict[str, dict[str, int]] = {}
        self._samples: list[UsageSample] = []
        self._cycle_seconds: list[float] = []
        self._cycles = self._decisions = self._placed = self._preempted = self._victims = 0

    def run(self) -> SimulationResult:
        """Run until nothing can happen any more. Jobs that never fit have no start."""
        while self._events:
            now = self._cycle_time(self._events[0][0])
            while self._events and self._events[0][0] <= now:
                at, kind, _, name, detail = heapq.heappop(self._events)
                self._handle_event(_EventKind(kind), name, detail, at)
            self._run_cycle(now)
        jobs = [
            SimulatedJob(job.workload, job.started, job.ended, job.evictions, job.lost_seconds)
            for job in self._jobs.values()
        ]
        return SimulationResult(
            jobs,
            self._samples,
            self._usage.scarcest,
            self._cycles,
            self._decisions,
            self._placed,
            self._preempted,
            self._victims,
            self._cycle_seconds,
        )

    @property
    def queue_usage(self) -> Mapping[str, Mapping[str, int]]:
        """Queue -> resource -> amount in use now."""
        return self._used

    def _cycle_time(self, at: float) -> float:
        cycle = self._rules.cycle
        return math.ceil(round(at / cycle, 9)) * cycle if cycle > 0 else at

    def _schedule_event(self, at: float, kind: _EventKind, name: str = "", detail: str = "") -> None:
        heapq.heappush(self._events, (at, kind, next(self._event_serial), name, detail))

    def _emit(self, event: SimulationEvent) -> None:
        if self._on_event is not None:
            self._on_event(event)

    def _handle_event(self, kind: _EventKind, name: str, detail: str, at: float) -> None:
        match kind:
            case _EventKind.ARRIVE:
                self._emit(SimulationEvent(at, "arrive", name, self._jobs[name].workload.members))
                self._request_members(self._jobs[name], at)
            case _EventKind.END if self._jobs[name].run_number == int(detail):
                self._end_job(self._jobs[name], at)
            case _EventKind.LEAVE:
                self._on_member_left(self._jobs[name], detail, at)
            case _:
                pass

    def _request_members(self, job: _JobState, since: float) -> None:
        """Request all missing members; fewer are required once some are there."""
        missing = job.workload.members - job.staying_count
        minimum = max(0, job.workload.required_members - job.staying_count)
        start = START_TIME + timedelta(seconds=since)
        self._requests[job.workload.name] = GangRequest(
            key=Key("", job.workload.name),
            uid=job.workload.name,
            queue=job.workload.queue,
            priority=job.workload.priority,
            created=START_TIME + timedelta(seconds=job.workload.arrival),
            waiting_since=start,
            recovering=False,
            pod_sets=(PodSet("member", job.shape, missing),),
            min_members=minimum,
        )

    def _end_job(self, job: _JobState, at: float) -> None:
        self._emit(SimulationEvent(at, "end", job.workload.name, len(job.members)))
        job.ended = at
        self._requests.pop(job.workload.name, None)
        for uid in list(job.members):
            self._remove_member(job, uid)
        self._update_allocation(job)

    def _on_member_left(self, job: _JobState, member: str, at: float) -> None:
        if member not in job.members:
            return
        self._remove_member(job, member)
        self._update_allocation(job)
        if job.ended is None and not any(other.terminating for other in job.members.values()):
            self._emit(SimulationEvent(at, "left", job.workload.name, job.workload.members - len(job.members)))
            self._request_members(job, at)

    def _run_cycle(self, now: float) -> None:
        if not self._requests:
            self._take_sample(now)
            return
        before = self._stopwatch() if self._stopwatch else 0.0
        moment = START_TIME + timedelta(seconds=now)
        rules = self._rules
        result = schedule(
            self._nodes.what_if(),
            self._requests.values(),
            self._allocations.values(),
            rules.queues,
            rules.policy,
            moment,
            QueueUsage(self._used, self._retained),
            self._classes,
        )
        if self._stopwatch:
            self._cycle_seconds.append(self._stopwatch() - before)
        self._cycles += 1
        self._decisions += len(result.decisions)
        for decision in result.decisions:
            # Most decisions are pending, and most of these have the same reason as before.
            if not isinstance(decision, Pending) or self._jobs[decision.request.uid].pending_reason != decision.reason:
                self._apply(decision, now)
        if result.recheck_at is not None and result.recheck_at > moment:
            self._schedule_event((result.recheck_at - START_TIME).total_seconds(), _EventKind.RECHECK)
        self._take_sample(now)

    def _apply(self, decision: Decision, now: float) -> None:
        job = self._jobs[decision.request.uid]
        match decision:
            case Bind(nodes=nodes):
                self._start_members(job, nodes[0], now)
            case Preempt(victims=victims):
                self._evict_members(victims, now)
            case Pending(request=request, reason=cause, message=message):
                job.pending_reason = cause
                if self._on_event is not None:
                    self._emit(
                        SimulationEvent(
                            now, "wait", job.workload.name, request.min_members, cause=cause, message=message
                        )
                    )

    def _start_members(self, job: _JobState, nodes: tuple[str, ...], now: float) -> None:
        name = job.workload.name
        started = job.staying_count < job.workload.required_members
        for node in nodes:
            uid = f"{name}-{next(job.serial)}"
            member = BoundPod(uid, Key("", uid), node, job.shape, job.workload.priority)
            job.members[uid] = member
            self._nodes.put_pod(member)
            self._usage.add(node, job.shape, 1)
        job.staying_count += len(nodes)
        self._add_usage(self._used, job, len(nodes))
        self._add_usage(self._retained, job, len(nodes))
        self._placed += len(nodes)
        self._emit(SimulationEvent(now, "start" if started else "grow", name, len(nodes), _pods_per_node(nodes)))
        del self._requests[name]
        job.pending_reason = ""
        if started:
            job.run_number += 1
            job.run_started_at = now
            job.started = now if job.started is None else job.started
            self._schedule_event(now + job.remaining_seconds, _EventKind.END, name, str(job.run_number))
        self._update_allocation(job)
        if job.staying_count < job.workload.members:
            self._request_members(job, now)

    def _evict_members(self, victims: Iterable[BoundPod], now: float) -> None:
        gangs: dict[str, list[BoundPod]] = {}
        for victim in victims:
            gangs.setdefault(victim.uid.rpartition("-")[0], []).append(victim)
        for name, pods in gangs.items():
            job = self._jobs[name]
            for victim in pods:
                leaving = msgspec.structs.replace(victim, terminating=True)
                job.members[victim.uid] = leaving
                self._nodes.put_pod(leaving)
                self._schedule_event(now + self._rules.grace, _EventKind.LEAVE, name, victim.uid)
            job.staying_count -= len(pods)
            self._add_usage(self._retained, job, -len(pods))
            self._victims += len(pods)
            self._requests.pop(name, None)
            ends_run = job.staying_count < job.workload.required_members
            self._emit(SimulationEvent(now, "evict" if ends_run else "shrink", name, len(pods)))
            if ends_run:
                self._interrupt_job(job, now)
            self._update_allocation(job)

    def _interrupt_job(self, job: _JobState, now: float) -> None:
        """Account for the work that was lost since the last checkpoint: the job has to start again."""
        run_seconds, interval = now - job.run_started_at, self._rules.checkpoint
        lost_seconds = run_seconds if interval <= 0 else math.fmod(run_seconds, interval)
        job.remaining_seconds -= run_seconds - lost_seconds
        job.lost_seconds += lost_seconds
        job.evictions += 1
        job.run_number += 1
        self._preempted += 1

    def _remove_member(self, job: _JobState, uid: str) -> None:
        member = job.members.pop(uid)
        self._add_usage(self._used, job, -1)
        if not member.terminating:
            job.staying_count -= 1
            self._add_usage(self._retained, job, -1)
        self._nodes.drop_pod(uid)
        self._usage.add(member.node, job.shape, -1)

    def _add_usage(self, account: dict[str, dict[str, int]], job: _JobState, members: int) -> None:
        add_amounts(account.setdefault(job.workload.queue, {}), job.shape.amounts, members)

    def _update_allocation(self, job: _JobState) -> None:
        """Update the allocation that the cycle sees."""
        name = job.workload.name
        if not job.members:
            self._allocations.pop(name, None)
            return
        members = tuple(job.members.values())
        self._allocations[name] = GangAllocation(
            key=Key("", name),
            uid=name,
            queue=job.workload.queue,
            priority=job.workload.priority,
            created=START_TIME + timedelta(seconds=job.workload.arrival),
            min_members=job.workload.required_members,
            pods=members,
        )

    def _take_sample(self, now: float) -> None:
        # The other requests are for more members of started jobs.
        waiting = sum(map(bool, map(_MIN_MEMBERS, self._requests.values())))
        used, fragmented = self._usage.used_fractions(), self._usage.fragmentation()
        self._samples.append(UsageSample(now, waiting, len(self._allocations), used, fragmented))


class ClusterUsage:
    """The usage of nodes and resources."""

    def __init__(self, pools: Iterable[NodePool], jobs: Iterable[WorkloadJob]) -> None:
        pools = list(pools)
        capacities = [amounts(pool.capacity) for pool in pools]
        counts = [pool.count for pool in pools]
        self._index_of = {name: number for number, name in enumerate(pool_node_names(pools))}
        self._demand = _resource_demand(jobs)
        self._total = {
            name: sum(n * each.get(name, 0) for n, each in zip(counts, capacities, strict=True))
            for name in self._demand
        }
        self.scarcest = max(sorted(self._demand), key=self._pressure, default="")
        self._allocatable = np.repeat([each.get(self.scarcest, 0) for each in capacities], counts).astype(np.int64)
        self._free = self._allocatable.copy()
        self._pods = np.zeros(len(self._index_of), dtype=np.int64)
        self._used = dict.fromkeys(self._demand, 0)

    def add(self, node: str, shape: PodShape, sign: int) -> None:
        """Add `sign` pods of a shape to a node."""
        number = self._index_of[node]
        self._pods[number] += sign
        for name, amount in shape.requests:
            if name in self._used:
                self._used[name] += sign * amount
            if name == self.scarcest:
                self._free[number] -= sign * amount

    def used_fractions(self) -> dict[str, float]:
        return {name: used / self._total[name] if self._total[name] else 0.0 for name, used in self._used.items()}

    def fragmentation(self) -> float:
        free = int(self._free.sum())
        return int(self._free[self._pods > 0].sum()) / free if free > 0 else 0.0

    def _pressure(self, name: str) -> float:
        return self._demand[name] / self._total[name] if self._total[name] else math.inf


def _resource_demand(jobs: Iterable[WorkloadJob]) -> dict[str, float]:
    """Resource -> amount times seconds that all jobs need."""
    demand: dict[str, float] = {}
    for job in jobs:
        for name, amount in job.request:
            if name != PODS:
                demand[name] = demand.get(name, 0.0) + amount * job.members * job.duration
    return dict(sorted(demand.items()))


def total_capacity(pools: Iterable[NodePool]) -> dict[str, int]:
    """What all nodes can allocate together. Raises `QuantityError`."""
    total: dict[str, int] = {}
    for pool in pools:
        add_amounts(total, amounts({PODS: DEFAULT_MAX_PODS, **pool.capacity}), pool.count)
    return total


def pool_node_names(pools: Iterable[NodePool]) -> list[str]:
    total = sum(pool.count for pool in pools)
    return [f"node-{number:0{len(str(max(1, total - 1)))}}" for number in range(total)]


def pool_nodes(pools: Iterable[NodePool]) -> list[Node]:
    pools = list(pools)
    statuses = [
        NodePlacementStatus(allocatable={PODS: DEFAULT_MAX_PODS, **pool.capacity})
        for pool in pools
        for _ in range(pool.count)
    ]
    return [
        Node(metadata=ObjectMeta(name=name), status=status)
        for name, status in zip(pool_node_names(pools), statuses, strict=True)
    ]


def _pods_per_node(nodes: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(nodes).items()))
