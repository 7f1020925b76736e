"""What a scheduler tells whoever counts. `metrics.SchedulerMetrics` counts for Prometheus."""

from datetime import timedelta
from typing import Protocol

from gangline.scheduler.types.cycle import Round


class Meters(Protocol):
    """Is told what happened. Must not raise."""

    def round(self, seconds: float, found: Round) -> None: ...
    def bound(self, waited: timedelta | None) -> None: ...
    def failed(self) -> None: ...
    def victims(self, count: int) -> None: ...
    def waiting(self, gangs: int, pods: int) -> None: ...


class Uncounted:
    """Counts nothing."""

    def round(self, seconds: float, found: Round) -> None:
        pass

    def bound(self, waited: timedelta | None) -> None:
        pass

    def failed(self) -> None:
        pass

    def victims(self, count: int) -> None:
        pass

    def waiting(self, gangs: int, pods: int) -> None:
        pass


UNCOUNTED = Uncounted()
