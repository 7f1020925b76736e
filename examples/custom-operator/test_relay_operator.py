"""Run with: python -m pytest. Needs no cluster: one is made here, and replicas run as processes."""

import asyncio
from pathlib import Path

import yaml

from gangline.testing import assert_converges, operator_cluster
from relay_operator import Relay

HERE = Path(__file__).parent
JOB = yaml.safe_load((HERE / "relayjob.yaml").read_text())


def test_every_member_adds_one_in_every_lap() -> None:
    async def relay() -> tuple[str, list[str]]:
        async with asyncio.timeout(60), operator_cluster(Relay(), folder=HERE) as cluster:
            done = await cluster.run(JOB)
            return done.status.conditions[-1].type, await cluster.logs("relay-coordinator-0")

    assert asyncio.run(relay()) == ("Succeeded", ["after 2 laps: 6"])


def test_a_relay_comes_to_the_same_end_whatever_happens_to_its_operator() -> None:
    assert_converges(Relay(), JOB)
