"""What the scheduler measures. `prometheus.PrometheusSchedulerMetrics` implements it for Prometheus."""

from datetime import datetime, timedelta
from typing import Protocol

from gangline.scheduler.types.cycle import CycleResult


class SchedulerMetrics(Protocol):
    """Receives measurements. Must not raise."""

    def observe_cycle(self, seconds: float, result: CycleResult, now: datetime) -> None: ...
    def observe_bind(self, waited: timedelta | None) -> None: ...
    def count_bind_error(self) -> None: ...
    def count_victims(self, count: int) -> None: ...
    def set_pending(self, gangs: int, pods: int, oldest: datetime | None) -> None: ...


class NullSchedulerMetrics:
    """Ignores all measurements."""

    def observe_cycle(self, seconds: float, result: CycleResult, now: datetime) -> None:
        pass

    def observe_bind(self, waited: timedelta | None) -> None:
        pass

    def count_bind_error(self) -> None:
        pass

    def count_victims(self, count: int) -> None:
        pass

    def set_pending(self, gangs: int, pods: int, oldest: datetime | None) -> None:
        pass


NULL_METRICS = NullSchedulerMetrics()
