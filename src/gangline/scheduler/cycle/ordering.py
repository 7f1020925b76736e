"""Whose turn it is: importance, broken gangs first, the queue that has least of its share, age, uid."""

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from operator import attrgetter, itemgetter

from gangline.scheduler.types.cycle import GangRequest

UrgencyRank = tuple[int, bool]
"""Priority and brokenness, the more urgent the smaller."""

# Not lambdas: these are called for every ask of every round.
_AGE_KEY = attrgetter("created", "uid")
_WAITING_KEY = attrgetter("waiting_since", "created", "uid")


def requests_by_rank(
    asks: Iterable[GangRequest], broken: Callable[[GangRequest], bool]
) -> list[tuple[UrgencyRank, list[GangRequest]]]:
    """Asks by rank, the most urgent first; those of one rank by age and uid. Independent of the order given."""
    found: dict[UrgencyRank, list[GangRequest]] = defaultdict(list)
    for ask in by_age(asks):
        found[-ask.priority, not (ask.recovering and broken(ask))].append(ask)
    return sorted(found.items(), key=itemgetter(0))


def fair_order(
    asks: Iterable[GangRequest], share: Callable[[str], float], over: Callable[[GangRequest], bool]
) -> Iterator[GangRequest]:
    """The asks of one rank, given by age, one at a time: the shares are looked at again before each.

    First those that leave their queue within what it deserves, then the others; of these the one whose queue has
    least of its share, then the oldest, then the lowest uid. A queue's share may change only by what is done for
    the ask just given, and may only grow.
    """
    beyond: list[GangRequest] = []
    for ask in by_share(asks, share):
        if over(ask):
            beyond.append(ask)
        else:
            yield ask
    yield from by_share(by_age(beyond), share)


def by_age(asks: Iterable[GangRequest]) -> list[GangRequest]:
    return sorted(asks, key=_AGE_KEY)


def by_waiting_time(asks: Iterable[GangRequest]) -> list[GangRequest]:
    """Those that have waited longest first."""
    return sorted(asks, key=_WAITING_KEY)


def by_share(asks: Iterable[GangRequest], share: Callable[[str], float]) -> Iterator[GangRequest]:
    """Asks, given by age, one at a time: always the first of the queue that has least of its share by then."""
    lines: dict[str, deque[GangRequest]] = defaultdict(deque)
    for ask in asks:
        lines[ask.queue].append(ask)

    def head(queue: str) -> tuple[float, datetime, str, str]:
        first = lines[queue][0]
        return share(queue), first.created, first.uid, queue

    heads = [head(queue) for queue in lines]
    heapq.heapify(heads)
    while len(heads) > 1:
        queue = heads[0][3]
        line, others = lines[queue], min(heads[1:3])[0]
        yield line.popleft()
        # Nobody else's turn while it has less than any other: of thousands that wait most get nothing.
        while line and share(queue) < others:
            yield line.popleft()
        if line:
            heapq.heapreplace(heads, head(queue))
        else:
            heapq.heappop(heads)
    for _, _, _, queue in heads:
        yield from lines[queue]
