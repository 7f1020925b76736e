"""What two stack samples of a team say about each of its replicas. Pure."""

import re
from collections.abc import Sequence
from enum import Enum

import msgspec

from gangline.health.signs import IDLE_CORES, QUIET_BYTES, TeamSigns
from gangline.stacks.activities import SUBPROCESS_WAIT, activity, waits_for_network
from gangline.stacks.frames import own_frames, places
from gangline.stacks.groups import TEAM_KINDS, RankPlace, deciding_thread, rank_places
from gangline.stacks.model import ProcessStack, RankStack

_SLOW_WORK = re.compile(
    r"checkpoint|ckpt|sav(?:e|ing)|eval|valid|compil|download|fetch|upload|export|preprocess|tokeni[sz]|warm_?up"
    r"|snapshot|backup",
    re.IGNORECASE,
)
"""Names of functions, and words of a last log line, that announce work without any sign of life."""
_SLOW_KINDS = frozenset({"checkpoint", "compile"})
_POLLING_KINDS = TEAM_KINDS | {"lock", "sleep"}
"""Kinds of waiting that libraries write as a loop: it stands although its innermost lines differ."""


WAKEUPS_PER_SECOND = 2.0
"""A thread that waits for the network and is woken up more often receives something: bytes of sockets are not counted."""
_UNNAMED_KINDS = frozenset({"run", "unknown"})
"""Both are said of code that nobody knows: which, depends on whether it had the CPU at that moment."""


class RankActivity(Enum):
    """What a replica does, from the strongest sign of life to the weakest."""

    MOVES = "moves"
    # At one place with a busy CPU: it is in one long call, or spins.
    COMPUTES = "computes"
    SERVES = "serves"
    # At one place and idle: for a lock, data, a file.
    STANDS = "stands"
    # For other ranks, idle or busy.
    WAITS = "waits"
    UNKNOWN = "unknown"


class TeamSample(msgspec.Struct, frozen=True):
    """The stacks of a team and its signs of life at one moment."""

    at: float
    stacks: tuple[RankStack, ...]
    signs: TeamSigns = TeamSigns()

    @property
    def is_readable(self) -> bool:
        """Whether the processes of every replica could be read."""
        return bool(self.stacks) and all(stack.processes and not stack.error for stack in self.stacks)


class RankEvidence(msgspec.Struct, frozen=True):
    """What is known of one replica between two samples."""

    replica: str
    activity: RankActivity
    # It does something that takes long by its name: a checkpoint, an evaluation, a compilation.
    is_slow_work: bool = False
    # It sleeps for a time that it has chosen itself, or waits for whatever may come, as a server does.
    is_asleep: bool = False
    # It waits for bytes, perhaps those of a rank that computes: no frame says whether that is its team.
    awaits_bytes: bool = False
    # CPU cores of all of its processes.
    cores: float = 0.0


def team_evidence(before: TeamSample, after: TeamSample) -> tuple[RankEvidence, ...]:
    """What each replica did between two samples. A process that is in only one of them is a sign of life."""
    earlier = {stack.replica: stack for stack in before.stacks}
    return tuple(_rank_evidence(earlier.get(stack.replica), stack, before, after) for stack in after.stacks)


def _rank_evidence(earlier: RankStack | None, later: RankStack, before: TeamSample, after: TeamSample) -> RankEvidence:
    name = later.replica
    if later.error or not later.processes or earlier is None:
        return RankEvidence(name, RankActivity.UNKNOWN)
    seconds = max(after.at - before.at, 1e-3)
    processes = {process.pid: process for process in earlier.processes}
    moved = sum(_bytes_of(one) - _bytes_of(processes[one.pid]) for one in later.processes if one.pid in processes)
    if max(moved, _bytes_between(before.signs, after.signs, name)) >= QUIET_BYTES:
        return RankEvidence(name, RankActivity.MOVES)
    states = [_process_state(processes.get(one.pid), one, seconds) for one in later.processes]
    standing = [place for place in rank_places(later) if place.activity.kind not in TEAM_KINDS]
    state = _strongest(states) or _place_state(standing)
    line = after.signs.replica(name).last_line
    computing = [one for one, doing in zip(later.processes, states, strict=True) if doing is RankActivity.COMPUTES]
    slow = bool(standing) and (bool(_SLOW_WORK.search(line)) or any(map(_is_slow_work, later.processes)))
    slow = slow or _is_work_of_a_command(later.processes, computing)
    asleep = state is RankActivity.STANDS and all(map(_is_resting, standing))
    receives = state is RankActivity.STANDS and all(_awaits_bytes(later.processes, place) for place in standing)
    used = sum(one.cpu_seconds - processes[one.pid].cpu_seconds for one in later.processes if one.pid in processes)
    return RankEvidence(name, state, slow, asleep, receives, max(used, 0.0) / seconds)


def _is_work_of_a_command(processes: Sequence[ProcessStack], computing: Sequence[ProcessStack]) -> bool:
    """Whether all that computes was started as a command that the program waits for: a compiler, an archiver."""
    waiting = {one.pid for one in processes if activity(one, deciding_thread(one)).verb == SUBPROCESS_WAIT}
    parents = {one.pid: one.parent for one in processes}

    def belongs(pid: int) -> bool:
        # As many steps as there are processes: parents may form no circle, but this is what was read, not what is.
        for _ in processes:
            pid = parents.get(pid, 0)
            if pid in waiting:
                return True
        return False

    return bool(computing) and all(belongs(one.pid) for one in computing)


def _awaits_bytes(processes: Sequence[ProcessStack], place: RankPlace) -> bool:
    return any(one.pid == place.pid and waits_for_network(one, deciding_thread(one)) for one in processes)


def _is_resting(place: RankPlace) -> bool:
    return place.activity.kind == "sleep" or place.activity.verb.startswith("wait for events")


def _bytes_between(earlier: TeamSigns, later: TeamSigns, name: str) -> int:
    before, after = earlier.replica(name).bytes_moved, later.replica(name).bytes_moved
    return after - before if before is not None and after is not None else 0


def _bytes_of(process: ProcessStack) -> int:
    return process.bytes_moved or 0


def _strongest(states: list[RankActivity | None]) -> RankActivity | None:
    return next((state for state in (RankActivity.MOVES, RankActivity.COMPUTES) if state in states), None)


def _place_state(standing: list[RankPlace]) -> RankActivity:
    if not standing:
        return RankActivity.WAITS
    serves = all(place.activity.kind == "serve" for place in standing)
    return RankActivity.SERVES if serves else RankActivity.STANDS


def _process_state(before: ProcessStack | None, after: ProcessStack, seconds: float) -> RankActivity | None:
    """Whether a process moves or computes; None if it stands still, or spins while it waits for the team."""
    kind = activity(after, deciding_thread(after)).kind
    if kind == "ended":
        return None
    if before is None or before.command != after.command:
        return RankActivity.MOVES
    if kind == "stopped":
        return None
    # On a machine with too much to do a process that computes may hardly get the CPU, but it wants to run.
    used = after.cpu_seconds - before.cpu_seconds
    busy = used >= IDLE_CORES * seconds or "R" in (before.state[:1], after.state[:1])
    if _has_moved(before, after, busy=busy) or _receives(before, after, seconds):
        return RankActivity.MOVES
    return RankActivity.COMPUTES if busy and kind not in TEAM_KINDS else None


def _receives(before: ProcessStack, after: ProcessStack, seconds: float) -> bool:
    """Whether the thread that decides waits for the network, and something comes."""
    first, second = deciding_thread(before), deciding_thread(after)
    if first.id != second.id or first.wakeups is None or second.wakeups is None:
        return False
    return second.wakeups - first.wakeups >= WAKEUPS_PER_SECOND * seconds and waits_for_network(after, second)


def _has_moved(before: ProcessStack, after: ProcessStack, *, busy: bool) -> bool:
    """Whether the thread that decides is at another place, or another one that computes.

    Other threads print heartbeats and measure loads, whatever the program does.
    """
    first, second = deciding_thread(before), deciding_thread(after)
    kinds = {activity(before, first).kind, activity(after, second).kind}
    if len(kinds) > 1 and not kinds <= _UNNAMED_KINDS:
        return True
    if places(first.frames) != places(second.frames):
        polls = len(kinds) == 1 and kinds <= _POLLING_KINDS and bool(own_frames(second.frames))
        if not polls or places(own_frames(first.frames)) != places(own_frames(second.frames)):
            return True
    if not busy or kinds <= TEAM_KINDS:
        return False
    earlier = {thread.id: places(thread.frames) for thread in before.threads}
    return any(thread.active and places(thread.frames) != earlier.get(thread.id) for thread in after.threads)


def _is_slow_work(process: ProcessStack) -> bool:
    for thread in process.threads:
        if activity(process, thread).kind in _SLOW_KINDS:
            return True
        if any(_SLOW_WORK.search(frame.function) for frame in own_frames(thread.frames)):
            return True
    return False
