"""What a history holds: versions of objects, ends of logs, verdicts. The structs are also its lines on disk.

A segment is a sequence of JSON lines, each an array that begins with a tag. Objects have numbers, which are valid in
their segment only, so that a line of progress is short. Times on disk are milliseconds since the segment began.
"""

from typing import Any

import msgspec

from gangline.api.meta import JSON

FORMAT_VERSION = 1


class ObjectVersion(msgspec.Struct, frozen=True):
    """An object from a moment on. `body` is None when it was deleted then."""

    at: float
    """Unix seconds."""
    path: str
    """As in a store: `/<group>/<plural>/<namespace>/<name>`."""
    uid: str
    body: JSON | None


class LogEnd(msgspec.Struct, frozen=True):
    """The last lines of a container that ended. `attempt` counts the runs of the container, from 0."""

    at: float
    namespace: str
    pod: str
    uid: str
    container: str
    attempt: int
    text: str


class JobVerdict(msgspec.Struct, frozen=True):
    """What `why` said of a job at a moment; `report` is its JSON."""

    at: float
    namespace: str
    plural: str
    name: str
    uid: str
    report: JSON


class JobSummary(msgspec.Struct, frozen=True):
    """A recorded job, as it was last seen."""

    namespace: str
    plural: str
    name: str
    uid: str
    kind: str
    state: str
    created: float
    ended: float | None = None
    """When it succeeded or failed; None if that was not seen."""
    deleted: float | None = None
    """When it was deleted, or when the run or plane that held it ended."""


class RecordedSpan(msgspec.Struct, frozen=True):
    """A time in which changes were recorded, by one process."""

    start: float
    end: float


# Lines on disk


class SegmentStart(msgspec.Struct, frozen=True, array_like=True, tag="start"):
    """The first line of a segment."""

    format: int
    stream: str
    number: int
    began: float
    """Unix seconds. Other times of the segment are milliseconds after it."""


class ObjectLine(msgspec.Struct, frozen=True, array_like=True, tag="object"):
    """Gives an object a number. `about` is the uid of its controller, or of the object that an event is about."""

    object: int
    path: str
    uid: str
    about: str


class StateLine(msgspec.Struct, frozen=True, array_like=True, tag="state"):
    """The state of an object when the segment began."""

    object: int
    body: dict[str, Any]


class BodyLine(msgspec.Struct, frozen=True, array_like=True, tag="body"):
    """A new version of an object, complete."""

    object: int
    at: int
    body: dict[str, Any]


class PatchLine(msgspec.Struct, frozen=True, array_like=True, tag="patch"):
    """A new version of an object, as a merge patch of the version before."""

    object: int
    at: int
    patch: dict[str, Any]


class DeletionLine(msgspec.Struct, frozen=True, array_like=True, tag="delete"):
    """The object was deleted."""

    object: int
    at: int


class LogLine(msgspec.Struct, frozen=True, array_like=True, tag="log"):
    """The end of a container's log."""

    object: int
    at: int
    container: str
    attempt: int
    text: str


class VerdictLine(msgspec.Struct, frozen=True, array_like=True, tag="why"):
    """What `why` said of a job."""

    object: int
    at: int
    report: dict[str, Any]


class PulseLine(msgspec.Struct, frozen=True, array_like=True, tag="pulse"):
    """Nothing changed until now: the recorder was there. With `last`, it stopped in order."""

    at: int
    last: bool = False


Line = SegmentStart | ObjectLine | StateLine | BodyLine | PatchLine | DeletionLine | LogLine | VerdictLine | PulseLine
