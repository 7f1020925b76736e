"""Tells users why jobs of one kind wait while others run: the operator has no right to read what these need."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from gangline.base.clock import Clock
from gangline.jobs.events import JobEvents
from gangline.jobs.plan.actions import JobEvent
from gangline.runtime.informer import Informer

REASON = "MissingRights"
PERIOD = timedelta(seconds=5)


class MissingRightsReporter:
    """Emits an event for each job of a kind as long as caches that only this kind needs cannot be read."""

    def __init__(
        self, kind: str, jobs: Informer[Any], needed: Sequence[Informer[Any]], events: JobEvents, clock: Clock
    ) -> None:
        self._kind, self._jobs, self._needed = kind, jobs, needed
        self._events, self._clock = events, clock

    async def run(self) -> None:
        """Return when all caches have been read."""
        while not all(informer.is_synced for informer in self._needed):
            await self._clock.sleep(PERIOD)
            problem = self._problem()
            if problem is not None:
                event = JobEvent(REASON, f"The operator cannot serve {self._kind}s yet: {problem}", warning=True)
                for job in self._jobs.cache:
                    self._events.emit(job, event)

    def _problem(self) -> str | None:
        problems = (informer.problem for informer in self._needed if not informer.is_synced)
        return next((problem for problem in problems if problem is not None), None)
