"""Carries out the decisions of a cycle: submits bind and evict requests, and records why gangs are pending."""

import logging
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

from gangline.base.tracing import AttributeValue, is_tracing, trace_span
from gangline.runtime.events import EventType
from gangline.scheduler.binding.binder import BindRequest, PodBinder
from gangline.scheduler.binding.evictor import Evictor, EvictRequest
from gangline.scheduler.binding.gang_events import GangEvents
from gangline.scheduler.binding.outcomes import BindingOutcomes
from gangline.scheduler.cache.cache import SchedulerCache
from gangline.scheduler.gangs.gang import GangInfo
from gangline.scheduler.gangs.phase import PlacementAttempt
from gangline.scheduler.gangs.timeouts import members_to_evict, rollback_message
from gangline.scheduler.metrics import SchedulerMetrics
from gangline.scheduler.settings import SchedulerSettings
from gangline.scheduler.types.cycle import Bind, CycleResult, Decision, GangRequest, Pending, PendingReason, Preempt
from gangline.scheduler.types.gang_requests import member_count

log = logging.getLogger(__name__)

_MAX_NAMED_GANGS = 3
"""How many preempted gangs an Event names; the others are counted."""


class Dispatcher:
    """Turns decisions into requests to the binder and the evictor."""

    def __init__(
        self,
        cache: SchedulerCache,
        binder: PodBinder,
        evictor: Evictor,
        outcomes: BindingOutcomes,
        events: GangEvents,
        settings: SchedulerSettings,
        metrics: SchedulerMetrics,
        request_cycle: Callable[[], None],
    ) -> None:
        """`request_cycle` is called when another cycle is needed at once."""
        self._cache, self._binder, self._evictor, self._outcomes = cache, binder, evictor, outcomes
        self._events, self._settings, self._metrics, self._request_cycle = events, settings, metrics, request_cycle

    def dispatch(self, result: CycleResult, now: datetime) -> None:
        """Carry out the decisions of a cycle. Gangs that were deleted meanwhile are skipped."""
        for decision in result.decisions:
            gang = self._cache.gangs.gang_of_request(decision.request)
            if gang is None:
                continue
            self._warn_missing_class(gang)
            attributes = _span_attributes(decision, now) if is_tracing() else None
            with trace_span("gang placement", attributes):
                self._carry_out(gang, decision, now)

    def _carry_out(self, gang: GangInfo, decision: Decision, now: datetime) -> None:
        match decision:
            case Bind():
                self._bind(gang, decision, now)
            case Preempt():
                self._preempt(gang, decision)
            case Pending():
                self._mark_pending(gang, decision)

    def rollback(self, gang: GangInfo, limit: timedelta) -> None:
        """Roll back a start that was left half bound: cancel open requests and evict the placed members."""
        # The result of a call in flight is unknown: its node stays in use.
        members = [
            member
            for member in members_to_evict(gang, self._settings.name)
            if member.status.node or not self._binder.is_in_flight(member.uid)
        ]
        # Bound, even if the watch has not shown it yet, or pinned: only eviction takes these back.
        bound = [member for member in members if member.status.node or not self._binder.is_queued(member.uid)]
        message = rollback_message(gang, len(bound), limit)
        for member in members:
            self._binder.cancel(member.uid)
            self._outcomes.finish(member.uid)
            if member.pin_rejected:
                gang.exclude_node(member)
            if member in bound:
                self._evict(EvictRequest(member.key, member.uid))
            else:
                self._cache.forget(member.uid)
        gang.progress.placed_at, gang.progress.newly_bound_nodes = None, []
        self._events.record(gang, EventType.WARNING, "Undone", message, "Undo")
        log.warning("start rolled back", extra={"gang": gang.key, "bound": len(bound), "least": gang.spec.min_members})

    def forget(self, uid: str) -> None:
        """A pod was deleted: drop its bind request."""
        self._binder.cancel(uid)
        self._outcomes.finish(uid)

    def _bind(self, gang: GangInfo, decision: Bind, now: datetime) -> None:
        gang.progress.pending = gang.progress.last_attempt = None
        gang.progress.placed_at, gang.progress.warned_timeout = now, False
        assignments = list(gang.assignments(decision.nodes))
        for member, node in assignments:
            self._cache.assume(member, node)
            hostname = self._cache.hostname(node)
            self._outcomes.begin(gang, member.uid)
            self._binder.submit(BindRequest(member.key, member.uid, node, member.mode, hostname))
        if len(assignments) < member_count(decision.request):
            # The next cycle tells the remaining members why they wait.
            self._request_cycle()

    def _warn_missing_class(self, gang: GangInfo) -> None:
        """Record once that the gang's PriorityClass does not exist: its priority would be lower without explanation."""
        name = gang.spec.priority_class
        if not name or name == gang.progress.warned_priority_class or name in self._cache.gangs.priority_classes.fields:
            return
        gang.progress.warned_priority_class = name
        message = (
            f"there is no PriorityClass '{name}': make it, or name another; until then the priority of its pods counts"
        )
        self._events.record(gang, EventType.WARNING, "PriorityClassMissing", message, "Place")

    def _preempt(self, gang: GangInfo, decision: Preempt) -> None:
        count = len(decision.victims)
        names = ", ".join(str(key) for key in decision.victim_gangs[:_MAX_NAMED_GANGS])
        unnamed = len(decision.victim_gangs) - _MAX_NAMED_GANGS
        names += f" and {unnamed} more" if unnamed > 0 else ""
        log.info("preempting", extra={"gang": gang.key, "victims": count, "of": names or "none"})
        self._metrics.count_victims(count)
        message = f"evicting {count} pod{'s' if count > 1 else ''}" + (f" of {names}" if names else "")
        self._events.record(gang, EventType.NORMAL, "MakingRoom", message, "Preempt")
        victim_counts = Counter(self._cache.gangs.gang_of_pod(victim.uid) for victim in decision.victims)
        for key in decision.victim_gangs:
            victim_gang = self._cache.gangs.gang_of_group(key)
            if victim_gang is not None:
                text = self._preemption_message(victim_gang, victim_counts[victim_gang], gang, decision.request)
                self._events.record(victim_gang, EventType.WARNING, "Preempted", text, "Preempt")
        for victim in decision.victims:
            self._evict(EvictRequest(victim.key, victim.uid))
        self._record_pending(gang, Pending(decision.request, PendingReason.VICTIMS, message), failed=False)

    def _preemption_message(self, victim: GangInfo, count: int, gang: GangInfo, request: GangRequest) -> str:
        """Event text for a gang that loses `count` members. Call before evicting: it reads the current allocation."""
        allocation, placed_count = self._cache.gangs.allocation(victim), len(victim.members.placed())
        below = allocation is not None and allocation.priority < request.priority
        reason = "which is more important" if below else "whose queue is owed its share"
        if count >= placed_count:
            return f"has to give way to {gang.key}, {reason}"
        members_text = f"{count} of its {placed_count} members {'have' if count > 1 else 'has'}"
        return f"{members_text} to give way to {gang.key}, {reason}; it goes on with the others"

    def _evict(self, request: EvictRequest) -> None:
        self._cache.set_evicting(request.uid, evicting=True)
        self._evictor.submit(request)

    def _mark_pending(self, gang: GangInfo, decision: Pending) -> None:
        if gang.excluded_nodes and decision.reason is PendingReason.RESOURCES:
            # No other node has room, and the excluded nodes may have room by now.
            gang.excluded_nodes.clear()
            self._cache.gangs.invalidate(gang)
            self._request_cycle()
            return
        if decision.reason is PendingReason.REFUSED and (
            gang.progress.pending is None or gang.progress.pending.message != decision.message
        ):
            self._events.record(gang, EventType.WARNING, "Refused", decision.message, "Place")
        self._record_pending(gang, decision, failed=_placement_failed(decision))

    def _record_pending(self, gang: GangInfo, pending: Pending, *, failed: bool) -> None:
        attempt = PlacementAttempt(failed, pending.message)
        if (
            attempt != gang.progress.last_attempt
            or gang.progress.pending is None
            or gang.progress.pending.reason is not pending.reason
        ):
            self._cache.gangs.changed_gangs[gang] = None
        gang.progress.pending, gang.progress.last_attempt = pending, attempt


def _placement_failed(pending: Pending) -> bool:
    """Whether not even the required members fit, although resources of terminating pods counted as free."""
    return pending.reason in (PendingReason.RESOURCES, PendingReason.REFUSED) and pending.request.min_members > 0


def _span_attributes(decision: Decision, now: datetime) -> dict[str, AttributeValue]:
    request = decision.request
    attributes: dict[str, AttributeValue] = {
        "k8s.namespace.name": request.key.namespace,
        "gangline.name": request.key.name,
        "gangline.queue": request.queue,
        "gangline.members": member_count(request),
        "gangline.waited_seconds": (now - request.waiting_since).total_seconds(),
        "gangline.result": type(decision).__name__.lower(),
    }
    if isinstance(decision, Pending):
        attributes["gangline.reason"] = decision.reason.value
    return attributes
