"""`gangline run` and `gangline demo` on a real terminal: what is on the screen, and how Ctrl-C feels."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

from support.terminal import PtyTerminal
from support.waiting import wait_until_blocking

ROOT = Path(__file__).parents[2]
GANGLINE = [sys.executable, "-m", "gangline"]
JOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: small
spec:
  successPolicy: AllWorkers
  tfReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          terminationGracePeriodSeconds: 1
          containers:
            - name: tensorflow
              image: none
              command: [python, program.py]
"""


def job(folder: Path, program: str) -> Path:
    (folder / "program.py").write_text(program)
    (folder / "job.yaml").write_text(JOB)
    return folder


def test_the_demo_heals_before_the_viewers_eyes(tmp_path: Path) -> None:
    with PtyTerminal([*GANGLINE, "demo", "--pace", "0.01"], cwd=tmp_path) as terminal:
        # The state of the job comes by another way than that of its members, and either may be first.
        terminal.wait_for(
            lambda seen: (
                re.search(r"worker-0  ● running +0 restarts .*step +\d+/400 ━*╺━* +\d+ %  loss", seen)
                and re.search(r"^tfjob/linear  ps 1 · worker 3 +Running  \d\d:\d\d$", seen, re.MULTILINE)
            )
        )
        terminal.wait_for(
            lambda seen: re.search(r"worker-1  (✖ failed|◐ restart(ing|ed)) .*exit 137 \(SIGKILL\)", seen)
        )
        # The kill and the restart are marked on the timeline while the job runs.
        terminal.wait_for(lambda seen: re.search(r"^  worker-1 +[·░▆]+✖[·░×]*↻▆", seen, re.MULTILINE))
        # For two seconds it is said to be restarted; a quick one is done by then.
        terminal.wait_for(lambda seen: re.search(r"worker-1  (● running|✔ succeeded|○ stopped) +1 restart\b", seen))
        assert terminal.wait_for_exit() == 0, terminal.screen.text
    screen = terminal.screen.text
    assert re.search(r"✔ Succeeded in .* · 1 restart · loss [\d.]+ → [\d.]+\n", screen)
    # Drawn in place: however often, the block is there once.
    assert screen.count("tfjob/linear  ps 1 · worker 3") == 1
    assert re.search(r"worker-1│ back at step \d+\n", screen)
    assert re.search(
        r"^ +[\d.]+ s +✖ worker-1 +failed first: exit 137 \(SIGKILL\)\n +[\d.]+ s +└─↻ worker-1 ", screen, re.MULTILINE
    )
    assert re.search(r"^  loss \(log\) +█", screen, re.MULTILINE)
    assert screen.count("┤") == 8
    assert re.search(r"^ +✖↻\nloss from step 1 to 400, logarithmic$", screen, re.MULTILINE)
    assert '"progress"' not in screen
    assert (tmp_path / "runs" / "linear" / "loss.svg").is_file()
    assert (tmp_path / "runs" / "linear" / "timeline.svg").is_file()


def test_the_timeline_of_a_job_is_shown_while_it_runs_and_afterwards(tmp_path: Path) -> None:
    program = """
import json, os, pathlib, sys, time
from gangline.progress import report
first = not pathlib.Path("died").exists()
worker = json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1
for step in range(1, 60):
    time.sleep(0.1)
    report(step=step, total=60, loss=1 / step, accuracy=step / 60)
    if worker and first and step == 10:
        pathlib.Path("died").touch()
        sys.exit(7)
"""
    folder = job(tmp_path, program)
    (folder / "job.yaml").write_text(JOB.replace("replicas: 2\n", "replicas: 2\n      restartPolicy: OnFailure\n"))
    env = {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}
    with PtyTerminal([*GANGLINE, "run", "job.yaml", "--curve", "accuracy"], cwd=folder, env=env) as terminal:
        terminal.wait_for(lambda seen: re.search(r"^  worker-1 +[·░▆]+✖[·░]*↻", seen, re.MULTILINE))
        top = [*GANGLINE, "top", "tfjob/small", "--context", "gangline"]
        with PtyTerminal(top, cwd=folder, env=env) as other:
            # A terminal that nobody reads would hold up the run.
            terminal.wait_for(lambda _: other.process.poll() is not None)
            assert other.wait_for_exit() == 0, other.screen.text
        # As long as both happened within one column, only one of them is drawn; the list has both.
        assert re.search(r"^  worker-1 +[·░▆]+✖", other.screen.text, re.MULTILINE), other.screen.text
        assert re.search(r"↻ worker-1 +restart 1", other.screen.text), other.screen.text
        assert "CPU(cores)" in other.screen.text
        assert terminal.wait_for_exit() == 0, terminal.screen.text
    assert "accuracy from step 1 to 59" in terminal.screen.text
    with PtyTerminal(top, cwd=folder, env=env) as afterwards:
        assert afterwards.wait_for_exit() == 0, afterwards.screen.text
    assert re.search(r"^  worker-1 +[·░▆]+✖[·░]*↻▆+", afterwards.screen.text, re.MULTILINE), afterwards.screen.text
    assert re.search(r"✖ worker-1 +failed: exit 7\n.*└─↻ worker-1 +restart 1", afterwards.screen.text)


def test_a_failure_is_told_with_its_last_words(tmp_path: Path) -> None:
    program = "print('reading data')\nraise SystemExit('no such data')\n"
    with PtyTerminal([*GANGLINE, "run", "job.yaml"], cwd=job(tmp_path, program)) as terminal:
        assert terminal.wait_for_exit() == 100
    screen = terminal.screen.text
    assert re.search(r"✖ Failed in \d", screen)
    assert re.search(
        r"first to fail: (worker-\d) with exit code 1 .*\n  \1\| reading data\n  \1\| no such data", screen
    )


def test_lines_that_repeat_are_folded(tmp_path: Path) -> None:
    program = "for _ in range(13): print('waiting for data')\nprint('done')\n"
    with PtyTerminal([*GANGLINE, "run", "job.yaml"], cwd=job(tmp_path, program)) as terminal:
        assert terminal.wait_for_exit() == 0
    assert terminal.screen.has_colour
    for member in ("worker-0", "worker-1"):
        assert terminal.screen.text.count(f"{member}│ waiting for data") == 1
        assert f"{member}│ … repeated 12 times" in terminal.screen.text


def test_no_color_is_respected(tmp_path: Path) -> None:
    program = "print('\\033[31mred\\033[0m')\n"
    with PtyTerminal([*GANGLINE, "run", "job.yaml"], cwd=job(tmp_path, program), env={"NO_COLOR": "1"}) as terminal:
        assert terminal.wait_for_exit() == 0
    assert "worker-0│ red" in terminal.screen.text
    assert not terminal.screen.has_colour


def test_a_dumb_terminal_gets_plain_lines_and_no_orders_at_all(tmp_path: Path) -> None:
    program = "print('\\033[2K\\033[31mred\\033[0m', flush=True)\nraise SystemExit(3)\n"
    here, env = job(tmp_path, program), {"TERM": "dumb", "GANGLINE_HOME": str(tmp_path / "home")}
    # A run, and what a person does next.
    for words, code in (
        (("run", "job.yaml"), 100),
        (("get",), 0),
        (("describe", "small"), 0),
        (("why", "small"), 0),
    ):
        with PtyTerminal([*GANGLINE, *words], cwd=here, env=env) as terminal:
            assert terminal.wait_for_exit() == code, terminal.screen.text
        assert b"\x1b" not in terminal.raw, words
        assert b"\r" not in terminal.raw.replace(b"\r\n", b""), words
        if words[0] == "run":
            # The job fails with the first of them.
            assert re.search(r"worker-[01]\| red", terminal.screen.text)


def test_a_pipe_gets_no_escape_sequences(tmp_path: Path) -> None:
    program = "print('plain')\n"
    for words in (("run", "job.yaml"), ("get",), ("describe", "small"), ("why", "small"), ("logs", "small")):
        done = subprocess.run(
            [*GANGLINE, *words],
            cwd=job(tmp_path, program),
            env={**os.environ, "TERM": "xterm-256color", "GANGLINE_HOME": str(tmp_path / "home")},
            capture_output=True,
            timeout=60,
        )
        assert b"\x1b" not in done.stdout + done.stderr, words


STUBBORN = """\
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("pid", os.getpid(), flush=True)
time.sleep(9999)
"""


def test_ctrl_c_stops_everything_and_says_so(tmp_path: Path) -> None:
    with PtyTerminal([*GANGLINE, "run", "job.yaml"], cwd=job(tmp_path, STUBBORN)) as terminal:
        terminal.wait_for(lambda seen: len(re.findall(r"│ pid \d+", seen)) == 2)
        terminal.press_keys("\x03")
        assert terminal.wait_for_exit() == 130, terminal.screen.text
    screen = terminal.screen.text
    assert "stopping worker-0 and worker-1 … (Ctrl-C again kills at once)" in screen
    # The last screen is true: nothing runs any more, and what is printed next works.
    assert re.search(r"^tfjob/small  worker 2 +Stopped  \d\d:\d\d$", screen, re.MULTILINE)
    assert len(re.findall(r"worker-\d  ○ stopped ", screen)) == 2
    assert "● running" not in screen
    assert re.search(r"stopped; no process is left\nnext: \S.* why small\n +\S.* logs small$", screen)
    assert "Traceback" not in screen
    for pid in re.findall(r"│ pid (\d+)", screen):
        assert not Path(f"/proc/{pid}").exists()
    assert terminal.raw.rfind(b"\x1b[?25h") > terminal.raw.rfind(b"\x1b[?25l"), "the cursor is gone"


SAVES = """\
import signal, sys, threading
def save(*_):
    print("saving", flush=True)
    # Longer than a process gets that only has to end.
    threading.Event().wait(1)
    print("saved", flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, save)
print("ready", flush=True)
while True:
    signal.pause()
"""


def test_a_program_has_time_to_save_after_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SAVES)
    command = [*GANGLINE, "run", "--nproc", "2", "--", sys.executable, "program.py"]
    with PtyTerminal(command, cwd=tmp_path) as terminal:
        terminal.wait_for(lambda seen: len(re.findall("│ ready", seen)) == 2)
        terminal.press_keys("\x03")
        assert terminal.wait_for_exit() == 130, terminal.screen.text
    for replica in ("master-0", "worker-0"):
        assert f"{replica}│ saved" in terminal.screen.text


def test_ctrl_c_stops_a_run_whose_reader_it_ended_too(tmp_path: Path) -> None:
    saves = SAVES.replace('print("saved", flush=True)', 'open("saved", "w").close()')
    (tmp_path / "program.py").write_text(saves)
    run = shlex.join([*GANGLINE, "run", "--", sys.executable, "program.py"])
    with PtyTerminal(["bash", "-c", f"{run} | tee log; echo ${{PIPESTATUS[0]}} > code"], cwd=tmp_path) as terminal:
        terminal.wait_for(lambda seen: "| ready" in seen)
        terminal.press_keys("\x03")
        wait_until_blocking(lambda: (tmp_path / "code").exists() and (tmp_path / "code").read_text(), seconds=60)
    assert (tmp_path / "saved").exists()
    assert (tmp_path / "code").read_text() == "130\n"
    assert "Traceback" not in terminal.screen.text


def test_the_peers_of_a_failed_process_have_time_to_save(tmp_path: Path) -> None:
    fails = """\
import os, sys, time
if os.environ["RANK"] == "1":
    while not os.path.exists("ready"):
        time.sleep(0.01)
    sys.exit(3)
"""
    saves = SAVES.replace('print("ready", flush=True)', 'open("ready", "w").close()')
    saves = saves.replace('print("saved", flush=True)', 'open("saved", "w").close()')
    (tmp_path / "program.py").write_text(fails + saves)
    command = [*GANGLINE, "run", "--nproc", "2", "--", sys.executable, "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=60)
    assert done.returncode == 100, done.stdout
    assert (tmp_path / "saved").exists()


def test_a_progress_bar_moves_while_it_is_drawn(tmp_path: Path) -> None:
    program = """\
import os, sys, time
for number in range(10**6):
    sys.stderr.write(f"\\r{number:5}|##  |")
    sys.stderr.flush()
    if os.path.exists("stop"):
        break
    time.sleep(0.05)
"""
    bar = re.compile(r"● running .* (\d+)\|##  \|")
    with PtyTerminal([*GANGLINE, "run", "job.yaml"], cwd=job(tmp_path, program)) as terminal:
        terminal.wait_for(bar.search)
        first = set(bar.findall(terminal.screen.text))
        terminal.wait_for(lambda text: set(bar.findall(text)) - first)
        (tmp_path / "stop").touch()
        assert terminal.wait_for_exit() == 0, terminal.screen.text


def test_a_run_that_timed_out_ends_with_a_true_screen(tmp_path: Path) -> None:
    program = "import time\nprint('begin', flush=True)\ntime.sleep(9999)\n"
    with PtyTerminal([*GANGLINE, "run", "job.yaml", "--timeout", "3s"], cwd=job(tmp_path, program)) as terminal:
        assert terminal.wait_for_exit() == 101, terminal.screen.text
    screen = terminal.screen.text
    assert re.search(r"^tfjob/small  worker 2 +Stopped  00:0[3-9]$", screen, re.MULTILINE)
    assert len(re.findall(r"worker-\d  ○ stopped ", screen)) == 2
    assert re.search(r"not finished after 3 s; everything was stopped\nnext: \S.* why small\n", screen)


def test_ctrl_c_twice_is_as_clean(tmp_path: Path) -> None:
    with PtyTerminal([*GANGLINE, "run", "job.yaml"], cwd=job(tmp_path, STUBBORN)) as terminal:
        terminal.wait_for(lambda seen: len(re.findall(r"│ pid \d+", seen)) == 2)
        terminal.press_keys("\x03")
        terminal.wait_for(lambda seen: "stopping worker-0 and worker-1" in seen)
        terminal.press_keys("\x03")
        assert terminal.wait_for_exit() == 130, terminal.screen.text
    assert "Traceback" not in terminal.screen.text
    for pid in re.findall(r"│ pid (\d+)", terminal.screen.text):
        assert not Path(f"/proc/{pid}").exists()


HANGS = """\
import pathlib, time
print("begin", flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.05)
print("alive", flush=True)
while not pathlib.Path("end").exists():
    print("working", flush=True)
    time.sleep(0.2)
"""


def test_a_hang_is_on_the_screen_with_what_to_type_until_there_is_life_again(tmp_path: Path) -> None:
    env = {"GANGLINE_HOME": str(tmp_path / "home")}
    command = [*GANGLINE, "run", "job.yaml", "--hung-after", "2s"]
    with PtyTerminal(command, cwd=job(tmp_path, HANGS), env=env) as terminal:
        terminal.wait_for(lambda text: re.search(r"in another terminal: .*gangline why small --hung-after 2s", text))
        assert re.search(r"no sign of life for \d.* s: no CPU use, last log line .* ago", terminal.screen.text)
        line = re.search(r"in another terminal: (.*)", terminal.screen.text)
        assert line is not None
        # As typed, in another terminal.
        done = subprocess.run(
            ["sh", "-c", line[1].strip()],
            cwd=tmp_path,
            env={**os.environ, **env, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "worker-0 and worker-1 hang: no line and no CPU" in done.stdout, done.stdout + done.stderr
        (tmp_path / "go").touch()
        terminal.wait_for(lambda text: "alive" in text and "no sign of life" not in text)
        (tmp_path / "end").touch()
        assert terminal.wait_for_exit() == 0


def test_plain_lines_say_once_that_a_job_hangs(tmp_path: Path) -> None:
    lines = []
    with subprocess.Popen(
        [*GANGLINE, "run", "job.yaml", "--hung-after", "2s"],
        cwd=job(tmp_path, HANGS),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if "in another terminal:" in line:
                (tmp_path / "go").touch()
            if "working" in line:
                (tmp_path / "end").touch()
    assert process.returncode == 0, lines
    assert sum("no sign of life" in line for line in lines) == 1
