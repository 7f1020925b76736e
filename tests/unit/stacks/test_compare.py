"""Two samples: who stands where it stood."""

import msgspec

from gangline.stacks.compare import unmoved
from gangline.stacks.model import ProcessStack, RankStack, ThreadStack
from support.builders.stacks import LIB, all_reduce, frame, own_stack, process, rank


def test_equal_stacks_stand_and_others_move() -> None:
    before = [rank(0, frames=all_reduce()), rank(1, frames=own_stack(5)), rank(2, frames=own_stack(5))]
    after = [rank(0, frames=all_reduce()), rank(1, frames=own_stack(6)), rank(3, frames=own_stack(5))]
    assert unmoved(before, after) == {"worker-0"}


def test_a_restarted_process_has_moved() -> None:
    assert unmoved([rank(0, process(all_reduce(), pid=5))], [rank(0, process(all_reduce(), pid=6))]) == frozenset()


def test_a_thread_of_a_library_that_moves_does_not_count_but_one_of_the_user_does() -> None:
    def stack(frames: tuple[int, str]) -> RankStack:
        line, file = frames
        return rank(0, process(all_reduce(), threads=(ThreadStack((frame("run", file, line),), "Thread-2", 7),)))

    library = f"{LIB}/threading.py"
    assert unmoved([stack((1, library))], [stack((2, library))]) == {"worker-0"}
    assert unmoved([stack((1, "/code/log.py"))], [stack((2, "/code/log.py"))]) == frozenset()


def test_a_library_that_moves_in_the_main_thread_counts() -> None:
    """As in a trainer's own loop: the user's line is the same all the time."""
    later = (msgspec.structs.replace(all_reduce()[0], function="other"), *all_reduce()[1:])
    assert unmoved([rank(0, frames=all_reduce())], [rank(0, frames=later)]) == frozenset()


def test_a_program_without_frames_stands_only_if_it_used_no_cpu() -> None:
    def program(cpu: float, channel: str = "ep_poll", state: str = "S") -> list[RankStack]:
        one: ProcessStack = process(source="proc", channel=channel, state=state)
        return [rank(0, msgspec.structs.replace(one, cpu_seconds=cpu))]

    assert unmoved(program(1.0), program(1.0)) == {"worker-0"}
    assert unmoved(program(1.0), program(3.0)) == frozenset()
    assert unmoved(program(1.0), program(1.0, "futex_wait_queue")) == frozenset()


def test_what_cannot_be_read_has_moved() -> None:
    lost = RankStack("worker-0", 0, "job-worker-0", error="gone")
    assert unmoved([lost], [lost]) == frozenset()
    unread = rank(0, msgspec.structs.replace(process(source="proc"), error="py-spy may not read it"))
    assert unmoved([unread], [unread]) == frozenset()


def test_a_logger_beside_the_program_does_not_count() -> None:
    def team(cpu: float) -> list[RankStack]:
        logger = process(pid=101, parent=100, source="proc", command="nvidia-smi -l 1")
        return [rank(0, process(all_reduce()), msgspec.structs.replace(logger, cpu_seconds=cpu))]

    assert unmoved(team(1.0), team(9.0)) == {"worker-0"}
