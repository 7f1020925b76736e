"""One's own torch script on a real terminal: it trains, crashes, hangs, lacks a package, uses too much memory.

Each ends with a screen that says what happened, to which rank, and what to type next.
"""

import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from support.frameworks import FrameworkEnvironments
from support.terminal import PtyTerminal

ROOT = Path(__file__).parents[2]
GANGLINE = (sys.executable, "-m", "gangline")
PATIENCE = 200.0

TEAM = """
import time, torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
"""
CRASH = f"""{TEAM}
for step in range(100):
    if rank == 1 and step == 5:
        raise ValueError("shapes do not match")
    dist.all_reduce(torch.ones(3))
"""
HANG = f"""{TEAM}
print("ready", flush=True)
if rank == 1:
    time.sleep(100_000)
dist.all_reduce(torch.ones(3))
"""
TOO_MUCH_MEMORY = f"""{TEAM}
kept = []
for step in range(1000):
    if rank == 1:
        kept.append(torch.ones(25_000_000))
    dist.all_reduce(torch.ones(3))
"""


@pytest.fixture
def torch_python(frameworks: FrameworkEnvironments) -> str:
    return str(frameworks.environment("torch") / "bin" / "python")


def last_screen(folder: Path, program: str, *options: str, python: str, code: int) -> str:
    """What the terminal shows after a run of the program by two ranks."""
    (folder / "mine.py").write_text(program)
    words = (*GANGLINE, "run", "--nproc", "2", *options, "--", python, "mine.py")
    with PtyTerminal(words, cwd=folder, size=(40, 120)) as terminal:
        assert terminal.wait_for_exit(PATIENCE) == code, terminal.screen.text
    return terminal.screen.text


def explanation(folder: Path) -> str:
    """What `gangline why` prints of the run."""
    done = subprocess.run([*GANGLINE, "why", "mine"], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_script_trains(torch_python: str, tmp_path: Path) -> None:
    program = (ROOT / "examples" / "frameworks" / "train_torch.py").read_text()
    screen = last_screen(tmp_path, program, python=torch_python, code=0)
    assert re.search(r"✔ Succeeded in \d", screen)
    assert "loss" in screen


def test_a_crash_is_that_of_the_rank_which_crashed(torch_python: str, tmp_path: Path) -> None:
    screen = last_screen(tmp_path, CRASH, python=torch_python, code=100)
    assert "first to fail: worker-0 (rank 1) with exit code 1" in screen
    assert re.search(r"worker-0\| .*ValueError: shapes do not match", screen)
    assert "worker-0 (rank 1) stopped with ValueError: shapes do not match" in explanation(tmp_path)


def test_a_package_that_is_not_installed_is_named_with_the_command_that_installs_it(
    frameworks: FrameworkEnvironments, tmp_path: Path
) -> None:
    frameworks.environment("torch")  # this tier is wanted; the Python that runs the tests has no torch
    screen = last_screen(tmp_path, CRASH, python=sys.executable, code=100)
    assert "torch is not installed in this Python" in screen
    assert re.search(r"install it: \S*python\S* -m pip install torch", screen.replace("\n", " "))


def test_a_rank_that_uses_too_much_memory_is_named(torch_python: str, tmp_path: Path) -> None:
    screen = last_screen(tmp_path, TOO_MUCH_MEMORY, "--limit", "memory=1Gi", python=torch_python, code=100)
    assert "first to fail: worker-0 (rank 1) with exit code 137 (OOMKilled)" in screen
    text = explanation(tmp_path)
    assert "worker-0 (rank 1) was killed for using too much memory" in text
    assert "--limit memory=2Gi" in text


def test_a_hang_is_noticed_while_it_lasts(torch_python: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(HANG)
    words = (*GANGLINE, "run", "--nproc", "2", "--", torch_python, "mine.py")
    with PtyTerminal(words, cwd=tmp_path, size=(40, 120)) as terminal:
        terminal.wait_for(lambda seen: "no sign of life for" in seen, PATIENCE)
        # What the screen says to type, in another terminal.
        text = explanation(tmp_path)
        terminal.press_keys("\x03")
        terminal.wait_for_exit()
    assert re.search(r"Cause +master-0 \(rank 0\) and worker-0 \(rank 1\) hang: no line and no CPU", text), text
    assert "stopped; no process is left" in terminal.screen.text


def test_a_function_that_is_typed_into_python_trains(torch_python: str, tmp_path: Path) -> None:
    packages = (str(ROOT / "src"), sysconfig.get_paths()["purelib"])
    env = {"PYTHONPATH": os.pathsep.join(packages), "PYTHON_HISTORY": str(tmp_path / "history")}
    with PtyTerminal((torch_python, "-q"), cwd=tmp_path, env=env, size=(40, 120)) as terminal:
        terminal.wait_for(lambda seen: seen.endswith(">>>"))
        for line in (
            "import gangline",
            "def total():",
            "    import torch, torch.distributed as dist",
            "    dist.init_process_group('gloo')",
            "    ones = torch.ones(2)",
            "    dist.all_reduce(ones)",
            "    return ones.tolist()",
            "",
            "print('sum is', gangline.train(total, replicas=2, local=True).result())",
        ):
            terminal.press_keys(line + "\n")
        terminal.wait_for(lambda seen: "sum is [2.0, 2.0]" in seen, PATIENCE)
        terminal.press_keys("exit()\n")
        assert terminal.wait_for_exit() == 0
    assert "Traceback" not in terminal.screen.text
