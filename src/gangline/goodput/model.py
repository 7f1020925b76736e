"""The activities of replicas, and how they follow each other. Times are whole Unix seconds."""

from enum import StrEnum
from typing import NamedTuple


class Activity(StrEnum):
    """What a replica does. In the order of a replica's life, which is also the order in which they are shown."""

    QUEUEING = "queueing"
    """It has no node: no pod yet, or a pod that is not placed."""
    STARTING = "starting"
    """Its pod has a node, and its process does not run: image, volumes, init containers, a restart in the pod."""
    WORKING = "working"
    """Its process runs, and nothing says that it does something else."""
    CHECKPOINTING = "checkpointing"
    """The program says that it saves a checkpoint."""
    RECOMPUTING = "recomputing"
    """After a restart, until the furthest step that had been reported is reported again."""
    STALLED = "stalled"
    """The job has condition Stalled."""
    IDLE = "idle"
    """Its process has ended while the team goes on, or runs and waits until all of its peers have started."""


class ActivityChange(NamedTuple):
    """An activity that begins at a time. A time before anything that is counted stands for `always so far`."""

    at: int
    activity: Activity


ALWAYS = -(2**62)
"""The time of an activity that has no known beginning."""
Course = tuple[ActivityChange, ...]
"""Activities one after the other, by ascending time. The first one also holds before its time."""
