"""Taking back: a queue that has less than it deserves takes from queues that have more than they deserve.

Gangs of these queues may have to leave as long as their queue is still above what it deserves, and only for a gang
that leaves its own queue within it. So whoever took cannot be taken from in turn, and nothing goes to and fro. For
the same reason nobody more important has to leave: it would preempt the other at once.
"""

from collections.abc import Iterable

from gangline.scheduler.quota.accounts import Ledger
from gangline.scheduler.types.cycle import Ask, Holding
from gangline.scheduler.types.requests import add, amounts_of, core


def entitled(ask: Ask, ledger: Ledger) -> bool:
    """Whether what it needs at least is due to its queue."""
    return not ledger.over(ask)


def due(holdings: Iterable[Holding], queues: Iterable[str], ask: Ask, ledger: Ledger) -> list[Holding]:
    """The gangs that may have to leave for this one, all or some of them. Given in the order in which they should.

    `queues` are those of the holdings.
    """
    if not any(_open(queue, ask, ledger) for queue in queues):
        return []
    needed = [name for name, amount in amounts_of(core(ask).needs).items() if amount]
    lost: dict[str, dict[str, int]] = {}
    spent: set[str] = set()
    found = []
    for holding in holdings:
        if holding.queue in spent or not _may(holding, ask, ledger):
            continue
        taken = lost.setdefault(holding.queue, {})
        if ledger.above(holding.queue, {name: -taken.get(name, 0) for name in needed}):
            found.append(holding)
            add(taken, holding.kept)
        else:
            spent.add(holding.queue)
    return found


def _open(queue: str, ask: Ask, ledger: Ledger) -> bool:
    """Whether there is anything to take back from a queue."""
    needed = amounts_of(core(ask).needs)
    return (
        queue != ask.queue
        and ledger.rule(queue).reclaimable
        and ledger.above(queue, dict.fromkeys(needed, 0))
    )


def _may(holding: Holding, ask: Ask, ledger: Ledger) -> bool:
    others = holding.uid != ask.uid and holding.queue != ask.queue
    return others and ledger.rule(holding.queue).reclaimable and holding.priority <= ask.priority
