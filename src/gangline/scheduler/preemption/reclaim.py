"""Taking back: a queue that has less than it deserves takes from queues that have more than they deserve.

Gangs of these queues may have to leave as long as their queue is still above what it deserves, and only for a gang
that leaves its own queue within it. So whoever took cannot be taken from in turn, and nothing goes to and fro. For
the same reason nobody more important has to leave: it would preempt the other at once.
"""

from collections.abc import Iterable

from gangline.scheduler.quota.accounts import QueueAccounts
from gangline.scheduler.types.cycle import GangAllocation, GangRequest
from gangline.scheduler.types.gang_requests import minimal_request, requested_amounts
from gangline.scheduler.types.resources import add_amounts


def may_reclaim(request: GangRequest, accounts: QueueAccounts) -> bool:
    """Whether what it needs at least is due to its queue."""
    return not accounts.exceeds_share(request)


def reclaimable_allocations(
    allocations: Iterable[GangAllocation], queues: Iterable[str], request: GangRequest, accounts: QueueAccounts
) -> list[GangAllocation]:
    """The gangs that may have to leave for this one, all or some of them. Given in the order in which they should.

    `queues` are those of the holdings.
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
    """Whether there is anything to take back from a queue."""
    needed = requested_amounts(minimal_request(request).pod_sets)
    return (
        queue != request.queue
        and accounts.quota(queue).reclaimable
        and accounts.is_above_share(queue, dict.fromkeys(needed, 0))
    )


def _is_reclaimable(allocation: GangAllocation, request: GangRequest, accounts: QueueAccounts) -> bool:
    is_other = allocation.uid != request.uid and allocation.queue != request.queue
    return is_other and accounts.quota(allocation.queue).reclaimable and allocation.priority <= request.priority
