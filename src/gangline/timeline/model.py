"""The values that a timeline and a curve consist of. Times are Unix seconds; on the wire names are camelCase."""

from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from gangline.api.meta import JSON


class RecordedVersion(Protocol):
    """An object as it was from `at` on; without a body it was gone from then on.

    The path ends with `PLURAL/NAMESPACE/NAME`, as the paths of a store do.
    """

    @property
    def at(self) -> float: ...
    @property
    def path(self) -> str: ...
    @property
    def body(self) -> JSON | None: ...


class TimedVersion(NamedTuple):
    """A version that was seen rather than read from a record."""

    at: float
    path: str
    body: JSON | None


class SpanState(StrEnum):
    """What a replica did during a span."""

    WAITING = "waiting"
    """It has no pod yet, its pod has no node yet, or its container waits to be started again."""
    STARTING = "starting"
    """Its pod has a node; image, volumes and init containers are being prepared."""
    RUNNING = "running"
    NOT_READY = "not-ready"
    """Its process runs, and its readiness probe fails."""
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
    """It was ended from outside: by a restart of the team, a suspension, a smaller scale or the end of the job."""
    LOST = "lost"
    """Its node does not answer."""


class MarkKind(StrEnum):
    """What happened at one moment."""

    RESTART = "restart"
    OOM = "oom"
    EVICTION = "eviction"
    NODE_LOST = "node-lost"
    FAILURE = "failure"
    FIRST_FAILURE = "first-failure"
    OPERATOR = "operator"
    SCHEDULER = "scheduler"
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    SCALED = "scaled"
    CHECKPOINT = "checkpoint"
    STALLED = "stalled"


class TimelineStruct(msgspec.Struct, frozen=True, rename="camel"):
    """A struct whose names are camelCase on the wire, with all of its fields."""


class StateSpan(TimelineStruct, frozen=True):
    """A state from `start` to `end`; without an end it lasts. For a job, the state is its condition or gang phase."""

    state: str
    start: float
    end: float | None = None
    # How often the replica's process had been started before.
    attempt: int = 0
    node: str = ""
    # More about it, such as `exit 137 (SIGKILL)` or the reason for waiting.
    text: str = ""


class ReplicaRow(TimelineStruct, frozen=True):
    """One replica: its spans are in order, do not overlap, and have no gaps."""

    name: str
    type: str
    index: int
    spans: tuple[StateSpan, ...] = ()


class TimelineMark(TimelineStruct, frozen=True):
    """What happened at one moment, to one replica or, without a row, to the job."""

    kind: str
    at: float
    row: str | None = None
    text: str = ""
    # Whether other marks follow from it.
    cause: bool = False


class FailureLink(TimelineStruct, frozen=True):
    """A first failure and what followed from it, as indexes of marks."""

    cause_mark: int
    consequence_marks: tuple[int, ...] = ()


class TeamTimeline(TimelineStruct, frozen=True):
    """A job and its replicas from its creation to its end, or to now."""

    start: float
    end: float
    rows: tuple[ReplicaRow, ...] = ()
    # In the order of time.
    marks: tuple[TimelineMark, ...] = ()
    links: tuple[FailureLink, ...] = ()
    # The conditions of the job: Created, Running, Restarting, Suspended, Succeeded, Failed.
    phases: tuple[StateSpan, ...] = ()
    # The phases of its gang: Pending, Running, Recovering, Unschedulable.
    gang_phases: tuple[StateSpan, ...] = ()
    # Whether the job has finished or was deleted: the end does not move any more.
    finished: bool = False


class CurveMark(TimelineStruct, frozen=True):
    """A failure or a restart on the axis of a curve."""

    x: float
    kind: str
    text: str = ""


class MetricCurve(TimelineStruct, frozen=True):
    """The values of one metric, by ascending x."""

    name: str
    points: tuple[tuple[float, float], ...] = ()
    # Values of steps that were done again after a restart, by ascending x.
    repeated: tuple[tuple[float, float], ...] = ()
    marks: tuple[CurveMark, ...] = ()
    # Whether a logarithmic axis tells more than a linear one.
    prefers_log: bool = False
    replica: str = ""


class Curves(TimelineStruct, frozen=True):
    """All metrics of a job in the order in which they were first reported; `over` is `step` or `time`."""

    over: str
    metrics: tuple[MetricCurve, ...] = ()


class ProgressPoint(NamedTuple):
    """The metrics that a replica reported at a step."""

    at: float
    step: float
    metrics: dict[str, float]
    replica: str = ""
    # How often the replica's process had been started before.
    attempt: int = 0
