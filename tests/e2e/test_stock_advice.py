"""Stock Kubeflow files on this machine: what the message says to do is done, word for word, and the job runs.

The scripts of the images are small ones with the same names; the table of tests/frameworks/test_stock.py trains.
"""

import os
import re
import shlex
import signal
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
    Case("jax/jaxjob.yaml", {}, "put train.py there", {"train.py": SCRIPT}),
    Case(
        "mpijob.yaml",
        {"examples/tensorflow2_mnist.py": SCRIPT},
        "install mpirun and add --image-map /examples=examples",
        {"bin/mpirun": LAUNCHER},
    ),
    Case(
        "paddlejob.yaml",
        {},
        "install paddle: ",
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


def advice(folder: Path) -> str:
    """What the first run prints about the image; it is interrupted then, because a restart policy may go on."""
    command = [sys.executable, "-m", "gangline", "run", "job.yaml"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdout=pipe, stderr=subprocess.STDOUT, text=True, cwd=folder, env=environment(folder)
    ) as run:
        assert run.stdout is not None
        lines = []
        for line in run.stdout:
            lines.append(line)
            if 'image "' in line:
                run.send_signal(signal.SIGINT)
                run.stdout.read()
                return line
    raise AssertionError("".join(lines))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.file)
def test_the_advice_makes_the_job_run(case: Case, tmp_path: Path) -> None:
    write_files(tmp_path, {**case.before, "job.yaml": (STOCK / case.file).read_text()})
    line = advice(tmp_path)
    assert case.named in line
    assert "pods run as processes of this machine" in line
    reason = "mpirun cannot start its daemons in their containers" if "mpi" in case.file else "neither is installed"
    assert f"or run the image with podman or docker ({reason})" in line
    write_files(tmp_path, case.after)
    flags = re.findall(r"add (--image-map (?:'[^']*'|[^\s;]+))", line)
    command = f"{shlex.quote(sys.executable)} -m gangline run {' '.join(flags)} job.yaml"
    env = environment(tmp_path)
    done = subprocess.run(command, shell=True, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| trained " in done.stdout
