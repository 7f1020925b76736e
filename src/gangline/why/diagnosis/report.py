"""Rules as data, their matches, and the diagnosis that is made of them."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from gangline.why.diagnosis.case import JobSnapshot
from gangline.why.diagnosis.failures import JobFailures


class RuleInput(msgspec.Struct, frozen=True):
    """The input of a rule: the snapshot and its failures."""

    snapshot: JobSnapshot
    failures: JobFailures


class RuleMatch(msgspec.Struct, frozen=True):
    """A rule that applies, with the values for its sentences."""

    # The replicas concerned. Matches that differ only in these are merged.
    replicas: tuple[str, ...] = ()
    values: Mapping[str, str] = {}
    evidence: tuple[str, ...] = ()
    # The index of the failure that the match explains. The first rule that explains a failure owns it.
    failure_index: int | None = None


class DiagnosisRule(msgspec.Struct, frozen=True):
    """One thing that can be wrong with a job."""

    id: str
    # What must be observed, for the table in docs/why.md.
    symptom: str
    matches: Callable[[RuleInput], Iterable[RuleMatch]]
    # Sentences with {names} of values. A next step whose value is unknown is left out.
    cause: str
    next: tuple[str, ...] = ()


class Cause(msgspec.Struct, frozen=True):
    """One cause with its evidence and the next steps."""

    rule: str
    cause: str
    evidence: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()


class Diagnosis(msgspec.Struct, frozen=True):
    """The answer. `cause`, `evidence` and `next` are those of the likeliest cause, which is the first of `causes`."""

    kind: str
    namespace: str
    name: str
    state: str
    # The state of the job in one sentence.
    summary: str
    healthy: bool
    cause: str = ""
    evidence: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
    # Facts worth knowing that are not wrong.
    notes: tuple[str, ...] = ()
    looked_at: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
