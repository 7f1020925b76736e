"""Two samples of the same ranks: who stands where it stood. Pure."""

from collections.abc import Sequence

from gangline.stacks.frames import own_frames, places
from gangline.stacks.groups import is_helper, main_processes
from gangline.stacks.model import ProcessStack, RankStack

IDLE_CPU_SECONDS = 0.05
"""A process without frames that has used more CPU between two samples has moved, for all that is known."""


def unmoved(before: Sequence[RankStack], after: Sequence[RankStack]) -> frozenset[str]:
    """The replicas that stand where they stood: the processes that train, and those that load data for them.

    Of their threads count the main one and those in the user's own code: threads of libraries wake up in health and in
    a hang alike. A process that was restarted, or that could not be read, has moved, for all that is known.
    """
    earlier = {one.replica: one for one in before}
    return frozenset(
        one.replica for one in after if (first := earlier.get(one.replica)) is not None and _stands(first, one)
    )


def _stands(before: RankStack, after: RankStack) -> bool:
    if before.error or after.error or before.pod != after.pod:
        return False
    earlier, later = _compared_processes(before), _compared_processes(after)
    return (
        bool(later)
        and earlier.keys() == later.keys()
        and all(_process_stands(earlier[pid], later[pid]) for pid in later)
    )


def _compared_processes(rank: RankStack) -> dict[int, ProcessStack]:
    helpers = (one for one in rank.processes if is_helper(one) and any(thread.frames for thread in one.threads))
    return {one.pid: one for one in (*main_processes(rank.processes), *helpers)}


def _process_stands(before: ProcessStack, after: ProcessStack) -> bool:
    if before.command != after.command or before.source != after.source or before.error or after.error:
        return False
    if any(thread.frames for thread in after.threads):
        return _standing_threads(before) == _standing_threads(after)
    channels = [tuple(sorted(thread.wait_channel for thread in one.threads)) for one in (before, after)]
    used = after.cpu_seconds - before.cpu_seconds
    return before.state == after.state and channels[0] == channels[1] and used <= IDLE_CPU_SECONDS


def _standing_threads(process: ProcessStack) -> dict[int, object]:
    """Where the threads that count stand, by id. The main thread is the first."""
    return {
        thread.id: places(thread.frames)
        for number, thread in enumerate(process.threads)
        if number == 0 or own_frames(thread.frames)
    }
