"""Which of the ends of a team was the first, by what each one says and by their times."""

import math
import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

import msgspec

from gangline.jobs.plan.failures.ends import (
    EndKind,
    ReplicaEnd,
    end_kind,
    error_message,
    may_be_of_own_making,
    named_members,
    onset,
)
from gangline.jobs.plan.failures.last_error import LastError, log_line

COMPLAINT_SECONDS = 30.0
"""A complaint is not the first failure if a replica that complains about nobody fails so soon afterwards: it may have
taken its time to end after its connections broke."""
TAKEN_SECONDS = 2.0
"""The same for any end, if another replica was out of memory or evicted: its node notices that a moment late."""
SUSPECT_SECONDS = 0.5
CRASH_SECONDS = 0.25
REPORTED_CRASH_SECONDS = 1.0
"""The same for a crash that a kubelet reports: its runtime notices the end of a process late on a busy machine."""
OWN_ERROR_SECONDS = 0.03
"""How exactly times of different replicas can be compared on a busy machine."""
LAST_WORDS_SECONDS = 0.1
LAST_WORDS_BEFORE_END = 1.0
"""A program that has written something unlike its other lines ends about so soon, and not later than that."""
ERROR_LINE_SECONDS = 5.0
"""About as long a program cleans up after a line that says that it has failed."""
MAX_LINES_AFTER_ERROR = 12
_ERROR_LEVEL = re.compile(
    r"^.{0,60}?\b(?:ERROR|FATAL|CRITICAL|SEVERE)\b|^\W{0,3}[EF]\d{4} \d\d:\d\d"
    r"|(?i:^(?:[\w./-]+: )?(?:fatal error|fatal|error): |\blevel=(?:error|fatal|critical|panic)\b"
    r"|\"(?:level|severity|lvl)\"\s*:\s*\"(?:error|fatal|critical|panic)\")"
)
"""A line of a log that calls itself an error, as loggers, glog, structured logs and compilers write it."""


class FirstEnd(msgspec.Struct, frozen=True):
    """The first of several ends: its place among them, and whether times or kinds of ends decided that."""

    index: int
    order_known: bool = True


class _Candidate(NamedTuple):
    place: int
    end: ReplicaEnd
    error: LastError
    kind: EndKind
    earliest: float
    latest: float
    # When it wrote its last line shortly before its end, if no other rank writes such lines; else not before its end.
    said_at: float = math.inf

    @property
    def has_last_words(self) -> bool:
        return self.said_at < math.inf

    @property
    def likely(self) -> tuple[float, float]:
        """Between which times it probably began to fail: who says something new has usually failed."""
        if not self.has_last_words:
            return self.earliest, self.latest
        return self.said_at, min(max(self.latest, self.said_at), self.said_at + LAST_WORDS_SECONDS)

    @property
    def is_silent(self) -> bool:
        has_words = self.has_last_words and not self.end.is_exact
        return not (has_words or self.error.frames or self.error.at is not None)


def first_end(ends: Sequence[ReplicaEnd]) -> FirstEnd | None:
    """The end that came first, and from which the others follow. None if there is none.

    A replica that ended by itself beats one that complains about a peer, whatever its words; among equals the times of
    errors and ends decide.
    """
    usual, repeated = _usual_lines(ends), _repeated_lines(ends)
    everyone = [_candidate(index, end, usual, repeated) for index, end in enumerate(ends)]
    everyone = [one for one in everyone if not one.end.was_stopped or one.earliest != float("inf")] or everyone
    if not everyone:
        return None
    begin = min(one.latest for one in everyone)
    pool = [one for one in everyone if one.kind < EndKind.COMPLAINT and one.earliest <= begin + COMPLAINT_SECONDS]
    pool = pool or everyone
    begin = min(one.latest for one in pool)
    taken = [one for one in pool if one.kind is EndKind.TAKEN and one.earliest <= begin + TAKEN_SECONDS]
    crashed = [one for one in pool if one.kind is EndKind.CRASHED and _comes_before(one, pool, begin)]
    if taken or crashed:
        return _earliest(taken or crashed, everyone)
    calm = [one for one in pool if one.kind < EndKind.SUSPECT and one.earliest <= begin + SUSPECT_SECONDS]
    pool = calm or pool
    begin = min(one.latest for one in pool)
    own = [one for one in pool if one.kind is EndKind.OWN_ERROR and one.earliest <= begin + OWN_ERROR_SECONDS]
    return _earliest(pool if _fail_in_turn(everyone) else own or pool, everyone)


def _fail_in_turn(everyone: Iterable[_Candidate]) -> bool:
    """Whether replicas made different errors of their own: they took the end of a stream for data, each in its way."""
    names = {one.error.exception for one in everyone if one.error.frames and may_be_of_own_making(one.error)}
    return len(names) > 1


def _candidate(index: int, end: ReplicaEnd, usual: Container[str], repeated: Container[str]) -> _Candidate:
    error = end.error
    earliest, latest = onset(end, error)
    said_at = math.inf
    if error.at is None and (error_line_at := _error_line_time(end, repeated)) is not None:
        said_at = earliest = latest = error_line_at
    elif error.at is None and error.last_line_at is not None and _line_shape(end.log[-1]) not in usual:
        at = error.last_line_at.timestamp()
        said_at = at if earliest - LAST_WORDS_BEFORE_END <= at <= latest else math.inf
    return _Candidate(index, end, error, end_kind(end, error), earliest, latest, said_at)


def _usual_lines(ends: Iterable[ReplicaEnd]) -> frozenset[str]:
    """The shapes of the lines that the programs of a team wrote before their last ones."""
    return frozenset(_line_shape(line) for end in ends for line in end.log[:-1]) | {""}


def _repeated_lines(ends: Iterable[ReplicaEnd]) -> frozenset[str]:
    """The shapes of the lines that a team wrote more than once."""
    counts = Counter(_line_shape(line) for end in ends for line in end.log)
    return frozenset(shape for shape, count in counts.items() if count > 1)


def _error_line_time(end: ReplicaEnd, repeated: Container[str]) -> float | None:
    """When a program wrote that it had failed, after which it wrote nothing that it or others write repeatedly."""
    if end.ended_at is None or end.was_stopped:
        return None
    found = None
    for raw in reversed(end.log[-MAX_LINES_AFTER_ERROR:]):
        line = log_line(raw)
        if line.at is None or _line_shape(raw) in repeated:
            break
        if _ERROR_LEVEL.search(line.text) and (end.ended_at - line.at).total_seconds() <= ERROR_LINE_SECONDS:
            found = line.at.timestamp()
    return found


def _line_shape(line: str) -> str:
    return re.sub(r"\d+", "#", log_line(line).text).strip()


def _earliest(pool: Sequence[_Candidate], everyone: Sequence[_Candidate]) -> FirstEnd:
    """The earliest of ends of one kind; where times do not tell, the one that others name, or that is unlike the others."""
    best = min(pool, key=lambda one: (sum(one.likely), one.likely, _order(one.end.replica)))
    rivals = [one for one in pool if one.likely[0] <= best.likely[1] and best.likely[0] <= one.likely[1]]
    # An order that is known to the microsecond is one, even if two errors were read at the same time.
    if len(rivals) == 1 or all(one.earliest == one.latest for one in rivals):
        return FirstEnd(best.place)
    named = _most_named(rivals, everyone)
    if named is not None:
        return FirstEnd(named.place)
    odd = _odd_one(rivals, everyone)
    chosen = odd or best
    known = all(one.end.is_exact or one.error.at is not None for one in rivals)
    return FirstEnd(chosen.place, known)


def _most_named(rivals: Sequence[_Candidate], everyone: Sequence[_Candidate]) -> _Candidate | None:
    """The replica whose rank, or index if there are no ranks, the errors of others name; None if they name several."""
    votes: Counter[int] = Counter()
    for one in everyone:
        own = _number(one.end)
        votes.update(number for number in named_members(error_message(one.error)) if number != own)
    named = [one for one in rivals if votes[_number(one.end)]]
    return named[0] if len(named) == 1 else None


def _odd_one(rivals: Sequence[_Candidate], everyone: Sequence[_Candidate]) -> _Candidate | None:
    """The one replica that ended in silence among peers that had something to say, or the other way round."""
    silent = [one for one in everyone if one.is_silent]
    loud = [one for one in everyone if not one.is_silent]
    for few, many in ((silent, loud), (loud, silent)):
        if len(few) == 1 < len(many) and few[0] in rivals:
            return few[0] if few is loud or _has_room(few[0], many) else None
    codes = Counter(one.end.exit_code for one in everyone)
    rare = [one for one in rivals if codes[one.end.exit_code] == 1]
    return rare[0] if len(rare) == 1 and len(everyone) > 2 else None


def _comes_before(crash: _Candidate, pool: Iterable[_Candidate], begin: float) -> bool:
    """Whether a crash may be what the others follow from; an error of a program's own that came well before does not."""
    own = min((one.latest for one in pool if one.kind is EndKind.OWN_ERROR), default=float("inf"))
    seconds = CRASH_SECONDS if crash.end.is_exact else REPORTED_CRASH_SECONDS
    return crash.earliest <= min(begin + seconds, own + CRASH_SECONDS)


def _has_room(silent: _Candidate, others: Iterable[_Candidate]) -> bool:
    """Whether a replica that ended in some moment of a second may well have ended before the errors of the others."""
    return silent.end.is_exact or min(one.likely[0] for one in others) - silent.earliest >= LAST_WORDS_SECONDS


def _number(end: ReplicaEnd) -> int:
    if end.rank is not None:
        return end.rank
    index = end.replica.rpartition("-")[2]
    return int(index) if index.isascii() and index.isdigit() else -1


def _order(replica: str) -> tuple[str, int]:
    kind, _, index = replica.rpartition("-")
    return (kind, int(index)) if index.isdigit() else (replica, 0)
