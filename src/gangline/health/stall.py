"""The watch over one job: what is known of its progress, what to read next, and whether it has stalled. Pure.

Silence is only suspicion. A job has stalled if samples of all stacks, some seconds apart, show that nobody moves; or,
where stacks cannot be had, if it gives no sign of life for a long multiple of what is usual for it.
"""

from collections.abc import Sequence
from enum import Enum

import msgspec

from gangline.health.evidence import RankActivity, RankEvidence, TeamSample, team_evidence
from gangline.health.settings import WatchSettings
from gangline.health.signs import QUIET_BYTES, TeamSigns
from gangline.health.usual import UsualGaps
from gangline.stacks.groups import odd_groups, stack_groups
from gangline.stacks.sentence import stacks_sentence

NO_PROGRESS, ALL_RANKS_WAIT, RANK_STANDS = "NoProgress", "AllRanksWait", "RankStands"
"""Reasons of condition Stalled."""
MIN_STEPS = 1
"""After so many gaps between reports of progress, the job is expected to report more: then log lines are no progress."""
MIN_LINES = 10
"""The same for log lines, where only silence can be judged."""
QUIET_CORES = 0.01
"""A replica that waits uses less CPU than this. One that uses more may train in small steps, or spin."""
MIN_SAMPLES, MIN_BUSY_SAMPLES = 3, 8
"""How many samples must be equal: of a team that uses no CPU, and of one that does.

A team that spends most of its time in one line, such as a collective, is often seen there although it moves.
"""

SAMPLE_STEPS = (0.6, 1.0, 0.8, 1.4, 1.2)
"""The distances between samples, in parts of the usual one. Irregular, so that they do not keep time with the steps."""
LONGEST_DISTANCE = 60.0


class Look(Enum):
    """What the next look reads."""

    PROGRESS = "progress"
    SIGNS = "signs"
    STACKS = "stacks"


class StallFinding(msgspec.Struct, frozen=True):
    """A job has stalled. `since` is when it gave its last sign of life, in observed seconds."""

    since: float
    reason: str
    message: str
    replicas: tuple[str, ...] = ()
    # Found without stacks, because nobody used the CPU.
    by_idleness: bool = False


class WatchState(msgspec.Struct, frozen=True):
    """What is remembered of one job between two looks. Times are observed seconds."""

    next_at: float
    look: Look = Look.SIGNS
    # Whether there was a look: what the first one sees is not new.
    has_begun: bool = False
    # The last progress and log lines, when they changed, and how long that usually takes.
    progress: str = ""
    progress_at: float = 0.0
    steps: UsualGaps = UsualGaps()
    log_mark: str = ""
    log_at: float = 0.0
    lines: UsualGaps = UsualGaps()
    # Whether stacks could be read the last time.
    has_stacks: bool = True
    # The sample with which the next ones are compared, and how many equal ones there are.
    sample: TeamSample | None = None
    equal_samples: int = 0
    # A job that moves without signs of life is left alone until then; and for how long the next time.
    calm_until: float = 0.0
    calm: float = 0.0
    # When its processes were last seen to move, and when it last used the CPU, or moved bytes.
    moved_at: float = 0.0
    busy_at: float = 0.0
    was_busy: bool = False
    bytes_moved: int = 0
    stall: StallFinding | None = None
    # Why it is not stalled any more, at the look that saw it.
    recovery: str = ""

    @classmethod
    def begin(cls, now: float) -> "WatchState":
        """The watch over a team that has just begun to run."""
        return cls(next_at=now, progress_at=now, log_at=now, moved_at=now, busy_at=now)

    @property
    def reports_steps(self) -> bool:
        """Whether this job is expected to report progress: then log lines alone are none."""
        return self.steps.total >= MIN_STEPS

    @property
    def last_sign(self) -> float:
        """When the job gave its last sign of life."""
        return self.progress_at if self.reports_steps else max(self.progress_at, self.log_at)

    @property
    def usual(self) -> UsualGaps:
        """How long this job usually needs between signs of life."""
        return self.steps if self.reports_steps else self.lines

    def suspicion_after(self, settings: WatchSettings) -> float:
        """How long the job may be silent before it is looked into."""
        known = max(self.steps.high, 0.0 if self.reports_steps else self.lines.high)
        return max(settings.floor, settings.factor * known)


def next_state(
    before: WatchState,
    signs: TeamSigns,
    stacks: TeamSample | None,
    now: float,
    settings: WatchSettings = WatchSettings(),  # noqa: B008 - frozen
) -> WatchState:
    """The state after a look. `stacks` is what was read if the look asked for them; None: they cannot be had."""
    if not before.has_begun:
        before = msgspec.structs.replace(before, has_begun=True, progress=signs.progress, log_mark=signs.log_mark)
    state, alive = _with_signs(msgspec.structs.replace(before, recovery=""), signs, now)
    if not alive and signs.is_stopped:
        # Somebody has stopped all of it on purpose. No time passes for it.
        state = msgspec.structs.replace(state, progress_at=now, log_at=now)
        alive = "it is stopped"
    if alive:
        return _watching(state, alive, now, settings)
    if before.look is Look.PROGRESS:
        return _next_look(state, now, settings)
    state = _with_usage(state, signs, now)
    if before.look is Look.STACKS:
        if stacks is not None and stacks.is_readable:
            sample = msgspec.structs.replace(stacks, signs=signs)
            return _with_sample(msgspec.structs.replace(state, has_stacks=True), sample, now, settings)
        # Perhaps later: the process may just have replaced itself.
        again = now + settings.longest_calm
        state = msgspec.structs.replace(state, has_stacks=False, sample=None, equal_samples=0, calm_until=again)
    if not state.has_stacks:
        state = _judged_by_silence(state, signs, now, settings)
    return _next_look(state, now, settings)


def _with_signs(state: WatchState, signs: TeamSigns, now: float) -> tuple[WatchState, str]:
    """The state with what has changed, and the sign of life that this is; empty: none."""
    alive = ""
    if signs.progress != state.progress:
        # The time before the first report is that of imports and compilers: it says nothing about steps.
        steps = state.steps.with_gap(now - state.progress_at) if state.progress else state.steps
        state = msgspec.structs.replace(state, progress=signs.progress, progress_at=now, steps=steps)
        alive = "it reports progress"
    mark = signs.log_mark
    if mark and mark != state.log_mark:
        lines = state.lines.with_gap(now - state.log_at) if state.log_mark else state.lines
        state = msgspec.structs.replace(state, log_mark=mark, log_at=now, lines=lines)
        if not state.reports_steps:
            alive = alive or "it writes log lines"
    return state, alive


def _with_usage(state: WatchState, signs: TeamSigns, now: float) -> WatchState:
    """The state with what the team uses of the machine: that is no progress, but it may be work."""
    moved = sum(one.bytes_moved or 0 for one in signs.replicas or ())
    is_busy = signs.is_idle is False or moved - state.bytes_moved >= QUIET_BYTES
    if state.was_busy and not is_busy:
        # It has worked until now: that it moved then says nothing any more.
        state = msgspec.structs.replace(state, calm_until=now, calm=0.0)
    busy_at = now if is_busy else state.busy_at
    return msgspec.structs.replace(state, was_busy=is_busy, busy_at=busy_at, bytes_moved=moved)


def _watching(state: WatchState, alive: str, now: float, settings: WatchSettings) -> WatchState:
    """The state after a sign of life, which ends a stall at once."""
    return msgspec.structs.replace(
        state,
        stall=None,
        recovery=f"{alive} again" if state.stall is not None else "",
        sample=None,
        equal_samples=0,
        calm_until=0.0,
        calm=0.0,
        look=Look.PROGRESS if state.reports_steps else Look.SIGNS,
        next_at=now + settings.period,
    )


def _next_look(state: WatchState, now: float, settings: WatchSettings) -> WatchState:
    """What to read next, and when."""
    due = max(state.last_sign + state.suspicion_after(settings), state.calm_until)
    if now >= due or state.stall is not None:
        wait = _sample_distance(state.equal_samples, settings)
        if state.stall is not None:
            wait = max(settings.period, settings.floor / 2)
        return msgspec.structs.replace(state, look=Look.STACKS, next_at=now + wait)
    # Signs are read before they are needed: CPU use is that between two looks.
    quiet = not state.reports_steps or now + 2 * settings.period >= due
    wait = min(settings.period, due - now) if now < due else settings.period
    return msgspec.structs.replace(
        state, look=Look.SIGNS if quiet else Look.PROGRESS, next_at=now + max(wait, settings.period / 4)
    )


def _sample_distance(samples: int, settings: WatchSettings) -> float:
    """How long after so many equal samples the next one is taken: ever later, once they are enough for a verdict."""
    if not samples:
        return 0.0
    distance = SAMPLE_STEPS[(samples - 1) % len(SAMPLE_STEPS)] * settings.sample_distance
    return min(LONGEST_DISTANCE, distance * max(1, samples - MIN_BUSY_SAMPLES))


def _with_sample(state: WatchState, sample: TeamSample, now: float, settings: WatchSettings) -> WatchState:
    """The state after the stacks were read: they are compared with those of the first sample."""
    first = state.sample
    if first is None:
        state = msgspec.structs.replace(state, sample=sample, equal_samples=1)
        return _next_look(state, now, settings)
    evidence = team_evidence(first, sample)
    if _is_alive(evidence):
        calm = min(settings.longest_calm, max(settings.first_calm, 2 * state.calm))
        state = msgspec.structs.replace(
            state,
            recovery="its processes move again" if state.stall is not None else "",
            stall=None,
            sample=None,
            equal_samples=0,
            moved_at=now,
            calm=calm,
            calm_until=now + calm,
        )
        return _next_look(state, now, settings)
    state = msgspec.structs.replace(state, equal_samples=state.equal_samples + 1)
    if state.stall is None:
        state = msgspec.structs.replace(state, stall=_finding(state, first, sample, evidence, settings))
    return _next_look(state, now, settings)


def _is_alive(evidence: Sequence[RankEvidence]) -> bool:
    found = {one.activity for one in evidence}
    return RankActivity.MOVES in found or RankActivity.UNKNOWN in found or found <= {RankActivity.SERVES}


def _finding(
    state: WatchState, first: TeamSample, last: TeamSample, evidence: Sequence[RankEvidence], settings: WatchSettings
) -> StallFinding | None:
    """The finding about a team in which nobody moves; None if that may still be work."""
    silent = last.at - state.last_sign
    still = last.at - max(state.last_sign, state.moved_at)
    is_quiet = all(one.cores < QUIET_CORES for one in evidence)
    if state.equal_samples < (MIN_SAMPLES if is_quiet else MIN_BUSY_SAMPLES):
        return None
    if last.at - first.at < settings.confirm or still < _patience(state, evidence, settings):
        return None
    activities = {one.activity for one in evidence}
    if RankActivity.COMPUTES in activities:
        standing = [one for one in evidence if one.activity is RankActivity.STANDS and not one.is_asleep]
        # Those that wait for bytes may wait for the rank that computes.
        computed = settings.patience if all(one.awaits_bytes for one in standing) else 0.0
        if still < (computed if standing else _long_patience(state, settings)):
            return None
    groups = stack_groups(last.stacks)
    replicas = tuple(dict.fromkeys(name for group in odd_groups(groups) for name in group.replicas))
    if not replicas and activities > {RankActivity.STANDS}:
        replicas = tuple(one.replica for one in evidence if one.activity is RankActivity.STANDS)
    reason = ALL_RANKS_WAIT if activities == {RankActivity.WAITS} else NO_PROGRESS
    reason = RANK_STANDS if replicas else reason
    message = f"no progress for {duration_words(silent)}: {stacks_sentence(groups)}"
    return StallFinding(state.last_sign, reason, message, replicas)


def _patience(state: WatchState, evidence: Sequence[RankEvidence], settings: WatchSettings) -> float:
    """How long nobody may move, in a team that may do something slow."""
    limit = 0.0
    if any(one.is_slow_work for one in evidence):
        limit = settings.patience
    if any(one.is_asleep for one in evidence) and all(one.activity is not RankActivity.WAITS for one in evidence):
        # Nobody waits for it: it may have nothing to do until then, and perhaps never has.
        rest = settings.long_patience if state.usual.total else float("inf")
        limit = max(limit, settings.patience if state.reports_steps else rest)
    return limit


def _long_patience(state: WatchState, settings: WatchSettings) -> float:
    """What a team is given that computes at one place: for ever, if it never gave a sign of life."""
    if not state.usual.total:
        return float("inf")
    return max(settings.long_patience, settings.long_factor * max(state.steps.longest, state.lines.longest))


def _judged_by_silence(state: WatchState, signs: TeamSigns, now: float, settings: WatchSettings) -> WatchState:
    """The state of a job whose stacks cannot be had: only silence tells, and only a very long one."""
    if state.stall is not None:
        if state.stall.by_idleness and signs.is_idle is False:
            return msgspec.structs.replace(state, stall=None, recovery="it uses the CPU again")
        return state
    silent, longest = now - state.last_sign, state.usual.longest
    limit = settings.long_factor * longest
    if signs.is_idle:
        least = settings.idle_limit if state.usual.total else settings.long_patience
        is_stalled = min(silent, now - state.busy_at) >= max(least, limit)
    else:
        # Silence of a job that computes and never reported steps says nothing.
        has_learnt = state.reports_steps or (signs.is_idle is None and state.lines.total >= MIN_LINES)
        is_stalled = has_learnt and silent >= max(settings.blind_limit, 2 * limit)
    if not is_stalled:
        return state
    what = "progress" if state.reports_steps else "log line"
    usual = f" (usually {duration_words(longest)} at most)" if longest else ""
    idle = ", and no replica uses the CPU" if signs.is_idle else ""
    message = f"no {what} for {duration_words(silent)}{usual}{idle}"
    finding = StallFinding(state.last_sign, NO_PROGRESS, message, by_idleness=bool(signs.is_idle))
    return msgspec.structs.replace(state, stall=finding)


def duration_words(seconds: float) -> str:
    """`80 s`, `12 min`, `3 h 5 min`."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = whole // 60
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
