"""Coroutines for a blocking program: in the calling thread if possible, else in a loop thread."""

import asyncio
import contextlib
import os
import signal
import socket
import threading
from collections.abc import AsyncGenerator, Iterator

import pytest

from gangline.sdk.event_loop import THREAD_NAME, LoopThread


@pytest.fixture
def background() -> Iterator[LoopThread]:
    made = LoopThread()
    yield made
    if not made.is_closed:
        made.close(nothing())
    assert made.is_closed


async def nothing() -> None: ...


async def where() -> str:
    return threading.current_thread().name


async def fails() -> None:
    raise LookupError("told")


async def numbers() -> AsyncGenerator[int, None]:
    for number in range(3):
        yield number
    raise LookupError("told")


def test_a_call_runs_in_the_thread_that_makes_it(background: LoopThread) -> None:
    assert background.run(where()) == threading.current_thread().name
    with pytest.raises(LookupError, match="told"):
        background.run(fails())


def test_a_stream_runs_in_a_thread_and_calls_from_then_on_too(background: LoopThread) -> None:
    found: list[int] = []
    with pytest.raises(LookupError, match="told"):
        found.extend(background.iterate(numbers()))
    # The items before the error are returned.
    taken = background.iterate(numbers())
    assert [next(taken), next(taken)] == [0, 1]
    taken.close()  # type: ignore[attr-defined]
    assert background.run(where()) == THREAD_NAME


async def test_a_caller_with_a_loop_of_its_own_is_served_by_a_thread(background: LoopThread) -> None:
    assert background.run(where()) == THREAD_NAME


def test_calls_of_two_threads_at_once_both_end(background: LoopThread) -> None:
    first_runs, second_done = threading.Event(), asyncio.Event()
    answers: list[str] = []

    async def first() -> str:
        first_runs.set()
        await second_done.wait()
        return "first"

    async def second() -> str:
        second_done.set()
        return "second"

    one = threading.Thread(target=lambda: answers.append(background.run(first())))
    one.start()
    assert first_runs.wait(60)
    answers.append(background.run(second()))
    one.join(60)
    assert sorted(answers) == ["first", "second"]
    assert background.run(where()) == THREAD_NAME


def test_an_interrupt_cancels_what_runs(background: LoopThread) -> None:
    cleaned: list[str] = []

    async def interrupted() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            cleaned.append("up")

    with pytest.raises(KeyboardInterrupt):
        background.run(interrupted())
    assert cleaned == ["up"]
    assert background.run(where()) == threading.current_thread().name


def test_the_end_of_a_connection_while_nothing_ran_is_noticed_before_the_next_call() -> None:
    background = LoopThread()
    ours, theirs = socket.socketpair()
    ended: list[bool] = []

    class Line(asyncio.Protocol):
        def connection_lost(self, error: Exception | None) -> None:
            ended.append(True)

    async def connect() -> None:
        await asyncio.get_running_loop().create_connection(Line, sock=ours)

    async def has_ended() -> bool:
        return bool(ended)

    background.run(connect())
    theirs.close()
    background._last_run -= 60
    assert background.run(has_ended())
    background.close(nothing())


@pytest.mark.parametrize("threaded", [False, True])
def test_at_the_end_the_last_is_run_and_no_thread_is_left(threaded: bool) -> None:
    background, done = LoopThread(), []

    async def last() -> None:
        done.append(await where())

    if threaded:
        with contextlib.suppress(LookupError):
            list(background.iterate(numbers()))
    background.close(last())
    assert done == [THREAD_NAME if threaded else threading.current_thread().name]
    assert background.is_closed
    assert THREAD_NAME not in [thread.name for thread in threading.enumerate()]


async def test_one_that_ends_inside_a_loop_does_not_hold_it_up() -> None:
    background, done = LoopThread(), threading.Event()

    async def last() -> None:
        done.set()

    await asyncio.get_running_loop().run_in_executor(None, background.close, last())
    assert done.wait(60)
