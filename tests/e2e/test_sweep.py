"""`gangline sweep` as a person types it."""

import csv
import json
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from support.terminal import PtyTerminal

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "sweep.md").read_text()
COMMANDS = re.findall(r"^ *\$ (gangline sweep .*)$", PAGE, re.MULTILINE)
SVG = "{http://www.w3.org/2000/svg}"

# Says how many run at once, fails for a bad value, and needs a while for another. Two wait for each other.
PROGRAM = """\
import os, sys, time
from pathlib import Path
from gangline.progress import report

value, here, pair = sys.argv[1], Path("here"), Path("pair")
mine = here / os.environ["GANGLINE_TRIAL"]
mine.touch()
report(step=1, total=2, together=len(list(here.iterdir())))
if value == "bad":
    mine.unlink()
    sys.exit("this value is no good")
while value == "long":
    time.sleep(0.05)
if value in ("one", "other"):
    (pair / value).touch()
    while len(list(pair.iterdir())) < 2:
        time.sleep(0.01)
end = time.monotonic() + 0.2
while time.monotonic() < end:
    time.sleep(0.01)
report(step=2, total=2, together=len(list(here.iterdir())))
Path(os.environ["GANGLINE_ARTIFACTS"], "weights").write_text(value)
mine.unlink()
"""


def gangline(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gangline", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, timeout=100)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "here").mkdir()
    (tmp_path / "pair").mkdir()
    return tmp_path


def sweep(values: str, *more: str) -> list[str]:
    aim = ("--metric", "together", "--goal", "max")
    return ["sweep", "--nproc", "1", *aim, "--set", f"x={values}", *more, "--", "python", "train.py", "{x}"]


def rows(folder: Path, job: str = "train") -> list[dict[str, str]]:
    with (folder / "runs" / f"{job}-sweep" / "sweep.csv").open() as file:
        return list(csv.DictReader(file))


def test_trials_queue_and_their_table_picture_and_logs_are_kept(folder: Path) -> None:
    done = gangline(*sweep("one,other,bad,c", "--parallel", "2"), cwd=folder)
    assert done.returncode == 0, done.stderr
    table = [line.split(maxsplit=6) for line in done.stdout.splitlines()]
    assert table[0] == ["RANK", "TRIAL", "x", "TOGETHER", "STATE", "TIME", "CAUSE"]
    assert [row[0] for row in table[1:]] == ["1", "2", "3", "-"]
    assert table[4][:5] == ["-", "3", "bad", table[4][3], "Failed"]
    assert "exit code 1" in done.stdout.splitlines()[4]
    # Never more than two at a time, and at some time two.
    reported = [
        int(found)
        for log in folder.glob("runs/train-sweep/trial-*/master-0.log")
        for found in re.findall(r'"together": (\d+)', log.read_text())
    ]
    assert max(reported) == 2
    assert [(row["trial"], row["state"], row["x"]) for row in rows(folder)] == [
        ("1", "Succeeded", "one"),
        ("2", "Succeeded", "other"),
        ("3", "Failed", "bad"),
        ("4", "Succeeded", "c"),
    ]
    picture = ET.parse(folder / "runs" / "train-sweep" / "sweep.svg").getroot()
    legend = [each.text or "" for each in picture.iter(f"{SVG}text")][-3:]
    assert {each.split()[0] for each in legend} == {"x=one", "x=other", "x=c"}
    job = json.loads((folder / "runs" / "train-sweep" / "trial-4" / "job.json").read_text())
    assert job["status"]["conditions"][-1]["type"] == "Succeeded"
    made = {file.read_text(): file.parts[-3] for file in folder.glob("runs/train-sweep/*/artifacts/weights")}
    assert made == {"one": "trial-1", "other": "trial-2", "c": "trial-4"}
    assert not (folder / "runs/train-sweep/trial-3/artifacts").exists()
    assert len(re.findall(r"^trial \d of 4  x=\w+  Running$", done.stderr, re.MULTILINE)) == 4
    assert "this value is no good" in (folder / "runs/train-sweep/trial-3/master-0.log").read_text()


def test_when_none_succeeds_the_exit_code_is_100_and_a_slow_one_is_given_up(folder: Path) -> None:
    done = gangline(*sweep("long", "--timeout", "1", "-o", "json"), cwd=folder)
    assert done.returncode == 100, done.stderr
    told = json.loads(done.stdout)
    assert told["best"] is None
    (trial,) = told["trials"]
    assert (trial["parameters"], trial["state"]) == ({"x": "long"}, "TimedOut")
    assert trial["cause"].startswith("not finished after 1 s")


def test_on_a_terminal_the_board_fills_and_an_interrupt_keeps_what_was_done(folder: Path) -> None:
    state = folder / "tmp"
    state.mkdir()
    command = [sys.executable, "-m", "gangline", *sweep("a,long,b")]
    with PtyTerminal(command, cwd=folder, env={"TMPDIR": str(state)}) as terminal:
        terminal.wait_for(
            lambda text: (
                re.search(r"1 +1 +a +1 +Succeeded[^\n]*\n- +2 +long +1 +Running 50%", text)
                and "1 of 3 trials done · 1 running · highest together" in text
            )
        )
        terminal.press_keys("\x03")
        assert terminal.wait_for_exit() == 130
    text = terminal.screen.text
    assert "Traceback" not in text
    assert re.search(r"^RANK +TRIAL +x", text, re.MULTILINE)
    assert "stopped; no process is left" in text
    assert [row["state"] for row in rows(folder)] == ["Succeeded", "Stopped", "Queued"]
    end = time.monotonic() + 60
    while list(state.iterdir()) and time.monotonic() < end:
        time.sleep(0.05)
    assert not list(state.iterdir())
    assert not [each for each in _working_folders() if str(folder) in each]


SAVES = """\
import signal, sys, threading
def save(*_):
    # Longer than a process gets that only has to end.
    threading.Event().wait(1)
    open("saved", "w").close()
    sys.exit()
signal.signal(signal.SIGTERM, save)
open("ready", "w").close()
while True:
    signal.pause()
"""


def test_a_trial_has_time_to_save_its_state_after_an_interrupt(tmp_path: Path) -> None:
    (tmp_path / "saves.py").write_text(SAVES)
    command = ["sweep", "--nproc", "1", "--set", "x=1,2", "--", sys.executable, "saves.py", "{x}"]
    with PtyTerminal([sys.executable, "-m", "gangline", *command], cwd=tmp_path) as terminal:
        terminal.wait_for(lambda _: (tmp_path / "ready").exists())
        terminal.press_keys("\x03")
        assert terminal.wait_for_exit() == 130
    assert (tmp_path / "saved").exists()


def _working_folders() -> list[str]:
    """The folders in which processes of this machine work."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found.append(str((process / "cwd").readlink()))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_what_the_page_types_works(command: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    program = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert program is not None
    (tmp_path / "train.py").write_text(program[1])
    done = gangline(*shlex.split(command)[1:], cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("RANK   TRIAL   ")
    assert "\n1      " in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["job.yaml"], "nothing to try; write: --set lr=0.1,0.01"),
        (["--set", "a=1,2"], "expected one FILE; or for a script: gangline sweep --nproc 2"),
        (["job.yaml", "--set", "a=1..2"], "say how many: --random 20"),
        (["job.yaml", "--set", "a=1,2", "--parallel", "0"], "--parallel 0: expected 1 or more"),
        (["nowhere.yaml", "--set", "a=1,2"], "nowhere.yaml: No such file or directory"),
        (["--nproc", "1", "--set", "x.y=1", "--", "true"], "a path begins with spec. or metadata."),
    ],
)
def test_bad_input_is_one_line_and_exit_code_1(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    from gangline.cli.main import run

    assert run(["sweep", *words]) == 1
    errors = capsys.readouterr().err
    assert errors.startswith("error: ")
    assert told in errors
    assert len(errors.splitlines()) == 1


def test_a_job_that_the_server_refuses_is_told_once_and_no_trial_is_begun(folder: Path) -> None:
    container = {"name": "tensorflow", "image": "none", "command": ["touch", "begun"]}
    chief = {"replicas": 2, "template": {"spec": {"containers": [container]}}}
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "bad"},
        "spec": {"tfReplicaSpecs": {"Chief": chief}},
    }
    (folder / "bad.yaml").write_text(json.dumps(body, indent=1))
    kept = folder / "runs" / "bad-sweep" / "sweep.csv"
    kept.parent.mkdir(parents=True)
    kept.write_text("of an earlier sweep")
    mistake = "is 2; write 1, for TensorFlow knows one chief"
    done = gangline("sweep", "bad.yaml", "--set", "lr=1,2,3", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: bad.yaml:10: spec.tfReplicaSpecs.Chief.replicas: {mistake}\n"
    # A value that only a later trial has is found before the first one, too.
    done = gangline("sweep", "bad.yaml", "--set", "spec.tfReplicaSpecs.Chief.replicas=1,2", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: --set spec.tfReplicaSpecs.Chief.replicas=2: bad.yaml:10: ")
    assert not (folder / "begun").exists()
    assert kept.read_text() == "of an earlier sweep"
