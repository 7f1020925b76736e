"""Real programs that hang are found by themselves, with the rank that holds the others up. Quiet ones are left alone."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gangline.stacks.pyspy import find_py_spy
from support.frameworks import FrameworkEnvironments, JobRunner
from support.health.programs import FRAMEWORK_HANGS, PLAIN_HANGS, QUIET_PROGRAMS, HangProgram
from support.requirements import skip_or_fail

pytestmark = [pytest.mark.faults, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

FLOOR = ("--hung-after", "6s", "--no-dashboard")
"""A sixth of the usual time and less: the watch samples more often, too."""

TURNS = int(os.environ.get("GANGLINE_QUIET_TURNS", "1"))
"""How often each quiet program is run; `make test-soak` runs each of them often."""


@pytest.fixture(autouse=True)
def py_spy() -> None:
    if not find_py_spy():
        skip_or_fail("py-spy not found: pip install 'gangline[stacks]'", required="GANGLINE_REQUIRE_FRAMEWORKS")


def found_stall(folder: Path, program: HangProgram, python: str) -> tuple[str, str]:
    """Run the program until it is found to hang; the states of the job that were shown by then, and the message."""
    (folder / "program.py").write_text(program.text)
    with JobRunner(folder).start_command(*FLOOR, *program.words, "--", python, "program.py") as job:
        job.wait_for_line(r"^\w+/program  Stalled$")
        return job.wait_for_line(r"JobStalled: no progress for (\d+ s): (.*)").groups()  # type: ignore[return-value]


@pytest.mark.parametrize("name", PLAIN_HANGS)
def test_a_program_that_hangs_is_found(tmp_path: Path, name: str) -> None:
    program = PLAIN_HANGS[name]
    seconds, message = found_stall(tmp_path, program, sys.executable)
    assert re.search(program.message, message), message
    assert int(seconds.split()[0]) <= 60


@pytest.mark.frameworks
@pytest.mark.parametrize("name", FRAMEWORK_HANGS)
def test_a_framework_that_hangs_is_found(tmp_path: Path, name: str) -> None:
    program = FRAMEWORK_HANGS[name]
    python = str(FrameworkEnvironments().environment(program.group) / "bin" / "python")
    _, message = found_stall(tmp_path, program, python)
    assert re.search(program.message, message), message


@pytest.mark.parametrize("turn", range(TURNS))
@pytest.mark.parametrize("name", QUIET_PROGRAMS)
def test_a_quiet_program_is_left_alone(tmp_path: Path, name: str, turn: int) -> None:
    (tmp_path / "program.py").write_text(QUIET_PROGRAMS[name])
    output = JobRunner(tmp_path).run_command(*FLOOR, "--nproc", "2", "--", sys.executable, "program.py")
    assert "Stalled" not in output.text


def test_a_machine_that_was_suspended_shows_no_hang(tmp_path: Path) -> None:
    """All processes are stopped for longer than the floor, the watcher's too, and go on."""
    (tmp_path / "program.py").write_text(QUIET_PROGRAMS["it-computes-without-a-word"])
    with JobRunner(tmp_path).start_command(*FLOOR, "--nproc", "2", "--", sys.executable, "program.py") as job:
        job.wait_for_line("step 3")
        pids = own_processes(str(tmp_path))
        assert len(pids) >= 3
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in pids:
                os.kill(pid, number)
            if number is signal.SIGSTOP:
                subprocess.run(["sleep", "20"], check=True)
        assert "Stalled" not in job.wait_for_exit(0).text


def own_processes(folder: str) -> list[int]:
    """All processes that run in a folder: the command, the shims, the ranks."""
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if str((entry / "cwd").readlink()).startswith(folder):
                    pids.append(int(entry.name))
            except OSError:
                continue
    return pids
