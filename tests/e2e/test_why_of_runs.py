"""`gangline why` beside a `gangline run` and after it: what a person types who has no server at all."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import yaml

from gangline.api.meta import JSON
from support.cases.why_faults import fault_job

pytestmark = pytest.mark.slow

DEADLINE = 60.0
HANGING = "import threading; print('up', flush=True); threading.Event().wait()"
Gangline = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A machine of its own: no kubeconfig, no plane, no earlier run."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}
    return {**inherited, "HOME": str(tmp_path), "GANGLINE_HOME": str(tmp_path / "state")}


@pytest.fixture
def gangline(tmp_path: Path, env: dict[str, str]) -> Gangline:
    def typed(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "gangline", *words]
        return subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=DEADLINE)

    return typed


@contextmanager
def running(folder: Path, env: dict[str, str], program: str, *flags: str) -> Iterator["subprocess.Popen[str]"]:
    """A `gangline run` of a program, until the end of the block."""
    (folder / "train.py").write_text(program)
    command = [sys.executable, "-m", "gangline", "run", *flags, "--", sys.executable, "train.py"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=folder
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE)


def answer(gangline: Gangline, *words: str, until: Callable[[JSON], bool]) -> JSON:
    """The report of `why` as soon as it says what is awaited, else the last one."""
    deadline = time.monotonic() + DEADLINE
    while True:
        done = gangline("why", "train", "-o", "json", *words)
        report: JSON = msgspec.json.decode(done.stdout) if done.stdout else {}
        if (report and until(report)) or time.monotonic() > deadline:
            return report


def test_a_hang_is_found_while_the_run_goes_on(tmp_path: Path, env: dict[str, str], gangline: Gangline) -> None:
    with running(tmp_path, env, HANGING, "--nproc", "2"):
        report = answer(gangline, "--hung-after", "1s", until=lambda found: not found["healthy"])
    assert [cause["rule"] for cause in report["causes"]] == ["hung"]
    assert report["cause"].startswith("master-0 (rank 0) and worker-0 (rank 1) hang: ")
    assert report["unread"] == []


def test_after_the_run_it_is_said_that_a_hang_cannot_be_seen(
    tmp_path: Path, env: dict[str, str], gangline: Gangline
) -> None:
    with running(tmp_path, env, HANGING, "--nproc", "2"):
        # Longer than below: the time of the end is recorded in whole seconds.
        answer(gangline, "--hung-after", "3s", until=lambda found: not found["healthy"])
    done = gangline("why", "train", "--hung-after", "1s")
    assert done.returncode == 0
    assert "Cause     the run was interrupted before the job had ended." in done.stdout
    assert "does it hang? type this while it runs: " in done.stdout
    assert "CPU use of the pods: the run has ended" in done.stdout


LEAVING = """
import os, threading
print("up", flush=True)
if os.environ["RANK"] == "0":
    threading.Event().wait()
"""


def test_a_team_that_waits_for_one_who_has_left_in_peace_says_so(
    tmp_path: Path, env: dict[str, str], gangline: Gangline
) -> None:
    with running(tmp_path, env, LEAVING, "--nproc", "2"):
        report = answer(gangline, "--hung-after", "1s", until=lambda found: not found["healthy"])
    assert [cause["rule"] for cause in report["causes"]] == ["peer-finished"]
    assert report["cause"] == "master-0 (rank 0) waits for worker-0 (rank 1), which has ended with exit code 0."


def test_a_script_that_failed_is_run_again_by_its_own_command(
    tmp_path: Path, env: dict[str, str], gangline: Gangline
) -> None:
    (tmp_path / "train.py").write_text("import nowhere_to_be_found")
    words = ("run", "--nproc", "2", "--", sys.executable, "train.py")
    assert gangline(*words).returncode == 100
    report: JSON = msgspec.json.decode(gangline("why", "train", "-o", "json").stdout)
    assert report["causes"][0]["rule"] == "module-missing"
    assert f"install it: {sys.executable} -m pip install nowhere_to_be_found" in report["next"]
    assert f"run it again after the change: gangline {' '.join(words)}" in report["next"]
    assert not any("kubectl" in step or "FILE" in step for step in report["next"])


def test_a_job_that_its_ttl_removed_is_remembered(tmp_path: Path, env: dict[str, str], gangline: Gangline) -> None:
    file = tmp_path / "brief.yaml"
    body = fault_job("brief", "sh", "-c", "exit 4", run={"ttlSecondsAfterFinished": 0})
    file.write_text(yaml.safe_dump(body))
    assert gangline("up", "--detach").returncode == 0
    try:
        assert gangline("apply", "-f", str(file)).returncode == 0
        deadline = time.monotonic() + DEADLINE
        while (done := gangline("why", "brief")).stdout or "removed" not in done.stderr:
            assert time.monotonic() < deadline, done
    finally:
        gangline("down")
    assert done.returncode == 102
    assert "the operator removed it at " in done.stderr
    assert "ttlSecondsAfterFinished" in done.stderr
    assert "exited with code 4" in done.stderr
