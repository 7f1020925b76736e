"""One gang: its members, who of them waits, who has a place, who is missed, and what it asks for.

A pod is a member of the PodGroup its annotation names; one of ours without such an annotation is a gang of one. A pod
is ours to place if it names our scheduler and carries no gate, or if it names another scheduler and carries our gate
and no other: then it is not bound but pinned. No I/O, no clock.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from gangline.api.core import PodPhase
from gangline.api.meta import Key
from gangline.api.placing import SCHEDULED, Pod
from gangline.api.scheduling import (
    DEFAULT_QUEUE,
    GATE,
    GroupPhase,
    PodGroup,
    PodGroupSpec,
    PodGroupState,
    Topology,
)
from gangline.api.training import REPLICA_INDEX, REPLICA_TYPE
from gangline.scheduler.model import Ask, Holding, Need, Resident, Wait
from gangline.scheduler.phase import Attempt, MemberFacts, Probed, Vanished
from gangline.scheduler.reading import marks_of
from gangline.scheduler.shape import Shape

BIND, PIN = "bind", "pin"
"""How a member gets its place: we bind it; or we say where, and its own scheduler does."""
CRITICAL = 2_000_000_000
"""Pods of this priority or more run the cluster itself."""
NEVER = "Never"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# As text: members of an enum are slow to name, and there may be thousands of pods.
_SUCCEEDED, _FAILED = PodPhase.SUCCEEDED.value, PodPhase.FAILED.value
_ENDED = (_SUCCEEDED, _FAILED)
_BROKEN = (GroupPhase.RECOVERING.value, GroupPhase.UNSCHEDULABLE.value)
Seat = tuple[str, int | str]
"""Role and index, by which a replacement is known; without an index, the name."""


class Member:
    """A pod of a gang, and where it is or is about to be."""

    __slots__ = ("assumed", "facts", "key", "leaving", "mode", "pod", "refused", "shape", "uid")

    def __init__(self, pod: Pod, shape: Shape, mode: str) -> None:
        self.pod, self.shape, self.mode = pod, shape, mode
        # These never change, and are asked for all the time.
        self.uid, self.key = pod.metadata.uid, pod.metadata.key
        # Where we decided to put it, from the decision until it is seen there or the try has failed.
        self.assumed = ""
        # The server said that it cannot be placed as we know it: it is otherwise by now, and the watch will tell.
        self.refused = False
        # We have asked it to leave, and nobody refused.
        self.leaving = False
        self.facts = facts_of(pod)

    @property
    def node(self) -> str:
        """Where it is, or will be; empty: nowhere."""
        return self.facts.node or self.assumed

    @property
    def waits(self) -> bool:
        """Whether it wants a place, and may have one."""
        return bool(self.mode) and not self.refused and self.homeless

    @property
    def holds(self) -> bool:
        """Whether it has a place, and is to stay."""
        facts = self.facts
        there = bool(facts.node or self.assumed)
        return there and not facts.deleting and not self.leaving and facts.phase not in _ENDED

    @property
    def homeless(self) -> bool:
        """Whether it has no place, whatever keeps it from one."""
        facts = self.facts
        return not (facts.node or self.assumed or facts.deleting or facts.phase in _ENDED)

    def resident(self) -> Resident:
        """As one that holds room where it is, or is about to be."""
        return Resident(
            self.uid,
            self.key,
            self.node,
            self.shape,
            priority=self.pod.spec.priority,
            terminating=self.leaving or self.facts.deleting,
            marks=marks_of(self.pod.metadata.labels, self.shape),
        )

    @property
    def ended(self) -> bool:
        return self.facts.phase in _ENDED

    @property
    def pinned(self) -> bool:
        """Whether it was told where to go, by us, and its own scheduler has yet to bind it there."""
        return bool(self.assumed) and not self.mode and not self.facts.node and self.holds

    @property
    def spurned(self) -> bool:
        """Whether its own scheduler says that there is no room where it was told to go, and makes none."""
        return self.pinned and not self.pod.status.nominated_node_name and _unschedulable(self.pod)


def mode_of(pod: Pod, scheduler: str) -> str:
    """How a pod would be placed by us: bound, pinned, or (empty) not at all, or not yet."""
    gates = pod.spec.scheduling_gates
    if pod.spec.scheduler_name == scheduler:
        return "" if gates else BIND
    return PIN if len(gates) == 1 and gates[0].name == GATE else ""


def facts_of(pod: Pod) -> MemberFacts:
    """What the life cycle looks at."""
    metadata, status = pod.metadata, pod.status
    labels = metadata.labels
    index = labels.get(REPLICA_INDEX, "")
    return MemberFacts(
        uid=metadata.uid,
        name=metadata.name,
        role=labels.get(REPLICA_TYPE, ""),
        index=int(index) if index.isdecimal() else None,
        phase=status.phase or PodPhase.PENDING.value,
        deleting=metadata.deletion_timestamp is not None,
        node=pod.spec.node_name,
        reason=status.reason,
        exit_code=_exit_code(pod) if status.phase == _FAILED else None,
        scheduled_at=_scheduled_at(pod),
    )


def seat_of(facts: MemberFacts) -> Seat:
    return (facts.role, facts.name if facts.index is None else facts.index)


def _unschedulable(pod: Pod) -> bool:
    return any(
        found.type == SCHEDULED and found.status == "False" and found.reason == "Unschedulable"
        for found in pod.status.conditions
    )


def _exit_code(pod: Pod) -> int | None:
    for container in pod.status.container_statuses:
        ended = container.state.terminated
        if ended is not None and ended.exit_code:
            return ended.exit_code
    return None


def _scheduled_at(pod: Pod) -> datetime | None:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "True":
            return condition.last_transition_time
    return None


class Terms(msgspec.Struct, frozen=True):
    """On which terms a gang asks: what its group says, or what a pod alone stands for."""

    least: int = 1
    roles: Mapping[str, int] = {}
    queue: str = DEFAULT_QUEUE
    priority_class: str = ""
    topology: Topology | None = None
    timeout: int | None = None

    @classmethod
    def of(cls, spec: PodGroupSpec) -> "Terms":
        return cls(
            least=max(spec.min_member, sum(spec.min_task_member.values()), 1),
            roles=spec.min_task_member,
            queue=spec.queue or DEFAULT_QUEUE,
            priority_class=spec.priority_class_name,
            topology=spec.topology,
            timeout=spec.schedule_timeout_seconds,
        )


class Standing(msgspec.Struct, frozen=True):
    """How important a gang is, and whether it may ask others to leave."""

    priority: int = 0
    preempts: bool = True


Rank = Callable[[str], Standing | None]
"""What a PriorityClass says, by its name; None if there is none."""


class Gang:
    """A group with its members, or a pod alone. What it asks and holds is worked out once per change."""

    def __init__(self, key: Key, *, alone: bool) -> None:
        self.key, self.alone = key, alone
        # None: a pod alone, or a group that pods name and nobody has made yet.
        self.group: PodGroup | None = None
        self.terms = Terms()
        # Changed by `enter`, `moves` and `leave` only.
        self.members: dict[str, Member] = {}
        # How many members have each seat: one, or two while one replaces the other.
        self._seats: Counter[Seat] = Counter()
        self.vanished: dict[Seat, Vanished] = {}
        # What the last round said of it.
        self.wait: Wait | None = None
        self.attempt: Attempt | None = None
        # When members were last given places, and whether the owner was told that it takes long.
        self.decided: datetime | None = None
        # When its start was last undone.
        self.undone_at: datetime | None = None
        self.told_late = False
        # Members on their way to their places, and those that got there since the last time this was told.
        self.placing: set[str] = set()
        self.placed_now = 0
        # Whether its pods say that there is no room for them.
        self.marked = False
        # Members that may not be asked to leave: their budget is used up.
        self.protected: frozenset[str] = frozenset()
        # Whether they are still true, and else have to be worked out.
        self._asked: Ask | None = None
        self._held: Holding | None = None
        self._knows_ask = self._knows_holding = False
        self._wanting: list[list[Member]] = []

    # What it is

    @property
    def uid(self) -> str:
        return self.group.metadata.uid if self.group is not None else next(iter(self.members), "")

    @property
    def state(self) -> PodGroupState:
        return self.group.status.state if self.group is not None else PodGroupState()

    @property
    def created(self) -> datetime:
        found = self.group.metadata.creation_timestamp if self.group is not None else None
        if found is None and self.members:
            found = next(iter(self.members.values())).pod.metadata.creation_timestamp
        return found or _EPOCH

    @property
    def ready(self) -> bool:
        """Whether its members may be placed: its group exists, if it names one, and stays."""
        if self.alone:
            return True
        return self.group is not None and self.group.metadata.deletion_timestamp is None

    # Who belongs to it

    def enter(self, member: Member) -> None:
        """It has one member more. Whoever had that seat before is not missed any more."""
        self.members[member.uid] = member
        self._sit(member.facts)

    def moves(self, before: MemberFacts, now: MemberFacts) -> None:
        """What is known of a member changed, perhaps its seat."""
        if seat_of(before) != seat_of(now):
            self._rise(before)
            self._sit(now)

    def leave(self, uid: str) -> None:
        """A member is gone. It is missed until another has its seat."""
        facts = self.members.pop(uid).facts
        if not self._rise(facts) and self.group is not None:
            done = facts.phase == _SUCCEEDED
            self.vanished[seat_of(facts)] = Vanished(facts.name, facts.role, facts.index, succeeded=done)

    def _sit(self, facts: MemberFacts) -> None:
        seat = seat_of(facts)
        self._seats[seat] += 1
        self.vanished.pop(seat, None)

    def _rise(self, facts: MemberFacts) -> bool:
        """Whether somebody else has its seat."""
        seat = seat_of(facts)
        self._seats[seat] -= 1
        if self._seats[seat]:
            return True
        del self._seats[seat]
        return False

    # What it has

    def holders(self) -> list[Member]:
        """Members that have a place and stay."""
        return [member for member in self.members.values() if member.holds]

    def homeless(self) -> list[Member]:
        """Members that have none, whatever keeps them from one."""
        return [member for member in self.members.values() if member.homeless]

    def placed(self) -> list[str]:
        """Roles of those that have a place or are done, one entry for each."""
        return [member.facts.role for member in self.holders()] + self._done()

    def _done(self) -> list[str]:
        """Roles of those that have succeeded, also of those that are gone."""
        there = [member.facts for member in self.members.values() if member.facts.phase == _SUCCEEDED]
        return [facts.role for facts in there] + [
            gone.role for gone in self.vanished.values() if gone.succeeded
        ]

    def probed(self, now: datetime) -> Probed:
        """A snapshot for the life cycle."""
        return Probed(
            state=self.state,
            least=self.terms.least,
            roles=self.terms.roles,
            members=tuple([member.facts for member in self.members.values()]),
            vanished=tuple(self.vanished.values()),
            attempt=self._tried(),
            was=self._was(),
            now=now,
        )

    def _tried(self) -> Attempt | None:
        """What came of the last try. If it was for other members than are missing now, it says nothing of these."""
        if self.attempt is None or not self.attempt.failed or self.wait is None:
            return self.attempt
        same = self.wait.ask.least == self._missing(self.placed())[0]
        return self.attempt if same else Attempt(failed=False, message=self.attempt.message)

    def _was(self) -> int:
        """How many were there when somebody last wrote it down, perhaps before we were started."""
        status = self.group.status if self.group is not None else None
        return status.running + status.succeeded if status is not None else 0

    def _missing(self, there: list[str]) -> tuple[int, dict[str, int]]:
        """How many more it needs at least, in all and by role, with these roles there."""
        roles = {
            role: least - count
            for role, least in self.terms.roles.items()
            if (count := there.count(role)) < least
        }
        return max(self.terms.least - len(there), sum(roles.values()), 0), roles

    # What it says

    def touch(self) -> None:
        """It changed: what it said may no longer hold."""
        self._knows_ask = self._knows_holding = False

    def ask(self, rank: Rank) -> Ask | None:
        """What it asks for; None: nothing, or too few members exist. The same value until it changes."""
        if not self._knows_ask:
            self._asked, self._knows_ask = self._asking(rank), True
        return self._asked

    def holding(self, rank: Rank) -> Holding | None:
        """What it has; None: nothing. The same value until it changes."""
        if not self._knows_holding:
            self._held, self._knows_holding = self._having(rank), True
        return self._held

    def chosen(self, nodes: Sequence[Iterable[str]]) -> Iterator[tuple[Member, str]]:
        """Which member goes to which node, when the last ask was answered with these nodes for its needs."""
        for members, given in zip(self._wanting, nodes, strict=True):
            yield from zip(members, given, strict=False)

    def _asking(self, rank: Rank) -> Ask | None:
        self._wanting = []
        if len(self.members) + len(self.vanished) < self.terms.least or not self.ready:
            return None
        waiting = [member for member in self.members.values() if member.waits]
        if not waiting:
            return None
        placed = self.placed()
        least, roles = self._missing(placed)
        if len(waiting) < least or not _covers(waiting, roles):
            return None
        standing = self._standing(rank)
        return Ask(
            key=self.key,
            uid=self.uid,
            queue=self.terms.queue,
            priority=standing.priority,
            created=self.created,
            since=max([member.pod.metadata.creation_timestamp or _EPOCH for member in waiting]),
            broken=self.state.phase in _BROKEN or 0 < len(placed) < self.terms.least,
            needs=self._needs(waiting),
            least=least,
            roles=roles,
            topology=self.terms.topology,
            near=tuple(sorted({member.node for member in self.holders()})),
            preempts=standing.preempts,
        )

    def _needs(self, waiting: list[Member]) -> tuple[Need, ...]:
        # By identity: equal shapes are one object, and comparing a thousand of them is not free.
        found: dict[tuple[str, int], list[Member]] = {}
        for member in sorted(waiting, key=_order):
            found.setdefault((member.facts.role, id(member.shape)), []).append(member)
        self._wanting = list(found.values())
        return tuple(Need(members[0].facts.role, members[0].shape, len(members)) for members in self._wanting)

    def _having(self, rank: Rank) -> Holding | None:
        # Those on their way out have their room until they are gone: it counts for their queue.
        there = [member for member in self.members.values() if member.node and not member.ended]
        if not there:
            return None
        standing, holders, done = self._standing(rank), self.holders(), self._done()
        _, roles = self._missing(done)
        return Holding(
            key=self.key,
            uid=self.uid,
            queue=self.terms.queue,
            priority=standing.priority,
            created=self.created,
            least=max(self.terms.least - len(done), 0),
            members=tuple([member.resident() for member in there]),
            roles=roles,
            role_of={member.uid: member.facts.role for member in holders} if roles else {},
            protected=self._protected(holders),
        )

    def _protected(self, holders: list[Member]) -> frozenset[str]:
        critical = {member.uid for member in holders if member.pod.spec.priority >= CRITICAL}
        if self.key.namespace == "kube-system":
            critical.update(member.uid for member in holders)
        return self.protected | critical if critical else self.protected

    def _standing(self, rank: Rank) -> Standing:
        """What its group's class says; else what its pods say, who should agree: the most important one."""
        named = rank(self.terms.priority_class) if self.terms.priority_class else None
        if named is not None:
            return named
        specs = [member.pod.spec for member in self.members.values()]
        priority = max([spec.priority for spec in specs], default=0)
        return Standing(priority, preempts=NEVER not in [spec.preemption_policy for spec in specs])


def _covers(members: list[Member], roles: Mapping[str, int]) -> bool:
    if not roles:
        return True
    there = [member.facts.role for member in members]
    return all(there.count(role) >= least for role, least in roles.items())


def _order(member: Member) -> tuple[str, int, str]:
    facts = member.facts
    return facts.role, -1 if facts.index is None else facts.index, facts.name
