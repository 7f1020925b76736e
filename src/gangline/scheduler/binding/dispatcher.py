"""Carries the decisions of a round out: orders and notices are given, what became of them is noted, and told once."""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

from gangline.api.scheduler_views import Pod
from gangline.api.scheduling import PodGroup
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.kube.errors import KubeError
from gangline.runtime.events import EventType, Recorder
from gangline.scheduler.binding.binder import Committer, Order
from gangline.scheduler.binding.evictor import Evictor, Notice
from gangline.scheduler.cache.cache import World
from gangline.scheduler.gangs.gang import Gang
from gangline.scheduler.gangs.phase import Attempt
from gangline.scheduler.gangs.timeouts import undone, why_undone
from gangline.scheduler.metrics import Meters
from gangline.scheduler.settings import SchedulerSettings
from gangline.scheduler.types.cycle import Ask, Cause, Evict, Place, Round, Wait

log = logging.getLogger(__name__)

_NAMED = 3
"""So many gangs that have to give way are named; the others are counted."""


class Carrier:
    """Between decisions and calls. Its `committer` and `evictor` do nothing until they are run."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        world: World,
        recorder: Recorder,
        settings: SchedulerSettings,
        meters: Meters,
        again: Callable[[], None],
    ) -> None:
        """`again` is called when another round is needed at once."""
        self.committer = Committer(client, clock, self, at_once=settings.at_once)
        self.evictor = Evictor(client, clock, self)
        self._clock, self._world, self._recorder = clock, world, recorder
        self._settings, self._meters, self._again = settings, meters, again
        # Whose order is open, by uid.
        self._placing: dict[str, Gang] = {}

    # Decisions

    def carry_out(self, found: Round, now: datetime) -> None:
        """Do what a round decided. Gangs that have gone meanwhile are passed over."""
        for decision in found.decisions:
            gang = self._world.gangs.answered(decision.ask)
            if gang is None:
                continue
            self._miss_class(gang)
            match decision:
                case Place():
                    self._place(gang, decision, now)
                case Evict():
                    self._make_room(gang, decision)
                case Wait():
                    self._wait(gang, decision)

    def undo(self, gang: Gang, limit: timedelta) -> None:
        """Take back a start that was left half bound: places are given up, and who has one is asked to leave."""
        # What comes of a call under way nobody knows: its place stays used.
        members = [
            member
            for member in undone(gang, self._settings.name)
            if member.facts.node or not self.committer.tries(member.uid)
        ]
        # Bound, also if that was not yet seen, or told where to go: in all these cases only leaving takes it back.
        there = [member for member in members if member.facts.node or not self.committer.waits(member.uid)]
        note = why_undone(gang, len(there), limit)
        for member in members:
            self.committer.take_back(member.uid)
            self._settled(member.uid)
            if member.spurned:
                gang.shun(member)
            if member in there:
                self._leave(Notice(member.key, member.uid))
            else:
                self._world.unassume(member.uid)
        gang.decided, gang.placed_now = None, []
        self.tell(gang, EventType.WARNING, "Undone", note, "Undo")
        log.warning("start undone", extra={"gang": gang.key, "bound": len(there), "least": gang.terms.least})

    def forget(self, uid: str) -> None:
        """A pod is gone: nothing more is done for it."""
        self.committer.take_back(uid)
        self._settled(uid)

    def tell(self, gang: Gang, kind: EventType, reason: str, note: str, action: str) -> None:
        """An Event about a group, or about a pod that stands alone."""
        regarding: Pod | PodGroup | None = gang.group
        if regarding is None and gang.members:
            regarding = next(iter(gang.members.values())).pod
        if regarding is not None:
            self._recorder.record(regarding, kind, reason, note, action)

    def _place(self, gang: Gang, decision: Place, now: datetime) -> None:
        gang.wait = gang.attempt = None
        gang.decided, gang.told_late = now, False
        chosen = list(gang.chosen(decision.nodes))
        for member, node in chosen:
            self._world.assume(member, node)
            hostname = self._world.hostname(node)
            self.committer.give(Order(member.key, member.uid, node, member.mode, hostname))
            self._placing[member.uid] = gang
            gang.placing.add(member.uid)
        if len(chosen) < sum(need.count for need in decision.ask.needs):
            # The others are to hear why they wait.
            self._again()

    def _miss_class(self, gang: Gang) -> None:
        """Say, once, that the PriorityClass it names is not there: it would count for less, and nobody would know why."""
        name = gang.terms.priority_class
        if name == gang.told_class or self._world.gangs.knows_class(name):
            return
        gang.told_class = name
        note = f"there is no PriorityClass '{name}': make it, or name another; until then the priority of its pods counts"
        self.tell(gang, EventType.WARNING, "PriorityClassMissing", note, "Place")

    def _make_room(self, gang: Gang, decision: Evict) -> None:
        count = len(decision.victims)
        names = ", ".join(str(key) for key in decision.gangs[:_NAMED])
        more = len(decision.gangs) - _NAMED
        names += f" and {more} more" if more > 0 else ""
        log.info("making room", extra={"gang": gang.key, "victims": count, "of": names or "none"})
        self._meters.victims(count)
        asked = f"{count} pods are" if count > 1 else "1 pod is"
        told = f"{asked} asked to leave for it" + (f", of {names}" if names else "")
        self.tell(gang, EventType.NORMAL, "MakingRoom", told, "Preempt")
        leaving = Counter(self._world.gangs.of(victim.uid) for victim in decision.victims)
        for key in decision.gangs:
            victim_gang = self._world.gangs.group(key)
            if victim_gang is not None:
                why = self._why_give_way(victim_gang, leaving[victim_gang], gang, decision.ask)
                self.tell(victim_gang, EventType.WARNING, "Preempted", why, "Preempt")
        for victim in decision.victims:
            self._leave(Notice(victim.key, victim.uid))
        self._waits(gang, Wait(decision.ask, Cause.VICTIMS, told), failed=False)

    def _why_give_way(self, victim: Gang, count: int, gang: Gang, ask: Ask) -> str:
        """What a gang is told of which so many members are asked to leave. To be asked for before they are."""
        held, there = self._world.gangs.holding(victim), len(victim.holders())
        below = held is not None and held.priority < ask.priority
        why = "which is more important" if below else "whose queue is owed its share"
        if count >= there:
            return f"has to give way to {gang.key}, {why}"
        who = f"{count} of its {there} members {'have' if count > 1 else 'has'}"
        return f"{who} to give way to {gang.key}, {why}; it goes on with the others"

    def _leave(self, notice: Notice) -> None:
        self._world.ask_to_leave(notice.uid, leaves=True)
        self.evictor.give(notice)

    def _wait(self, gang: Gang, decision: Wait) -> None:
        if gang.shunned and decision.cause is Cause.RESOURCES:
            # There is no room elsewhere, and by now they may have some.
            self._world.gangs.forgive(gang)
            self._again()
            return
        if decision.cause is Cause.REFUSED and (gang.wait is None or gang.wait.message != decision.message):
            self.tell(gang, EventType.WARNING, "Refused", decision.message, "Place")
        self._waits(gang, decision, failed=_lacks_room(decision))

    def _waits(self, gang: Gang, wait: Wait, *, failed: bool) -> None:
        attempt = Attempt(failed, wait.message)
        if attempt != gang.attempt or gang.wait is None or gang.wait.cause is not wait.cause:
            self._world.gangs.changed[gang] = None
        gang.wait, gang.attempt = wait, attempt

    # What becomes of orders and notices

    def done(self, order: Order) -> None:
        gang, member = self._world.gangs.of(order.uid), self._world.gangs.member(order.uid)
        if gang is None or member is None:
            return
        created = member.pod.metadata.creation_timestamp
        self._meters.bound(None if created is None else self._clock.now() - created)
        gang.placed_now.append(order.node)
        self._settled(order.uid)

    def refused(self, order: Order, why: str) -> None:
        log.warning("placing refused", extra={"pod": order.key, "node": order.node, "why": why})
        self._meters.failed()
        self._settled(order.uid)
        self._world.refuse(order.uid)

    def failed(self, order: Order, error: KubeError) -> None:
        self._meters.failed()

    def stays(self, notice: Notice, why: str) -> None:
        log.warning("eviction refused", extra={"pod": notice.key, "why": why})
        self._world.budgets.refuse(notice.uid, self._clock.now())
        self._world.ask_to_leave(notice.uid, leaves=False)

    def _settled(self, uid: str) -> None:
        """An order is over, one way or the other. One Event for all members that were placed together."""
        gang = self._placing.pop(uid, None)
        if gang is None:
            return
        gang.placing.discard(uid)
        if gang.placing or not gang.placed_now:
            return
        count, nodes, gang.placed_now = len(gang.placed_now), set(gang.placed_now), []
        where = nodes.pop() if len(nodes) == 1 else f"{len(nodes)} nodes"
        note = f"{count} member{'s' if count > 1 else ''} placed on {where}"
        self.tell(gang, EventType.NORMAL, "Scheduled", note, "Place")


def _lacks_room(wait: Wait) -> bool:
    """Whether there is none even for the least it needs. Room that others are about to leave was counted as free."""
    return wait.cause in (Cause.RESOURCES, Cause.REFUSED) and wait.ask.least > 0
