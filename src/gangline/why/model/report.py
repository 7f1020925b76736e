"""What comes out: rules as data, what they found, and the report that is made of it."""

from collections.abc import Callable, Iterable, Mapping

import msgspec

from gangline.why.model.case import Case
from gangline.why.model.failures import Team


class Scene(msgspec.Struct, frozen=True):
    """What a rule looks at: the case, and who failed in it."""

    case: Case
    team: Team


class Match(msgspec.Struct, frozen=True):
    """A rule that fits, with what its sentences need."""

    # Of whom: replicas. Matches that differ in nothing else become one.
    who: tuple[str, ...] = ()
    values: Mapping[str, str] = {}
    evidence: tuple[str, ...] = ()
    # The failure that it explains (`Team.ends`): the first rule that explains one has it.
    end: int | None = None


class Rule(msgspec.Struct, frozen=True):
    """One thing that can be wrong."""

    id: str
    # For the table in docs/why.md: what must be seen.
    sees: str
    matches: Callable[[Scene], Iterable[Match]]
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


class Report(msgspec.Struct, frozen=True):
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
