"""Carries the decisions of a round out: orders and notices are given, what became of them is noted, and told once."""

import logging
from collections.abc import Callable
from datetime import datetime, timedelta

from gangline.api.placing import Pod
from gangline.api.scheduling import PodGroup
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.kube.errors import KubeError
from gangline.runtime.events import EventType, Recorder
from gangline.scheduler.commit import Committer, Order
from gangline.scheduler.evict import Evictor, Notice
from gangline.scheduler.gang import Gang
from gangline.scheduler.meters import Meters
from gangline.scheduler.model import Cause, Evict, Place, Round, Wait
from gangline.scheduler.overdue import undone, why_undone
from gangline.scheduler.phase import Attempt
from gangline.scheduler.settings import SchedulerSettings
from gangline.scheduler.world import World

log = logging.getLogger(__name__)

_NAMED = 3
"""So many gangs that have to end are named; the others are counted."""


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
            match decision:
                case Place():
                    self._place(gang, decision, now)
                case Evict():
                    self._make_room(gang, decision)
                case Wait():
                    self._wait(gang, decision)

    def undo(self, gang: Gang, limit: timedelta) -> None:
        """Take back a start that was left half bound: places are given up, and who has one is asked to leave."""
        members = undone(gang, self._settings.name)
        # Bound, or told where to go: in both cases only leaving takes it back.
        there = [member for member in members if member.facts.node or not member.mode]
        note = why_undone(gang, len(there), limit)
        for member in members:
            self.committer.take_back(member.uid)
            self._settled(member.uid)
            if member in there:
                self._leave(Notice(member.key, member.uid))
            else:
                self._world.unassume(member.uid)
        gang.decided, gang.placed_now = None, 0
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

    def _make_room(self, gang: Gang, decision: Evict) -> None:
        count = len(decision.victims)
        ending = ", ".join(str(key) for key in decision.gangs[:_NAMED])
        more = len(decision.gangs) - _NAMED
        ending += f" and {more} more" if more > 0 else ""
        log.info("making room", extra={"gang": gang.key, "victims": count, "ending": ending or "none"})
        self._meters.victims(count)
        told = f"{count} pods are asked to leave for it" + (f", ending {ending}" if ending else "")
        self.tell(gang, EventType.NORMAL, "MakingRoom", told, "Preempt")
        for victim in decision.victims:
            self._leave(Notice(victim.key, victim.uid))
        for key in decision.gangs:
            ended = self._world.gangs.group(key)
            if ended is not None:
                why = f"has to give way to {gang.key}, which is more important or is owed its share"
                self.tell(ended, EventType.WARNING, "Preempted", why, "Preempt")
        self._waits(gang, Wait(decision.ask, Cause.VICTIMS, told), failed=False)

    def _leave(self, notice: Notice) -> None:
        self._world.ask_to_leave(notice.uid, leaves=True)
        self.evictor.give(notice)

    def _wait(self, gang: Gang, decision: Wait) -> None:
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
        gang.placed_now += 1
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
        count, gang.placed_now = gang.placed_now, 0
        nodes = sorted({member.node for member in gang.holders()})
        where = nodes[0] if len(nodes) == 1 else f"{len(nodes)} nodes"
        note = f"{count} member{'s' if count > 1 else ''} placed on {where}"
        self.tell(gang, EventType.NORMAL, "Scheduled", note, "Place")


def _lacks_room(wait: Wait) -> bool:
    """Whether there is none even for the least it needs. Room that others are about to leave was counted as free."""
    return wait.cause in (Cause.RESOURCES, Cause.REFUSED) and wait.ask.least > 0
