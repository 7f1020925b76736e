"""Settings of the scheduler, as values."""

from datetime import timedelta

import msgspec

from gangline.api.scheduling import SCHEDULER_NAME
from gangline.scheduler.types.cycle import SchedulerPolicy

LEASE_NAME = "gangline-scheduler"
FIELD_MANAGER = "gangline-scheduler"
"""The field manager of our writes."""


class Intervals(msgspec.Struct, frozen=True):
    """Delays in which several changes become one. Nothing is polled."""

    # Between the first change and the cycle that handles it.
    debounce: timedelta = timedelta(milliseconds=5)
    # A cycle waits at least as long as the last one took, up to this, so that other tasks get their turn.
    max_cycle_delay: timedelta = timedelta(seconds=1)
    # Between a change of a gang and the report of it.
    report: timedelta = timedelta(milliseconds=100)
    # Between two writes about a gang whose phase stays the same.
    status_write: timedelta = timedelta(seconds=1)
    # Between two writes about a gang if only the text changed that says why it is not placed.
    message_write: timedelta = timedelta(seconds=10)
    # Between two writes of a condition that changes only in its message, on all pods of a gang.
    condition_write: timedelta = timedelta(seconds=60)
    # Between two writes of a queue's status.
    queue_write: timedelta = timedelta(seconds=5)


class SchedulerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which pods are placed, how, and by which rules."""

    # The `schedulerName` of pods that are ours to bind.
    name: str = SCHEDULER_NAME
    # Only gangs of these namespaces are placed and evicted; empty: of all. Pods of the others still take room on nodes.
    namespaces: tuple[str, ...] = ()
    # Whether such pods are bound, and whether pods of other schedulers that carry our gate are pinned.
    bind_pods: bool = True
    pin_pods: bool = True
    policy: SchedulerPolicy = SchedulerPolicy()
    # How long a start may stay half bound, and a gang may wait without a warning, unless its PodGroup says.
    start_timeout: timedelta = timedelta(seconds=60)
    # Whether a start that stays half bound is rolled back.
    roll_back: bool = True
    # API calls in flight at the same time.
    concurrency: int = 32
    intervals: Intervals = Intervals()
