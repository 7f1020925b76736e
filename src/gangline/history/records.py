"""What a history holds: versions of objects, ends of logs, use of CPU and memory, verdicts; and the lines in which they are on disk.

A segment is a sequence of JSON lines, each an array that begins with a tag. Objects have numbers, which are valid in
their segment only, so that a line of progress is short. Times on disk are milliseconds since the segment began.
"""

from typing import Any

import msgspec

from gangline.api.meta import JSON

FORMAT_VERSION = 1


class ObjectVersion(msgspec.Struct, frozen=True, gc=False):
    """An object from a moment on. `body` is None when it was deleted then."""

    at: float
    """Unix seconds."""
    path: str
    """As in a store: `/<group>/<plural>/<namespace>/<name>`."""
    uid: str
    body: JSON | None


class LogEnd(msgspec.Struct, frozen=True):
    """The last lines of a container that ended, each with its time before it, as `kubectl logs --timestamps` prints them."""

    at: float
    namespace: str
    pod: str
    uid: str
    container: str
    run: str
    """The `containerID` of the run that ended."""
    attempt: int
    """Counts the runs of the container, from 0."""
    text: str


class UsageSample(msgspec.Struct, frozen=True, gc=False):
    """What a pod used at a moment: CPU cores, and bytes of memory."""

    at: float
    pod: str
    uid: str
    cores: float
    memory: int


class JobVerdict(msgspec.Struct, frozen=True):
    """What `gangline why` said of a job at a moment; `report` is its JSON."""

    at: float
    namespace: str
    plural: str
    name: str
    uid: str
    report: JSON


class JobSummary(msgspec.Struct, frozen=True):
    """A recorded job, as it was last."""

    namespace: str
    plural: str
    name: str
    uid: str
    kind: str
    state: str
    """The newest condition that holds, such as `Running`; empty before the first."""
    created: float
    last: float
    """When its last version began."""
    ended: float | None = None
    """When it succeeded or failed; None if it did not, or not while it was recorded."""
    deleted: float | None = None
    sweep: str = ""
    """The sweep that it is a trial of."""


class RecordedSpan(msgspec.Struct, frozen=True):
    """A time in which the changes of one server were recorded."""

    source: str
    """The server: the id of its store, or of its cluster."""
    start: float
    end: float


# Lines on disk


class SegmentStart(msgspec.Struct, frozen=True, array_like=True, tag="start"):
    """The first line of a segment. The segments of one process are a stream."""

    format: int
    source: str
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
    """The state of an object when the segment began. A segment begins with the states of all objects."""

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
    run: str
    attempt: int
    text: str


class VerdictLine(msgspec.Struct, frozen=True, array_like=True, tag="why"):
    """What `gangline why` said of a job."""

    object: int
    at: int
    report: dict[str, Any]


class UsageLine(msgspec.Struct, frozen=True, array_like=True, tag="usage"):
    """What a pod used: thousandths of a core, and KiB of memory."""

    object: int
    at: int
    millicores: int
    memory: int


class PulseLine(msgspec.Struct, frozen=True, array_like=True, tag="pulse"):
    """The recorder was there, and had recorded every change until then."""

    at: int


ChangeLine = BodyLine | PatchLine | DeletionLine | LogLine | VerdictLine | UsageLine
Line = SegmentStart | ObjectLine | StateLine | ChangeLine | PulseLine


class IndexedJob(msgspec.Struct, frozen=True, array_like=True):
    """A job of a segment. `changed` says whether the segment has more of it than its state at the beginning."""

    job: JobSummary
    changed: bool


class SegmentIndex(msgspec.Struct, frozen=True):
    """What a segment holds: at the end of a closed one, so that others need not be read."""

    source: str
    stream: str
    number: int
    start: float
    end: float
    jobs: tuple[IndexedJob, ...] = ()
    orphan_owners: tuple[str, ...] = ()
    """The uids of owners that the segment does not have: pods may outlive their job."""
