"""The scheduler's cache: nodes, gangs, queues and budgets, kept current by informers. No I/O.

Only changes that can help a waiting gang request a cycle: resources that become free, a changed node, a changed gang. A
pod that is seen where we placed it changes nothing and requests nothing.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import msgspec

from gangline.api.core import PriorityClass
from gangline.api.quantity import QuantityError
from gangline.api.scheduler_views import CSINode, Namespace, Node, PersistentVolume, Pod, StorageClass, VolumeClaim
from gangline.api.scheduling import DEFAULT_QUEUE, PINNED_NODE_ANNOTATION, PodGroup, Queue
from gangline.runtime.informer import Delta
from gangline.scheduler.cache.disruption_budgets import DisruptionBudgets, PodDisruptionBudget
from gangline.scheduler.cache.nodes import NodeCache
from gangline.scheduler.gangs.members import BIND, PIN, GangMember
from gangline.scheduler.gangs.registry import GangRegistry
from gangline.scheduler.pods.decode import ShapeCache, bound_pod_of
from gangline.scheduler.settings import SchedulerSettings
from gangline.scheduler.snapshot.node_info import HOSTNAME_LABEL
from gangline.scheduler.types.cycle import BoundPod, QueueQuota
from gangline.scheduler.types.resources import amounts
from gangline.scheduler.types.shape import PodShape
from gangline.scheduler.types.tracked import TrackedObjects

log = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[Delta[Any]], None]


class SchedulerCache:
    """Everything that decisions are based on."""

    def __init__(
        self,
        settings: SchedulerSettings,
        *,
        request_cycle: Callable[[], object] = lambda: None,
        gang_changed: Callable[[], object] = lambda: None,
        object_deleted: Callable[[str], object] = lambda uid: None,
    ) -> None:
        """`request_cycle` is called when a scheduling cycle may help a waiting gang.

        `gang_changed` is called when a change matters only to what is reported about a gang; `object_deleted` is called
        with the uid of every deleted pod and PodGroup.
        """
        modes = frozenset(mode for mode, on in ((BIND, settings.bind_pods), (PIN, settings.pin_pods)) if on)
        self.nodes = NodeCache()
        self.gangs = GangRegistry(settings.name, modes=modes)
        self._namespaces = frozenset(settings.namespaces)
        self.budgets = DisruptionBudgets()
        self.queues: dict[str, QueueQuota] = {DEFAULT_QUEUE: QueueQuota(DEFAULT_QUEUE)}
        self._request_cycle, self._gang_changed, self._object_deleted = request_cycle, gang_changed, object_deleted
        self._queues_version = 0
        self._hostnames: dict[str, str] = {}
        self._shapes = ShapeCache()
        volumes = self.nodes.volumes
        # In the order in which existing objects are delivered first: pods last, as they refer to all others.
        self.handlers: Mapping[type[Any], Handler] = {
            PriorityClass: self.on_priority_class,
            Queue: self.on_queue,
            Namespace: self._tracking(self.nodes.namespaces),
            StorageClass: self._tracking(volumes.storage_classes),
            PersistentVolume: self._tracking(volumes.volumes),
            VolumeClaim: self._tracking(volumes.claims),
            CSINode: self._tracking(volumes.csi_nodes),
            PodDisruptionBudget: self._tracking(self.budgets.budgets),
            Node: self.on_node,
            PodGroup: self.on_group,
            Pod: self.on_pod,
        }

    @property
    def version(self) -> int:
        """Grows with every change that may matter to a decision, except changes of gangs."""
        return self.nodes.version + self.budgets.budgets.version + self._queues_version + self.gangs.spec_version

    def hostname(self, node: str) -> str:
        """The hostname label of a node; its name if it has none."""
        return self._hostnames.get(node, node)

    def handle(self, delta: Delta[Any]) -> None:
        """Apply a change of an object, of any kind in `handlers`."""
        self.handlers[type(delta.newest)](delta)

    def on_pod(self, delta: Delta[Pod]) -> None:
        if delta.after is None:
            self._on_pod_deleted(delta.newest.metadata.uid)
            return
        pod = delta.after
        try:
            shape = self._shapes.shape_for(pod, self.nodes.selected_labels)
        except QuantityError as error:
            log.warning("pod cannot be read, ignoring it", extra={"pod": pod.metadata.key, "error": str(error)})
            return
        version, gangs_version = self.nodes.version, self.gangs.version
        # A pod that is no member is never touched: it takes room on its node.
        is_served = not self._namespaces or pod.metadata.namespace in self._namespaces
        member = self.gangs.put_pod(pod, shape) if is_served else None
        if member is not None and not member.node and not member.mode:
            self._adopt_pin(member)
        bound = self._bound_pod(pod, shape, member)
        if bound is not None:
            self.nodes.put_pod(bound)
        else:
            self.nodes.drop_pod(pod.metadata.uid)
        frees_room = bound is None or bound.terminating
        is_waiting = member is not None and member.is_waiting and self.gangs.version != gangs_version
        if is_waiting or (frees_room and self.nodes.version != version):
            self._request_cycle()
        elif self.gangs.changed_gangs:
            self._gang_changed()

    def _on_pod_deleted(self, uid: str) -> None:
        version = self.nodes.version
        is_member = self.gangs.gang_of_pod(uid) is not None
        self.gangs.drop_pod(uid)
        self.nodes.drop_pod(uid)
        self._object_deleted(uid)
        if is_member or self.nodes.version != version:
            self._request_cycle()

    def _bound_pod(self, pod: Pod, shape: PodShape, member: GangMember | None) -> BoundPod | None:
        if member is None or (not member.assumed_node and not member.evicting):
            return bound_pod_of(pod, shape)
        return member.as_bound_pod() if member.node and not member.has_ended else None

    def _adopt_pin(self, member: GangMember) -> None:
        """Assume a pod that we pinned before a restart, and that its scheduler has not bound yet."""
        node = member.pod.metadata.annotations.get(PINNED_NODE_ANNOTATION)
        if node and not member.pod.spec.scheduling_gates and member.is_unplaced:
            self.gangs.assume(member, node)

    def on_node(self, delta: Delta[Node]) -> None:
        version = self.nodes.version
        name = delta.newest.metadata.name
        if delta.after is None:
            self.nodes.drop_node(name)
            self._hostnames.pop(name, None)
        else:
            self._hostnames[name] = delta.after.metadata.labels.get(HOSTNAME_LABEL, name)
            try:
                self.nodes.put_node(delta.after)
            except QuantityError as error:
                log.warning("node cannot be read, ignoring it", extra={"node": name, "error": str(error)})
        if self.nodes.version != version:
            self._request_cycle()

    def on_group(self, delta: Delta[PodGroup]) -> None:
        version = self.gangs.version
        if delta.after is None:
            self.gangs.drop_group(delta.newest.metadata.key)
            self._object_deleted(delta.newest.metadata.uid)
        else:
            self.gangs.put_group(delta.after)
        if self.gangs.version != version:
            self._request_cycle()
        else:
            self._gang_changed()

    def on_queue(self, delta: Delta[Queue]) -> None:
        name = delta.newest.metadata.name
        default = QueueQuota(name) if name == DEFAULT_QUEUE else None
        quota = default if delta.after is None else _queue_quota(delta.after)
        before = self.queues.pop(name, None)
        if quota is not None:
            self.queues[name] = quota
        if quota != before:
            self._queues_version += 1
            self._request_cycle()

    def on_priority_class(self, delta: Delta[PriorityClass]) -> None:
        if self._update(self.gangs.priority_classes, delta):
            for gang in self.gangs:
                self.gangs.invalidate(gang)
            self._request_cycle()

    def _tracking(self, tracked: TrackedObjects[Any, Any, Any]) -> Handler:
        """A handler that applies changes to these objects and requests a cycle if one may matter to a decision."""

        def handle(delta: Delta[Any]) -> None:
            if self._update(tracked, delta):
                self._request_cycle()

        return handle

    def _update(self, tracked: TrackedObjects[Any, Any, Any], delta: Delta[Any]) -> bool:
        """Apply a change. Returns whether it may matter to a decision."""
        version = tracked.version
        if delta.after is None:
            tracked.drop(delta.newest)
        else:
            tracked.put(delta.after)
        return tracked.version != version

    def assume(self, member: GangMember, node: str) -> None:
        """Count the member on this node from now on."""
        self.gangs.assume(member, node)
        self.nodes.put_pod(member.as_bound_pod())

    def forget(self, uid: str) -> None:
        """Undo `assume`: the pod was not placed."""
        member = self.gangs.member(uid)
        if member is not None and member.assumed_node:
            self.gangs.forget(uid)
            if not member.node:
                self.nodes.drop_pod(uid)
            self._request_cycle()

    def forget_refused(self, uid: str) -> None:
        """Undo `assume` after the server refused. The member does not wait again until its pod is seen to have changed."""
        member = self.gangs.member(uid)
        if member is None or not member.assumed_node:
            return
        member.bind_refused = True
        self.forget(uid)
        if not member.node and not member.mode:
            # Another scheduler instance has pinned it.
            self._adopt_pin(member)
            if member.assumed_node:
                self.nodes.put_pod(member.as_bound_pod())

    def set_evicting(self, uid: str, *, evicting: bool) -> None:
        """Mark a pod as being evicted, or, after a refusal, as staying."""
        gang, member, pod = self.gangs.gang_of_pod(uid), self.gangs.member(uid), self.nodes.bound_pod(uid)
        if gang is not None and member is not None:
            member.evicting = evicting
            self.gangs.invalidate(gang)
        if pod is not None:
            terminating = evicting or (member is not None and member.status.deleting)
            self.nodes.put_pod(msgspec.structs.replace(pod, terminating=terminating))
        self._request_cycle()


def _queue_quota(queue: Queue) -> QueueQuota:
    spec, name = queue.spec, queue.metadata.name
    try:
        cap = amounts(spec.capability or {})
    except QuantityError as error:
        log.warning("queue has a cap that cannot be read, ignoring it", extra={"queue": name, "error": str(error)})
        cap = {}
    return QueueQuota(name, weight=max(spec.weight, 1), cap=cap, reclaimable=spec.reclaimable)
