"""`gangline run` on machines with GPUs: which each process sees. The GPUs are declared in GANGLINE_GPUS."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SHOW = """\
import os, pathlib, time
names = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "LOCAL_RANK")
print("sees", *(f"{name}={os.environ[name]}" for name in names if name in os.environ), flush=True)
pathlib.Path("seen").mkdir(exist_ok=True)
pathlib.Path("seen", str(os.getpid())).touch()
while len(os.listdir("seen")) < int(os.environ["TEAM"]):  # a job ends with its first process
    time.sleep(0.02)
"""
JOB = """\
apiVersion: kubeflow.org/v1
kind: TFJob
metadata: {name: mixed}
spec:
  tfReplicaSpecs:
    PS:
      replicas: 1
      template: {spec: {containers: [{name: tensorflow, image: i, command: [python, show.py]}]}}
    Worker:
      replicas: 2
      template:
        spec:
          containers:
            - {name: tensorflow, image: i, command: [python, show.py], resources: {limits: {nvidia.com/gpu: 1}}}
"""
TORCH_JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: team}
spec:
  pytorchReplicaSpecs:
    Master:
      template: &template {spec: {containers: [{name: pytorch, image: i, command: [python, show.py]}]}}
    Worker: {replicas: 1, template: *template}
"""


def run(folder: Path, team: int, *words: str, **environ: str) -> list[str]:
    """What each process of a team saw, without its replica."""
    (folder / "show.py").write_text(SHOW)
    names = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "LOCAL_RANK")
    env = {name: value for name, value in os.environ.items() if name not in names} | {"TEAM": str(team)} | environ
    command = [sys.executable, "-m", "gangline", "run", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return sorted(line.partition("sees ")[2] for line in done.stdout.splitlines() if "| sees" in line)


SCRIPT = ("--", "python", "show.py")


def test_more_processes_than_gpus_see_all_and_pick_theirs_by_local_rank(tmp_path: Path) -> None:
    seen = run(tmp_path, 3, "--nproc", "3", *SCRIPT, GANGLINE_GPUS="nvidia=2")
    assert seen == [f"LOCAL_RANK={rank}" for rank in range(3)]


def test_each_process_of_a_command_has_its_own_gpu(tmp_path: Path) -> None:
    own = [f"CUDA_VISIBLE_DEVICES={n} CUDA_DEVICE_ORDER=PCI_BUS_ID LOCAL_RANK=0" for n in range(3)]
    assert run(tmp_path, 3, "--nproc", "3", *SCRIPT, GANGLINE_GPUS="nvidia=4") == own
    (tmp_path / "again").mkdir()
    assert run(tmp_path / "again", 3, "--nproc", "3", "--limit", "gpu=1", *SCRIPT, GANGLINE_GPUS="nvidia=3") == own


@pytest.mark.parametrize("gpus", [4, 1])
def test_replicas_that_request_no_gpu_see_all_and_pick_theirs_by_local_rank(tmp_path: Path, gpus: int) -> None:
    (tmp_path / "job.yaml").write_text(TORCH_JOB)
    seen = run(tmp_path, 2, "job.yaml", GANGLINE_GPUS=f"nvidia={gpus}")
    assert seen == ["LOCAL_RANK=0", "LOCAL_RANK=1"]


def test_only_the_gpus_of_the_shell_are_offered(tmp_path: Path) -> None:
    words = ("--nproc", "2", "--limit", "nvidia.com/gpu=1", *SCRIPT)
    seen = run(tmp_path, 2, *words, GANGLINE_GPUS="nvidia=4", CUDA_VISIBLE_DEVICES="3,GPU-00000001")
    assert seen == [f"CUDA_VISIBLE_DEVICES={id_} LOCAL_RANK=0" for id_ in ("3", "GPU-00000001")]


def test_gpus_of_amd(tmp_path: Path) -> None:
    words = ("--nproc", "2", "--limit", "amd.com/gpu=2", *SCRIPT)
    seen = run(tmp_path, 2, *words, GANGLINE_GPUS="amd=4", HIP_VISIBLE_DEVICES="0,1,2,3")
    assert seen == [f"ROCR_VISIBLE_DEVICES={ids} HIP_VISIBLE_DEVICES=0,1 LOCAL_RANK=0" for ids in ("0,1", "2,3")]


def test_a_parameter_server_leaves_the_gpus_to_the_workers(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB)
    seen = run(tmp_path, 3, "job.yaml", GANGLINE_GPUS="nvidia=2")
    assert seen == [f"CUDA_VISIBLE_DEVICES={id_} CUDA_DEVICE_ORDER=PCI_BUS_ID".strip() for id_ in ("", "0", "1")]


def test_a_wrong_variable_is_one_line_before_anything_starts(tmp_path: Path) -> None:
    env = {**os.environ, "GANGLINE_GPUS": "4"}
    command = [sys.executable, "-m", "gangline", "run", "--nproc", "1", "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=100)
    assert (done.returncode, done.stderr) == (1, "error: GANGLINE_GPUS=4: write none, nvidia=4 or amd=2\n")


@pytest.mark.parametrize("hangs", [False, True])
def test_an_nvidia_smi_on_the_path_is_asked(tmp_path: Path, hangs: bool) -> None:
    program = tmp_path / "bin" / "nvidia-smi"
    program.parent.mkdir()
    answer = "exec sleep 300" if hangs else "echo '0, NVIDIA GeForce RTX 3070, GPU-22b2c6ac, 8192, [N/A]'"
    program.write_text(f"#!/bin/sh\n{answer}\n")
    program.chmod(0o755)
    env = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    for name in ("CUDA_VISIBLE_DEVICES", "GANGLINE_GPUS"):
        env.pop(name, None)
    script = "import os; print('sees', os.environ.get('NVIDIA_VISIBLE_DEVICES'))"
    limits = () if hangs else ("--limit", "nvidia.com/gpu=1")
    command = [sys.executable, "-m", "gangline", "run", "--nproc", "1", *limits, "--", "python", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ("sees GPU-22b2c6ac" in done.stdout) is not hangs
    assert done.stderr.count("GANGLINE_GPUS=none goes without them") == int(hangs)


def test_the_gpus_of_this_machine_are_named_when_the_run_begins(tmp_path: Path) -> None:
    env = {**os.environ, "GANGLINE_GPUS": "nvidia=2"}
    command = [sys.executable, "-m", "gangline", "run", "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=100)
    assert re.search(r"^local control plane ready: \S+ · 2 x nvidia test GPU$", done.stderr, re.MULTILINE), done.stderr
