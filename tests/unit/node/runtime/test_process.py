"""Real processes under their shim."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from gangline.api.meta import Key
from gangline.base.clock import SystemClock
from gangline.node.checkpoint import KillReason, RunFiles, RunRecord, StateFolder
from gangline.node.logs import read_lines
from gangline.node.runtime import shim
from gangline.node.runtime.process import (
    MARK_VARIABLE,
    SupervisedProcess,
    adopt,
    end_strays,
    launch,
    wait_for_start,
)
from gangline.node.runtime.runtime import ProcessSpec, StartFailed
from support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("each_host")
CLOCK = SystemClock()


@pytest.fixture
def files(tmp_path: Path) -> RunFiles:
    return RunFiles(tmp_path / "run", 0)


async def started(
    files: RunFiles, *command: str, folder: Path | None = None, size: int = 2**20, count: int = 5
) -> SupervisedProcess:
    working_dir = folder or files.folder.parent
    spec = ProcessSpec(command, dict(os.environ), working_dir, max_log_bytes=size, max_log_files=count)
    return await launch(spec, RunRecord(f"id-{files.attempt}-{os.getpid()}", files.attempt), files, CLOCK)


async def finished(files: RunFiles, *command: str, size: int = 2**20, count: int = 5) -> int:
    process = await started(files, *command, size=size, count=count)
    async with asyncio.timeout(60):
        await process.wait()
    record = files.exit_record()
    assert record is not None
    return record.code


async def until(file: Path) -> str:
    """The text that a process writes into a file."""
    async with asyncio.timeout(60):
        while not (text := written(file)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return text


def written(file: Path) -> str:
    return file.read_text().strip() if file.exists() else ""


def reap() -> None:
    """Reap an abandoned shim, which is still our child."""
    os.waitpid(-1, 0)


def living(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9)])
async def test_the_exit_code_is_written_down(files: RunFiles, script: str, code: int) -> None:
    assert await finished(files, "sh", "-c", script) == code
    assert not files.lock.is_held()


async def test_output_is_kept_in_cri_lines(files: RunFiles) -> None:
    await finished(files, "sh", "-c", "echo out; echo err >&2; printf tail")
    lines = [(line.stream, line.complete, line.text) for line in read_lines(files.log_file)]
    assert (b"stderr", True, b"err") in lines
    assert [line for line in lines if line[0] == b"stdout"] == [
        (b"stdout", True, b"out"),
        (b"stdout", False, b"tail"),
    ]


async def test_a_long_line_is_cut_and_whole_again(files: RunFiles) -> None:
    await finished(files, "sh", "-c", "head -c 50000 /dev/zero | tr '\\0' x; echo; echo next")
    lines = list(read_lines(files.log_file))
    assert [line.complete for line in lines] == [False, False, False, True, True]
    assert len(b"".join(line.text for line in lines[:4])) == 50000


async def test_logs_are_rotated(files: RunFiles) -> None:
    script = "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done"
    await finished(files, "sh", "-c", script, size=20_000, count=3)
    names = sorted(file.name for file in files.folder.glob("*.log*"))
    assert names == ["0.log", "0.log.1", "0.log.2"]
    assert all(file.stat().st_size <= 20_000 + 70_000 for file in files.folder.glob("*.log*"))
    assert list(read_lines(files.log_file))[-1].text == b"line 1999"


async def test_a_missing_command_is_told_before_anything_starts(files: RunFiles) -> None:
    with pytest.raises(StartFailed, match="executable file not found in"):
        await started(files, "no-such-program")
    assert files.run_record() is None


async def test_what_cannot_be_executed_is_told(files: RunFiles, tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("text")
    with pytest.raises(StartFailed, match="Permission denied"):
        await started(files, "./plain")
    with pytest.raises(StartFailed, match=r"nowhere: No such file"):
        await started(files, "true", folder=tmp_path / "nowhere")
    assert not files.lock.is_held()


async def test_terminate_reaches_the_whole_group(files: RunFiles, tmp_path: Path) -> None:
    script = f"trap : TERM; sh -c 'trap \"echo child > {tmp_path}/child; exit\" TERM; echo up > {tmp_path}/up; while :; do sleep 0.02; done' & wait; wait"
    process = await started(files, "sh", "-c", script)
    await until(tmp_path / "up")
    process.terminate()
    await process.wait()
    assert await until(tmp_path / "child") == "child"


async def test_what_left_the_session_is_killed_with_the_container(files: RunFiles, tmp_path: Path) -> None:
    script = (
        f"setsid sh -c 'echo $$ > {tmp_path}/stray; sleep 99' & while [ ! -s {tmp_path}/stray ]; do sleep 0.01; done"
    )
    await finished(files, "sh", "-c", script)
    assert not living(int(await until(tmp_path / "stray")))


async def test_another_node_adopts_what_lives(files: RunFiles, tmp_path: Path) -> None:
    first = await started(files, "sh", "-c", f"while [ ! -e {tmp_path}/go ]; do sleep 0.01; done; exit 6")
    first.abandon()
    second = adopt(RunFiles(files.folder, 0), CLOCK)
    assert second is not None
    assert second.pid == first.pid
    (tmp_path / "go").touch()
    async with asyncio.timeout(60):
        await second.wait()
    record = files.exit_record()
    assert record is not None
    assert record.code == 6
    assert adopt(files, CLOCK) is None
    reap()


async def test_adopted_processes_can_be_killed(files: RunFiles) -> None:
    (await started(files, "sh", "-c", "trap '' TERM; sleep 99 & wait; wait")).abandon()
    process = adopt(files, CLOCK)
    assert process is not None
    process.kill()
    async with asyncio.timeout(60):
        await process.wait()
    record = files.exit_record()
    assert record is not None
    assert record.code == -9
    reap()


async def test_a_lock_without_a_process_is_a_shim_at_work(files: RunFiles) -> None:
    files.begin(RunRecord("id", 0))
    lock = files.lock.acquire()
    assert files.lock.is_held()
    assert adopt(files, CLOCK) is None
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(wait_for_start(files, CLOCK))
        await asyncio.sleep(0)
        assert not waiting.done()
        os.close(lock)
    assert not files.lock.is_held()


def test_records_are_read_back(tmp_path: Path) -> None:
    state = StateFolder(tmp_path)
    folder = state.pod(Key("ns", "some-pod"), "1-2-3")
    folder.run_files("main", 3).begin(RunRecord("id", 3, 2, {"nvidia.com/gpu": (1,)}))
    (folder,) = state.pods()
    assert (folder.key, folder.uid, list(folder.containers())) == (Key("ns", "some-pod"), "1-2-3", ["main"])
    (run,) = folder.runs("main")
    assert run.run_record() == RunRecord("id", 3, 2, {"nvidia.com/gpu": (1,)})
    run.write_kill_reason(KillReason("OOMKilled"))
    run.write_kill_reason(KillReason("Later"))
    assert run.kill_reason() == KillReason("OOMKilled")
    run.remove()
    assert folder.runs("main") == []


REPORTS = """
import sys, time
for number in range(1000):
    print('{"progress": {"step": %d}}' % number)
sys.stdout.write('{"progress": {"step"')
sys.stdout.flush()
time.sleep(0.05)
print(': 1000}}')
print('{"other": "progress"}', file=sys.stderr)
print('no "progress" here')
"""


async def test_the_newest_report_of_progress_is_kept_apart(files: RunFiles) -> None:
    assert await finished(files, sys.executable, "-S", "-c", REPORTS) == 0
    assert files.progress_file.read_text() == '{"progress": {"step": 1000}}'
    assert sum(1 for _ in read_lines(files.log_file)) == 1003


async def test_a_report_is_there_while_its_program_goes_on(files: RunFiles) -> None:
    script = 'echo \'{"progress": {"step": 1}}\'; sleep 0.1; echo \'{"progress": {"step": 2}}\'; exec sleep 600'
    process = await started(files, "sh", "-c", script)
    async with asyncio.timeout(60):
        while written(files.progress_file) != '{"progress": {"step": 2}}':  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    process.kill()
    await process.wait()


async def test_a_bar_that_overwrites_itself_is_there_until_its_line_ends(files: RunFiles) -> None:
    script = """
printf '\\r 1%%|#   |' >&2; printf '\\r50%%|##  |' >&2; echo a line of stdout
while [ ! -e next ]; do sleep 0.01; done; echo >&2
while [ ! -e end ]; do sleep 0.01; done
printf '\\r99%%|### |' >&2
"""
    process = await started(files, "sh", "-c", script)
    async with asyncio.timeout(60):
        while written(files.bar_file) != "50%|##  |":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        (files.folder.parent / "next").touch()
        while files.bar_file.exists():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        (files.folder.parent / "end").touch()
        await process.wait()
    assert not files.bar_file.exists()
    # The log is what the program wrote.
    texts = {line.text for line in read_lines(files.log_file)}
    assert {b"\r 1%|#   |\r50%|##  |", b"a line of stdout", b"\r99%|### |"} <= texts


async def test_a_program_without_reports_has_no_file_of_them(files: RunFiles) -> None:
    await finished(files, "echo", "hello")
    assert not files.progress_file.exists()


async def test_a_frozen_process_stands_still_and_goes_on(files: RunFiles) -> None:
    process = await started(files, "sleep", "600")
    process.send_signal(signal.SIGSTOP)
    async with asyncio.timeout(60):
        while psutil.Process(process.pid).status() != psutil.STATUS_STOPPED:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    process.send_signal(signal.SIGCONT)
    async with asyncio.timeout(60):
        while psutil.Process(process.pid).status() == psutil.STATUS_STOPPED:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    process.kill()
    await process.wait()
    process.send_signal(signal.SIGSTOP)


def marked_process(mark: str) -> subprocess.Popen[bytes]:
    """A process in a session of its own that carries the mark of a container."""
    return subprocess.Popen(["sleep", "99"], env={**os.environ, MARK_VARIABLE: mark}, start_new_session=True)


@pytest.fixture
def processes(each_host: str) -> shim.ProcFolder | shim.PsutilProcesses:
    """How the shim looks at processes on this host."""
    return shim.ProcFolder() if each_host == "linux" else shim.PsutilProcesses("")


async def test_strays_are_killed_until_none_is_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, processes: shim.ProcFolder | shim.PsutilProcesses
) -> None:
    mark, kill = f"slow-{tmp_path}", os.kill
    calls: list[int] = []

    def slow_kill(pid: int, number: int) -> None:
        calls.append(pid)
        if len(calls) > 20:
            kill(pid, number)

    with marked_process(mark) as stray:
        # A program that is just being started shows no variables yet.
        await wait_until(lambda: processes.has_mark(stray.pid, f"{MARK_VARIABLE}={mark}", 0))
        monkeypatch.setattr("gangline.node.runtime.shim.os.kill", slow_kill)
        shim.kill_strays({0: f"{MARK_VARIABLE}={mark}"}, processes)
        assert not living(stray.pid)
        monkeypatch.undo()
    assert stray.returncode == -signal.SIGKILL


def test_the_exit_waits_for_the_last_process_of_the_group(
    monkeypatch: pytest.MonkeyPatch, processes: shim.ProcFolder | shim.PsutilProcesses
) -> None:
    with subprocess.Popen(["sleep", "99"], start_new_session=True) as process:
        polls: list[float] = []

        def sleep(seconds: float) -> None:
            polls.append(seconds)
            if len(polls) > 300:
                process.kill()
                process.wait()

        monkeypatch.setattr("gangline.node.runtime.shim.time.sleep", sleep)
        shim.wait_for_group(process.pid, processes)
        assert not living(process.pid)


async def test_processes_of_a_lost_run_are_ended(tmp_path: Path) -> None:
    mark = f"lost-{tmp_path}"
    with marked_process(mark) as stray, marked_process(f"{mark}-other") as other:
        await end_strays({mark}, CLOCK)
        assert not living(stray.pid)
        assert living(other.pid)
        other.kill()
