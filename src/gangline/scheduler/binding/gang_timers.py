"""Timers of gangs: roll back a start that stays half bound, and warn about a wait that takes too long."""

from datetime import UTC, datetime, timedelta

from gangline.api.scheduling import GROUP_NAME_ANNOTATION
from gangline.runtime.events import EventType
from gangline.scheduler.binding.dispatcher import Dispatcher
from gangline.scheduler.binding.gang_events import GangEvents
from gangline.scheduler.gangs.gang import GangInfo
from gangline.scheduler.gangs.timeouts import rollback_at, start_timeout, timeout_warning_at
from gangline.scheduler.settings import SchedulerSettings

UPDATE_INTERVAL = timedelta(milliseconds=250)
"""Minimum time between two updates of changed gangs. A thousand members bound one by one are one change here."""


class GangTimers:
    """Gangs with a time at which something is due. The caller brings the time."""

    def __init__(self, settings: SchedulerSettings, dispatcher: Dispatcher, events: GangEvents) -> None:
        self._settings, self._dispatcher, self._events = settings, dispatcher, events
        self._due_at: dict[GangInfo, datetime] = {}
        # Gangs that changed, and when such gangs were last updated.
        self._changed: dict[GangInfo, None] = {}
        self._updated_at = datetime(1970, 1, 1, tzinfo=UTC)

    @property
    def next_at(self) -> datetime | None:
        """When to call `run_due`; None if nothing is due."""
        due_at = min(self._due_at.values(), default=None)
        if not self._changed:
            return due_at
        update_at = self._updated_at + UPDATE_INTERVAL
        return update_at if due_at is None else min(due_at, update_at)

    def mark_changed(self, gang: GangInfo) -> None:
        """The gang changed: its timer is computed again."""
        self._changed[gang] = None

    def _update(self, gang: GangInfo) -> None:
        times = [time for time in (self._rollback_at(gang), self._warning_at(gang)) if time is not None]
        if times:
            self._due_at[gang] = min(times)
        else:
            self._due_at.pop(gang, None)

    def run_due(self, now: datetime) -> None:
        """Do what is due."""
        # Also true when the clock was set back.
        if self._changed and abs(now - self._updated_at) >= UPDATE_INTERVAL:
            self._updated_at = now
            changed, self._changed = self._changed, {}
            for gang in changed:
                self._update(gang)
        for gang in [gang for gang, when in self._due_at.items() if when <= now]:
            rollback_time, warning_at = self._rollback_at(gang), self._warning_at(gang)
            if rollback_time is not None and rollback_time <= now:
                gang.progress.rolled_back_at = now
                self._dispatcher.rollback(gang, start_timeout(gang, self._settings.start_timeout))
            if warning_at is not None and warning_at <= now:
                self._warn_timeout(gang)
            self._update(gang)

    def _rollback_at(self, gang: GangInfo) -> datetime | None:
        return rollback_at(gang, self._settings.start_timeout) if self._settings.roll_back else None

    def _warning_at(self, gang: GangInfo) -> datetime | None:
        return None if gang.progress.warned_timeout else timeout_warning_at(gang, self._settings.start_timeout)

    def _warn_timeout(self, gang: GangInfo) -> None:
        gang.progress.warned_timeout = True
        if gang.pod_group is None:
            message = (
                f"its PodGroup {gang.key} does not exist: create it, or remove the annotation {GROUP_NAME_ANNOTATION}"
            )
            self._events.record(gang, EventType.WARNING, "PodGroupMissing", message, "Place")
            return
        limit = start_timeout(gang, self._settings.start_timeout).total_seconds()
        reason = gang.progress.pending.message if gang.progress.pending is not None else gang.state.message
        message = f"not placed in {limit:g} s" + (f": {reason}" if reason else "")
        self._events.record(gang, EventType.WARNING, "ScheduleTimeout", message, "Place")
