"""Which ranks stand together, who holds the others up, and the sentence about it."""

import msgspec
import pytest

from gangline.stacks.groups import main_processes, odd_ranks, stack_groups
from gangline.stacks.model import RankStack, ThreadStack
from gangline.stacks.sentence import stacks_sentence
from support.builders.stacks import LIB, SITE, all_reduce, frame, own_stack, process, rank, reading


def sentence(*ranks: RankStack) -> str:
    return stacks_sentence(stack_groups(ranks))


def test_the_sentence_of_the_issue() -> None:
    ranks = [rank(n, frames=all_reduce()) for n in (0, 1, 3)]
    ranks.insert(2, rank(2, frames=reading()))
    groups = stack_groups(ranks)
    assert stacks_sentence(groups) == (
        "3 of 4 ranks wait in all_reduce (train.py:88); worker-2 (rank 2) reads data (data.py:31)"
    )
    assert odd_ranks(groups) == ("worker-2 (rank 2)",)


def test_a_team_that_stands_together_has_no_odd_rank() -> None:
    groups = stack_groups([rank(n, frames=all_reduce()) for n in range(4)])
    assert len(groups) == 1
    assert odd_ranks(groups) == ()
    assert stacks_sentence(groups) == "all 4 ranks wait in all_reduce (train.py:88)"


def test_of_two_ranks_the_one_that_does_not_wait_is_the_odd_one() -> None:
    groups = stack_groups([rank(0, frames=reading()), rank(1, frames=all_reduce())])
    assert odd_ranks(groups) == ("worker-0 (rank 0)",)
    assert stacks_sentence(groups) == (
        "worker-1 (rank 1) waits in all_reduce (train.py:88); worker-0 (rank 0) reads data (data.py:31)"
    )


def test_one_rank_that_waits_for_many_who_do_something_else_is_the_odd_one() -> None:
    sleeping = own_stack(200, code="time.sleep(60)")
    groups = stack_groups([rank(0, frames=all_reduce()), *(rank(n, frames=sleeping) for n in (1, 2, 3))])
    assert odd_ranks(groups) == ("worker-0 (rank 0)",)


def test_ranks_in_different_collectives_are_told_apart() -> None:
    barrier = (frame("barrier", f"{SITE}/torch/distributed/distributed_c10d.py", 1), *own_stack(91))
    groups = stack_groups([*(rank(n, frames=all_reduce()) for n in range(3)), rank(3, frames=barrier)])
    assert odd_ranks(groups) == ("worker-3 (rank 3)",)
    assert "worker-3 (rank 3) waits in barrier (train.py:91)" in stacks_sentence(groups)


def test_nobody_is_accused_where_nobody_is_in_the_majority() -> None:
    ranks = [rank(n, frames=own_stack(n + 1)) for n in range(4)]
    assert odd_ranks(stack_groups(ranks)) == ()


@pytest.mark.parametrize("kind", ["ps", "launcher", "evaluator"])
def test_replicas_that_do_other_work_are_not_odd(kind: str) -> None:
    other = rank(0, frames=own_stack(5, code="server.join()"), kind=kind)
    other = msgspec.structs.replace(other, rank=None)
    groups = stack_groups([other, *(rank(n, frames=all_reduce()) for n in range(3))])
    assert odd_ranks(groups) == ()
    assert stacks_sentence(groups) == "all 3 ranks wait in all_reduce (train.py:88)"
    assert stacks_sentence(stack_groups([other])) == f"{kind}-0 is in step (train.py:5)"


def test_a_launcher_that_runs_a_rank_is_one_of_the_team() -> None:
    launcher = RankStack("launcher", None, "", (process(reading(), rank=0),))
    groups = stack_groups([launcher, rank(1, frames=all_reduce())])
    assert odd_ranks(groups) == ("launcher (rank 0)",)


def test_the_agents_of_mpirun_are_no_ranks() -> None:
    mpirun = process(pid=10, source="proc", command="mpirun -np 2 python train.py", channel="ep_poll")
    agents = [process(own_stack(), pid=11 + n, parent=10, command="python mpi_agent.py w") for n in range(2)]
    assert [one.pid for one in main_processes((mpirun, *agents))] == [10]


def test_library_lines_do_not_separate_ranks_but_own_lines_do() -> None:
    polling = msgspec.structs.replace(all_reduce()[0], line=2801)
    assert len(stack_groups([rank(0, frames=all_reduce()), rank(1, frames=(polling, *all_reduce()[1:]))])) == 1
    assert len(stack_groups([rank(0, frames=all_reduce(88)), rank(1, frames=all_reduce(90))])) == 2


def test_replicas_without_ranks_are_called_replicas() -> None:
    ranks = [RankStack(f"worker-{n}", None, "", (process(own_stack(3, code="time.sleep(9)")),)) for n in range(2)]
    assert sentence(*ranks) == "both replicas sleep (train.py:3)"


def test_a_replica_whose_stack_cannot_be_read_is_named() -> None:
    lost = RankStack("worker-1", 1, "job-worker-1", error="it has no process on this machine any more")
    assert sentence(rank(0, frames=all_reduce()), lost) == (
        "worker-0 (rank 0) waits in all_reduce (train.py:88); worker-1 (rank 1) cannot be read"
    )


def test_many_groups_are_counted_and_the_odd_ones_stay() -> None:
    ranks = [rank(n, frames=all_reduce()) for n in range(8)]
    ranks += [rank(n, frames=own_stack(n)) for n in range(8, 14)]
    text = sentence(*ranks)
    assert text.startswith("8 of 14 ranks wait in all_reduce (train.py:88); 3 more groups; ")
    assert text.endswith("worker-13 (rank 13) is in step (train.py:13)")


# Processes


def test_a_shell_around_the_program_is_left_out() -> None:
    shell = process(pid=10, source="proc", command="bash run.sh", channel="do_wait")
    tee = process(pid=12, parent=10, source="proc", command="tee log", channel="pipe_read")
    program = process(all_reduce(), pid=11, parent=10)
    assert [one.pid for one in main_processes((shell, program, tee))] == [11]


def test_the_processes_of_torchrun_are_the_ranks() -> None:
    agent = process(
        (
            frame("_invoke_run", f"{SITE}/torch/distributed/elastic/agent/server/api.py", 870),
            frame("launch_agent", f"{SITE}/torch/distributed/launcher/api.py", 260),
            frame("<module>", "/venv/bin/torchrun", 8),
        ),
        pid=10,
        command="torchrun train.py",
    )
    workers = [process(all_reduce(), pid=11 + n, parent=10, rank=4 + n) for n in range(2)]
    groups = stack_groups([RankStack("worker-1", 4, "job-worker-1", (agent, *workers))])
    assert [group.ranks for group in groups] == [("worker-1 (rank 4)", "worker-1 (rank 5)")]


def test_the_line_of_a_data_loaders_process_is_the_one_that_does_not_return() -> None:
    waiting = (
        frame("_try_get_data", f"{SITE}/torch/utils/data/dataloader.py", 1251),
        frame("__next__", f"{SITE}/torch/utils/data/dataloader.py", 708),
        *own_stack(70),
    )
    loader = (
        frame("__getitem__", "/code/data.py", 31, "time.sleep(600)"),
        frame("fetch", f"{SITE}/torch/utils/data/_utils/fetch.py", 52),
        frame("_worker_loop", f"{SITE}/torch/utils/data/_utils/worker.py", 351),
        frame("run", f"{LIB}/multiprocessing/process.py", 108),
        *own_stack(70),
    )
    tracker = process(pid=13, parent=10, command="python -c from multiprocessing.resource_tracker import main")
    stack = rank(1, process(waiting, pid=10), process(loader, pid=12, parent=10), tracker)
    assert sentence(stack) == "worker-1 (rank 1) reads data (data.py:31)"
    (group,) = stack_groups([stack])
    # The frames that the fork has from its parent are shown once.
    assert [one.function for one in group.frames if one.file.startswith("/code")] == [
        "__getitem__",
        "step",
        "<module>",
    ]


def test_the_thread_that_the_main_thread_waits_for_decides() -> None:
    joined = (frame("join", f"{LIB}/threading.py", 1119), *own_stack(50))
    other = ThreadStack((frame("locked", "/code/locks.py", 12, "b.acquire()"),), "Thread-1", 101)
    stack = rank(0, process(joined, threads=(other,)))
    assert sentence(stack) == "worker-0 (rank 0) waits for a lock (locks.py:12)"


def test_a_child_of_the_program_is_no_rank() -> None:
    logger = process(pid=101, parent=100, source="proc", command="nvidia-smi -l 1")
    assert [one.pid for one in main_processes((process(all_reduce()), logger))] == [100]
