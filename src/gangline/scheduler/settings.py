"""Everything about the running scheduler that can be set, as values."""

from datetime import timedelta

import msgspec

from gangline.api.scheduling import SCHEDULER
from gangline.scheduler.types.cycle import Policy

LEASE = "gangline-scheduler"
MANAGER = "gangline-scheduler"
"""Who wrote it, in the fields that the server keeps."""


class Pace(msgspec.Struct, frozen=True):
    """How soon things happen. Nothing is polled: these are pauses in which several changes become one."""

    # Between the first change and the round that looks at it.
    debounce: timedelta = timedelta(milliseconds=5)
    # A round waits at least as long as the last one took, up to this: others have work to do too.
    longest: timedelta = timedelta(seconds=1)
    # Between a change of a gang and the look at what is to be written of it.
    report: timedelta = timedelta(milliseconds=100)
    # Between two writes about one gang whose phase stays as it is.
    same: timedelta = timedelta(seconds=1)
    # Between two writes about one gang of which only the words change that say why there is no place.
    why: timedelta = timedelta(seconds=10)
    # Between two writes of a reason that changes only in its words, on all pods of a gang.
    words: timedelta = timedelta(seconds=60)
    # Between two writes of a queue's counters.
    queues: timedelta = timedelta(seconds=5)


class SchedulerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which pods are placed, how, and by which rules."""

    # The `schedulerName` of pods that are ours to bind.
    name: str = SCHEDULER
    # Whether such pods are bound, and whether pods of others that carry our gate are pinned.
    binds: bool = True
    pins: bool = True
    policy: Policy = Policy()
    # How long a start may stay half bound, and wait, where its group does not say.
    timeout: timedelta = timedelta(seconds=60)
    # Whether a start that stays half bound is undone.
    undoes: bool = True
    # Calls under way at the same time.
    at_once: int = 32
    pace: Pace = Pace()


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What only a scheduler with a process of its own needs."""

    scheduler: SchedulerSettings = SchedulerSettings()
    metrics_address: str = ":8080"
    probe_address: str = ":8081"
    leader_elect: bool = True
    lease: str = LEASE
    # Empty: the namespace of the connection.
    lease_namespace: str = ""
    install_crds: bool = False
