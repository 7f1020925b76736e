"""What comes out: rules as data, what they found, and the report that is made of it."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from gangline.why.diagnosis.case import JobSnapshot
from gangline.why.diagnosis.failures import JobFailures


class RuleInput(msgspec.Struct, frozen=True):
    """What a rule looks at: the case, and who failed in it."""

    snapshot: JobSnapshot
    failures: JobFailures


class RuleMatch(msgspec.Struct, frozen=True):
    """A rule that fits, with what its sentences need."""

    # Of whom: replicas. Matches that differ in nothing else become one.
    replicas: tuple[str, ...] = ()
    values: Mapping[str, str] = {}
    evidence: tuple[str, ...] = ()
    # The failure that it explains (`Team.ends`): the first rule that explains one has it.
    failure_index: int | None = None


class DiagnosisRule(msgspec.Struct, frozen=True):
    """One thing that can be wrong."""

    id: str
    # For the table in docs/why.md: what must be seen.
    symptom: str
    matches: Callable[[RuleInput], Iterable[RuleMatch]]
    # Sentences, with {names} of values. A next step that needs a value nobody knows is left out.
    cause: str
    next: tuple[str, ...] = ()


class Cause(msgspec.Struct, frozen=True):
    """One cause, with its evidence and what to do about it."""

    rule: str
    cause: str
    evidence: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()


class Diagnosis(msgspec.Struct, frozen=True):
    """The answer. `cause`, `evidence` and `next` are those of the first of `causes`, the likeliest."""

    kind: str
    namespace: str
    name: str
    state: str
    # How the job is, in one sentence.
    summary: str
    healthy: bool
    cause: str = ""
    evidence: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    causes: tuple[Cause, ...] = ()
    # Worth knowing, and not wrong.
    notes: tuple[str, ...] = ()
    looked_at: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
