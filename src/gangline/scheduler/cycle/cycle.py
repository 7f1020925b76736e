"""One scheduling cycle: every waiting gang is bound, preempts others, or stays pending with a reason. Pure.

The same snapshot, requests and time give the same decisions, in whatever order the requests come. A gang gets all its
required members placed or none, and nothing is reserved for a gang that cannot start, with two exceptions: gangs for
which pods are terminating, and the gang that has waited longest once its starvation timeout is over.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, groupby, islice

import msgspec

from gangline.api.scheduling import DEFAULT_QUEUE
from gangline.scheduler.cycle.ordering import by_age, by_share, by_waiting_time, fair_order, requests_by_rank
from gangline.scheduler.cycle.reservations import Reservations
from gangline.scheduler.placement.whatif import WhatIf
from gangline.scheduler.quota.accounts import QueueAccounts, queue_usage
from gangline.scheduler.types.cycle import (
    Bind,
    CycleResult,
    Decision,
    GangAllocation,
    GangRequest,
    Pending,
    PendingReason,
    Placement,
    QueueQuota,
    QueueUsage,
    SchedulerPolicy,
    Shortage,
)
from gangline.scheduler.types.equivalence import EquivalenceClass, EquivalenceClasses
from gangline.scheduler.types.gang_requests import (
    member_count,
    minimal_request,
    missing_members_message,
    request_within,
    requested_amounts,
    resized_request,
)
from gangline.scheduler.types.resources import as_quantity

MAX_INFEASIBLE = 8
"""After this many overdue gangs that can never fit, no other overdue gang is considered."""

MAX_PRECHECKS = 4
"""For this many overdue gangs of each rank it is checked beforehand whether they can ever fit."""


def schedule(
    what_if: WhatIf,
    requests: Iterable[GangRequest],
    allocations: Iterable[GangAllocation],
    queues: Mapping[str, QueueQuota],
    policy: SchedulerPolicy,
    now: datetime,
    usage: QueueUsage | None = None,
    classes: EquivalenceClasses | None = None,
) -> CycleResult:
    """Decide once for every request.

    `what_if` is used up: take a new one for the next cycle. `usage`: what queues use, if the caller keeps count; it is
    summed from the allocations otherwise. `classes` may be kept between cycles: it changes no decision and makes the
    next cycle faster.
    """
    requests, allocations, classes = list(requests), list(allocations), classes or EquivalenceClasses()
    classes.update(requests)
    accounts = QueueAccounts(
        what_if.total(), what_if.free(), classes, queue_usage(allocations) if usage is None else usage, queues
    )
    return _SchedulingCycle(
        requests, classes, accounts, Reservations(what_if, accounts, allocations, policy), policy, now
    ).run()


class _SchedulingCycle:
    def __init__(
        self,
        requests: list[GangRequest],
        classes: EquivalenceClasses,
        accounts: QueueAccounts,
        reservations: Reservations,
        policy: SchedulerPolicy,
        now: datetime,
    ) -> None:
        self._requests, self._classes, self._accounts, self._reservations = requests, classes, accounts, reservations
        self._starvation_timeout, self._starvation_cutoff = policy.starvation_timeout, _starvation_cutoff(policy, now)
        self._reserved_for: GangRequest | None = None
        self._infeasible_count = 0
        # By the uid of the gang, in the order in which they were made.
        self._decisions: dict[str, Decision] = {}
        # The last pending decision of each class. It holds for the whole class until something changes.
        self._pending_by_class: dict[EquivalenceClass, Pending] = {}
        self._pending_version = reservations.version

    def run(self) -> CycleResult:
        ranked = requests_by_rank(self._requests, self._goes_first)
        overdue = [by_waiting_time(self._overdue_requests(group)) for _, group in ranked]
        for overdue_requests in overdue:
            self._precheck_overdue(overdue_requests)
        for _, rank_groups in groupby(zip(ranked, overdue, strict=True), key=lambda pair: pair[0][0][0]):
            groups = [(group, overdue_requests) for (_, group), overdue_requests in rank_groups]
            for group, overdue_requests in groups:
                self._decide_rank(
                    [request for request in group if request.min_members],
                    [request for request in overdue_requests if request.min_members],
                )
            self._place_surplus(chain.from_iterable(group for group, _ in groups))
        return CycleResult(
            list(self._decisions.values()), self._accounts.allocated, self._accounts.deserved, self._recheck_at()
        )

    def _decide_rank(self, group: Sequence[GangRequest], overdue: Sequence[GangRequest]) -> None:
        """Decide the requests of one rank: first those that keep their queue within its share, then the others.

        If one of the others is overdue, and its queue's share is large enough for it, its queue waits for it: only
        requests of other queues within their share go first. Both groups are ordered by age, overdue requests by
        waiting time.
        """
        starving_queue = self._decide_overdue_within_share(overdue)
        group = self._undecided(group)
        undecided_uids = {request.uid for request in group}
        for request in by_share(self._unless_all_over_share(group), self._accounts.share):
            if request.queue != starving_queue and not self._accounts.exceeds_share(request):
                undecided_uids.remove(request.uid)
                self._decisions[request.uid] = self._decide(request)
        self._decide_overdue_over_share(request for request in overdue if request.uid in undecided_uids)
        group = [request for request in self._undecided(group) if request.uid in undecided_uids]
        order = fair_order(group, self._accounts.share, self._accounts.exceeds_share)
        for request in order if self._unless_all_over_share(group) else by_share(group, self._accounts.share):
            self._decisions[request.uid] = self._decide(request)

    def _unless_all_over_share(self, requests: Sequence[GangRequest]) -> Sequence[GangRequest]:
        """The requests; or none of them if every one would take its queue over its share."""
        return () if all(map(self._accounts.class_exceeds_share, self._classes.classes_of(requests))) else requests

    def _undecided(self, requests: Iterable[GangRequest]) -> list[GangRequest]:
        return [request for request in requests if request.uid not in self._decisions]

    def _goes_first(self, request: GangRequest) -> bool:
        """Recovering gangs go first, unless they hold no pod and would push their queue over its fair share."""
        return request.recovering and (
            self._reservations.holds_places(request.uid) or not self._accounts.exceeds_share(request)
        )

    def _decide(self, request: GangRequest) -> Decision:
        """Decide a request. A pending decision for its class is reused: thousands wait, most of them for the same."""
        if request.uid in self._reservations.preempted_gangs:
            return self._evaluate(request)
        if self._pending_version != self._reservations.version:
            self._drop_stale_pending()
        equivalence = self._classes.by_uid[request.uid]
        pending = self._pending_by_class.get(equivalence)
        if pending is not None:
            return Pending(request, pending.reason, pending.message, pending.nodes_by_reason)
        decision = self._evaluate(request)
        self._drop_stale_pending()
        if isinstance(decision, Pending) and decision.reason != PendingReason.VICTIMS:
            self._pending_by_class[equivalence] = decision
        return decision

    def _drop_stale_pending(self) -> None:
        """Forget pending decisions made before the last change."""
        if self._pending_version != self._reservations.version:
            self._pending_version = self._reservations.version
            self._pending_by_class.clear()

    def _evaluate(self, request: GangRequest) -> Decision:
        unmet = self._unmet_precondition(request)
        if unmet is not None:
            return unmet
        minimal = minimal_request(request)
        if request_within(minimal, self._accounts.remaining_cap(request.queue)) is None:
            return self._reservations.make_room(request, minimal) or self._cap_reached(request)
        outcome = self._reservations.place(minimal)
        if (
            isinstance(outcome, Shortage)
            and len(request.pod_sets) > 1
            and member_count(minimal) < member_count(request)
        ):
            # `minimal` is one choice of the required members: others may fit.
            outcome = self._place_any_members(request, outcome)
        if isinstance(outcome, Placement):
            return Bind(request, self._reservations.node_names(outcome))
        return self._resolve_shortage(request, minimal, outcome)

    def _place_any_members(self, request: GangRequest, shortage: Shortage) -> Placement | Shortage:
        allowed = request_within(request, self._accounts.remaining_cap(request.queue))
        return shortage if allowed is None else self._reservations.place(allowed)

    def _resolve_shortage(self, request: GangRequest, minimal: GangRequest, shortage: Shortage) -> Decision:
        if shortage.unsupported:
            return Pending(request, PendingReason.REFUSED, shortage.message, shortage.nodes_by_reason)
        plan = self._reservations.make_room(request, minimal)
        if plan is not None:
            return plan
        if self._reserved_for is not None and self._reservations.fits_without_reservation(minimal):
            return Pending(
                request,
                PendingReason.HELD,
                f"what is free is held for {self._reserved_for.key}, which has waited longest",
            )
        return Pending(request, PendingReason.RESOURCES, shortage.message, shortage.nodes_by_reason)

    def _unmet_precondition(self, request: GangRequest) -> Pending | None:
        if message := missing_members_message(request):
            return Pending(request, PendingReason.TASKS, message)
        if request.uid in self._reservations.preempted_gangs:
            return Pending(request, PendingReason.HELD, "members of it are preempted in this cycle")
        if not self._accounts.has_queue(request.queue):
            return Pending(
                request,
                PendingReason.QUEUE,
                f"queue {request.queue!r} does not exist: create it, or use {DEFAULT_QUEUE!r}",
            )
        return None

    def _cap_reached(self, request: GangRequest) -> Pending:
        needed = requested_amounts(minimal_request(request).pod_sets)
        remaining = self._accounts.remaining_cap(request.queue)
        name = next(name for name in sorted(remaining) if needed.get(name, 0) > remaining[name])
        cap, needed_amount = self._accounts.quota(request.queue).cap[name], needed.get(name, 0)
        usage = f"may have {as_quantity(name, cap)} {name} and holds {as_quantity(name, cap - remaining[name])}"
        return Pending(
            request,
            PendingReason.QUEUE,
            f"queue {request.queue!r} {usage}; {as_quantity(name, needed_amount)} more are needed",
        )

    def _place_surplus(self, group: Iterable[GangRequest]) -> None:
        """Place members beyond the minimum, of gangs just bound and of complete gangs: last in their priority."""
        placed = {uid for uid, decision in self._decisions.items() if isinstance(decision, Bind)}
        eligible = [request for request in group if not request.min_members or request.uid in placed]
        surpluses = by_age(surplus for request in eligible if (surplus := self._surplus_request(request)) is not None)
        for surplus in fair_order(surpluses, self._accounts.share, self._accounts.exceeds_share):
            unmet = self._unmet_precondition(surplus)
            allowed = request_within(surplus, self._accounts.remaining_cap(surplus.queue)) if unmet is None else None
            if unmet is not None:
                self._decisions[surplus.uid] = unmet
            elif allowed is None or not member_count(allowed):
                message = f"queue {surplus.queue!r} has what it may have"
                self._record_surplus(surplus, Pending(surplus, PendingReason.QUEUE, message))
            else:
                self._record_surplus(surplus, self._reservations.place(allowed))

    def _surplus_request(self, request: GangRequest) -> GangRequest | None:
        """A request for the members not placed with the minimum, none of them required; None if there are none."""
        if not request.min_members:
            return request
        match self._decisions.get(request.uid):
            case Bind(nodes=nodes) if member_count(request) > sum(map(len, nodes)):
                counts = [pod_set.count - len(names) for pod_set, names in zip(request.pod_sets, nodes, strict=True)]
                current_nodes = (*request.current_nodes, *(name for names in nodes for name in names))
                return msgspec.structs.replace(
                    resized_request(request, counts), min_members=0, min_by_role={}, current_nodes=current_nodes
                )
        return None

    def _record_surplus(self, surplus: GangRequest, outcome: Placement | Pending | Shortage) -> None:
        placed = self._decisions.get(surplus.uid)
        match outcome, placed:
            case Placement(), Bind():
                joined = zip(placed.nodes, self._reservations.node_names(outcome), strict=True)
                self._decisions[surplus.uid] = Bind(placed.request, tuple(nodes + added for nodes, added in joined))
            case Placement(), _:
                self._decisions[surplus.uid] = Bind(surplus, self._reservations.node_names(outcome))
            case Pending(), None:
                self._decisions[surplus.uid] = outcome
            case Shortage(), None:
                cause = PendingReason.REFUSED if outcome.unsupported else PendingReason.RESOURCES
                self._decisions[surplus.uid] = Pending(surplus, cause, outcome.message, outcome.nodes_by_reason)

    # The starvation guard: overdue gangs come first, the longest waiting first, until one cannot be placed. The free
    # capacity that it can use is then reserved for it, so that the rest of the cycle, whose requests are not of higher
    # priority, has only what it does not need. Gangs of queues that have their deserved share have no such right.

    def _precheck_overdue(self, overdue: Iterable[GangRequest]) -> None:
        """Check which gangs can ever fit before any is placed: what this cycle hands out will be free again."""
        for request in islice(overdue, MAX_PRECHECKS):
            if request.min_members and self._unmet_precondition(request) is None:
                self._reservations.could_ever_fit(minimal_request(request))

    def _decide_overdue_within_share(self, overdue: Iterable[GangRequest]) -> str | None:
        """Decide overdue requests within their queue's share.

        Returns the starving queue: that of the first overdue request which exceeds the share now and could fit later.
        """
        starving_queue = None
        for request in self._eligible_overdue(overdue):
            if request.queue == starving_queue:
                continue
            if not self._accounts.exceeds_share(request):
                self._decide_or_reserve(request)
            elif (
                starving_queue is None
                and not self._accounts.outgrows_share(request)
                and self._unmet_precondition(request) is None
            ):
                starving_queue = request.queue if self._reservations.could_ever_fit(minimal_request(request)) else None
                self._infeasible_count += starving_queue is None
        return starving_queue

    def _decide_overdue_over_share(self, overdue: Iterable[GangRequest]) -> None:
        for request in self._eligible_overdue(overdue):
            self._decide_or_reserve(request)

    def _eligible_overdue(self, overdue: Iterable[GangRequest]) -> Iterator[GangRequest]:
        """Overdue requests of queues below their share, until one is reserved for or too many were infeasible."""
        for request in overdue:
            if self._reserved_for is not None or self._infeasible_count >= MAX_INFEASIBLE:
                return
            if self._accounts.share(request.queue) < 1:
                yield request

    def _decide_or_reserve(self, request: GangRequest) -> None:
        self._decisions[request.uid] = decision = self._decide(request)
        if isinstance(decision, Pending) and decision.reason == PendingReason.RESOURCES:
            self._infeasible_count += not self._reserve(request, decision)

    def _overdue_requests(self, requests: Iterable[GangRequest]) -> list[GangRequest]:
        limit = self._starvation_cutoff
        return [] if limit is None else [request for request in requests if request.waiting_since <= limit]

    def _reserve(self, request: GangRequest, pending: Pending) -> bool:
        if not self._reservations.reserve(minimal_request(request)):
            return False
        self._reserved_for = request
        message = f"{pending.message}; it has waited longest: what frees up is held for it"
        self._decisions[request.uid] = msgspec.structs.replace(pending, message=message)
        return True

    def _recheck_at(self) -> datetime | None:
        if self._starvation_timeout is None or self._starvation_cutoff is None:
            return None
        limit = self._starvation_cutoff
        not_overdue = [request for request in self._requests if request.waiting_since > limit and request.min_members]
        times = (
            request.waiting_since for request in not_overdue if isinstance(self._decisions.get(request.uid), Pending)
        )
        earliest = min(times, default=None)
        return None if earliest is None else earliest + self._starvation_timeout


def _starvation_cutoff(policy: SchedulerPolicy, now: datetime) -> datetime | None:
    """Requests waiting since this time, or longer, are overdue. None: no request ever is."""
    if policy.starvation_timeout is None:
        return None
    try:
        return now - policy.starvation_timeout
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)
