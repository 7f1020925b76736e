"""Results of bind and evict requests: they correct the cache, and one Event says what was placed."""

import logging

from gangline.base.clock import Clock
from gangline.kube.errors import KubeError
from gangline.runtime.events import EventType
from gangline.scheduler.binding.binder import BindRequest
from gangline.scheduler.binding.evictor import EvictRequest
from gangline.scheduler.binding.gang_events import GangEvents
from gangline.scheduler.cache.cache import SchedulerCache
from gangline.scheduler.gangs.gang import GangInfo
from gangline.scheduler.metrics import SchedulerMetrics

log = logging.getLogger(__name__)


class BindingOutcomes:
    """Observes the binder and the evictor, and knows which pods of each gang are being bound."""

    def __init__(self, cache: SchedulerCache, clock: Clock, events: GangEvents, metrics: SchedulerMetrics) -> None:
        self._cache, self._clock, self._events, self._metrics = cache, clock, events, metrics
        # Pods with an open bind request, by uid.
        self._binding: dict[str, GangInfo] = {}

    def begin(self, gang: GangInfo, uid: str) -> None:
        """Note that a bind request for this pod of the gang is about to be submitted."""
        self._binding[uid] = gang
        gang.progress.binding_uids.add(uid)

    def bind_succeeded(self, request: BindRequest) -> None:
        gang, member = self._cache.gangs.gang_of_pod(request.uid), self._cache.gangs.member(request.uid)
        if gang is None or member is None:
            return
        created = member.pod.metadata.creation_timestamp
        self._metrics.observe_bind(None if created is None else self._clock.now() - created)
        gang.progress.newly_bound_nodes.append(request.node)
        self.finish(request.uid)

    def bind_refused(self, request: BindRequest, reason: str) -> None:
        log.warning("bind refused", extra={"pod": request.key, "node": request.node, "why": reason})
        self._metrics.count_bind_error()
        self.finish(request.uid)
        self._cache.forget_refused(request.uid)

    def bind_failed(self, request: BindRequest, error: KubeError) -> None:
        self._metrics.count_bind_error()

    def eviction_refused(self, request: EvictRequest, reason: str) -> None:
        log.warning("eviction refused", extra={"pod": request.key, "why": reason})
        self._cache.budgets.record_refusal(request.uid, self._clock.now())
        self._cache.set_evicting(request.uid, evicting=False)

    def finish(self, uid: str) -> None:
        """Note that a bind request is over. Records one Event for all members that were placed together."""
        gang = self._binding.pop(uid, None)
        if gang is None:
            return
        progress = gang.progress
        progress.binding_uids.discard(uid)
        if progress.binding_uids or not progress.newly_bound_nodes:
            return
        count, nodes, progress.newly_bound_nodes = len(progress.newly_bound_nodes), set(progress.newly_bound_nodes), []
        place = nodes.pop() if len(nodes) == 1 else f"{len(nodes)} nodes"
        message = f"{count} member{'s' if count > 1 else ''} placed on {place}"
        self._events.record(gang, EventType.NORMAL, "Scheduled", message, "Place")
