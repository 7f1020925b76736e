"""What a run leaves: its story is read with the usual verbs when no server runs."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from gangline.cli.connect.archived_runs import READ_ONLY_ERROR
from gangline.cli.main import run

WAIT = 60.0  # seconds
BROKEN = """
import os, pathlib, sys, time
me, made = os.environ["HOSTNAME"], pathlib.Path(os.environ["GANGLINE_ARTIFACTS"])
(made / me).write_text("half a model")
print("training", flush=True)
if me.endswith("1"):
    while not pathlib.Path("go").exists():
        time.sleep(0.05)
    print("no such data", flush=True)
    sys.exit(3)
time.sleep(600)
"""
LASTING = "import time\nprint('up', flush=True)\ntime.sleep(600)"


class Done(NamedTuple):
    """How a verb ended."""

    code: int
    out: str
    err: str


Verb = Callable[..., Done]


def job(folder: Path, name: str, program: str, workers: int) -> Path:
    container = {"name": "tensorflow", "image": "none", "command": [sys.executable, "-c", program]}
    worker = {"replicas": workers, "template": {"spec": {"containers": [container]}}}
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {"tfReplicaSpecs": {"Worker": worker}},
    }
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(body))
    return file


def read_until(run: "subprocess.Popen[str]", *lines: str) -> None:
    """Return when a run has said all of these, in any order."""
    assert run.stdout is not None
    awaited = set(lines)
    while awaited:
        awaited.discard(next(run.stdout).strip())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A machine without any server, on which one run failed while another was interrupted."""
    folder = tmp_path_factory.mktemp("after")
    env = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}
    env |= {"HOME": str(folder), "GANGLINE_HOME": str(folder / "state")}
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "gangline", "run", str(job(folder, name, program, workers))],
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        for name, program, workers in (("bad", BROKEN, 2), ("long", LASTING, 1))
    ]
    broken, lasting = started
    read_until(lasting, "worker-0| up", "tfjob/long  Running")
    lasting.send_signal(signal.SIGINT)
    # The one that fails does so when the other one is known to run.
    read_until(broken, "worker-0| training", "worker-0   running", "worker-1| training")
    (folder / "go").touch()
    said = [each.communicate(timeout=WAIT)[0] for each in started]
    assert [each.returncode for each in started] == [100, 130], said
    (folder / "bad.out").write_text(said[0])
    return folder


@pytest.fixture
def verb(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Verb:
    for name in list(os.environ):
        if name.startswith("KUBE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("GANGLINE_HOME", str(place / "state"))

    def call(*words: str) -> Done:
        code = run(words)
        return Done(code, *capsys.readouterr())

    return call


LEFT = "no server is running; reading what earlier runs left\n"


def test_the_end_of_a_failed_run_says_how_to_go_on(place: Path) -> None:
    end = (place / "bad.out").read_text().splitlines()[-3:]
    assert end == [
        f"artefacts: {place / 'state' / 'artifacts' / 'default' / 'bad'}/",
        "next: gangline why bad",
        "      gangline logs bad",
    ]


def test_get_lists_the_jobs_as_they_ended(verb: Verb) -> None:
    done = verb("get", "jobs", "--no-headers")
    rows = [re.split(r" {2,}", line) for line in done.out.splitlines()]
    assert [row[1:3] for row in rows] == [["bad", "Failed"], ["long", "Failed"]]
    assert rows[0][-1] == "worker-1 exit 3"
    assert rows[1][-1] == "the run was interrupted before the job had ended"
    assert (done.code, done.err) == (0, LEFT)


def test_pods_that_ran_when_the_run_ended_were_stopped(verb: Verb) -> None:
    done = verb("get", "pods", "--no-headers")
    assert {line.split()[0]: line.split()[2] for line in done.out.splitlines()} == {
        "bad-worker-0": "Stopped",
        "bad-worker-1": "Error",
        "long-worker-0": "Stopped",
    }


def test_logs_are_merged_and_one_replica_can_be_chosen(verb: Verb) -> None:
    done = verb("logs", "bad")
    assert sorted(done.out.splitlines()) == [
        "worker-0| training",
        "worker-1| no such data",
        "worker-1| training",
    ]
    assert verb("logs", "bad", "--replica", "worker/1", "--tail", "1").out == "worker-1| no such data\n"
    assert verb("logs", "-f", "long").out == "worker-0| up\n"


def test_describe_and_events_tell_the_story(verb: Verb) -> None:
    page = verb("describe", "bad").out
    assert "State:         Failed: worker-1 exit 3" in page
    assert "worker-1| no such data" in page
    told = verb("events", "bad").out
    assert "TFJobFailed" in told
    assert "long" not in told


def test_why_explains_the_failure(verb: Verb, place: Path) -> None:
    done = verb("why", "bad")
    assert done.code == 0
    assert "worker-1 ended with exit code 3" in done.out
    assert "no such data" in done.out
    assert f"gangline run {place / 'bad.yaml'}" in done.out


def test_why_says_that_a_job_ran_until_its_run_was_stopped(verb: Verb) -> None:
    done = verb("why", "long")
    assert done.code == 0
    assert done.out.startswith(
        "TFJob default/long was Running.\n\nCause     the run was interrupted before the job had ended.\n"
    )


def test_waiting_gives_the_verdict_at_once(verb: Verb) -> None:
    assert verb("wait", "bad").code == 100


def test_what_does_not_change_any_more_is_not_watched(verb: Verb) -> None:
    once = verb("get", "jobs", "--no-headers")
    assert [line.split()[1] for line in verb("get", "jobs", "-w", "--no-headers").out.splitlines()] == [
        line.split()[1] for line in once.out.splitlines()
    ]
    assert "Created 2 pods" in verb("events", "bad", "-w").out
    assert verb("wait", "bad", "--for", "delete") == Done(
        101, "", LEFT + "tfjob.kubeflow.org/bad ended before the condition was met\n"
    )


def test_verbs_that_write_or_need_something_alive_are_refused(verb: Verb, place: Path) -> None:
    refusal = f"error: {READ_ONLY_ERROR}\n"
    for words in (("delete", "bad"), ("apply", "-f", str(place / "bad.yaml"))):
        assert verb(*words) == Done(1, "", LEFT + refusal)
    done = verb("drill", "bad", "--kill")
    assert (done.code, done.out) == (1, "")
    assert "error: no job is running on this machine; " in done.err


def test_without_a_server_top_and_doctor_are_about_this_machine(verb: Verb) -> None:
    done = verb("top")
    assert (done.code, [line.split()[0] for line in done.out.splitlines()][:4]) == (
        0,
        ["RESOURCE", "cpu", "memory", "disk"],
    )
    # Of a job that has ended there is its timeline.
    done = verb("top", "bad")
    assert (done.code, done.err) == (0, LEFT)
    # Times of containers are whole seconds: the failure may stand where its row begins, and a short job has no rows.
    assert re.search(r"^  worker-\d +[·░▆]*✖", done.out, re.MULTILINE) or "00:00" not in done.out, done.out
    assert re.search(r"✖ worker-\d +failed first: exit \d+", done.out), done.out
    results = json.loads(verb("doctor", "-o", "json").out)
    assert {"python", "packages", "disk", "ports", "server"} <= {result["check"] for result in results}


def test_what_is_not_there_is_not_found(verb: Verb) -> None:
    done = verb("logs", "none")
    assert (done.code, done.out) == (102, "")
    assert done.err.startswith(LEFT + "Error from server (NotFound): ")


def test_a_shell_completes_the_names_of_jobs_that_ended(
    verb: Verb, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in (("COMP_WORDS", "gangline why l"), ("COMP_CWORD", "2")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("_GANGLINE_COMPLETE", "bash_complete")
    with pytest.raises(SystemExit):
        verb()
    assert capsys.readouterr() == ("plain,long\n", "")


def test_what_programs_made_stays(place: Path) -> None:
    kept = place / "state" / "artifacts"
    assert sorted(str(file.relative_to(kept)) for file in kept.rglob("*") if file.is_file()) == [
        "default/bad/bad-worker-0",
        "default/bad/bad-worker-1",
    ]
    assert not (kept / "default" / "long").exists()
