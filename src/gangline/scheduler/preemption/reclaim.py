"""Reclaim: a queue below its deserved share takes from queues above theirs.

Gangs may be evicted as long as their queue is still above its deserved share, and only for a gang that keeps its own
queue within it. So what was reclaimed cannot be reclaimed in turn, and pods do not go back and forth. For the same
reason no gang of higher priority is evicted: it would preempt the other at once.
"""

from collections.abc import Iterable

from gangline.scheduler.quota.accounts import QueueAccounts
from gangline.scheduler.types.cycle import GangAllocation, GangRequest
from gangline.scheduler.types.gang_requests import minimal_request, requested_amounts
from gangline.scheduler.types.resources import add_amounts


def may_reclaim(request: GangRequest, accounts: QueueAccounts) -> bool:
    """Whether the required members keep the queue within its deserved share."""
    return not accounts.exceeds_share(request)


def reclaimable_allocations(
    allocations: Iterable[GangAllocation], queues: Iterable[str], request: GangRequest, accounts: QueueAccounts
) -> list[GangAllocation]:
    """The allocations that may be evicted for the request, in whole or in part.

    `allocations` are given in eviction order, `queues` are their queues.
    """
    if not any(_is_reclaimable_queue(queue, request, accounts) for queue in queues):
        return []
    needed = [name for name, amount in requested_amounts(minimal_request(request).pod_sets).items() if amount]
    reclaimed_by_queue: dict[str, dict[str, int]] = {}
    exhausted: set[str] = set()
    reclaimable = []
    for allocation in allocations:
        if allocation.queue in exhausted or not _is_reclaimable(allocation, request, accounts):
            continue
        reclaimed = reclaimed_by_queue.setdefault(allocation.queue, {})
        if accounts.is_above_share(allocation.queue, {name: -reclaimed.get(name, 0) for name in needed}):
            reclaimable.append(allocation)
            add_amounts(reclaimed, allocation.retained)
        else:
            exhausted.add(allocation.queue)
    return reclaimable


def _is_reclaimable_queue(queue: str, request: GangRequest, accounts: QueueAccounts) -> bool:
    """Whether the queue is reclaimable, and above its share of a resource that the request needs."""
    needed = requested_amounts(minimal_request(request).pod_sets)
    return (
        queue != request.queue
        and accounts.quota(queue).reclaimable
        and accounts.is_above_share(queue, dict.fromkeys(needed, 0))
    )


def _is_reclaimable(allocation: GangAllocation, request: GangRequest, accounts: QueueAccounts) -> bool:
    is_other = allocation.uid != request.uid and allocation.queue != request.queue
    return is_other and accounts.quota(allocation.queue).reclaimable and allocation.priority <= request.priority
