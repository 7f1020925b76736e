"""A `Trainer` of transformers reports its progress with no change of code, from a process and through the API."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.frameworks import FrameworkEnvironments
from support.waiting import wait_until_blocking

PATIENCE = 240
# What a person writes who knows nothing of gangline: a tiny model made from a config, random tokens, on CPUs.
PROGRAM = """
import sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        tokens = torch.full((16,), index % 7)
        return {"input_ids": tokens, "labels": tokens}

steps = int(sys.argv[1])
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=32, vocab_size=32, n_positions=32))
arguments = TrainingArguments(
    "out", max_steps=steps, logging_steps=5, per_device_train_batch_size=4, save_strategy="no", use_cpu=True,
    disable_tqdm=True,
)
Trainer(model=model, args=arguments, train_dataset=Tokens()).train()
"""


@pytest.fixture
def python(frameworks: FrameworkEnvironments) -> str:
    return str(frameworks.environment("torch") / "bin" / "python")


@pytest.fixture
def environment(frameworks: FrameworkEnvironments, tmp_path: Path) -> dict[str, str]:
    """The variables with which transformers is found beside torch, and asks nobody on the network for anything."""
    (packages,) = (frameworks.environment("transformers") / "lib").glob("python*/site-packages")
    (tmp_path / "train.py").write_text(PROGRAM)
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf"), "TOKENIZERS_PARALLELISM": "false"}
    return {**os.environ, **offline, "GANGLINE_HOME": str(tmp_path / "home"), "TRANSFORMERS_PACKAGES": str(packages)}


def gangline(*words: str, cwd: Path, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "gangline", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, timeout=PATIENCE)


def training(python: str, environment: dict[str, str], steps: int) -> tuple[str, ...]:
    """The command that trains. Only its own process sees the packages of transformers."""
    return ("env", f"PYTHONPATH={environment['TRANSFORMERS_PACKAGES']}", python, "train.py", str(steps))


def long_job(command: tuple[str, ...]) -> dict[str, object]:
    """A PyTorchJob of two ranks."""
    container = {"name": "pytorch", "image": "none", "command": list(command)}
    replica = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    spec = {"pytorchReplicaSpecs": {"Master": replica, "Worker": replica}}
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": "long"}, "spec": spec}


def test_an_unmodified_trainer_shows_its_progress_and_loss(
    python: str, environment: dict[str, str], tmp_path: Path
) -> None:
    words = ("run", "--nproc", "1", "-o", "json", "--", *training(python, environment, 30))
    done = gangline(*words, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"master-0 +step 0/30  0 %", done.stderr), done.stderr
    assert re.search(r"master-0 +step 30/30  100 %  .*loss ", done.stderr), done.stderr
    progress = json.loads(done.stdout)["status"]["progress"]
    assert (progress["step"], progress["total"], progress["replica"]) == (30, 30, "master-0")
    assert 0 < progress["metrics"]["loss"] < 10
    assert {"train_loss", "learning_rate", "epoch"} <= progress["metrics"].keys()


def test_while_it_trains_the_status_has_its_steps_and_the_time_that_is_left(
    python: str, environment: dict[str, str], tmp_path: Path
) -> None:
    assert gangline("up", "--detach", cwd=tmp_path, env=environment).returncode == 0
    try:
        (tmp_path / "job.json").write_text(json.dumps(long_job(training(python, environment, 1_000_000))))
        assert gangline("submit", "job.json", cwd=tmp_path, env=environment).returncode == 0

        def progress() -> dict[str, object]:
            told = gangline("get", "pytorchjobs", "long", "-o", "json", cwd=tmp_path, env=environment)
            found: dict[str, object] = json.loads(told.stdout).get("status", {}).get("progress") or {}
            return found

        wait_until_blocking(lambda: progress().get("step", 0) != 0, "no step is reported", seconds=PATIENCE)
        found = progress()
        # Of two ranks the first reports.
        assert (found["total"], found["replica"]) == (1_000_000, "master-0")
        left = found["estimatedRemainingSeconds"]
        assert isinstance(left, int)
        assert left > 60
        assert "eta=" in gangline("get", "jobs", "-o", "wide", cwd=tmp_path, env=environment).stdout
    finally:
        assert gangline("down", cwd=tmp_path, env=environment).returncode == 0
