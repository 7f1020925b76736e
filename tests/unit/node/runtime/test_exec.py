"""Commands beside a container's process: real processes, with a fake clock."""

import asyncio
import os
from pathlib import Path

import psutil
import pytest

from gangline.kube.podstreams import ExecFailed
from gangline.node.runtime.exec import DRAIN_TIMEOUT, ExecProcess, exec_command
from gangline.node.runtime.paths import PathMapping
from gangline.node.runtime.runtime import ContainerTarget
from gangline.testing.clock import FakeClock, settle

WAIT = 60.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def target(tmp_path: Path) -> ContainerTarget:
    return ContainerTarget(dict(os.environ), tmp_path, paths=PathMapping({"/image": tmp_path}))


async def everything(running: ExecProcess, output: int) -> bytes:
    text = b""
    while data := await running.read(output):
        text += data
    return text


async def test_slow_reader_gets_everything(target: ContainerTarget, clock: FakeClock) -> None:
    # More than is read ahead, so that some output is still in the pipe when the command ends.
    command = ["head", "-c", "150000", "/dev/zero"]
    async with asyncio.timeout(WAIT), exec_command(target, command, clock, stdin=False, tty=False) as running:
        assert await running.wait() == 0
        await clock.advance(10 * DRAIN_TIMEOUT)
        assert len(await everything(running, 1)) == 150000


async def test_output_ends_though_an_heir_holds_the_pipe(target: ContainerTarget, clock: FakeClock) -> None:
    command = ["sh", "-c", "sleep 1000 & echo $!"]
    async with (
        asyncio.timeout(WAIT),
        exec_command(target, command, clock, stdin=False, tty=False) as running,
        asyncio.TaskGroup() as group,
    ):
        reading = [group.create_task(everything(running, output)) for output in (1, 2)]
        assert await running.wait() == 0
        await settle()
        assert not any(task.done() for task in reading)
        await clock.advance(DRAIN_TIMEOUT)
        pid = await reading[0]
        assert await reading[1] == b""
    descendant = psutil.Process(int(pid))
    assert descendant.is_running()
    descendant.kill()


async def test_leaving_early_kills_the_command_and_its_children(target: ContainerTarget, clock: FakeClock) -> None:
    command = ["sh", "-c", "sleep 1000 & echo $!; wait"]
    async with asyncio.timeout(WAIT), exec_command(target, command, clock, stdin=False, tty=False) as running:
        child = psutil.Process(int(await running.read(1)))
    await asyncio.to_thread(psutil.wait_procs, [child], WAIT)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


async def test_paths_of_the_image_are_found_here(target: ContainerTarget, clock: FakeClock, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here")
    async with exec_command(target, ["cat", "/image/file"], clock, stdin=False, tty=False) as running:
        assert await running.read(1) == b"here"
        assert await running.wait() == 0


@pytest.mark.parametrize(
    ("command", "tty", "code"),
    [
        ("no-such-program", False, 127),
        ("no-such-program", True, 127),
        ("/no/such/file", False, 127),
        ("/", False, 126),
    ],
)
async def test_command_that_cannot_be_run_has_the_code_of_a_shell(
    target: ContainerTarget, clock: FakeClock, command: str, tty: bool, code: int
) -> None:
    with pytest.raises(ExecFailed) as failed:
        async with exec_command(target, [command], clock, stdin=False, tty=tty):
            pass
    assert failed.value.exit_code == code
    assert str(failed.value).startswith(f'exec: "{command}": ')


async def test_terminal_says_itself_what_cannot_be_run(target: ContainerTarget, clock: FakeClock) -> None:
    async with asyncio.timeout(WAIT), exec_command(target, ["/"], clock, stdin=False, tty=True) as running:
        assert b"exec: /: Permission denied" in await everything(running, 1)
        assert await running.wait() == 126


async def test_end_of_input_is_typed_on_a_terminal(target: ContainerTarget, clock: FakeClock) -> None:
    async with asyncio.timeout(WAIT), exec_command(target, ["cat"], clock, stdin=True, tty=True) as running:
        await running.write(b"hello\n")
        await running.close_input()
        assert set((await everything(running, 1)).split()) == {b"hello"}
        assert await running.wait() == 0
