"""Commands: what they get, what their exit code means, and that nothing of them is left."""

import json
from pathlib import Path

import psutil
import pytest

from gangline.base.clock import SystemClock
from gangline.notify.channels.command import CommandChannel
from gangline.notify.plan.retries import Attempt, Delivered, RetryLater
from gangline.notify.plan.routes import NotificationRoute
from gangline.notify.plan.transitions import transition_of
from support.builders.notified_jobs import NOW, JobHistory
from support.waiting import wait_until


async def run(*command: str, timeout: float = 30) -> Attempt:
    history = JobHistory("bert").create().fail()
    transition = transition_of(history.job, f"failed-{int(NOW.timestamp()) + 1}")
    route = NotificationRoute(name="a", command=command, timeout_seconds=timeout)
    async with CommandChannel(route, SystemClock()) as channel:
        return await channel.deliver(transition)


async def test_a_command_gets_the_json_as_input_and_the_fields_as_variables(tmp_path: Path) -> None:
    script = f'cat > {tmp_path}/json; printf "%s" "$GANGLINE_NOTIFY_SUBJECT" > {tmp_path}/subject'
    assert await run("sh", "-c", script) == Delivered()
    assert json.loads((tmp_path / "json").read_text())["state"] == "failed"
    expected = "PyTorchJob team-a/bert failed: worker-1 exit 1: CUDA out of memory"
    assert (tmp_path / "subject").read_text() == expected


async def test_a_command_that_does_not_read_its_input_is_no_failure() -> None:
    assert await run("true") == Delivered()


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (("sh", "-c", "exit 3"), "the command ended with code 3"),
        (("/no/such/program",), "/no/such/program: No such file or directory"),
        (("a\0b",), "a\0b: has a NUL in it"),
    ],
)
async def test_a_command_that_fails_is_run_again(command: tuple[str, ...], problem: str) -> None:
    assert await run(*command) == RetryLater(problem)


async def test_a_command_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    script = f"sleep 1000 & echo $! > {file}.new; mv {file}.new {file}; wait"
    assert await run("sh", "-c", script, timeout=1) == RetryLater("the command did not end within 1 s")
    pid = int(file.read_text())

    await wait_until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
