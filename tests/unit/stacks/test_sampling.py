"""Real processes are sampled: Python and others, whole trees, stopped ones, and those that cannot be read."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from gangline.stacks.compare import unmoved
from gangline.stacks.groups import main_processes, stack_groups
from gangline.stacks.model import RankStack
from gangline.stacks.own_dumps import parse_dump
from gangline.stacks.pyspy import decode_dump, failure_text, find_py_spy, permission_hint
from gangline.stacks.sampling import SampleTarget, sample_processes
from gangline.stacks.sentence import stacks_sentence
from support.waiting import wait_until_blocking

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a program that prints a line when it stands where it will stay, and ends it with the test."""
    with ExitStack() as stack:

        def run(*words: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                words,
                env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
                cwd=cwd,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            stack.callback(process.wait)
            stack.callback(os.killpg, process.pid, signal.SIGKILL)
            assert process.stdout is not None
            stack.callback(process.stdout.close)
            assert process.stdout.readline().strip() == b"ready"
            return process

        yield run


def program(folder: Path, text: str, name: str = "train.py") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def target(process: subprocess.Popen[bytes], number: int = 0, mark: str = "") -> SampleTarget:
    return SampleTarget(f"worker-{number}", number, f"job-worker-{number}", process.pid, mark)


def sample(*targets: SampleTarget, **options: object) -> tuple[RankStack, ...]:
    async def run() -> tuple[RankStack, ...]:
        return await sample_processes(targets, **options)  # type: ignore[arg-type]

    return asyncio.run(run())


def standing(expected: str, *targets: SampleTarget) -> tuple[RankStack, ...]:
    """A sample of processes once their sentence is the expected one: they need a moment to get there."""
    sentences = [""]

    def arrived() -> tuple[RankStack, ...]:
        stacks = sample(*targets)
        sentences.append(stacks_sentence(stack_groups(stacks)))
        return stacks if sentences[-1] == expected else ()

    try:
        return wait_until_blocking(arrived, seconds=20)
    except AssertionError:
        raise AssertionError(f"{sentences[-1]!r} instead of {expected!r}") from None


SLEEPS = "worker-0 (rank 0) sleeps (train.py:3)"
SLEEPER = """\
import time
def load():
    time.sleep(600)
print("ready")
load()
"""


def test_py_spy_is_installed_for_the_tests() -> None:
    assert find_py_spy(), "py-spy is missing: it is in requirements/dev.txt"


def test_a_python_program_is_read_with_its_source_lines(start: Start, tmp_path: Path) -> None:
    one = target(start(sys.executable, program(tmp_path, SLEEPER), env={"RANK": "5"}))
    stacks = standing("worker-0 (rank 5) sleeps (train.py:3)", one)
    frames = stacks[0].processes[0].threads[0].frames
    assert [(frame.function, frame.line, frame.code) for frame in frames] == [
        ("load", 3, "time.sleep(600)"),
        ("<module>", 5, "load()"),
    ]
    assert stacks[0].processes[0].source == "py-spy"


def test_a_program_behind_a_shell_is_the_one_that_counts(start: Start, tmp_path: Path) -> None:
    file = program(tmp_path, SLEEPER)
    one = target(start("bash", "-c", f"{sys.executable} {file}; echo end"))
    stacks = standing(SLEEPS, one)
    assert [process.source for process in stacks[0].processes] == ["proc", "py-spy"]


def test_threads_in_a_deadlock(start: Start, tmp_path: Path) -> None:
    text = """\
import threading
a, b, both = threading.Lock(), threading.Lock(), threading.Barrier(3)
def one():
    with a:
        both.wait()
        b.acquire()
def two():
    with b:
        both.wait()
        a.acquire()
threads = [threading.Thread(target=one), threading.Thread(target=two)]
for thread in threads:
    thread.start()
both.wait()
print("ready")
for thread in threads:
    thread.join()
"""
    standing("worker-0 (rank 0) waits for a lock (train.py:6)", target(start(sys.executable, program(tmp_path, text))))


def test_a_file_lock(start: Start, tmp_path: Path) -> None:
    text = """\
import fcntl
first, second = open("lock", "w"), open("lock", "w")
fcntl.flock(first, fcntl.LOCK_EX)
print("ready")
fcntl.flock(second, fcntl.LOCK_EX)
"""
    one = target(start(sys.executable, program(tmp_path, text), cwd=tmp_path))
    standing("worker-0 (rank 0) waits for a file lock (train.py:5)", one)


def test_a_program_that_spins_stands_where_it_stands(start: Start, tmp_path: Path) -> None:
    text = 'import re\nprint("ready")\nre.match("(a+)+$", "a" * 60 + "b")\n'
    one = target(start(sys.executable, program(tmp_path, text)))
    stacks = standing("worker-0 (rank 0) runs the main program (train.py:3)", one)
    assert stacks[0].processes[0].threads[0].active
    assert unmoved(stacks, sample(one)) == {"worker-0"}


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo ready; sleep 600; true", "sleeps (sleep 600)"),
        ("echo ready; while :; do :; done", "uses the CPU (bash -c echo ready; while :; do…)"),
    ],
)
def test_other_programs_are_read_from_the_kernel(start: Start, script: str, text: str) -> None:
    standing(f"worker-0 (rank 0) {text}", target(start("bash", "-c", script)))


def test_a_program_that_is_stopped(start: Start, tmp_path: Path) -> None:
    process = start(sys.executable, program(tmp_path, SLEEPER))
    one = target(process)
    standing(SLEEPS, one)
    process.send_signal(signal.SIGSTOP)
    wait_until_blocking(lambda: psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)
    assert stacks_sentence(stack_groups(sample(one))) == "worker-0 (rank 0) is stopped (SIGSTOP) (train.py:3)"


def test_processes_that_others_started_are_found_by_their_mark(start: Start, tmp_path: Path) -> None:
    """As with MPI: the launcher's agent starts the ranks in the pods."""
    pod = start("bash", "-c", "echo ready; exec sleep 600")
    executed = start(sys.executable, program(tmp_path, SLEEPER), env={"MARK": "one", "OMPI_COMM_WORLD_RANK": "7"})
    one = target(pod, mark="MARK=one")
    stacks = standing("worker-0 (rank 7) sleeps (train.py:3)", one)
    assert [process.pid for process in stacks[0].processes] == [pod.pid, executed.pid]
    assert [process.pid for process in main_processes(stacks[0].processes)] == [executed.pid]


def test_a_program_that_moves_has_moved(start: Start, tmp_path: Path) -> None:
    text = """\
import time
print("ready")
while True:
    for n in range(10**9):
        time.sleep(0.0001)
        m = n * n
        time.sleep(0.0001)
        m = m + n
        time.sleep(0.0001)
"""
    one = target(start(sys.executable, program(tmp_path, text)))
    moved = False
    before = sample(one)
    for _ in range(200):
        after = sample(one)
        moved = moved or unmoved(before, after) == frozenset()
        before = after
        if moved:
            break
    assert moved


def test_without_py_spy_the_kernel_says_what_a_program_waits_for(start: Start, tmp_path: Path) -> None:
    one = target(start(sys.executable, program(tmp_path, SLEEPER)))
    standing(SLEEPS, one)
    stacks = sample(one, program="")
    assert stacks[0].processes[0].error == "py-spy is not installed"
    assert stacks_sentence(stack_groups(stacks)).startswith("worker-0 (rank 0) sleeps (python")


OFFERING = """\
import time
from gangline.progress import report
report(step=1)
print("ready")
def load():
    time.sleep(600)
load()
"""


def offering(start: Start, tmp_path: Path) -> SampleTarget:
    """A program that reports progress, and so offers its stacks."""
    script = f"{sys.executable} {program(tmp_path, OFFERING)} | grep --line-buffered ready"
    return target(start("bash", "-c", script))


def test_a_program_that_reports_progress_writes_its_stacks_itself(start: Start, tmp_path: Path) -> None:
    one = offering(start, tmp_path)
    standing("worker-0 (rank 0) sleeps (train.py:6)", one)
    for _ in range(2):
        stacks = sample(one, program="")
        (main,) = main_processes(stacks[0].processes)
        assert main.source == "faulthandler"
        assert [(frame.function, frame.line) for frame in main.threads[0].frames] == [("load", 6), ("<module>", 7)]
        assert stacks_sentence(stack_groups(stacks)) == "worker-0 (rank 0) sleeps (train.py:6)"


def test_a_child_that_inherited_the_offer_is_not_mistaken_for_its_parent(start: Start, tmp_path: Path) -> None:
    text = OFFERING.replace("def load", "import os\nos.fork()\ndef load")
    one = target(start("bash", "-c", f"{sys.executable} {program(tmp_path, text)} | grep --line-buffered ready"))
    standing("worker-0 (rank 0) sleeps (train.py:8)", one)
    python = [process for process in sample(one, program="")[0].processes if "train.py" in process.command]
    assert sorted(process.source for process in python if not process.command.startswith("bash")) == [
        "faulthandler",
        "proc",
    ]


def test_a_dump_of_faulthandler_has_the_main_thread_last() -> None:
    text = """\
Thread 0x00007f1 [Thread-1 (load)] (most recent call first):
  File "/code/data.py", line 4 in load
  File "/usr/lib/python3.13/threading.py", line 994 in run

Current thread 0x00007f2 (most recent call first):
  File "/code/train.py", line ??? in step
  File "/code/train.py", line 7 in <module>
"""
    main, other = parse_dump(text, 9)
    assert (main.name, main.id, [frame.line for frame in main.frames]) == ("MainThread", 9, [0, 7])
    assert (other.name, other.frames[0].function) == ("Thread-1 (load)", "load")
    assert parse_dump("", 9) == ()


def test_a_process_that_is_gone_is_said_to_be(start: Start) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    assert sample(target(process))[0].error == "it has no process on this machine any more"


def test_a_py_spy_that_hangs_is_ended(start: Start, tmp_path: Path) -> None:
    """One that hangs must not hold up the others, and must not stay."""
    hanging = tmp_path / "py-spy"
    hanging.write_text("#!/bin/sh\necho $$ > pid\nexec sleep 600\n")
    hanging.chmod(0o755)
    one = target(start(sys.executable, program(tmp_path, SLEEPER)))
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        stacks = sample(one, program=str(hanging), timeout=timedelta(seconds=0.5))
    finally:
        os.chdir(before)
    assert stacks[0].processes[0].error == "py-spy gave no answer for 0.5 s"
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_process_of_somebody_else_says_what_to_do(start: Start, tmp_path: Path) -> None:
    errors = subprocess.run(
        [find_py_spy(), "dump", "--json", "--nonblocking", "--pid", str(os.getpid())],
        user=65534,
        capture_output=True,
        check=False,
    ).stderr.decode()
    assert failure_text(errors) == "py-spy may not read it"


@pytest.mark.parametrize(
    ("scope", "platform", "hint"),
    [
        ("1", "linux", "sudo sysctl kernel.yama.ptrace_scope=0"),
        ("0", "linux", "write sudo before the command"),
        ("", "linux", "write sudo before the command"),
        ("", "darwin", "macOS lets only root read other programs"),
    ],
)
def test_what_lets_py_spy_read_is_said(scope: str, platform: str, hint: str) -> None:
    assert hint in permission_hint(scope, platform)


def test_native_frames_can_be_had(start: Start, tmp_path: Path) -> None:
    one = target(start(sys.executable, program(tmp_path, SLEEPER)))
    standing(SLEEPS, one)
    frames = sample(one, native=True)[0].processes[0].threads[0].frames
    assert any(frame.native for frame in frames)
    assert [frame.function for frame in frames if not frame.native] == ["load", "<module>"]


def test_a_dump_is_sorted_with_the_main_thread_first() -> None:
    dump = b"""[{"pid": 9, "thread_id": 1, "thread_name": "Thread-1", "os_thread_id": 12, "active": true,
      "owns_gil": false, "frames": []},
     {"pid": 9, "thread_id": 2, "thread_name": null, "os_thread_id": 9, "active": false, "owns_gil": true,
      "frames": [{"name": "f", "filename": "a.py", "module": null, "line": 3, "locals": null}]}]"""
    assert [(one.id, one.active, one.holds_gil) for one in decode_dump(dump, 9)] == [
        (9, False, True),
        (12, True, False),
    ]
