"""Reports a lack of resources to autoscalers, in the PodScheduled condition of pods.

All unbound members of a gang that lacks resources get PodScheduled=False, reason Unschedulable, not only those that do
not fit: an autoscaler looks pod by pod, and would fit the marked ones where the others are to go. A gang that waits for
its queue or for pods to terminate is never marked: that would add nodes which stay unused. An outdated mark is replaced
by another reason.
"""

import asyncio
import logging
from typing import Never

from gangline.api.meta import JSON, Key
from gangline.api.scheduler_views import POD_SCHEDULED, Pod, PodCondition
from gangline.base.clock import Clock
from gangline.base.tasks import for_each
from gangline.kube.client import Client
from gangline.kube.errors import Conflict, Invalid, KubeError, NotFound
from gangline.kube.options import PatchType
from gangline.scheduler.gangs.gang import GangInfo
from gangline.scheduler.gangs.members import BIND, UNSCHEDULABLE_REASON, GangMember, scheduled_condition
from gangline.scheduler.settings import Intervals
from gangline.scheduler.types.cycle import PendingReason

log = logging.getLogger(__name__)

MAX_CONCURRENT_WRITES = 8
WAITING_REASON = "Waiting"
"""The reason for everything that an autoscaler must not react to."""


class PodConditionReporter:
    """Keeps the PodScheduled condition of pods current. Does nothing until `run`."""

    def __init__(self, client: Client, clock: Clock, intervals: Intervals) -> None:
        self._client, self._clock, self._intervals = client, clock, intervals
        self._wake = asyncio.Event()
        self._queued: dict[GangInfo, None] = {}
        # When each waiting pod was last marked (monotonic time), by uid.
        self._marked_at: dict[str, float] = {}

    def enqueue(self, gang: GangInfo) -> None:
        """The condition of its pods may have to change."""
        if gang.progress.pending is not None or gang.progress.marked_unschedulable:
            self._queued[gang] = None
            self._wake.set()

    def forget(self, uid: str) -> None:
        """A pod is gone, or has its node."""
        self._marked_at.pop(uid, None)

    async def run(self) -> Never:
        """Work until cancelled."""
        while True:
            await self._wake.wait()
            await self._clock.sleep(self._intervals.report)
            self._wake.clear()
            queued, self._queued = self._queued, {}
            changes = [change for gang in queued for change in self._condition_changes(gang)]
            await for_each(changes, self._write_condition, at_once=min(MAX_CONCURRENT_WRITES, len(changes)))

    def _condition_changes(self, gang: GangInfo) -> list[tuple[GangMember, PodCondition]]:
        """The members whose condition is to change, with the new condition."""
        pending = gang.progress.pending
        lacks_room = pending is not None and pending.reason is PendingReason.RESOURCES
        gang.progress.marked_unschedulable = lacks_room
        reason = UNSCHEDULABLE_REASON if lacks_room else WAITING_REASON
        message = pending.message if pending is not None else "waits for the other members of its gang"
        condition = PodCondition(type=POD_SCHEDULED, status="False", reason=reason, message=message)
        changes = []
        for member in gang.members.unplaced():
            if member.mode != BIND:
                continue
            current = scheduled_condition(member.pod)
            is_marked = current is not None and current.status == "False" and current.reason == UNSCHEDULABLE_REASON
            is_due = is_marked
            if lacks_room:
                is_due = not is_marked or (current != condition and self._is_stale(member.uid))
            if is_due and not _same_condition(current, condition):
                changes.append((member, condition))
        return changes

    def _is_stale(self, uid: str) -> bool:
        last = self._marked_at.get(uid)
        return last is None or self._clock.monotonic() - last >= self._intervals.condition_write.total_seconds()

    async def _write_condition(self, change: tuple[GangMember, PodCondition]) -> None:
        member, condition = change
        self._marked_at[member.uid] = self._clock.monotonic()
        current = scheduled_condition(member.pod)
        since = current.last_transition_time if current is not None and current.status == condition.status else None
        timestamp = (since or self._clock.now()).strftime("%Y-%m-%dT%H:%M:%SZ")
        await patch_condition(self._client, member.key, member.uid, condition, timestamp)


def _same_condition(current: PodCondition | None, condition: PodCondition) -> bool:
    """Whether the conditions are equal except for their times."""
    return current is not None and (current.status, current.reason, current.message) == (
        condition.status,
        condition.reason,
        condition.message,
    )


async def patch_condition(client: Client, key: Key, uid: str, condition: PodCondition, timestamp: str) -> None:
    """Write one condition of a pod. A pod that is gone or has another uid is ignored; other errors are logged."""
    body: JSON = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": timestamp,
    }
    patch = {"metadata": {"uid": uid}, "status": {"conditions": [body]}}
    try:
        await client.patch(Pod, key, patch, form=PatchType.STRATEGIC, subresource="status")
    except (NotFound, Conflict, Invalid):
        # Invalid: a patch cannot change a uid, so this is another pod.
        return
    except KubeError as error:
        log.warning("condition not written", extra={"pod": key, "error": str(error)})
