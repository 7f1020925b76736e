"""The accounts of queues during one cycle: what they use, may use and deserve."""

from collections.abc import Iterable, Mapping

from gangline.api.scheduling import DEFAULT_QUEUE
from gangline.scheduler.quota.fair_share import contended_resources, deserved_shares, dominant_share, max_ratio
from gangline.scheduler.types.cycle import GangAllocation, GangRequest, Placement, QueueQuota, QueueUsage
from gangline.scheduler.types.equivalence import EquivalenceClass, EquivalenceClasses
from gangline.scheduler.types.resources import PODS, Amounts, add_amounts


class QueueAccounts:
    """What each queue uses, updated as members are placed. What it deserves is fixed at the start of the cycle."""

    def __init__(
        self,
        total: Amounts,
        free: Amounts,
        classes: EquivalenceClasses,
        usage: QueueUsage,
        quotas: Mapping[str, QueueQuota],
    ) -> None:
        """`total` and `free`: what all usable nodes have, and what of that is free, at the start of the cycle."""
        self._classes = classes
        self._quotas = {DEFAULT_QUEUE: QueueQuota(DEFAULT_QUEUE), **quotas}
        # Including terminating pods: they count against the cap until they are gone.
        self._used = {queue: dict(amounts) for queue, amounts in usage.used.items()}
        # Without terminating pods: what the queue will have.
        self._retained = {queue: dict(amounts) for queue, amounts in usage.retained.items()}
        self._shares: dict[str, float] = {}
        self._total, self.free = total, free
        requests = _queue_requests(self._retained, classes.counts())
        shareable = _shareable_amounts(self._total, self.free, self._used.values())
        quotas_by_name = sorted((self.quota(name) for name in requests), key=lambda quota: quota.name)
        # Cached per class; cleared with every charge and refund.
        self._exceeds_share: dict[EquivalenceClass, bool] = {}
        # Never cleared, as deserved shares do not change.
        self._outgrows_share: dict[EquivalenceClass, bool] = {}
        self._deserved = deserved_shares(shareable, quotas_by_name, requests)
        self._contended = contended_resources(shareable, quotas_by_name, requests)

    @property
    def allocated(self) -> Mapping[str, Amounts]:
        """Queue -> what it will use once terminating pods are gone."""
        return {queue: dict(amounts) for queue, amounts in sorted(self._retained.items())}

    @property
    def deserved(self) -> Mapping[str, Amounts]:
        return self._deserved

    def has_queue(self, queue: str) -> bool:
        return queue in self._quotas

    def quota(self, queue: str) -> QueueQuota:
        return self._quotas.get(queue) or QueueQuota(queue)

    def share(self, queue: str) -> float:
        """The fraction of its deserved share that a queue has; 1: all of it.

        Without contention: its dominant share divided by its weight.
        """
        share = self._shares.get(queue)
        if share is None:
            share = self._shares[queue] = self._compute_share(queue)
        return share

    def _compute_share(self, queue: str) -> float:
        usage = self._retained.get(queue, {})
        if self._contended:
            return max_ratio(usage, self._deserved.get(queue, {}), self._contended)
        return dominant_share(usage, self._total) / max(1, self.quota(queue).weight)

    def exceeds_share(self, request: GangRequest) -> bool:
        """Whether the required members would take the queue over its deserved share of a resource they need."""
        return self.class_exceeds_share(self._classes.by_uid[request.uid])

    def class_exceeds_share(self, equivalence: EquivalenceClass) -> bool:
        """The same for any request of a class."""
        exceeds = self._exceeds_share.get(equivalence)
        if exceeds is None:
            exceeds = self._exceeds_share[equivalence] = self.is_above_share(equivalence.queue, equivalence.min_amounts)
        return exceeds

    def outgrows_share(self, request: GangRequest) -> bool:
        """Whether the required members alone need more than the queue deserves."""
        equivalence = self._classes.by_uid[request.uid]
        outgrows = self._outgrows_share.get(equivalence)
        if outgrows is None:
            minimum, deserved = equivalence.min_amounts, self._deserved.get(equivalence.queue, {})
            among = minimum.keys() & self._contended
            outgrows = self._outgrows_share[equivalence] = any(minimum[name] > deserved.get(name, 0) for name in among)
        return outgrows

    def is_above_share(self, queue: str, change: Amounts) -> bool:
        """Whether the queue has more than it deserves of any resource in `change`, once this is added."""
        usage, deserved = self._retained.get(queue, {}), self._deserved.get(queue, {})
        return any(
            usage.get(name, 0) + change[name] > deserved.get(name, 0) for name in change.keys() & self._contended
        )

    def remaining_cap(self, queue: str, freed: Iterable[Amounts] = ()) -> dict[str, int]:
        """What the cap of a queue leaves of each resource it names, once these amounts are freed."""
        caps = self.quota(queue).cap
        if not caps:
            return {}
        used = self._used.get(queue, {})
        room = {name: cap - used.get(name, 0) for name, cap in caps.items()}
        for amounts in freed:
            for name in room:
                room[name] += amounts.get(name, 0)
        return room

    def charge(self, request: GangRequest, placement: Placement) -> None:
        """Add the placed members to the account of the queue."""
        self._shares.pop(request.queue, None)
        self._exceeds_share.clear()
        for account in (self._used, self._retained):
            amounts = account.setdefault(request.queue, {})
            for pod_set, nodes in zip(request.pod_sets, placement.nodes, strict=True):
                add_amounts(amounts, pod_set.shape.amounts, len(nodes))

    def refund(self, queue: str, amounts: Amounts) -> None:
        """Take the amounts of an evicted pod from what the queue will have."""
        self._shares.pop(queue, None)
        self._exceeds_share.clear()
        add_amounts(self._retained.setdefault(queue, {}), amounts, -1)


def queue_usage(allocations: Iterable[GangAllocation]) -> QueueUsage:
    """What queues use, summed over the allocations."""
    used: dict[str, dict[str, int]] = {}
    retained: dict[str, dict[str, int]] = {}
    for allocation in allocations:
        add_amounts(used.setdefault(allocation.queue, {}), allocation.used)
        add_amounts(retained.setdefault(allocation.queue, {}), allocation.retained)
    return QueueUsage(used, retained)


def _queue_requests(
    usage: Mapping[str, Amounts], class_counts: Mapping[EquivalenceClass, int]
) -> dict[str, dict[str, int]]:
    requests = {queue: dict(amounts) for queue, amounts in usage.items()}
    for equivalence, count in class_counts.items():
        add_amounts(requests.setdefault(equivalence.queue, {}), equivalence.total_amounts, count)
    return requests


def _shareable_amounts(total: Amounts, free: Amounts, usage: Iterable[Amounts]) -> dict[str, int]:
    """What all queues share: what they use and what is free, without what other pods use. Leaves out `pods`."""
    shareable = dict(free)
    for amounts in usage:
        add_amounts(shareable, amounts)
    return {name: min(amount, total.get(name, 0)) for name, amount in shareable.items() if name != PODS}
