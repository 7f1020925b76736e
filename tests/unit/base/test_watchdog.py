"""A watchdog counts what its own thread has seen, so a process that was stopped is not taken for a stuck one."""

import asyncio
import threading
from collections.abc import Callable

from gangline.base.watchdog import (
    IDLE_LIMIT,
    LOOP_LIMIT,
    SecondLoop,
    Watchdog,
    WorkInProgress,
    report_progress,
    stack_of_this_thread,
    track_activity,
)


def test_a_loop_is_stuck_only_when_it_leaves_a_ping_unanswered_for_long() -> None:
    pings: list[Callable[[], None]] = []
    watchdog = Watchdog(pings.append, lambda: "")
    for _ in range(LOOP_LIMIT):
        watchdog.tick()
    assert len(pings) == 1, "one ping is enough until it is answered"
    assert watchdog.loop_problem() == ""
    watchdog.tick()
    assert watchdog.loop_problem() == f"the event loop has not turned for {LOOP_LIMIT} s"
    pings.pop()()
    assert watchdog.loop_problem() == ""
    watchdog.tick()
    assert len(pings) == 1


def test_a_loop_that_answers_each_time_is_never_stuck() -> None:
    watchdog = Watchdog(lambda answer: answer(), lambda: "")
    for _ in range(10 * LOOP_LIMIT):
        watchdog.tick()
    assert watchdog.loop_problem() == ""


def test_progress_of_one_piece_of_work_is_not_that_of_another() -> None:
    watchdog = Watchdog(lambda answer: answer(), lambda: "")
    busy, stuck = WorkInProgress(), WorkInProgress()
    watchdog.watch(lambda: [("busy", busy), ("stuck", stuck)])
    for _ in range(IDLE_LIMIT):
        watchdog.tick()
        with track_activity(busy):
            report_progress()
    assert watchdog.work_problem() == f"stuck: no progress for {IDLE_LIMIT} s"


async def test_tasks_report_for_the_work_that_started_them() -> None:
    activity = WorkInProgress()
    activity.idle_seconds = 7

    async def step() -> None:
        report_progress()

    with track_activity(activity):
        async with asyncio.TaskGroup() as group:
            group.create_task(step())
    assert activity.idle_seconds == 0
    report_progress()


async def test_a_loop_thread_runs_beside_a_loop_that_stands_still() -> None:
    ticked = threading.Event()
    async with SecondLoop("test") as thread:
        assert await thread.run(asyncio.sleep(0, result=3)) == 3
        thread.call_every_second(ticked.set)
        assert ticked.wait(60), "although this thread does not return to its loop"


def test_the_stack_of_another_thread_says_what_it_does() -> None:
    stack, hangs, go_on = [], threading.Event(), threading.Event()

    def hang_here() -> None:
        stack.append(stack_of_this_thread())
        hangs.set()
        go_on.wait()

    thread = threading.Thread(target=hang_here)
    thread.start()
    hangs.wait()
    assert "hang_here" in stack[0]()
    go_on.set()
    thread.join()
    assert stack[0]() == ""
