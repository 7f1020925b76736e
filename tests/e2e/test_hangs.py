"""Real programs that hang are found by themselves, with the rank that holds the others up. Quiet ones are left alone."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import pytest

from gangline.stacks.pyspy import find_py_spy
from support.frameworks import FrameworkEnvironments, JobRunner
from support.health.programs import (
    FRAMEWORK_HANGS,
    LONG_PROGRAMS,
    PLAIN_HANGS,
    QUIET_PROGRAMS,
    HangProgram,
    QuietProgram,
)
from support.requirements import skip_or_fail

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

SHORT_FLOOR = ("--hung-after", "6s")
"""A tenth of the usual time: the watch samples more often, too."""

TURNS = int(os.environ.get("GANGLINE_QUIET_TURNS", "1"))
"""How often each quiet program is run; `make test-soak` runs each of them often."""
LONG_TURNS = int(os.environ.get("GANGLINE_LONG_TURNS", "0"))
"""How often each program is run that is quiet for minutes."""
SUSPENDED_SECONDS = {SHORT_FLOOR: 20, (): 180}


@pytest.fixture(autouse=True)
def py_spy() -> None:
    if not find_py_spy():
        skip_or_fail("py-spy not found: pip install 'gangline[stacks]'", required="GANGLINE_REQUIRE_FRAMEWORKS")


def words_of(folder: Path, program: HangProgram | QuietProgram) -> tuple[str, ...]:
    """What to write behind `gangline run` for a program, whose files are put into a folder."""
    environment = FrameworkEnvironments().environment(program.group)
    (folder / "program.py").write_text(program.text)
    if not program.job:
        return ("--no-dashboard", *program.words, "--", str(environment / "bin" / "python"), "program.py")
    (folder / "program.yaml").write_text(program.job)
    (folder / "images.yaml").write_text(f'"gangline/examples*":\n  environment: {environment}\n')
    return ("--no-dashboard", "--images", "images.yaml", "program.yaml")


def assert_found(folder: Path, program: HangProgram) -> None:
    """Run the program until it is found to hang: the rank, where it stands, and the reason are right."""
    floor = () if program.is_usual else SHORT_FLOOR
    with JobRunner(folder).start_command(*floor, *words_of(folder, program)) as job:
        job.wait_for_line(r"^\w+/program  Stalled$")
        seconds, message = job.wait_for_line(r"JobStalled: no progress for (\d+) s: (.*)").groups()
        (found,) = listed_jobs(folder)
        busy = busiest_process(folder)
    assert re.search(program.message, message), message
    condition = next(one for one in found["status"]["conditions"] if one["type"] == "Stalled")
    assert (condition["status"], condition["reason"]) == ("True", program.reason), condition
    assert int(seconds) <= (120 if program.is_usual else 60)
    # A rank that waits quietly uses less than a hundredth of a core, whatever else the machine has to do.
    assert not program.spins or busy >= int(seconds) / 50


def listed_jobs(folder: Path) -> list[Any]:
    """The jobs of a run, as another terminal sees them."""
    command = [sys.executable, "-m", "gangline", "get", "jobs", "--output", "json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    jobs: list[Any] = json.loads(done.stdout)["items"]
    return jobs


def busiest_process(folder: Path) -> float:
    """The CPU seconds of the rank that used most."""
    used = 0.0
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            places = (process.cwd(), *process.environ().values())
            if process.cmdline()[-1:] == ["program.py"] and any(str(folder) in place for place in places):
                times = process.cpu_times()
                used = max(used, times.user + times.system)
    return used


@pytest.mark.faults
@pytest.mark.parametrize("name", PLAIN_HANGS)
def test_a_program_that_hangs_is_found(tmp_path: Path, name: str) -> None:
    assert_found(tmp_path, PLAIN_HANGS[name])


@pytest.mark.frameworks
@pytest.mark.parametrize("name", FRAMEWORK_HANGS)
def test_a_framework_that_hangs_is_found(tmp_path: Path, name: str) -> None:
    assert_found(tmp_path, FRAMEWORK_HANGS[name])


@pytest.fixture
def slow_server(tmp_path: Path) -> Iterator[None]:
    """A server from which a few bytes come now and then. Its address is in the file `url`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), SlowHandler)
    (tmp_path / "url").write_text(f"http://127.0.0.1:{server.server_port}/")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield
    server.shutdown()
    thread.join()
    server.server_close()


class SlowHandler(BaseHTTPRequestHandler):
    """Sends a thousand bytes ten times a second for 25 seconds."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        for _ in range(250):
            self.wfile.write(b"x" * 1000)
            time.sleep(0.1)

    def log_message(self, *_: object) -> None:
        pass


def marked(programs: Mapping[str, QuietProgram]) -> list[Any]:
    """The names of the programs, each as a test of its tier."""
    return [
        pytest.param(name, marks=pytest.mark.frameworks if program.group else pytest.mark.faults)
        for name, program in programs.items()
    ]


@pytest.mark.parametrize("turn", range(TURNS))
@pytest.mark.parametrize("name", marked(QUIET_PROGRAMS))
@pytest.mark.usefixtures("slow_server")
def test_a_quiet_program_is_left_alone(tmp_path: Path, name: str, turn: int) -> None:
    words = words_of(tmp_path, QUIET_PROGRAMS[name])
    with JobRunner(tmp_path).start_command(*SHORT_FLOOR, *words) as job:
        assert "Stalled" not in job.wait_for_exit(0).text


@pytest.mark.skipif(not LONG_TURNS, reason="takes ten minutes: make test-soak")
@pytest.mark.parametrize("turn", range(max(1, LONG_TURNS)))
@pytest.mark.parametrize("name", marked(LONG_PROGRAMS))
@pytest.mark.timeout(3600)
def test_a_program_that_is_quiet_for_minutes_is_left_alone(tmp_path: Path, name: str, turn: int) -> None:
    words = words_of(tmp_path, LONG_PROGRAMS[name])
    with JobRunner(tmp_path).start_command("--timeout", "3000", *words) as job:
        assert "Stalled" not in job.wait_for_exit(0, seconds=3100).text


@pytest.mark.faults
@pytest.mark.parametrize("floor", [SHORT_FLOOR] * TURNS + [()] * LONG_TURNS)
@pytest.mark.timeout(600)
def test_a_machine_that_was_suspended_shows_no_hang(tmp_path: Path, floor: tuple[str, ...]) -> None:
    """All processes are stopped for longer than the floor, the watcher's too, and go on."""
    words = words_of(tmp_path, QUIET_PROGRAMS["it-computes-without-a-word"])
    with JobRunner(tmp_path).start_command("--timeout", "500", *floor, *words) as job:
        job.wait_for_line("step 3")
        pids = own_processes(str(tmp_path))
        assert len(pids) >= 3
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in pids:
                os.kill(pid, number)
            if number is signal.SIGSTOP:
                subprocess.run(["sleep", str(SUSPENDED_SECONDS[floor])], check=True)
        assert "Stalled" not in job.wait_for_exit(0, seconds=500).text


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
