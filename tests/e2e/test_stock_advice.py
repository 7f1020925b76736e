"""Stock Kubeflow files on this machine: what the message says to do is done, word for word, and the job runs.

The scripts of the images are small ones with the same names; the table of tests/frameworks/test_stock.py trains.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

STOCK = Path(__file__).parents[1] / "frameworks" / "stock"
SCRIPT = "import os, sys\nprint('trained', os.path.basename(sys.argv[0]))\n"
LAUNCHER = '#!/bin/sh\nwhile [ "$1" != python ]; do shift; done\nexec "$@"\n'


class Case(NamedTuple):
    """A stock file, the files of the user before the run, the ones that the message asks for, and what it names."""

    file: str
    before: Mapping[str, str]
    named: str
    after: Mapping[str, str] = {}


CASES = [
    Case("tfjob.yaml", {"src/mnist_with_summaries.py": SCRIPT}, "--image-map /var/tf_mnist=src"),
    Case(
        "tfjob.yaml",
        {},
        "put mnist_with_summaries.py into this folder and add --image-map /var/tf_mnist=.",
        {"mnist_with_summaries.py": SCRIPT},
    ),
    Case("tfjob-entrypoint.yaml", {"dist_mnist.py": SCRIPT}, "kubeflow/tf-dist-mnist-test=python dist_mnist.py"),
    Case("pytorchjob.yaml", {"my code/mnist.py": SCRIPT}, "--image-map '/opt/pytorch-mnist=my code'"),
    Case("xgboostjob.yaml", {"main.py": SCRIPT, "utils.py": ""}, "kubeflow/xgboost-dist-iris=python main.py"),
    Case("jax/jaxjob.yaml", {}, "put train.py into ", {"train.py": SCRIPT}),
    Case(
        "mpijob.yaml",
        {"examples/tensorflow2_mnist.py": SCRIPT},
        "install mpirun and add --image-map /examples=examples",
        {"bin/mpirun": LAUNCHER},
    ),
    Case(
        "paddlejob.yaml",
        {},
        "-m pip install paddlepaddle",
        {"paddle/__init__.py": "", "paddle/distributed/__init__.py": "", "paddle/distributed/launch.py": SCRIPT},
    ),
]


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)


def environment(folder: Path) -> dict[str, str]:
    """A machine without engines and without launchers."""
    return {**os.environ, "PATH": f"{folder}/bin:/usr/bin:/bin"}


def run(folder: Path, flags: str = "") -> "subprocess.CompletedProcess[str]":
    command = f"{shlex.quote(sys.executable)} -m gangline run {flags} job.yaml"
    env = environment(folder)
    return subprocess.run(command, shell=True, capture_output=True, text=True, cwd=folder, env=env, timeout=100)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_the_advice_makes_the_job_run(case: Case, tmp_path: Path) -> None:
    write_files(tmp_path, {**case.before, "job.yaml": (STOCK / case.file).read_text()})
    first = run(tmp_path)
    # One line, before anything is started.
    (line,) = first.stderr.splitlines()
    assert (first.returncode, first.stdout) == (1, "")
    assert line.startswith("error: job.yaml:")
    assert case.named in line
    assert "pods run as processes of this machine" in line
    assert "or run the image with podman or docker (neither is installed)" in line
    write_files(tmp_path, case.after)
    second = run(tmp_path, " ".join(re.findall(r"add (--image-map (?:'[^']*'|[^\s;]+))", line)))
    assert second.returncode == 0, second.stdout + second.stderr
    assert "| trained " in second.stdout


def test_files_that_a_pod_may_create_or_mount_are_not_missed_before_it_runs(tmp_path: Path) -> None:
    container = {"name": "tensorflow", "image": "i", "command": ["python", "/code/train.py"]}
    mounted = {**container, "volumeMounts": [{"name": "v", "mountPath": "/code"}]}
    config = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c"}, "data": {"train.py": SCRIPT}}
    init = {"name": "init", "image": "i", "command": ["sh", "-c", f"echo 'print(\"| trained\")' > {tmp_path}/made.py"]}
    pods = [
        {"containers": [mounted], "volumes": [{"name": "v", "configMap": {"name": "c"}}]},
        {"containers": [{**container, "command": ["python", "made.py"]}], "initContainers": [init]},
    ]
    for pod in pods:
        spec = {"tfReplicaSpecs": {"Worker": {"replicas": 1, "restartPolicy": "Never", "template": {"spec": pod}}}}
        job = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "j"}, "spec": spec}
        (tmp_path / "job.yaml").write_text(f"{json.dumps(config)}\n---\n{json.dumps(job)}\n")
        done = run(tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "| trained" in done.stdout
