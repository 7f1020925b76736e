"""Nothing is left behind by a run, however it ends: no process, no port, no temporary file.

`GANGLINE_RUNS` says how many runs; four of them, one for each ending, go on at the same time.
"""

import os
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

ENDINGS = ("success", "failure", "interrupt", "kill")
ROUNDS = max(1, int(os.environ.get("GANGLINE_RUNS", "4")) // len(ENDINGS))
PATIENCE = 60.0  # seconds
MARK = "GANGLINE_TEST_RUN"
LASTING = (
    "import subprocess, time; subprocess.Popen(['sleep', '600'], start_new_session=True); "
    "print('up', flush=True); time.sleep(600)"
)
PROGRAMS = {
    # Children of its own, one of which leaves the session, and a temporary file that it forgets.
    "success": (
        "import subprocess, tempfile; tempfile.mkstemp(); subprocess.Popen(['sleep', '600']); "
        "subprocess.Popen(['sleep', '600'], start_new_session=True); print('up')"
    ),
    "failure": "print('up'); raise SystemExit(3)",
    "interrupt": LASTING,
    "kill": LASTING,
}
CODES = {"success": 0, "failure": 100, "interrupt": 130, "kill": -signal.SIGKILL}
STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, somebody who stops it, a terminal that is closed: they take turns."""
MOST_RECORDS = 20

JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: {name}}}
spec:
  pytorchReplicaSpecs:
    Master:
      replicas: 1
      restartPolicy: Never
      template: &template
        spec:
          containers:
            - {{name: pytorch, image: none, command: [{python}, -c, "{program}"]}}
    Worker: {{replicas: 1, restartPolicy: Never, template: *template}}
"""


class Place:
    """Where runs of this test have everything that is theirs."""

    def __init__(self, folder: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.jobs, self.temporary, self.home, self.state = (folder / name for name in ("jobs", "tmp", "home", "state"))
        for each in (self.jobs, self.temporary, self.home):
            each.mkdir()
        self.ports: set[int] = set()

    def start(self, ending: str, number: int) -> "subprocess.Popen[str]":
        name = f"{ending}-{number}"
        file = self.jobs / f"{name}.yaml"
        file.write_text(JOB.format(name=name, python=sys.executable, program=PROGRAMS[ending]))
        own = {MARK: self.mark, "TMPDIR": str(self.temporary), "HOME": str(self.home)}
        return subprocess.Popen(
            [sys.executable, "-m", "gangline", "run", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.jobs,
            env={**os.environ, **own, "GANGLINE_HOME": str(self.state)},
        )

    def processes(self) -> Iterator[tuple[int, list[str]]]:
        """All that a run started, and what those started, with their command lines: they inherit the mark."""
        for process in psutil.process_iter():
            # Any of them may end while it is looked at.
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found = process.pid, process.cmdline()
                else:
                    continue
            except psutil.Error:
                continue
            yield found

    def listening(self) -> list[int]:
        """Ports of runs at which somebody listens, unless it is somebody else by now."""
        pids = {None, *(pid for pid, _ in self.processes())}
        found = [each for each in psutil.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
        ports = {each.laddr.port for each in found if each.laddr and each.pid in pids}
        return sorted(ports & self.ports)

    def leftovers(self) -> list[str]:
        """What must not be there."""
        told = [f"process {pid}: {command}" for pid, command in self.processes()]
        told += [f"port {port}" for port in self.listening()]
        # Not by rglob, which trips over what the guard removes meanwhile.
        walked = [each for folder in (self.temporary, self.home) for each in os.walk(folder)]
        told += [f"{folder}/{name}" for folder, folders, files in walked for name in (*folders, *files)]
        told += [str(path) for path in self.jobs.iterdir() if path.suffix != ".yaml"]
        told += [str(path) for path in (self.state / "run-certificates").glob("*") if path.name != "issued.json"]
        return told + [
            str(path) for path in self.state.iterdir() if path.name not in ("runs", "run-certificates", "history")
        ]


def end(run: "subprocess.Popen[str]", number: int | None, moment: float | None) -> str:
    """Let it come to its end, or send it a signal once it is up, and give what it said.

    A moment is when it is killed, wherever it is by then.
    """
    if moment is not None:
        try:
            run.wait(moment)
        except subprocess.TimeoutExpired:
            run.kill()
        return run.communicate(timeout=PATIENCE)[0]
    said = []
    assert run.stdout is not None
    if number is not None:
        for line in run.stdout:
            said.append(line)
            if "master-0| up" in line:
                break
        run.send_signal(number)
    return "".join(said) + run.communicate(timeout=PATIENCE)[0]


def wait_until(true: Callable[[], bool]) -> None:
    """Of a run that was killed it is the guard which cleans up, a moment later."""
    until = time.monotonic() + PATIENCE
    while not true() and time.monotonic() < until:
        time.sleep(0.05)


@pytest.mark.usefixtures("each_host")
def test_nothing_is_left_of_runs_that_ended_in_every_way(tmp_path: Path) -> None:
    place = Place(tmp_path)
    chosen = random.Random(0)
    for number in range(ROUNDS):
        runs = {ending: place.start(ending, number) for ending in ENDINGS}
        # The first is killed when it runs, the others anywhere on the way there.
        moment = chosen.uniform(0.3, 3.0) if number else None
        for ending, run in runs.items():
            sent = {"interrupt": STOPS[number % len(STOPS)], "kill": signal.SIGKILL}.get(ending)
            said = end(run, sent, moment if ending == "kill" else None)
            assert run.returncode == CODES[ending], f"{ending} {number}: {said}"
            place.ports |= {int(port) for port in re.findall(r"control plane ready: \S+:(\d+)", said)}
        wait_until(lambda: not place.leftovers())
        assert place.leftovers() == [], f"round {number}, killed at {moment}"
    assert len(place.ports) >= 4
    kept = sorted(path.name for path in (place.state / "runs").iterdir() if path.name != ".lock")
    assert len(kept) == min(MOST_RECORDS, 3 * ROUNDS), kept
    assert not any("kill" in name for name in kept)
