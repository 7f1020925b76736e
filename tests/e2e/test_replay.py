"""`gangline record` and `gangline run job.bundle`, as a person types them: a run loses a worker, and is played again."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import msgspec
import pytest
import yaml

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("replay")]

TRAIN = """
import json, os, sys, time
for step in range(1, 2000):
    print(json.dumps({"progress": {"step": step}}), flush=True)
    if step == 5 and os.environ["RANK"] == "1":
        os.kill(os.getpid(), 9)
    time.sleep(0.05)
"""

# Dies once by itself: its marker is left, so that only the replay can kill it the second time.
HEALS = """
import json, os, pathlib, time
marker = pathlib.Path(os.environ["MARKER"])
for step in range(1, 40):
    print(json.dumps({"progress": {"step": step}}), flush=True)
    if step == 5 and os.environ["RANK"] == "1" and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), 9)
    time.sleep(0.05)
"""


def gangline(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    environ = {**os.environ, "GANGLINE_HOME": str(folder / "home"), "HOME": str(folder), "NO_COLOR": "1"}
    environ.pop("KUBECONFIG", None)
    command = [sys.executable, "-m", "gangline", *words]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=100, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program, after a run of which one worker was killed."""
    place = tmp_path_factory.mktemp("replay")
    code = place / "code"
    code.mkdir()
    (code / "train.py").write_text(TRAIN)
    container = {
        "name": "pytorch",
        "image": "registry/bert:1",
        "command": [sys.executable, "-S", "train.py"],
        "env": [{"name": "HUB_TOKEN", "value": "not-for-others"}],
    }
    template = {"spec": {"containers": [container]}}
    spec = {"replicas": 1, "restartPolicy": "Never", "template": template}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "bert"},
        "spec": {"pytorchReplicaSpecs": {"Master": spec, "Worker": spec}},
    }
    (code / "bert.yaml").write_text(yaml.safe_dump(job))
    done = gangline(place, "run", "code/bert.yaml", "--no-dashboard")
    assert done.returncode == 100, done
    return place


def test_a_run_that_lost_a_worker_is_recorded_and_played_again(folder: Path) -> None:
    done = gangline(folder, "record", "bert", "--code", "code", "-o", "night.bundle")
    assert done.returncode == 0, done
    assert "verdict:  worker-0 (rank 1) first, why: killed, job Failed" in done.stdout
    assert "fault:    worker-0: signal 9 at step 5, " in done.stdout
    assert "left out: variable HUB_TOKEN of the job: its value looks like a secret" in done.stdout
    assert "not-for-others" not in done.stdout
    with zipfile.ZipFile(folder / "night.bundle") as archive:
        assert {"code/train.py", "code/bert.yaml", "logs/worker-0.log"} <= set(archive.namelist())
        manifest = msgspec.json.decode(archive.read("manifest.json"))
        content = b"".join(archive.read(name) for name in archive.namelist())
    assert (manifest["version"], manifest["code"]) == (1, "folder")
    assert b"not-for-others" not in content
    played = gangline(folder, "run", "night.bundle", "--no-dashboard")
    assert played.returncode == 100, played
    assert "replay of PyTorchJob bert" in played.stderr
    assert played.stdout.rstrip().split("replayed: ")[1].splitlines()[0].endswith("· the same"), played


def test_without_its_code_a_stand_in_plays_it(folder: Path) -> None:
    done = gangline(folder, "record", "bert")
    assert done.returncode == 0, done
    assert "left out: the code: " in done.stdout
    played = gangline(folder, "run", "bert.bundle", "--no-dashboard")
    assert "worker: played by a stand-in that trains nothing, because train.py " in played.stderr
    assert "replay: worker-0: signal 9 at step 5" in played.stdout
    assert "why: killed, job Failed · the same" in played.stdout, played


def test_a_job_that_recovered_is_played_with_the_fault_once(folder: Path) -> None:
    job = yaml.safe_load((folder / "code" / "bert.yaml").read_text())
    job["metadata"]["name"] = "healed"
    for spec in job["spec"]["pytorchReplicaSpecs"].values():
        spec["restartPolicy"] = "OnFailure"
        container = spec["template"]["spec"]["containers"][0]
        container["command"] = [sys.executable, "-S", "-c", HEALS]
        # A replay has a folder of its own.
        container["env"] = [{"name": "MARKER", "value": str(folder / "died")}]
    (folder / "healed.yaml").write_text(yaml.safe_dump(job))
    done = gangline(folder, "run", "healed.yaml", "--no-dashboard")
    assert done.returncode == 0, done
    recorded = gangline(folder, "record", "healed")
    assert "verdict:  worker-0 first, why: nothing wrong, job Succeeded" in recorded.stdout, recorded
    played = gangline(folder, "run", "healed.bundle", "--no-dashboard")
    assert played.returncode == 0, played
    assert played.stdout.count("replay: worker-0: signal 9 at step 5") == 1, played
    assert "why: nothing wrong, job Succeeded · the same" in played.stdout, played


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "gone.bundle"), "error: gone.bundle: No such file or directory"),
        (("run", "code/bert.yaml", "--code", "code"), "error: --code: is the code of a bundle"),
        (("record", "nobody"), "there is no job nobody"),
    ],
)
def test_a_mistake_is_one_line(folder: Path, words: tuple[str, ...], message: str) -> None:
    done = gangline(folder, *words)
    assert done.returncode in (1, 102)
    assert message in done.stderr
    assert "Traceback" not in done.stderr
