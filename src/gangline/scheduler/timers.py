"""When to look at gangs although nothing changes: a start that stays half bound, a wait that takes too long."""

from datetime import UTC, datetime, timedelta

from gangline.api.scheduling import GROUP_NAME
from gangline.runtime.events import EventType
from gangline.scheduler.binding.dispatcher import Carrier
from gangline.scheduler.gangs.gang import Gang
from gangline.scheduler.gangs.timeouts import late_at, patience, undo_at
from gangline.scheduler.settings import SchedulerSettings

PAUSE = timedelta(milliseconds=250)
"""Between two looks at what changed. A thousand members that are bound one after the other are one change here."""


class Deadlines:
    """Gangs with a time at which something is due. No clock of its own: it is asked."""

    def __init__(self, settings: SchedulerSettings, carrier: Carrier) -> None:
        self._settings, self._carrier = settings, carrier
        self._due: dict[Gang, datetime] = {}
        # Those that changed, and when such ones were last looked at.
        self._noted: dict[Gang, None] = {}
        self._reckoned = datetime(1970, 1, 1, tzinfo=UTC)

    @property
    def next(self) -> datetime | None:
        """When to `look`."""
        due = min(self._due.values(), default=None)
        if not self._noted:
            return due
        reckons = self._reckoned + PAUSE
        return reckons if due is None else min(due, reckons)

    def note(self, gang: Gang) -> None:
        """It changed: what is due may be due at another time, or not at all."""
        self._noted[gang] = None

    def _reckon(self, gang: Gang) -> None:
        times = [time for time in (self._undo(gang), self._late(gang)) if time is not None]
        if times:
            self._due[gang] = min(times)
        else:
            self._due.pop(gang, None)

    def look(self, now: datetime) -> None:
        """Do what is due."""
        # Also when the clock was set back.
        if self._noted and abs(now - self._reckoned) >= PAUSE:
            self._reckoned = now
            noted, self._noted = self._noted, {}
            for gang in noted:
                self._reckon(gang)
        for gang in [gang for gang, when in self._due.items() if when <= now]:
            undo, late = self._undo(gang), self._late(gang)
            if undo is not None and undo <= now:
                gang.undone_at = now
                self._carrier.undo(gang, patience(gang, self._settings.timeout))
            if late is not None and late <= now:
                self._tell_late(gang)
            self._reckon(gang)

    def _undo(self, gang: Gang) -> datetime | None:
        return undo_at(gang, self._settings.timeout) if self._settings.undoes else None

    def _late(self, gang: Gang) -> datetime | None:
        return None if gang.told_late else late_at(gang, self._settings.timeout)

    def _tell_late(self, gang: Gang) -> None:
        gang.told_late = True
        if gang.group is None:
            note = (
                f"its PodGroup {gang.key} does not exist: make it, or take the annotation {GROUP_NAME} away"
            )
            self._carrier.tell(gang, EventType.WARNING, "PodGroupMissing", note, "Place")
            return
        limit = patience(gang, self._settings.timeout).total_seconds()
        why = gang.wait.message if gang.wait is not None else gang.state.message
        note = f"not placed in {limit:g} s" + (f": {why}" if why else "")
        self._carrier.tell(gang, EventType.WARNING, "ScheduleTimeout", note, "Place")
