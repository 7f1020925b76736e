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


def may_reclaim(ask: GangRequest, ledger: QueueAccounts) -> bool:
    """Whether what it needs at least is due to its queue."""
    return not ledger.exceeds_share(ask)


def reclaimable_allocations(
    holdings: Iterable[GangAllocation], queues: Iterable[str], ask: GangRequest, ledger: QueueAccounts
) -> list[GangAllocation]:
    """The gangs that may have to leave for this one, all or some of them. Given in the order in which they should.

    `queues` are those of the holdings.
    """
    if not any(_is_reclaimable_queue(queue, ask, ledger) for queue in queues):
        return []
    needed = [name for name, amount in requested_amounts(minimal_request(ask).pod_sets).items() if amount]
    lost: dict[str, dict[str, int]] = {}
    spent: set[str] = set()
    found = []
    for holding in holdings:
        if holding.queue in spent or not _is_reclaimable(holding, ask, ledger):
            continue
        taken = lost.setdefault(holding.queue, {})
        if ledger.is_above_share(holding.queue, {name: -taken.get(name, 0) for name in needed}):
            found.append(holding)
            add_amounts(taken, holding.retained)
        else:
            spent.add(holding.queue)
    return found


def _is_reclaimable_queue(queue: str, ask: GangRequest, ledger: QueueAccounts) -> bool:
    """Whether there is anything to take back from a queue."""
    needed = requested_amounts(minimal_request(ask).pod_sets)
    return (
        queue != ask.queue
        and ledger.quota(queue).reclaimable
        and ledger.is_above_share(queue, dict.fromkeys(needed, 0))
    )


def _is_reclaimable(holding: GangAllocation, ask: GangRequest, ledger: QueueAccounts) -> bool:
    others = holding.uid != ask.uid and holding.queue != ask.queue
    return others and ledger.quota(holding.queue).reclaimable and holding.priority <= ask.priority
