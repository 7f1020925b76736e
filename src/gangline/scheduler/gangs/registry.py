"""All gangs, built from pods and PodGroups change by change.

Read once per cycle: a cycle costs in proportion to what changed, not to what exists. No I/O, no clock.
"""

from collections.abc import Iterator

from gangline.api.core import PriorityClass
from gangline.api.meta import Key
from gangline.api.scheduler_views import Pod
from gangline.api.scheduling import GROUP_NAME_ANNOTATION, SCHEDULER_NAME, PodGroup, PodGroupPhase
from gangline.scheduler.gangs.gang import NEVER_PREEMPT, GangInfo, GangPriority, SchedulingSpec
from gangline.scheduler.gangs.members import BIND, PIN, GangMember, member_status, placement_mode
from gangline.scheduler.types.cycle import BudgetLimit, GangAllocation, GangRequest
from gangline.scheduler.types.shape import PodShape
from gangline.scheduler.types.tracked import TrackedObjects, name_of


class GangRegistry:
    """Every PodGroup, and every single pod of ours."""

    def __init__(self, scheduler: str = SCHEDULER_NAME, *, modes: frozenset[str] = frozenset({BIND, PIN})) -> None:
        self._scheduler, self._modes = scheduler, modes
        self._by_group: dict[Key, GangInfo] = {}
        # By uid: a pod and a PodGroup may have the same name.
        self._single_pods: dict[str, GangInfo] = {}
        self._by_pod: dict[str, GangInfo] = {}
        self.priority_classes = TrackedObjects[str, PriorityClass, GangPriority](name_of, _priority)
        # Gangs that may have a request, in the order in which they came. A cycle looks at no others.
        self._maybe_waiting: dict[GangInfo, None] = {}
        self.changed_gangs: dict[GangInfo, None] = {}
        """Gangs with changes that may have to be reported. The reporter replaces the dict."""
        self.version = 0
        """Grows with every change that may matter to a decision."""
        # Grows when the spec of a PodGroup changes.
        self.spec_version = 0

    def __iter__(self) -> Iterator[GangInfo]:
        yield from self._by_group.values()
        yield from self._single_pods.values()

    def gang_of_pod(self, uid: str) -> GangInfo | None:
        """The gang of a pod."""
        return self._by_pod.get(uid)

    def member(self, uid: str) -> GangMember | None:
        gang = self._by_pod.get(uid)
        return gang.members.by_uid.get(uid) if gang is not None else None

    def gang_of_group(self, key: Key) -> GangInfo | None:
        return self._by_group.get(key)

    def put_pod(self, pod: Pod, shape: PodShape) -> GangMember | None:
        """Add or update a pod. Returns its member, if it belongs to a gang. Equal shapes must be one object.

        A pod whose annotation names another gang is lost to its own; a pod being placed changes its gang only after
        that.
        """
        known_member = self.member(pod.metadata.uid)
        if (
            known_member is not None
            and not known_member.assumed_node
            and not _names_gang(pod, self._by_pod[known_member.uid])
        ):
            self.drop_pod(known_member.uid)
        gang = self._gang_for(pod)
        if gang is None:
            return None
        uid, mode = pod.metadata.uid, placement_mode(pod, self._scheduler)
        mode = mode if mode in self._modes else ""
        member = gang.members.by_uid.get(uid)
        if member is None:
            member = GangMember(pod, shape, mode)
            gang.members.add(member)
            self._by_pod[uid] = gang
        else:
            before, old_node = (member.shape, member.mode, member.status), member.is_placed and member.node
            rejected = member.pin_rejected
            member.pod, member.shape, member.mode, member.status = pod, shape, mode, member_status(pod)
            refused, member.bind_refused = member.bind_refused, False
            if before == (shape, mode, member.status) and not refused:
                # Only a condition or an annotation changed, which no decision depends on. But a rejected pin must be
                # rolled back.
                if member.pin_rejected != rejected:
                    self.changed_gangs[gang] = None
                return member
            gang.members.update(before[2], member.status)
            if member.assumed_node and old_node == member.status.node and member.is_placed and before[0] is shape:
                # Seen where we placed it: for decisions nothing has changed.
                member.assumed_node = ""
                self.changed_gangs[gang] = None
                return member
        if member.status.node:
            member.assumed_node = ""
        self.invalidate(gang)
        return member

    def drop_pod(self, uid: str) -> None:
        """Remove a pod. Its gang counts it as lost until it is replaced."""
        gang = self._by_pod.pop(uid, None)
        if gang is None:
            return
        gang.members.remove(uid)
        self.invalidate(gang)
        self._drop_if_empty(gang, uid)

    def put_group(self, group: PodGroup) -> GangInfo:
        """Add or update a PodGroup."""
        key = group.metadata.key
        gang = self._by_group.get(key)
        if gang is None:
            gang = self._by_group[key] = GangInfo(key, single_pod=False)
        before = gang.pod_group
        if before is not None and before.metadata.uid == group.metadata.uid and not _is_newer(group, before):
            return gang
        is_equivalent = before is not None and _is_equivalent(before, group)
        spec = gang.spec if is_equivalent else SchedulingSpec.from_podgroup(group.spec)
        # A changed spec may allow others more, even if the gang requests nothing.
        self.spec_version += spec != gang.spec
        gang.set_pod_group(group, spec)
        if before is None or _is_restarted(before, group):
            # Earlier losses do not matter to a gang that starts again.
            gang.members.lost.clear()
            gang.progress.placed_at = gang.progress.rolled_back_at = None
            succeeded, probe_time = group.status.succeeded, group.status.state.last_probe_time
            gang.members.prior_succeeded = (succeeded, probe_time) if before is None else (0, None)
            gang.progress.warned_timeout = False
        if group.status.state.phase == PodGroupPhase.RUNNING:
            # All members have their nodes.
            gang.excluded_nodes.clear()
        if is_equivalent:
            self.changed_gangs[gang] = None
        else:
            self.invalidate(gang)
        return gang

    def drop_group(self, key: Key) -> None:
        """Remove a PodGroup. Remaining members wait for a new one of its name."""
        gang = self._by_group.get(key)
        if gang is not None:
            gang.set_pod_group(None, SchedulingSpec())
            gang.progress.pending = gang.progress.last_attempt = None
            gang.members.lost.clear()
            self.invalidate(gang)
            self._drop_if_empty(gang)

    def assume(self, member: GangMember, node: str) -> None:
        """Count the member on this node from now on."""
        member.assumed_node = node
        self.invalidate(self._by_pod[member.uid])

    def forget(self, uid: str) -> None:
        """Undo `assume`. Does nothing if the pod is gone, or is on the node already."""
        member = self.member(uid)
        if member is not None and member.assumed_node:
            member.assumed_node = ""
            self.invalidate(self._by_pod[uid])

    def protect(self, gang: GangInfo, uids: frozenset[str], limits: tuple[BudgetLimit, ...] = ()) -> None:
        """Set which members must not be evicted, and the budget limits for the others."""
        if (gang.protected_uids, gang.budget_limits) != (uids, limits):
            gang.protected_uids, gang.budget_limits = uids, limits
            self.invalidate(gang)

    def invalidate(self, gang: GangInfo) -> None:
        """Something about the gang changed that may matter to a decision."""
        gang.invalidate()
        self.version += 1
        self._maybe_waiting[gang] = None
        self.changed_gangs[gang] = None

    def requests(self) -> list[GangRequest]:
        """The requests of all gangs with enough waiting members."""
        requests: list[GangRequest] = []
        for gang in tuple(self._maybe_waiting):
            request = gang.request(self.priority_classes.fields.get)
            if request is not None:
                requests.append(request)
                continue
            del self._maybe_waiting[gang]
            gang.progress.pending = gang.progress.last_attempt = None
        return requests

    def allocations(self) -> list[GangAllocation]:
        """The allocations of all gangs with pods on nodes."""
        priority_of = self.priority_classes.fields.get
        return [allocation for gang in self if (allocation := gang.allocation(priority_of)) is not None]

    def allocation(self, gang: GangInfo) -> GangAllocation | None:
        """The allocation of a gang; None if it has no pods on nodes."""
        return gang.allocation(self.priority_classes.fields.get)

    def gang_of_request(self, request: GangRequest) -> GangInfo | None:
        """The gang that made the request; None if it is gone."""
        gang = self._single_pods.get(request.uid) or self._by_group.get(request.key)
        return gang if gang is not None and gang.uid == request.uid else None

    def _gang_for(self, pod: Pod) -> GangInfo | None:
        """The gang of a pod, created if necessary; None if the pod is not ours."""
        metadata = pod.metadata
        gang_of_uid = self._by_pod.get(metadata.uid)
        if gang_of_uid is not None:
            return gang_of_uid
        name = metadata.annotations.get(GROUP_NAME_ANNOTATION)
        if name:
            key = Key(metadata.namespace, name)
            return self._by_group.setdefault(key, GangInfo(key, single_pod=False))
        if pod.spec.scheduler_name != self._scheduler:
            return None
        gang = self._single_pods[metadata.uid] = GangInfo(metadata.key, single_pod=True)
        return gang

    def _drop_if_empty(self, gang: GangInfo, uid: str = "") -> None:
        if gang.pod_group is None and not gang.members.by_uid:
            if gang.is_single_pod:
                self._single_pods.pop(uid, None)
            else:
                del self._by_group[gang.key]
            self._maybe_waiting.pop(gang, None)
            self.changed_gangs.pop(gang, None)


def _priority(priority_class: PriorityClass) -> GangPriority:
    return GangPriority(priority_class.value, can_preempt=priority_class.preemption_policy != NEVER_PREEMPT)


def _names_gang(pod: Pod, gang: GangInfo) -> bool:
    """Whether the pod's annotation still names this gang."""
    name = pod.metadata.annotations.get(GROUP_NAME_ANNOTATION)
    return gang.is_single_pod if not name else not gang.is_single_pod and gang.key.name == name


def _is_newer(group: PodGroup, before: PodGroup) -> bool:
    """Whether `group` is newer: a watch may be behind what we wrote. Versions that are not numbers count as newer."""
    version, known_version = group.metadata.resource_version, before.metadata.resource_version
    if version.isdecimal() and known_version.isdecimal():
        return int(version) > int(known_version)
    return version != known_version


def _is_restarted(before: PodGroup, group: PodGroup) -> bool:
    """Whether this is another PodGroup of the same name, or one that starts again because all its members are gone."""
    old_phase, new_phase = before.status.state.phase, group.status.state.phase
    is_reset = (old_phase, new_phase) == (PodGroupPhase.UNSCHEDULABLE, PodGroupPhase.PENDING)
    return is_reset or before.metadata.uid != group.metadata.uid


def _is_equivalent(group: PodGroup, before: PodGroup) -> bool:
    """Whether nothing changed that a decision depends on."""
    metadata, old_metadata = group.metadata, before.metadata
    return (
        metadata.uid == old_metadata.uid
        and metadata.deletion_timestamp == old_metadata.deletion_timestamp
        and group.spec == before.spec
        and group.status.state.phase == before.status.state.phase
    )
