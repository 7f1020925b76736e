"""Writes `status.state` of PodGroups, and records one Event per transition.

The state is computed when something about a gang changed. A new phase is written at once, another text about the same
phase after a delay, and an unchanged state gets a new timestamp only when it is computed anyway. Writes carry the
resourceVersion that was read: after a conflict the PodGroup is read again and the state computed again, never forced.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Never

from gangline.api.codec.codec import to_json
from gangline.api.meta import JSON
from gangline.api.scheduling import PodGroup, PodGroupPhase, PodGroupStatus
from gangline.base.clock import Clock, Timer
from gangline.base.tasks import for_each
from gangline.kube.client import Client
from gangline.kube.errors import Conflict, KubeError, NotFound
from gangline.runtime.events import EventRecorder, EventType
from gangline.scheduler.gangs.gang import GangInfo
from gangline.scheduler.gangs.phase import next_state, podgroup_status
from gangline.scheduler.gangs.registry import GangRegistry
from gangline.scheduler.settings import Intervals

log = logging.getLogger(__name__)

MAX_CONCURRENT_WRITES = 8
UNWRITTEN_AGE = timedelta(days=1)
MAX_BUSY_CHECKS = 20
"""How often a report waits while pods are being bound; then it is written all the same."""
_WARNING_PHASES = (PodGroupPhase.RECOVERING.value, PodGroupPhase.UNSCHEDULABLE.value)
_STATE_FIELDS = ("phase", "lastProbeTime", "lastTransitionTime", "reason", "message")


class PodGroupReporter:
    """Computes and writes the status of PodGroups. Does nothing until `run`."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        gangs: GangRegistry,
        recorder: EventRecorder,
        intervals: Intervals,
        *,
        is_busy: Callable[[], bool] = lambda: False,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """While `is_busy`, nothing is written: pods being bound are more urgent than what people read.

        `changed` is called when a PodGroup that was read differs from what the watch has delivered.
        """
        self._client, self._clock, self._gangs, self._recorder = client, clock, gangs, recorder
        self._intervals, self._is_busy, self._notify_changed = intervals, is_busy, changed
        self._wake = asyncio.Event()
        self._queued: dict[GangInfo, None] = {}
        # When each PodGroup was last written (monotonic time), by uid.
        self._written_at: dict[str, float] = {}
        self._timer: Timer | None = None
        self._timer_at = 0.0

    def enqueue(self, gang: GangInfo) -> None:
        """Something about the gang changed."""
        if gang.pod_group is not None:
            self._queued[gang] = None
            self._wake.set()

    def forget(self, uid: str) -> None:
        """A PodGroup is gone."""
        self._written_at.pop(uid, None)

    async def run(self) -> Never:
        """Work until cancelled."""
        try:
            while True:
                await self._wake.wait()
                await self._clock.sleep(self._intervals.report)
                await self._wait_until_idle(MAX_BUSY_CHECKS)
                self._wake.clear()
                await self._report_queued()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def _report_queued(self) -> None:
        queued, self._queued = self._queued, {}
        await for_each(queued, self._report_gang, at_once=min(MAX_CONCURRENT_WRITES, len(queued)))

    async def _wait_until_idle(self, checks: int) -> None:
        """Return when no pod is being bound, or after this many checks."""
        for _ in range(checks):
            if not self._is_busy():
                return
            await self._clock.sleep(self._intervals.report)

    async def _report_gang(self, gang: GangInfo) -> None:
        # Binding may have begun since the reports were collected.
        await self._wait_until_idle(1)
        status = self._status_change(gang)
        if status is not None:
            await self._write_status(gang, status)

    def _status_change(self, gang: GangInfo) -> PodGroupStatus | None:
        """The status to write now; None if it is unchanged or to be written later."""
        group = gang.pod_group
        if group is None or group.metadata.deletion_timestamp is not None:
            return None
        observation = gang.observation(self._clock.now())
        state = next_state(observation)
        status = podgroup_status(observation, state)
        if status == group.status:
            return None
        if state.phase == group.status.state.phase:
            pause = (
                self._intervals.message_write
                if _only_message_differs(group.status, status)
                else self._intervals.status_write
            )
            delay = pause - self._time_since_write(group)
            if delay > timedelta():
                self._enqueue_after(gang, delay)
                return None
        return status

    def _time_since_write(self, group: PodGroup) -> timedelta:
        """The time since our last write; `UNWRITTEN_AGE` if there was none."""
        last = self._written_at.get(group.metadata.uid)
        return UNWRITTEN_AGE if last is None else timedelta(seconds=self._clock.monotonic() - last)

    def _enqueue_after(self, gang: GangInfo, delay: timedelta) -> None:
        self._queued[gang] = None
        timer_at = self._clock.monotonic() + delay.total_seconds()
        if self._timer is not None and timer_at >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self._clock.call_later(delay, self._on_timer), timer_at

    def _on_timer(self) -> None:
        self._timer = None
        self._wake.set()

    async def _write_status(self, gang: GangInfo, status: PodGroupStatus) -> None:
        group = gang.pod_group
        assert group is not None
        metadata, before = group.metadata, group.status.state.phase
        self._written_at[metadata.uid] = self._clock.monotonic()
        try:
            written = await self._client.patch(
                PodGroup,
                metadata.key,
                {"status": status_patch(status)},
                subresource="status",
                resource_version=metadata.resource_version,
            )
        except NotFound:
            return
        except Conflict:
            await self._reread(gang, group)
        except KubeError as error:
            log.warning("status not written, will retry", extra={"group": metadata.key, "error": str(error)})
            self._enqueue_after(gang, self._intervals.status_write)
        else:
            self._record_transition(written, before)
            self._gangs.put_group(written)
            # The next transition may be due already.
            self.enqueue(gang)

    async def _reread(self, gang: GangInfo, group: PodGroup) -> None:
        """Read the PodGroup after a conflict: the watch may be far behind."""
        try:
            current = await self._client.get(PodGroup, group.metadata.key)
        except NotFound:
            return
        except KubeError:
            self._enqueue_after(gang, self._intervals.status_write)
            return
        if current.metadata.uid == group.metadata.uid:
            self._written_at.pop(current.metadata.uid, None)
            self._gangs.put_group(current)
            # The watch will deliver nothing newer.
            self._notify_changed()
            self.enqueue(gang)

    def _record_transition(self, group: PodGroup, before: str) -> None:
        state = group.status.state
        log.info(
            "group status changed", extra={"group": group.metadata.key, "phase": state.phase, "why": state.message}
        )
        # The first state is no transition, and is not worth an Event.
        if before and state.phase != before:
            is_warning = state.phase in _WARNING_PHASES
            kind = EventType.WARNING if is_warning else EventType.NORMAL
            self._recorder.record(group, kind, state.phase, state.message or state.phase, "Probe")


def _only_message_differs(before: PodGroupStatus, after: PodGroupStatus) -> bool:
    """Whether only the reason for not being placed differs, which may change with every placement."""

    def rest(status: PodGroupStatus) -> tuple[str, str, int, int, int]:
        text = status.state.message.partition("; ")[0]
        return status.state.reason, text, status.running, status.succeeded, status.failed

    return rest(before) == rest(after)


def status_patch(status: PodGroupStatus) -> JSON:
    """A merge patch to this status: empty fields are removed."""
    state = to_json(status.state)
    counters = {"running": status.running, "succeeded": status.succeeded, "failed": status.failed}
    return {"state": {name: state.get(name) for name in _STATE_FIELDS}, **counters}
