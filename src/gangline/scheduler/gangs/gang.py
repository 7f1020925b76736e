"""One gang: its members, who of them waits, who has a place, who is missed, and what it asks for.

A pod is a member of the PodGroup its annotation names; one of ours without such an annotation is a gang of one. A pod
is ours to place if it names our scheduler and carries no gate, or if it names another scheduler and carries our gate
and no other: then it is not bound but pinned. No I/O, no clock.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from gangline.api.meta import Key, OwnerReference
from gangline.api.scheduling import (
    DEFAULT_QUEUE,
    GATE,
    GroupPhase,
    PodGroup,
    PodGroupSpec,
    PodGroupState,
    Topology,
)
from gangline.scheduler.gangs.member import SUCCEEDED, Member, Seat, seat_of
from gangline.scheduler.gangs.phase import Attempt, MemberFacts, Probed, Vanished
from gangline.scheduler.pods.shape import avoiding
from gangline.scheduler.types.cycle import Ask, Holding, Limit, Need, Wait

CRITICAL = 2_000_000_000
"""Pods of this priority or more run the cluster itself."""
NEVER = "Never"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BROKEN = (GroupPhase.RECOVERING.value, GroupPhase.UNSCHEDULABLE.value)
_FEW = 16
"""So many who went are always remembered, twice over: only a gang that loses many is looked through."""
_NOWHERE: frozenset[str] = frozenset()


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
        # How many had succeeded by its status when we first saw it, and when that was written.
        self.inherited: tuple[int, datetime | None] = (0, None)
        # What the last round said of it.
        self.wait: Wait | None = None
        self.attempt: Attempt | None = None
        # When members were last given places, and whether the owner was told that it takes long.
        self.decided: datetime | None = None
        # When its start was last undone.
        self.undone_at: datetime | None = None
        self.told_late = False
        # The PriorityClass of which somebody was told that it is not there.
        self.told_class = ""
        # Members on their way to their places, and the nodes of those that got there since this was last told.
        self.placing: set[str] = set()
        self.placed_now: list[str] = []
        # Whether its pods say that there is no room for them.
        self.marked = False
        # Members that may not be asked to leave: their budget is used up.
        self.protected: frozenset[str] = frozenset()
        self.limits: tuple[Limit, ...] = ()
        # Seats whose pods were told a node that did not take them, and these nodes: others are tried first.
        self.shunned: dict[Seat, frozenset[str]] = {}
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
        member = self.members.pop(uid)
        facts = member.facts
        if not self._rise(facts) and self.group is not None and not _of_namesake(member, self._owner):
            done = facts.phase == SUCCEEDED
            if len(self.vanished) > 2 * max(self.terms.least, _FEW):
                self._forget_replaced()
            self.vanished[seat_of(facts)] = Vanished(facts.name, facts.role, facts.index, succeeded=done)

    def _forget_replaced(self) -> None:
        """Whose replacements have other names is never seen to be replaced; only the last of them can be missed."""
        nameless = [seat for seat, gone in self.vanished.items() if gone.index is None and not gone.succeeded]
        for seat in nameless[: max(len(nameless) - self.terms.least, 0)]:
            del self.vanished[seat]

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

    @property
    def _owner(self) -> OwnerReference | None:
        return self.group.metadata.controller if self.group is not None else None

    def own(self) -> list[Member]:
        """Its members, without those of a deleted job that had the name before: they hold room, and are no part of it."""
        owner = self._owner
        return [member for member in self.members.values() if not _of_namesake(member, owner)]

    def shun(self, member: Member) -> None:
        """The node that it was told did not take it: whoever has its seat next is told another, as long as there is one."""
        seat = seat_of(member.facts)
        self.shunned[seat] = self.shunned.get(seat, frozenset()) | {member.node}

    # What it has

    def holders(self) -> list[Member]:
        """Members that have a place and stay."""
        return [member for member in self.members.values() if member.holds]

    def homeless(self) -> list[Member]:
        """Members that have none, whatever keeps them from one."""
        return [member for member in self.members.values() if member.homeless]

    def placed(self) -> list[str]:
        """Roles of those that have a place or are done, one entry for each."""
        return [member.facts.role for member in self.own() if member.holds] + self._done()

    def _done(self) -> list[str]:
        """Roles of those that have succeeded, also of those that are gone."""
        there = [member.facts for member in self.own() if member.facts.phase == SUCCEEDED]
        return [facts.role for facts in there] + [
            gone.role for gone in self.vanished.values() if gone.succeeded
        ]

    def probed(self, now: datetime) -> Probed:
        """A snapshot for the life cycle."""
        return Probed(
            state=self.state,
            least=self.terms.least,
            roles=self.terms.roles,
            members=tuple([member.facts for member in self.own()]),
            vanished=(*self.vanished.values(), *self._forgotten()),
            attempt=self._tried(),
            was=self._was(),
            now=now,
        )

    def _forgotten(self) -> tuple[Vanished, ...]:
        """Members that succeeded and went before we were started: only the status tells of them, until others come."""
        count, since = self.inherited
        if not count or since is None:
            return ()
        if any(
            (member.pod.metadata.creation_timestamp or _EPOCH) > since for member in self.members.values()
        ):
            return ()
        return (Vanished("", succeeded=True),) * max(count - len(self._done()), 0)

    def _tried(self) -> Attempt | None:
        """What came of the last try. If it was for other members than are missing now, it says nothing of these."""
        if self.attempt is None and self.group is not None:
            held = self._held_back()
            return Attempt(failed=False, message=held) if held else None
        if self.attempt is None or not self.attempt.failed or self.wait is None:
            return self.attempt
        same = self.wait.ask.least == self._missing(self.placed())[0]
        return self.attempt if same else Attempt(failed=False, message=self.attempt.message)

    def _held_back(self) -> str:
        """Who keeps members from being placed that it needs, though they exist; empty: nobody, or it needs none."""
        homeless = self.homeless()
        gated = [member for member in homeless if not member.mode and member.pod.spec.scheduling_gates]
        if not gated or sum(bool(member.mode) for member in homeless) >= self._missing(self.placed())[0]:
            return ""
        gates = {gate.name for member in gated for gate in member.pod.spec.scheduling_gates}
        return f"{len(gated)} held back by scheduling gates ({', '.join(sorted(gates - {GATE}) or sorted(gates))})"

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
        waiting = [member for member in self.own() if member.waits]
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
        found: dict[tuple[str, int, frozenset[str]], list[Member]] = {}
        for member in sorted(waiting, key=_order):
            avoided = self.shunned.get(seat_of(member.facts), _NOWHERE) if self.shunned else _NOWHERE
            found.setdefault((member.facts.role, id(member.shape), avoided), []).append(member)
        self._wanting = list(found.values())
        return tuple(
            Need(role, avoiding(members[0].shape, avoided), len(members))
            for (role, _, avoided), members in found.items()
        )

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
            limits=self.limits,
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


def _of_namesake(member: Member, owner: OwnerReference | None) -> bool:
    """Whether it belongs to another object of the same kind and name as the owner of its group.

    Owners that merely differ say nothing: the pods of a JobSet belong to its Jobs.
    """
    other = member.owner
    if owner is None or other is None or other.uid == owner.uid:
        return False
    return (other.kind, other.name) == (owner.kind, owner.name)


def _covers(members: list[Member], roles: Mapping[str, int]) -> bool:
    if not roles:
        return True
    there = [member.facts.role for member in members]
    return all(there.count(role) >= least for role, least in roles.items())


def _order(member: Member) -> tuple[str, int, str]:
    facts = member.facts
    return facts.role, -1 if facts.index is None else facts.index, facts.name
