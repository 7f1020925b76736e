"""The order of requests: priority, recovering gangs, the queue with the smallest part of its share, age, uid."""

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from operator import attrgetter, itemgetter

from gangline.scheduler.types.cycle import GangRequest

UrgencyRank = tuple[int, bool]
"""Negated priority, and whether the gang is not recovering: the smaller, the more urgent."""

# attrgetter and not lambdas: they are called for every request of every cycle.
_AGE_KEY = attrgetter("created", "uid")
_WAITING_KEY = attrgetter("waiting_since", "created", "uid")


def requests_by_rank(
    requests: Iterable[GangRequest], goes_first: Callable[[GangRequest], bool]
) -> list[tuple[UrgencyRank, list[GangRequest]]]:
    """Requests by rank, the most urgent first; within a rank by age and uid. Independent of the order given."""
    ranks: dict[UrgencyRank, list[GangRequest]] = defaultdict(list)
    for request in by_age(requests):
        ranks[-request.priority, not (request.recovering and goes_first(request))].append(request)
    return sorted(ranks.items(), key=itemgetter(0))


def fair_order(
    requests: Iterable[GangRequest], share: Callable[[str], float], exceeds_share: Callable[[GangRequest], bool]
) -> Iterator[GangRequest]:
    """The requests of one rank, given by age, one at a time: shares are read again before each.

    First those that keep their queue within its deserved share, then the others; within both, the request whose queue
    has the smallest part of its share, then the oldest, then the lowest uid. A queue's share may change only by what is
    done for the request just yielded, and may only grow.
    """
    over_share: list[GangRequest] = []
    for request in by_share(requests, share):
        if exceeds_share(request):
            over_share.append(request)
        else:
            yield request
    yield from by_share(by_age(over_share), share)


def by_age(requests: Iterable[GangRequest]) -> list[GangRequest]:
    return sorted(requests, key=_AGE_KEY)


def by_waiting_time(requests: Iterable[GangRequest]) -> list[GangRequest]:
    """The requests that have waited longest first."""
    return sorted(requests, key=_WAITING_KEY)


def by_share(requests: Iterable[GangRequest], share: Callable[[str], float]) -> Iterator[GangRequest]:
    """Requests, given by age, one at a time: always the first of the queue with the smallest part of its share."""
    lines: dict[str, deque[GangRequest]] = defaultdict(deque)
    for request in requests:
        lines[request.queue].append(request)

    def head(queue: str) -> tuple[float, datetime, str, str]:
        first = lines[queue][0]
        return share(queue), first.created, first.uid, queue

    heap = [head(queue) for queue in lines]
    heapq.heapify(heap)
    while len(heap) > 1:
        queue = heap[0][3]
        line, next_share = lines[queue], min(heap[1:3])[0]
        yield line.popleft()
        # The queue goes on while its share is the smallest: of thousands of waiting requests most get nothing.
        while line and share(queue) < next_share:
            yield line.popleft()
        if line:
            heapq.heapreplace(heap, head(queue))
        else:
            heapq.heappop(heap)
    for _, _, _, queue in heap:
        yield from lines[queue]
