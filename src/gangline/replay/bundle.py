"""What is recorded of one job: its spec, its history and the faults in it. Values only."""

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

import msgspec

from gangline.api.meta import JSON

BUNDLE_VERSION = 1


class FaultCause(StrEnum):
    """How a replica ended, or that it did not."""

    EXIT = "exit"
    SIGNAL = "signal"
    OOM = "oom"
    EVICTED = "evicted"
    NODE_LOST = "node-lost"
    REJECTED = "rejected"
    HANG = "hang"


class RecordedFault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One replica that failed or hung, and when."""

    replica: str
    cause: FaultCause
    exit_code: int | None = None
    signal: int = 0
    # The last step that it reported before; None if it reported none.
    step: float | None = None
    # Seconds from the start of its process to the fault; None if that is not known.
    after_seconds: float | None = None
    # Another replica failed before: this one followed from it.
    is_consequence: bool = False
    # Seconds after the first failure, for a consequence.
    delay: float = 0.0
    # Whether the fault came again until the job had failed.
    repeats: bool = False


class ReplicaRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a replica came, and the end of its log."""

    name: str
    node: str = ""
    restarts: int = 0
    step: float | None = None
    total: float | None = None
    # Steps a second, as far as they are known.
    rate: float | None = None
    log: tuple[str, ...] = ()


class RecordedVerdict(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who failed first, and what `gangline why` says. The rule is empty if nothing was wrong."""

    first_replica: str = ""
    rank: int | None = None
    rule: str = ""
    cause: str = ""
    state: str = ""


class LeftOut(msgspec.Struct, frozen=True):
    """Something that is not in the bundle, and why."""

    what: str
    why: str


class Manifest(msgspec.Struct, frozen=True):
    """The first thing in a bundle: which job it is of, and what is missing."""

    version: int
    made_by: str
    recorded_at: datetime
    kind: str
    namespace: str
    name: str
    # Where the programs come from: `shipped`, `folder`, or empty if they are in images only.
    code: str = ""
    left_out: tuple[LeftOut, ...] = ()


class CodeFile(msgspec.Struct, frozen=True):
    """A file of the job's folder."""

    content: bytes
    mode: int = 0o644


class JobBundle(msgspec.Struct, frozen=True):
    """All that is recorded of a job."""

    manifest: Manifest
    job: JSON
    verdict: RecordedVerdict = RecordedVerdict()
    faults: tuple[RecordedFault, ...] = ()
    replicas: tuple[ReplicaRecord, ...] = ()
    # As the server had them, without values of secrets.
    pods: tuple[JSON, ...] = ()
    events: tuple[JSON, ...] = ()
    config_maps: tuple[JSON, ...] = ()
    # What `gangline why` said in full.
    diagnosis: JSON | None = None
    # By path in the folder.
    code: Mapping[str, CodeFile] = {}

    def replica(self, name: str) -> ReplicaRecord | None:
        return next((one for one in self.replicas if one.name == name), None)

    @property
    def first_fault(self) -> RecordedFault | None:
        """The fault that came before all others."""
        return next((fault for fault in self.faults if not fault.is_consequence), None)
