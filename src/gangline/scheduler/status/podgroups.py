"""Writes down how gangs are: `status.state` of their PodGroups, and one Event per transition.

A probe is made when something about a gang changed. A new phase is written at once; other words about the same phase
at most once in a while; and what did not change is stamped only if somebody looks anyway. Writes are guarded by the
resourceVersion that was read: after a conflict the group is read and probed again, never forced.
"""

import asyncio
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Never

from gangline.api.codec.codec import to_json
from gangline.api.meta import JSON
from gangline.api.scheduling import GroupPhase, PodGroup, PodGroupStatus
from gangline.base.clock import Clock, Timer
from gangline.base.tasks import for_each
from gangline.kube.client import Client
from gangline.kube.errors import Conflict, KubeError, NotFound
from gangline.runtime.events import EventType, Recorder
from gangline.scheduler.gangs.gang import Gang
from gangline.scheduler.gangs.phase import counted, probe
from gangline.scheduler.gangs.registry import Gangs
from gangline.scheduler.settings import Pace

log = logging.getLogger(__name__)

AT_ONCE = 8
LONG_AGO = timedelta(days=1)
PATIENT = 20
"""So many looks at whether members are being placed; then they are written all the same, though slowly."""
_ALARMING = (GroupPhase.RECOVERING.value, GroupPhase.UNSCHEDULABLE.value)
_STATE = ("phase", "lastProbeTime", "lastTransitionTime", "reason", "message")


class Reporter:
    """Probes gangs and writes what came out. Inert until `run`."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        gangs: Gangs,
        recorder: Recorder,
        pace: Pace,
        *,
        busy: Callable[[], bool] = lambda: False,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """While `busy`, nothing is written: what people read can wait for what pods wait for.

        `changed` is called when a group turned out to be otherwise than the watch has told so far.
        """
        self._client, self._clock, self._gangs, self._recorder = client, clock, gangs, recorder
        self._pace, self._busy, self._changed = pace, busy, changed
        self._wake = asyncio.Event()
        self._due: dict[Gang, None] = {}
        # When each group was written last (steady time), by uid.
        self._written: dict[str, float] = {}
        self._timer: Timer | None = None
        self._rings = 0.0

    def look(self, gang: Gang) -> None:
        """Something about it changed."""
        if gang.group is not None:
            self._due[gang] = None
            self._wake.set()

    def forget(self, uid: str) -> None:
        """A group is gone."""
        self._written.pop(uid, None)

    async def run(self) -> Never:
        """Work until cancelled."""
        try:
            while True:
                await self._wake.wait()
                await self._clock.sleep(self._pace.report)
                await self._calm(PATIENT)
                self._wake.clear()
                await self._pass()
        finally:
            if self._timer is not None:
                self._timer.cancel()

    async def _pass(self) -> None:
        due, self._due = self._due, {}
        await for_each(due, self._report, at_once=min(AT_ONCE, len(due)))

    async def _calm(self, looks: int) -> None:
        """Return when no member is being placed, or after so many looks all the same."""
        for _ in range(looks):
            if not self._busy():
                return
            await self._clock.sleep(self._pace.report)

    async def _report(self, gang: Gang) -> None:
        # Members may have come since the pass began.
        await self._calm(1)
        status = self._news(gang)
        if status is not None:
            await self._write(gang, status)

    def _news(self, gang: Gang) -> PodGroupStatus | None:
        """What is to be written of it now; None: nothing, or later."""
        group = gang.group
        if group is None or group.metadata.deletion_timestamp is not None:
            return None
        seen = gang.probed(self._clock.now())
        state = probe(seen)
        status = counted(seen, state)
        if status == group.status:
            return None
        if state.phase == group.status.state.phase:
            pause = self._pace.why if _only_words(group.status, status) else self._pace.same
            left = pause - self._since(group)
            if left > timedelta():
                self._later(gang, left)
                return None
        return status

    def _since(self, group: PodGroup) -> timedelta:
        """How long ago it was written; long enough, if never by us."""
        last = self._written.get(group.metadata.uid)
        return LONG_AGO if last is None else timedelta(seconds=self._clock.monotonic() - last)

    def _later(self, gang: Gang, delay: timedelta) -> None:
        self._due[gang] = None
        rings = self._clock.monotonic() + delay.total_seconds()
        if self._timer is not None and rings >= self._rings:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._rings = self._clock.call_later(delay, self._ring), rings

    def _ring(self) -> None:
        self._timer = None
        self._wake.set()

    async def _write(self, gang: Gang, status: PodGroupStatus) -> None:
        group = gang.group
        assert group is not None
        metadata, before = group.metadata, group.status.state.phase
        self._written[metadata.uid] = self._clock.monotonic()
        try:
            written = await self._client.patch(
                PodGroup,
                metadata.key,
                {"status": body(status)},
                subresource="status",
                resource_version=metadata.resource_version,
            )
        except NotFound:
            return
        except Conflict:
            await self._reread(gang, group)
        except KubeError as error:
            log.warning("status not written, will retry", extra={"group": metadata.key, "error": str(error)})
            self._later(gang, self._pace.same)
        else:
            self._tell(written, before)
            self._gangs.put_group(written)
            # The next transition may be due already.
            self.look(gang)

    async def _reread(self, gang: Gang, group: PodGroup) -> None:
        """Somebody else wrote. The watch would tell, but it may be behind for long."""
        try:
            found = await self._client.get(PodGroup, group.metadata.key)
        except NotFound:
            return
        except KubeError:
            self._later(gang, self._pace.same)
            return
        if found.metadata.uid == group.metadata.uid:
            self._written.pop(found.metadata.uid, None)
            self._gangs.put_group(found)
            # The watch will have nothing new to tell.
            self._changed()
            self.look(gang)

    def _tell(self, group: PodGroup, before: str) -> None:
        state = group.status.state
        log.info(
            "group is otherwise",
            extra={"group": group.metadata.key, "phase": state.phase, "why": state.message},
        )
        # The first look is no transition: whoever made the group knows that it is there.
        if before and state.phase != before:
            alarming = state.phase in _ALARMING
            kind = EventType.WARNING if alarming else EventType.NORMAL
            self._recorder.record(group, kind, state.phase, state.message or state.phase, "Probe")


def _only_words(before: PodGroupStatus, after: PodGroupStatus) -> bool:
    """Whether nothing changed but why there is no place: that may change with everything that is placed."""

    def rest(status: PodGroupStatus) -> tuple[str, str, int, int, int]:
        said = status.state.message.partition("; ")[0]
        return status.state.reason, said, status.running, status.succeeded, status.failed

    return rest(before) == rest(after)


def body(status: PodGroupStatus) -> JSON:
    """A merge patch that makes the status this one: what is empty is taken out."""
    state = to_json(status.state)
    counters = {"running": status.running, "succeeded": status.succeeded, "failed": status.failed}
    return {"state": {name: state.get(name) for name in _STATE}, **counters}
