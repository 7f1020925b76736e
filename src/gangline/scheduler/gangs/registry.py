"""All gangs, from pods and PodGroups, change by change.

Fed by informers and asked once per round: a round costs what changed, not what there is. No I/O, no clock.
"""

from collections.abc import Iterator

from gangline.api.core import PriorityClass
from gangline.api.meta import Key
from gangline.api.scheduler_views import Pod
from gangline.api.scheduling import GROUP_NAME, SCHEDULER, GroupPhase, PodGroup
from gangline.scheduler.gangs.gang import NEVER, Gang, Standing, Terms
from gangline.scheduler.gangs.member import BIND, PIN, Member, facts_of, mode_of
from gangline.scheduler.pods.shape import Shape
from gangline.scheduler.types.cycle import Ask, Holding, Limit


class Gangs:
    """Every group, and every pod of ours that stands alone."""

    def __init__(self, scheduler: str = SCHEDULER, *, modes: frozenset[str] = frozenset({BIND, PIN})) -> None:
        self._scheduler, self._modes = scheduler, modes
        self._groups: dict[Key, Gang] = {}
        # By uid: a pod and a group may have the same name.
        self._alone: dict[str, Gang] = {}
        self._of: dict[str, Gang] = {}
        self._classes: dict[str, Standing] = {}
        # Those that may ask for something, in the order in which they came. Others are not looked at in a round.
        self._waiting: dict[Gang, None] = {}
        self.changed: dict[Gang, None] = {}
        """Those of which something may have to be told. Whoever tells it takes them out."""
        self.version = 0
        # Grows when a group is on other terms than before.
        self.rules = 0
        """Grows with every change that may matter to a decision."""

    def __iter__(self) -> Iterator[Gang]:
        yield from self._groups.values()
        yield from self._alone.values()

    def of(self, uid: str) -> Gang | None:
        """The gang of a pod."""
        return self._of.get(uid)

    def member(self, uid: str) -> Member | None:
        gang = self._of.get(uid)
        return gang.members.get(uid) if gang is not None else None

    def group(self, key: Key) -> Gang | None:
        return self._groups.get(key)

    # What changes

    def put_pod(self, pod: Pod, shape: Shape) -> Member | None:
        """A pod is there, or is otherwise. Gives it as a member, if it is one. Equal shapes must be one object.

        Whoever is told to belong elsewhere is lost to its gang. One on its way to its place gets there first.
        """
        known = self.member(pod.metadata.uid)
        if known is not None and not known.assumed and not _belongs(pod, self._of[known.uid]):
            self.drop_pod(known.uid)
        gang = self._home(pod)
        if gang is None:
            return None
        uid, mode = pod.metadata.uid, mode_of(pod, self._scheduler)
        mode = mode if mode in self._modes else ""
        member = gang.members.get(uid)
        if member is None:
            member = Member(pod, shape, mode)
            gang.enter(member)
            self._of[uid] = gang
        else:
            before, was = (member.shape, member.mode, member.facts), member.holds and member.node
            spurned = member.spurned
            member.pod, member.shape, member.mode, member.facts = pod, shape, mode, facts_of(pod)
            refused, member.refused = member.refused, False
            if before == (shape, mode, member.facts) and not refused:
                # A condition, an annotation: nothing that anybody decides on. But a lost place is due to be given up.
                if member.spurned != spurned:
                    self.changed[gang] = None
                return member
            gang.moves(before[2], member.facts)
            if member.assumed and was == member.facts.node and member.holds and before[0] is shape:
                # Seen where we put it: to all decisions it has been there before.
                member.assumed = ""
                self.changed[gang] = None
                return member
        if member.facts.node:
            member.assumed = ""
        self.touch(gang)
        return member

    def drop_pod(self, uid: str) -> None:
        """A pod is gone. Until another takes its seat it is remembered."""
        gang = self._of.pop(uid, None)
        if gang is None:
            return
        gang.leave(uid)
        self.touch(gang)
        self._forget_empty(gang, uid)

    def put_group(self, group: PodGroup) -> Gang:
        """A group is there, or is otherwise."""
        key = group.metadata.key
        gang = self._groups.get(key)
        if gang is None:
            gang = self._groups[key] = Gang(key, alone=False)
        before = gang.group
        if before is not None and before.metadata.uid == group.metadata.uid and not _newer(group, before):
            return gang
        gang.group = group
        if before is None or _begins_again(before, group):
            # Whoever it lost before is no loss to what begins now.
            gang.vanished.clear()
            gang.decided = gang.undone_at = None
            done, probed = group.status.succeeded, group.status.state.last_probe_time
            gang.inherited = (done, probed) if before is None else (0, None)
            gang.told_late = False
        if group.status.state.phase == GroupPhase.RUNNING:
            # All have their places.
            gang.shunned.clear()
        if before is not None and _same(before, group):
            self.changed[gang] = None
            return gang
        terms = Terms.of(group.spec)
        # What one may hold, others may have: also of a gang that asks for nothing.
        self.rules += terms != gang.terms
        gang.terms = terms
        self.touch(gang)
        return gang

    def drop_group(self, key: Key) -> None:
        """A group is gone; members that are left wait for another one of its name."""
        gang = self._groups.get(key)
        if gang is not None:
            gang.group, gang.terms, gang.wait, gang.attempt = None, Terms(), None, None
            gang.vanished.clear()
            self.touch(gang)
            self._forget_empty(gang)

    def put_class(self, found: PriorityClass) -> None:
        preempts = found.preemption_policy != NEVER
        self._classes[found.metadata.name] = Standing(found.value, preempts=preempts)
        self._touch_all()

    def drop_class(self, name: str) -> None:
        self._classes.pop(name, None)
        self._touch_all()

    def assume(self, member: Member, node: str) -> None:
        """We have decided where it goes."""
        member.assumed = node
        self.touch(self._of[member.uid])

    def unassume(self, uid: str) -> None:
        """It did not come to that. Does nothing for one that is gone, or is there already."""
        member = self.member(uid)
        if member is not None and member.assumed:
            member.assumed = ""
            self.touch(self._of[uid])

    def forgive(self, gang: Gang) -> None:
        """Nodes that did not take its members may be tried again."""
        gang.shunned.clear()
        self.touch(gang)

    def protect(self, gang: Gang, uids: frozenset[str], limits: tuple[Limit, ...] = ()) -> None:
        """These of its members may not be asked to leave, and no others; of the others not more than the limits say."""
        if (gang.protected, gang.limits) != (uids, limits):
            gang.protected, gang.limits = uids, limits
            self.touch(gang)

    def touch(self, gang: Gang) -> None:
        """Something about it changed."""
        gang.touch()
        self.version += 1
        self._waiting[gang] = None
        self.changed[gang] = None

    # What is asked

    def asks(self) -> list[Ask]:
        """Of all gangs with members that wait, if enough of them exist."""
        found: list[Ask] = []
        for gang in tuple(self._waiting):
            ask = gang.ask(self._classes.get)
            if ask is not None:
                found.append(ask)
                continue
            del self._waiting[gang]
            gang.wait = gang.attempt = None
        return found

    def holdings(self) -> list[Holding]:
        """Of all gangs that have places."""
        rank = self._classes.get
        return [holding for gang in self if (holding := gang.holding(rank)) is not None]

    def holding(self, gang: Gang) -> Holding | None:
        """What one of them has; None: nothing."""
        return gang.holding(self._classes.get)

    def knows_class(self, name: str) -> bool:
        """Whether there is a PriorityClass of that name; none at all is fine."""
        return not name or name in self._classes

    def answered(self, ask: Ask) -> Gang | None:
        """Whose ask it is; None if it has gone."""
        found = self._alone.get(ask.uid) or self._groups.get(ask.key)
        return found if found is not None and found.uid == ask.uid else None

    def phases(self) -> Iterator[tuple[str, str]]:
        """Queue and phase of every group."""
        for gang in self._groups.values():
            if gang.group is not None:
                yield gang.terms.queue, gang.state.phase

    # Inside

    def _home(self, pod: Pod) -> Gang | None:
        """The gang of a pod, made if need be; None if it is no business of ours."""
        metadata = pod.metadata
        known = self._of.get(metadata.uid)
        if known is not None:
            return known
        name = metadata.annotations.get(GROUP_NAME)
        if name:
            return self._groups.setdefault(
                Key(metadata.namespace, name), Gang(Key(metadata.namespace, name), alone=False)
            )
        if pod.spec.scheduler_name != self._scheduler:
            return None
        gang = self._alone[metadata.uid] = Gang(metadata.key, alone=True)
        return gang

    def _touch_all(self) -> None:
        for gang in self:
            self.touch(gang)

    def _forget_empty(self, gang: Gang, uid: str = "") -> None:
        if gang.group is None and not gang.members:
            if gang.alone:
                self._alone.pop(uid, None)
            else:
                del self._groups[gang.key]
            self._waiting.pop(gang, None)
            self.changed.pop(gang, None)


def _belongs(pod: Pod, gang: Gang) -> bool:
    """Whether its annotation still says that it is of this gang."""
    name = pod.metadata.annotations.get(GROUP_NAME)
    return gang.alone if not name else not gang.alone and gang.key.name == name


def _newer(group: PodGroup, before: PodGroup) -> bool:
    """A watch may be behind what we wrote. Versions that are not numbers are taken as they come."""
    one, other = group.metadata.resource_version, before.metadata.resource_version
    if one.isdecimal() and other.isdecimal():
        return int(one) > int(other)
    return one != other


def _begins_again(before: PodGroup, group: PodGroup) -> bool:
    """Whether it is another group of the same name, or all of its members are gone and it starts again."""
    stuck, now = before.status.state.phase, group.status.state.phase
    again = (stuck, now) == (GroupPhase.UNSCHEDULABLE, GroupPhase.PENDING)
    return again or before.metadata.uid != group.metadata.uid


def _same(group: PodGroup, before: PodGroup) -> bool:
    """Whether only words about it changed."""
    one, other = group.metadata, before.metadata
    return (
        one.uid == other.uid
        and one.deletion_timestamp == other.deletion_timestamp
        and group.spec == before.spec
        and group.status.state.phase == before.status.state.phase
    )
