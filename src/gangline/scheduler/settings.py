"""Everything about the running scheduler that can be set, as values."""

from datetime import timedelta

import msgspec

from gangline.api.scheduling import SCHEDULER_NAME
from gangline.scheduler.types.cycle import SchedulerPolicy

LEASE_NAME = "gangline-scheduler"
FIELD_MANAGER = "gangline-scheduler"
"""Who wrote it, in the fields that the server keeps."""


class Intervals(msgspec.Struct, frozen=True):
    """How soon things happen. Nothing is polled: these are pauses in which several changes become one."""

    # Between the first change and the round that looks at it.
    debounce: timedelta = timedelta(milliseconds=5)
    # A round waits at least as long as the last one took, up to this: others have work to do too.
    max_cycle_delay: timedelta = timedelta(seconds=1)
    # Between a change of a gang and the look at what is to be written of it.
    report: timedelta = timedelta(milliseconds=100)
    # Between two writes about one gang whose phase stays as it is.
    status_write: timedelta = timedelta(seconds=1)
    # Between two writes about one gang of which only the words change that say why there is no place.
    message_write: timedelta = timedelta(seconds=10)
    # Between two writes of a reason that changes only in its words, on all pods of a gang.
    condition_write: timedelta = timedelta(seconds=60)
    # Between two writes of a queue's counters.
    queue_write: timedelta = timedelta(seconds=5)


class SchedulerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which pods are placed, how, and by which rules."""

    # The `schedulerName` of pods that are ours to bind.
    name: str = SCHEDULER_NAME
    # Whether such pods are bound, and whether pods of others that carry our gate are pinned.
    bind_pods: bool = True
    pin_pods: bool = True
    policy: SchedulerPolicy = SchedulerPolicy()
    # How long a start may stay half bound, and wait, where its group does not say.
    start_timeout: timedelta = timedelta(seconds=60)
    # Whether a start that stays half bound is undone.
    roll_back: bool = True
    # Calls under way at the same time.
    concurrency: int = 32
    intervals: Intervals = Intervals()


class SchedulerProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What only a scheduler with a process of its own needs."""

    scheduler: SchedulerSettings = SchedulerSettings()
    metrics_address: str = ":8080"
    probe_address: str = ":8081"
    leader_elect: bool = True
    lease: str = LEASE_NAME
    # Empty: the namespace of the connection.
    lease_namespace: str = ""
    install_crds: bool = False
