"""When to look at gangs although nothing changes: a start that stays half bound, a wait that takes too long."""

from datetime import datetime

from gangline.api.scheduling import GROUP_NAME
from gangline.runtime.events import EventType
from gangline.scheduler.carry import Carrier
from gangline.scheduler.gang import Gang
from gangline.scheduler.overdue import late_at, patience, undo_at
from gangline.scheduler.settings import SchedulerSettings


class Deadlines:
    """Gangs with a time at which something is due. No clock of its own: it is asked."""

    def __init__(self, settings: SchedulerSettings, carrier: Carrier) -> None:
        self._settings, self._carrier = settings, carrier
        self._due: dict[Gang, datetime] = {}

    @property
    def next(self) -> datetime | None:
        """When to `look`."""
        return min(self._due.values(), default=None)

    def note(self, gang: Gang) -> None:
        """It changed: what is due may be due at another time, or not at all."""
        times = [time for time in (self._undo(gang), self._late(gang)) if time is not None]
        if times:
            self._due[gang] = min(times)
        else:
            self._due.pop(gang, None)

    def look(self, now: datetime) -> None:
        """Do what is due."""
        for gang in [gang for gang, when in self._due.items() if when <= now]:
            undo, late = self._undo(gang), self._late(gang)
            if undo is not None and undo <= now:
                gang.undone_at = now
                self._carrier.undo(gang, patience(gang, self._settings.timeout))
            if late is not None and late <= now:
                self._tell_late(gang)
            self.note(gang)

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
        self._carrier.tell(
            gang, EventType.WARNING, "ScheduleTimeout", f"not placed in {limit:g} s: {why}", "Place"
        )
