"""Ranks that stand at the same place, and the ranks that hold the others up. Pure."""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from gangline.stacks.activities import SUBPROCESS_WAIT, StackActivity, activity
from gangline.stacks.frames import location, own_frames, place
from gangline.stacks.model import Frame, ProcessStack, RankStack, ThreadStack

HELPER_COMMANDS = (
    "multiprocessing.resource_tracker",
    "multiprocessing.semaphore_tracker",
    "multiprocessing.forkserver",
)
"""Processes that Python starts beside a program."""
MPI_AGENT = "mpi_agent.py"
"""Our own program, by which mpirun starts a rank in another pod."""
HELPER_FILES = ("torch/utils/data/_utils/worker.py", "torch/_inductor/compile_worker")
PROCESS_START = "multiprocessing/process.py"
UNCOMPARED_REPLICAS = ("launcher", "ps", "evaluator")
"""Replica types that do other work than the team, so that they stand elsewhere in health, too."""
MAX_COMMAND = 32
TEAM_KINDS = frozenset({"team", "join"})
_HOLDING_KINDS = frozenset({"lock", "data", "sleep", "process", "network", "stopped"})
"""What a rank does that the others may wait for without a word."""


class RankPlace(msgspec.Struct, frozen=True):
    """Where one rank stands: its deciding thread, and what that does."""

    replica: str
    rank: int | None
    pid: int
    frames: tuple[Frame, ...]
    activity: StackActivity
    # The user's own line, as `train.py:88`; without any frame the command; empty if no frame is the user's.
    location: str = ""
    error: str = ""

    @property
    def name(self) -> str:
        """`worker-1 (rank 2)`."""
        return self.replica if self.rank is None else f"{self.replica} (rank {self.rank})"

    @property
    def is_compared(self) -> bool:
        """Whether it does the same work as the others. A launcher may run a rank itself."""
        return self.rank is not None or not self.replica.lower().startswith(UNCOMPARED_REPLICAS)


class StackGroup(msgspec.Struct, frozen=True):
    """Ranks that stand at the same place."""

    places: tuple[RankPlace, ...]

    @property
    def ranks(self) -> tuple[str, ...]:
        """The names of the ranks: `worker-1 (rank 2)`."""
        return tuple(one.name for one in self.places)

    @property
    def replicas(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(one.replica for one in self.places))

    @property
    def frames(self) -> tuple[Frame, ...]:
        return self.places[0].frames

    @property
    def activity(self) -> StackActivity:
        return self.places[0].activity

    @property
    def verb(self) -> str:
        """What the ranks do, fit for their number: `wait in all_reduce`."""
        return self.activity.text(len(self.places))

    @property
    def location(self) -> str:
        return self.places[0].location

    @property
    def error(self) -> str:
        return self.places[0].error

    @property
    def is_compared(self) -> bool:
        return any(one.is_compared for one in self.places)


def stack_groups(ranks: Iterable[RankStack]) -> tuple[StackGroup, ...]:
    """The ranks by where they stand: the largest group first, those that do other work last."""
    groups: dict[object, list[RankPlace]] = {}
    for one in ranks:
        for standing in rank_places(one):
            groups.setdefault(_group_key(standing), []).append(standing)
    return tuple(sorted((StackGroup(tuple(one)) for one in groups.values()), key=_group_order))


def _group_order(group: StackGroup) -> tuple[bool, int]:
    return not group.is_compared, -len(group.places)


def _group_key(one: RankPlace) -> object:
    """Equal for ranks that stand at the same place: in the same lines of the user's code, and do the same.

    Libraries may poll: their lines say nothing. Without any frame of the user, their functions do.
    """
    own = own_frames(one.frames)
    where: object = tuple(map(place, own)) if own else tuple((frame.function, frame.file) for frame in one.frames)
    return one.activity, where, one.error


def rank_places(rank: RankStack) -> tuple[RankPlace, ...]:
    """Where the ranks of a replica stand: one, or as many as it has processes that train."""
    mains = tuple(main_processes(rank.processes))
    if not mains:
        nothing = StackActivity("unknown", "have no process" if not rank.error else "cannot be read")
        return (RankPlace(rank.replica, rank.rank, 0, (), nothing, error=rank.error),)
    return tuple(_rank_place(rank, one, only=len(mains) == 1) for one in mains)


def _rank_place(rank: RankStack, main: ProcessStack, *, only: bool) -> RankPlace:
    process, thread = main, deciding_thread(main)
    doing = activity(process, thread)
    frames = thread.frames
    number = main.rank if main.rank is not None else rank.rank if only else None
    replica = rank.replica if only or number is not None else f"{rank.replica} process {main.pid}"
    if doing.kind == "data" and (reader := _data_reader(rank.processes, main)) is not None:
        # The line that does not return is the one in the data loader's process.
        frames, doing = (*_own_calls(reader), *frames), StackActivity("data", "read data")
    own = own_frames(frames)
    where = location(own[0]) if own else _shortened(main.command) if not frames else ""
    return RankPlace(replica, number, main.pid, frames, doing, where, main.error)


def _shortened(command: str) -> str:
    return command if len(command) <= MAX_COMMAND else f"{command[: MAX_COMMAND - 1]}…"


def main_processes(processes: Sequence[ProcessStack]) -> Iterator[ProcessStack]:
    """The processes that train: without shells, launchers and agents that wait for them, and without their helpers."""
    useful = [one for one in processes if not is_helper(one)]
    pids = {one.pid for one in useful}
    tops = [one for one in useful if one.parent not in pids]
    mains = [main for top in tops for main in _below_launchers(top, useful)]
    python = [one for one in mains if one.source != "proc" or one.error]
    yield from python or mains


def _below_launchers(process: ProcessStack, processes: Sequence[ProcessStack]) -> Iterator[ProcessStack]:
    children = [one for one in processes if one.parent == process.pid]
    if not children or not _is_launcher(process):
        yield process
        return
    for child in children:
        yield from _below_launchers(child, processes)


def _is_launcher(process: ProcessStack) -> bool:
    """Whether a process that has children only waits for them."""
    if process.source == "proc" and not process.error:
        return True
    return activity(process, deciding_thread(process)).kind == "process"


def is_helper(process: ProcessStack) -> bool:
    """Whether a process works for another one of its replica: a data loader, or a part of Python's own."""
    if any(word in process.command for word in (*HELPER_COMMANDS, MPI_AGENT)):
        return True
    return any(name in frame.file for thread in process.threads for frame in thread.frames for name in HELPER_FILES)


def deciding_thread(process: ProcessStack) -> ThreadStack:
    """The thread that says where the process stands: the main one, or the one that the main thread waits for."""
    if not process.threads:
        return ThreadStack()
    main = next((one for one in process.threads if one.name == "MainThread"), process.threads[0])
    doing = activity(process, main) if main.frames else None
    if doing is not None and doing.kind == "process" and doing.verb != SUBPROCESS_WAIT:
        others = [one for one in process.threads if one is not main and own_frames(one.frames)]
        if others:
            return others[0]
    return main


def _data_reader(processes: Sequence[ProcessStack], main: ProcessStack) -> ThreadStack | None:
    """The thread of a data loader's process that stands in the user's own code."""
    for process in processes:
        if process.parent == main.pid and is_helper(process):
            for thread in process.threads:
                if activity(process, thread).kind == "data" and own_frames(thread.frames):
                    return thread
    return None


def _own_calls(thread: ThreadStack) -> tuple[Frame, ...]:
    """The frames of a process that were called in itself: a fork begins with those of its parent."""
    starts = (number for number, frame in enumerate(thread.frames) if frame.file.endswith(PROCESS_START))
    return thread.frames[: next(starts, len(thread.frames))]


def _may_wait(group: StackGroup) -> bool:
    """Whether it is in a call of a library that talks to the team by itself, so that no frame says for whom it waits."""
    return group.activity.kind == "run" and group.activity.verb.startswith("are in ")


def odd_groups(groups: Sequence[StackGroup]) -> tuple[StackGroup, ...]:
    """The groups that hold the others up; none if all stand at the same place, or if nobody can say who does.

    Where some wait for the team, it is those who do not. Else it is the few against the many. A replica that is stopped
    holds everybody up, whatever its work is.
    """
    stopped = tuple(group for group in groups if group.activity.kind == "stopped")
    if stopped and len(stopped) < len(groups):
        return stopped
    compared = [group for group in groups if group.is_compared]
    if len(compared) < 2:
        return ()
    waiting = [group for group in compared if group.activity.kind in TEAM_KINDS]
    if not waiting and all(group.activity.kind in _HOLDING_KINDS or _may_wait(group) for group in compared):
        waiting = [group for group in compared if _may_wait(group)]
    elsewhere = [group for group in compared if group not in waiting]
    total = sum(len(group.places) for group in compared)
    if waiting and elsewhere:
        outnumbered = sum(len(group.places) for group in waiting) < total / 2 and len(elsewhere) == 1
        return tuple(waiting if outnumbered and total > 2 else elsewhere)
    largest = len(compared[0].places)
    if largest > total / 2:
        return tuple(compared[1:])
    return ()


def odd_ranks(groups: Sequence[StackGroup]) -> tuple[str, ...]:
    """The names of the ranks that hold the others up: `worker-1 (rank 2)`."""
    return tuple(name for group in odd_groups(groups) for name in group.ranks)
