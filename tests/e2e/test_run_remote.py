"""`gangline run --context`: the same run in a cluster, with the folder. The cluster is a plane of its own."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from support.cluster.clients import DetachedPlane

Done = subprocess.CompletedProcess[str]
WAIT = 60.0
TRAIN = """\
import json, os, sys
from lib.model import NAME
print("index", json.loads(os.environ.get("TF_CONFIG", '{"task": {"index": 0}}'))["task"]["index"], NAME, flush=True)
with open("checkpoint", "w") as file:  # beside the script
    file.write("saved")
print("files", " ".join(sorted(os.listdir("."))), flush=True)
if "--forever" in sys.argv:
    import time
    time.sleep(600)
sys.exit(3 if "--fail" in sys.argv else 0)
"""


class Cluster(DetachedPlane):
    """A plane that is found by a context only, and runs nothing in the folder of whoever asks."""

    def run(self, *words: str, cwd: Path) -> Done:
        return subprocess.run(
            self.command("run", *words),
            capture_output=True,
            text=True,
            cwd=cwd,
            env=self.environment,
            timeout=WAIT,
        )

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "gangline", *words]

    def get(self, *words: str) -> list[dict[str, Any]]:
        command = self.command("get", *words, "-o", "json")
        done = subprocess.run(command, capture_output=True, text=True, env=self.environment, timeout=WAIT)
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)["items"]
        return found

    def names(self, kind: str) -> set[str]:
        return {body["metadata"]["name"] for body in self.get(kind)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("remote") / "plane")
    found.up()
    yield found
    found.down()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "model.py").write_text("NAME = 'model'\n")
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "data.bin").write_text("large")
    (tmp_path / ".gitignore").write_text("*.bin\n")
    return tmp_path


# Not one that ends when its master does: the others would have no last word.
KIND = ("--kind", "TFJob", "--set", "spec.successPolicy=AllWorkers")
COMMAND = ("--context", "gangline", "--image", "any", "--nproc", "2", *KIND)


def test_a_script_runs_there_with_its_folder_and_may_write_beside_itself(cluster: Cluster, folder: Path) -> None:
    done = cluster.run(*COMMAND, "--keep", "--set", "metadata.name=one", "--", "python", "train.py", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    told = done.stderr.splitlines()
    assert re.fullmatch(r"server: context gangline \(https://.*\), namespace default", told[0])
    assert told[1] == f"shipping {folder}: 3 files, {(folder / 'train.py').stat().st_size + 21} bytes, in a ConfigMap"
    for index in range(2):
        assert f"worker-{index}| index {index} model\n" in done.stdout
        assert f"worker-{index}| files .gitignore checkpoint lib train.py\n" in done.stdout
        kept = folder / "runs" / "one" / f"worker-{index}.log"
        assert kept.read_text().startswith(f"index {index} model\n")
    assert not (folder / "checkpoint").exists()
    assert re.search(r"^Succeeded in [\d.]+ s: ", done.stdout, re.MULTILINE)
    assert "next: gangline logs tfjob/one --context gangline" in done.stdout
    # What carried the folder goes with the job.
    (job,) = (body for body in cluster.get("tfjobs") if body["metadata"]["name"] == "one")
    (carrier,) = (body for body in cluster.get("cm") if body["metadata"]["name"].startswith("one-folder-"))
    assert [owner["uid"] for owner in carrier["metadata"]["ownerReferences"]] == [job["metadata"]["uid"]]


def test_a_script_that_fails_there_exits_100_and_a_name_that_is_taken_gets_a_number(
    cluster: Cluster, folder: Path
) -> None:
    for number, name in enumerate(("train", "train-2")):
        words = ("-o", "json", "--", "python", "train.py", *(["--fail"] * (number + 1)))
        done = cluster.run(*COMMAND, *words, cwd=folder)
        assert done.returncode == 100, done.stderr
        assert f"tfjob/{name}  Failed" in done.stderr
        assert f"next: gangline why tfjob/{name} --context gangline" in done.stderr
        assert json.loads(done.stdout)["metadata"]["name"] == name
        assert re.search(r"first to fail: worker-. with exit code 3", done.stderr)


def test_a_large_folder_goes_through_a_claim(cluster: Cluster, folder: Path) -> None:
    (folder / "weights").write_bytes(Random(6).randbytes(3 * 2**20))
    words = ("--set", "metadata.name=large", "--", "python", "-u", "train.py")
    done = cluster.run(*COMMAND, *words, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 files, 3.0 MiB, in a claim, packed" in done.stderr
    assert "worker-0| files .gitignore checkpoint lib train.py weights\n" in done.stdout
    (claim,) = cluster.get("pvc")
    assert [owner["name"] for owner in claim["metadata"]["ownerReferences"]] == ["large"]
    assert not any("loader" in name for name in cluster.names("pods"))


def test_files_run_there_too_and_a_name_that_is_taken_is_refused(cluster: Cluster, folder: Path) -> None:
    container = {"name": "tensorflow", "image": "any", "command": ["python", "train.py"]}
    specs = {"Worker": {"replicas": 1, "template": {"spec": {"containers": [container]}}}}
    for name in ("left", "right"):
        body = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": name}}
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({**body, "spec": {"tfReplicaSpecs": specs}}))
    done = cluster.run("--context", "gangline", "left.yaml", "right.yaml", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"left/worker-0| index 0 model", "right/worker-0| index 0 model"} <= set(done.stdout.splitlines())
    again = cluster.run("--context", "gangline", "left.yaml", cwd=folder)
    assert again.returncode == 1
    assert again.stderr.splitlines()[-1] == (
        "error: tfjob/left is in namespace default already (Succeeded); delete it: "
        "gangline delete tfjob/left --context gangline, or give this one another name: --set metadata.name=left-2"
    )


@pytest.mark.parametrize("keep", [False, True])
def test_an_interrupt_deletes_the_job_unless_it_is_to_be_kept(cluster: Cluster, folder: Path, keep: bool) -> None:
    name = "kept" if keep else "gone"
    words = (
        "--set",
        f"metadata.name={name}",
        *(["--keep"] if keep else []),
        "--",
        "python",
        "train.py",
        "--forever",
    )
    process = subprocess.Popen(
        cluster.command("run", *COMMAND, *words),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=cluster.environment,
    )
    assert process.stdout is not None
    assert any("| files " in line for line in process.stdout)
    process.send_signal(2)
    rest, errors = process.communicate(timeout=WAIT)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    if keep:
        assert f"tfjob/{name} goes on: gangline logs -f tfjob/{name} --context gangline" in rest
        assert name in cluster.names("tfjobs")
        return
    assert rest.endswith(f"interrupted; tfjob/{name} was deleted\n")
    end = time.monotonic() + WAIT
    while left := {each for kind in ("tfjobs", "pods", "cm") for each in cluster.names(kind) if name in each}:
        assert time.monotonic() < end, left


def test_too_slow_exits_101_and_deletes_the_job(cluster: Cluster, folder: Path) -> None:
    words = ("--set", "metadata.name=slow", "--timeout", "1", "--", "python", "train.py", "--forever")
    done = cluster.run(*COMMAND, *words, cwd=folder)
    assert done.returncode == 101
    assert done.stderr.endswith("not finished after 1 s; tfjob/slow was deleted\n")
    assert "slow" not in cluster.names("tfjobs")


def test_who_deletes_the_job_ends_the_run_with_103(cluster: Cluster, folder: Path) -> None:
    words = ("--set", "metadata.name=doomed", "--", "python", "train.py", "--forever")
    process = subprocess.Popen(
        cluster.command("run", *COMMAND, *words),
        stdout=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=cluster.environment,
    )
    assert process.stdout is not None
    assert any("| files " in line for line in process.stdout)
    deletion = cluster.command("delete", "tfjob/doomed")
    subprocess.run(deletion, check=True, capture_output=True, env=cluster.environment, timeout=WAIT)
    rest, _ = process.communicate(timeout=WAIT)
    assert process.returncode == 103
    assert "tfjob/doomed was deleted before it had ended" in rest


def test_a_kubeconfig_alone_leaves_the_run_on_this_machine(cluster: Cluster, folder: Path) -> None:
    words = ("--nproc", "1", "--set", "metadata.name=here", "--", "python", "train.py")
    done = cluster.run(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "server:" not in done.stderr
    assert (folder / "checkpoint").read_text() == "saved"
    assert "here" not in cluster.names("tfjobs")


def test_a_file_that_holds_more_than_jobs_is_refused_for_a_cluster(cluster: Cluster, folder: Path) -> None:
    body = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "more"}}
    container = {"name": "tensorflow", "image": "any", "command": ["true"]}
    body["spec"] = {"tfReplicaSpecs": {"Worker": {"template": {"spec": {"containers": [container]}}}}}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    (folder / "more.yaml").write_text(yaml.safe_dump_all([body, settings], sort_keys=False))
    done = cluster.run("--context", "gangline", "more.yaml", cwd=folder)
    assert done.returncode == 1
    assert 'more.yaml:17: kind: is "ConfigMap"; in a cluster a run makes jobs only' in done.stderr
    assert "more" not in cluster.names("tfjobs")


def test_what_the_server_refuses_leaves_nothing_there(cluster: Cluster, folder: Path) -> None:
    before = cluster.names("cm")
    done = cluster.run(*COMMAND, "--set", "spec.runPolicy.cleanPodPolicy=Perhaps", "--", "true", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert "cleanPodPolicy" in done.stderr
    assert done.stderr.endswith("nothing is left in the cluster\n")
    # What earlier tests deleted may go meanwhile.
    assert cluster.names("cm") <= before


def test_a_namespace_that_is_not_there_is_told(cluster: Cluster, folder: Path) -> None:
    done = cluster.run(*COMMAND, "-n", "nowhere", "--", "true", cwd=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert 'Error from server (NotFound): namespaces "nowhere" not found\n' in done.stderr
