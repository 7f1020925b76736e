"""The custom operator as its author runs it: an example whose replicas are processes; and our verbs, which know it."""

import asyncio
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from gangline.api.meta import JSON
from gangline.testing import operator_cluster
from relay_operator import Relay

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom-operator"


class Said(NamedTuple):
    code: int
    out: str
    err: str


async def gangline(config: Path, *words: str) -> Said:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gangline", *words, "--kubeconfig", str(config)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode is not None
    return Said(process.returncode, out.decode(), err.decode())


def job(name: str, program: str = "relay.py") -> JSON:
    found: JSON = yaml.safe_load((EXAMPLE / "relayjob.yaml").read_text().replace("relay.py", program))
    found["metadata"]["name"] = name
    return found


@pytest.fixture
def said() -> dict[str, Said]:
    """What our verbs say of a job of that kind that went well, and of one that did not."""

    async def everything() -> dict[str, Said]:
        async with asyncio.timeout(90), operator_cluster(Relay(), folder=EXAMPLE) as cluster:
            await cluster.run(job("good"))
            await cluster.run(job("bad", "missing.py"))
            words = (
                "get relayjobs",
                "get trainingjobs -o name",
                "describe relayjob/good",
                "logs good --replica coordinator/0",
                "wait relayjob/bad",
                "why good",
                "why relayjob/bad",
                "logs relayjob/none",
                "describe sparkjob/good",
            )
            return {line: await gangline(cluster.kubeconfig, *line.split()) for line in words}

    return asyncio.run(everything())


def test_our_verbs_know_kinds_that_follow_the_contract(said: dict[str, Said]) -> None:
    assert {line: found.code for line, found in said.items()} == {
        "get relayjobs": 0,
        "get trainingjobs -o name": 0,
        "describe relayjob/good": 0,
        "logs good --replica coordinator/0": 0,
        "wait relayjob/bad": 100,
        "why good": 3,
        "why relayjob/bad": 0,
        "logs relayjob/none": 102,
        "describe sparkjob/good": 1,
    }, said
    assert said["get trainingjobs -o name"].out.split() == [
        "relayjob.example.com/bad",
        "relayjob.example.com/good",
    ]
    assert said["logs good --replica coordinator/0"].out.endswith("after 2 laps: 6\n")
    assert "member-2" in said["describe relayjob/good"].out
    assert "missing.py" in said["why relayjob/bad"].out
    assert "RelayJob default/good is Succeeded." in said["why good"].out
    assert '"sparkjob" is no kind of training job' in said["describe sparkjob/good"].err
