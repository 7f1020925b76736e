"""Stacks as text for people."""

from gangline.cli.output.stack_groups import all_lines, group_lines, range_names
from gangline.cli.output.text import plain_text
from gangline.stacks.groups import rank_places
from gangline.stacks.model import RankStack
from support.builders.stacks import LIB, all_reduce, frame, own_stack, process, rank, reading


def shown(*ranks: RankStack, width: int = 80) -> str:
    return "\n".join(plain_text(line).rstrip() for line in group_lines(ranks, width))


def test_groups_come_with_their_ranks_and_own_frames_stand_out() -> None:
    ranks = [rank(n, frames=all_reduce()) for n in (0, 1, 3)]
    assert (
        shown(*ranks, rank(2, frames=reading()))
        == """\
3 of 4 ranks wait in all_reduce (train.py:88); worker-2 (rank 2) reads data
(data.py:31)

3 ranks wait in all_reduce
  worker-0 (rank 0), worker-1 (rank 1), worker-3 (rank 3)
    all_reduce  torch/distributed/distributed_c10d.py:2800  (+1 more)
  > step        /code/train.py:88
  > <module>    /code/train.py:120

1 rank reads data: the others wait for it
  worker-2 (rank 2)
  > __getitem__  /code/data.py:31
    <listcomp>   torch/utils/data/_utils/fetch.py:52  (+3 more)
  > step         /code/train.py:70
  > <module>     /code/train.py:120"""
    )


def test_source_lines_stand_beside_their_frames_and_are_cut_to_the_terminal() -> None:
    text = shown(rank(0, frames=own_stack(5, code="value = comm.allreduce(" + "x" * 90 + ")")), width=60)
    assert "  > step      /code/train.py:5    value = comm.allreduce(xxx" in text
    assert max(map(len, text.splitlines())) == 60


def test_many_ranks_in_a_row_are_one_range() -> None:
    ranks = [rank(n, frames=all_reduce()) for n in range(64)]
    places = [one for rank_stack in ranks for one in rank_places(rank_stack)]
    assert range_names(places) == ["worker-0 to worker-63 (ranks 0-63)"]
    assert range_names([*places[:2], *places[5:9]]) == [
        "worker-0 (rank 0), worker-1 (rank 1)",
        "worker-5 to worker-8 (ranks 5-8)",
    ]


def test_a_group_that_nobody_waits_for_stands_apart() -> None:
    text = shown(*(rank(n, frames=own_stack(5)) for n in range(3)), rank(3, frames=own_stack(9)))
    assert "1 rank is in step: not where the others are" in text


def test_what_started_the_program_is_left_out() -> None:
    text = shown(rank(0, frames=(*own_stack(), frame("_run_code", f"{LIB}/runpy.py", 88))))
    assert "runpy" not in text


def test_all_shows_every_thread_with_its_state() -> None:
    stack = rank(0, process(all_reduce(), channel="futex_wait_queue"), process(pid=7, parent=100, source="proc"))
    text = "\n".join(plain_text(line).rstrip() for line in all_lines([stack], 80))
    assert "worker-0 (rank 0)  job-worker-0" in text
    assert "  process 100 waits  python train.py" in text
    assert "    thread MainThread waits in the kernel's futex_wait_queue" in text
    assert "        wrapper     torch/distributed/c10d_logger.py:81" in text
    assert "  process 7 waits" in text


def test_why_a_stack_is_missing_is_said() -> None:
    text = shown(RankStack("worker-0", 0, "", error="it has no process on this machine any more"))
    assert "1 rank cannot be read\n  worker-0 (rank 0)\n  it has no process on this machine any more" in text
