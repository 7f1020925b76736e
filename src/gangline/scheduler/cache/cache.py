"""What informers tell, as what decisions are made on: the cluster, the gangs, queues and budgets. No I/O.

Only what can help somebody who waits asks for a round: room that frees up, a node that changes, a gang that changes. A
pod that is seen where we put it changes nothing, and asks for nothing.
"""

import logging
from collections.abc import Callable

import msgspec

from gangline.api.core import PriorityClass
from gangline.api.quantity import QuantityError
from gangline.api.scheduler_views import Claim, CSINode, Namespace, Node, PersistentVolume, Pod, StorageClass
from gangline.api.scheduling import DEFAULT_QUEUE, PINNED_TO, PodGroup, Queue
from gangline.runtime.informer import Delta
from gangline.scheduler.binding.binder import HOSTNAME
from gangline.scheduler.cache.disruption_budgets import Budget, Budgets
from gangline.scheduler.cache.nodes import Cluster
from gangline.scheduler.gangs.member import BIND, PIN, Member
from gangline.scheduler.gangs.registry import Gangs
from gangline.scheduler.pods.decode import resident_of
from gangline.scheduler.pods.shape import Shape
from gangline.scheduler.pods.shapes import Shapes
from gangline.scheduler.settings import SchedulerSettings
from gangline.scheduler.types.cycle import QueueRule, Resident
from gangline.scheduler.types.resources import amounts

log = logging.getLogger(__name__)


class World:
    """All that is known. Every method takes one change; `changed` is called when a round may help somebody."""

    def __init__(self, settings: SchedulerSettings, changed: Callable[[], None]) -> None:
        modes = frozenset(mode for mode, on in ((BIND, settings.binds), (PIN, settings.pins)) if on)
        self.cluster = Cluster()
        self.gangs = Gangs(settings.name, modes=modes)
        self.budgets = Budgets()
        self.queues: dict[str, QueueRule] = {DEFAULT_QUEUE: QueueRule(DEFAULT_QUEUE)}
        self.gone: Callable[[str], None] = lambda uid: None
        """Is told the uid of every pod and group that is gone."""
        self.noticed: Callable[[], object] = lambda: None
        """Is called when something about a gang changed that may have to be told, and helps nobody."""
        self._changed = changed
        self._rules = 0
        self._hostnames: dict[str, str] = {}
        self._shapes = Shapes()

    @property
    def version(self) -> int:
        """Grows with everything but the gangs that may matter to a decision."""
        return self.cluster.version + self._rules + self.gangs.rules

    def hostname(self, node: str) -> str:
        """What a node's label says it is called."""
        return self._hostnames.get(node, node)

    # Changes

    def pod(self, delta: Delta[Pod]) -> None:
        if delta.after is None:
            self._pod_gone(delta.newest.metadata.uid)
            return
        pod = delta.after
        try:
            shape = self._shapes.of(pod, self.cluster.asked)
        except QuantityError as error:
            log.warning(
                "pod cannot be read, ignoring it", extra={"pod": pod.metadata.key, "error": str(error)}
            )
            return
        version, told = self.cluster.version, self.gangs.version
        member = self.gangs.put_pod(pod, shape)
        if member is not None and not member.node and not member.mode:
            self._notice_pin(member)
        resident = self._resident(pod, shape, member)
        if resident is not None:
            self.cluster.put_pod(resident)
        else:
            self.cluster.drop_pod(pod.metadata.uid)
        freed = resident is None or resident.terminating
        waits = member is not None and member.waits and self.gangs.version != told
        if waits or (freed and self.cluster.version != version):
            self._changed()
        elif self.gangs.changed:
            self.noticed()

    def _pod_gone(self, uid: str) -> None:
        version = self.cluster.version
        known = self.gangs.of(uid) is not None
        self.gangs.drop_pod(uid)
        self.cluster.drop_pod(uid)
        self.gone(uid)
        if known or self.cluster.version != version:
            self._changed()

    def _resident(self, pod: Pod, shape: Shape, member: Member | None) -> Resident | None:
        if member is None or (not member.assumed and not member.leaving):
            return resident_of(pod, shape)
        return member.resident() if member.node and not member.ended else None

    def _notice_pin(self, member: Member) -> None:
        """A pod that we pinned before we were restarted: its scheduler has yet to bind it where it was told to go."""
        node = member.pod.metadata.annotations.get(PINNED_TO)
        if node and not member.pod.spec.scheduling_gates and member.homeless:
            self.gangs.assume(member, node)

    def node(self, delta: Delta[Node]) -> None:
        version = self.cluster.version
        name = delta.newest.metadata.name
        if delta.after is None:
            self.cluster.drop_node(name)
            self._hostnames.pop(name, None)
        else:
            self._hostnames[name] = delta.after.metadata.labels.get(HOSTNAME, name)
            try:
                self.cluster.put_node(delta.after)
            except QuantityError as error:
                log.warning("node cannot be read, ignoring it", extra={"node": name, "error": str(error)})
        if self.cluster.version != version:
            self._changed()

    def group(self, delta: Delta[PodGroup]) -> None:
        version = self.gangs.version
        if delta.after is None:
            self.gangs.drop_group(delta.newest.metadata.key)
            self.gone(delta.newest.metadata.uid)
        else:
            self.gangs.put_group(delta.after)
        if self.gangs.version != version:
            self._changed()
        else:
            self.noticed()

    def queue(self, delta: Delta[Queue]) -> None:
        name = delta.newest.metadata.name
        if delta.after is not None:
            rule = _rule(delta.after)
        elif name == DEFAULT_QUEUE:
            rule = QueueRule(DEFAULT_QUEUE)
        else:
            rule = None
        before = self.queues.get(name)
        if rule is None:
            self.queues.pop(name, None)
        else:
            self.queues[name] = rule
        if rule != before:
            self._rules += 1
            self._changed()

    def priority_class(self, delta: Delta[PriorityClass]) -> None:
        if delta.after is None:
            self.gangs.drop_class(delta.newest.metadata.name)
        else:
            self.gangs.put_class(delta.after)
        self._changed()

    def budget(self, delta: Delta[Budget]) -> None:
        if delta.after is None:
            self.budgets.drop(delta.newest.metadata.key)
        else:
            self.budgets.put(delta.after)
        self._rules += 1
        self._changed()

    def claim(self, delta: Delta[Claim]) -> None:
        if delta.after is None:
            self.cluster.drop_claim(delta.newest.metadata.key)
        else:
            self.cluster.put_claim(delta.after)
        self._changed()

    def volume(self, delta: Delta[PersistentVolume]) -> None:
        if delta.after is None:
            self.cluster.drop_volume(delta.newest.metadata.name)
        else:
            self.cluster.put_volume(delta.after)
        self._changed()

    def storage_class(self, delta: Delta[StorageClass]) -> None:
        if delta.after is None:
            self.cluster.drop_class(delta.newest.metadata.name)
        else:
            self.cluster.put_class(delta.after)
        self._changed()

    def limits(self, delta: Delta[CSINode]) -> None:
        version, name = self.cluster.version, delta.newest.metadata.name
        if delta.after is None:
            self.cluster.drop_limits(name)
        else:
            self.cluster.put_limits(delta.after)
        if self.cluster.version != version:
            self._changed()

    def namespace(self, delta: Delta[Namespace]) -> None:
        version, metadata = self.cluster.version, delta.newest.metadata
        if delta.after is None:
            self.cluster.drop_namespace(metadata.name)
        else:
            self.cluster.put_namespace(metadata.name, metadata.labels)
        if self.cluster.version != version:
            self._changed()

    # What we decide

    def assume(self, member: Member, node: str) -> None:
        """It goes there: from now on its place is used."""
        self.gangs.assume(member, node)
        self.cluster.put_pod(member.resident())

    def unassume(self, uid: str) -> None:
        """It did not come to that."""
        member = self.gangs.member(uid)
        if member is not None and member.assumed:
            self.gangs.unassume(uid)
            if not member.node:
                self.cluster.drop_pod(uid)
            self._changed()

    def refuse(self, uid: str) -> None:
        """The server did not let it go there: nobody tries again before it is seen to be otherwise."""
        member = self.gangs.member(uid)
        if member is None or not member.assumed:
            return
        member.refused = True
        self.unassume(uid)
        if not member.node and not member.mode:
            # Somebody else has told it where to go.
            self._notice_pin(member)
            if member.assumed:
                self.cluster.put_pod(member.resident())

    def ask_to_leave(self, uid: str, *, leaves: bool) -> None:
        """A resident is asked to leave, or (refused) stays after all."""
        gang, member, resident = self.gangs.of(uid), self.gangs.member(uid), self.cluster.resident(uid)
        if gang is not None and member is not None:
            member.leaving = leaves
            self.gangs.touch(gang)
        if resident is not None:
            leaving = leaves or (member is not None and member.facts.deleting)
            self.cluster.put_pod(msgspec.structs.replace(resident, terminating=leaving))
        self._changed()


def _rule(queue: Queue) -> QueueRule:
    spec, name = queue.spec, queue.metadata.name
    try:
        cap = amounts(spec.capability or {})
    except QuantityError as error:
        log.warning(
            "queue has a cap that cannot be read, ignoring it", extra={"queue": name, "error": str(error)}
        )
        cap = {}
    return QueueRule(name, weight=max(spec.weight, 1), cap=cap, reclaimable=spec.reclaimable)
