"""Stacks of a job on the embedded plane: read directly, by a command in the pods, and typed."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
import yaml

from gangline.api.core import Pod
from gangline.api.kubeflow.kinds import PYTORCHJOB
from gangline.api.meta import Selector
from gangline.base.clock import SystemClock
from gangline.local.cluster import LocalCluster, LocalSettings
from gangline.local.plane import PlaneSettings
from gangline.local.stack_sampling import LocalStackSampler
from gangline.operator.assembly import embedded_plane
from gangline.stacks.cluster import ClusterStackSampler
from gangline.stacks.groups import stack_groups
from gangline.stacks.model import StackSampler
from gangline.stacks.sentence import stacks_sentence
from support.cases.why_faults import fault_job
from support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]

CLOCK = SystemClock()
COMMAND = "import sys; from gangline.__main__ import main; sys.argv[0] = 'gangline'; sys.exit(main())"
TRAIN = """\
import os
import time
from data import batch

def all_reduce():
    os.read(os.pipe()[0], 1)

def step():
    if os.environ["RANK"] == "2":
        batch()
    all_reduce()

step()
"""
DATA = """\
import time
def batch():
    time.sleep(600)
"""
EXPECTED = "2 of 3 ranks are in all_reduce (train.py:6); worker-1 (rank 2) sleeps (data.py:3)"


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    """A plane with a job of three, of which one stands elsewhere, behind a shell."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "data.py").write_text(DATA)
    settings = LocalSettings(folder=tmp_path, logs=tmp_path / "pods", plane=PlaneSettings(token="of-this-test"))
    command = ("sh", "-c", f"{sys.executable} {tmp_path / 'train.py'}; true")
    async with embedded_plane(settings, CLOCK) as running:
        job = fault_job("odd", *command, kind="PyTorchJob", Master=1, Worker=2)
        await running.client.create(PYTORCHJOB.resource, job, namespace="default")
        yield running


async def running_pods(plane: LocalCluster) -> Sequence[Pod]:
    async def all_run() -> Sequence[Pod]:
        pods = (await plane.client.list(Pod, Selector("default"))).items
        return sorted(pods, key=lambda pod: pod.metadata.name) if len(pods) == 3 and _all_run(pods) else ()

    return await wait_until(all_run, seconds=60)


def _all_run(pods: Sequence[Pod]) -> bool:
    return all(pod.status.phase == "Running" for pod in pods)


@pytest.mark.parametrize("by", ["processes", "exec"])
async def test_the_odd_rank_is_found(plane: LocalCluster, tmp_path: Path, by: str) -> None:
    pods = await running_pods(plane)
    sampler: StackSampler = LocalStackSampler(tmp_path / "pods")
    if by == "exec":
        sampler = ClusterStackSampler(plane.client, CLOCK)
    sentence = ""

    async def standing() -> bool:
        nonlocal sentence
        sentence = stacks_sentence(stack_groups(await sampler.sample(pods)))
        return sentence == EXPECTED

    try:
        await wait_until(standing, seconds=60)
    except TimeoutError:
        pytest.fail(sentence)


async def test_the_command_shows_groups_and_answers_programs(plane: LocalCluster, tmp_path: Path) -> None:
    await running_pods(plane)
    config = tmp_path / "kubeconfig"
    config.write_text(yaml.safe_dump(plane.access.kubeconfig()))

    async def typed(*words: str) -> tuple[int, str, str]:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", COMMAND, "stacks", *words, "--kubeconfig", str(config)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=tmp_path,
        )
        out, err = await process.communicate()
        return process.returncode or 0, out.decode(), err.decode()

    async def stands() -> str | None:
        code, out, err = await typed("odd")
        assert (code, err) == (0, "")
        return out if out.startswith(EXPECTED) else None

    text = await wait_until(stands)
    assert text.splitlines()[2:] == [
        "2 ranks are in all_reduce",
        "  master-0 (rank 0), worker-0 (rank 1)",
        "  > all_reduce  train.py:6   os.read(os.pipe()[0], 1)",
        "  > step        train.py:11  all_reduce()",
        "  > <module>    train.py:13  step()",
        "",
        "1 rank sleeps: not where the others are",
        "  worker-1 (rank 2)",
        "  > batch     data.py:3    time.sleep(600)",
        "  > step      train.py:10  batch()",
        "  > <module>  train.py:13  step()",
    ]
    code, out, _ = await typed("odd", "-o", "json", "--replica", "worker/1")
    report = json.loads(out)
    assert (code, report["sentence"]) == (0, "worker-1 (rank 2) sleeps (data.py:3)")
    assert [group["location"] for group in report["groups"]] == ["data.py:3"]
    code, _, err = await typed("nobody")
    assert (code, "nobody" in err) == (102, True)
