"""Real teams on a busy machine: one rank fails, its peers fail in words of their own, and the first one is named.

`make test-soak` runs 200 teams; `GANGLINE_TEAMS` sets another number.
"""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from gangline.api.kubeflow.kinds import PyTorchJob
from gangline.api.meta import JSON, Key
from gangline.base.clock import SystemClock
from gangline.local.cluster import LocalCluster, LocalSettings
from gangline.operator.assembly import embedded_plane
from support.failing_teams import program
from support.failing_teams.plans import random_plan
from support.waiting import wait_until

TEAMS = int(os.environ.get("GANGLINE_TEAMS", "10"))
MEMORY = "200Mi"


@pytest.fixture
async def plane(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with embedded_plane(LocalSettings(folder=tmp_path, logs=tmp_path / "logs"), SystemClock()) as plane:
        yield plane


@pytest.fixture
def load() -> Iterator[None]:
    """Two processes that use all the CPU they get."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def team(name: str, folder: Path, plan: dict[str, Any]) -> JSON:
    script = f'exec "{sys.executable}" "{program.__file__}" "{folder}" "$RANK"'
    container = {
        "name": "pytorch",
        "image": "none",
        "command": ["sh", "-c", script],
        "resources": {"limits": {"memory": MEMORY}},
    }
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}}
    counts = {"Master": 1, "Worker": plan["size"] - 1}
    replicas = {
        kind: {"replicas": count, "restartPolicy": "Never", "template": template} for kind, count in counts.items()
    }
    spec = {"runPolicy": {"cleanPodPolicy": "Running"}, "pytorchReplicaSpecs": replicas}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


async def first_failing_rank(plane: LocalCluster, name: str, folder: Path, plan: dict[str, Any]) -> int | None:
    """Run a team to its end. Returns the rank that its status names."""
    folder.mkdir()  # noqa: ASYNC240 - of a test
    (folder / "plan.json").write_text(json.dumps(plan))
    await plane.client.create(PyTorchJob, team(name, folder, plan))
    key = Key("default", name)

    async def has_ended() -> bool:
        return (await plane.client.get(PyTorchJob, key)).status.finished

    await wait_until(has_ended, seconds=120)
    failure = (await plane.client.get(PyTorchJob, key)).status.first_failure
    await plane.client.delete(PyTorchJob, key)
    return failure.rank if failure is not None else None


@pytest.mark.timeout(60 + 15 * TEAMS)
@pytest.mark.usefixtures("load")
async def test_the_first_failing_rank_of_random_teams_is_named(plane: LocalCluster, tmp_path: Path) -> None:
    wrong = {}
    for seed in range(TEAMS):
        plan = random_plan(seed)
        rank = await first_failing_rank(plane, f"team-{seed}", tmp_path / f"team-{seed}", plan)
        if rank != plan["cause"]:
            wrong[seed] = (rank, plan)
    assert not wrong, f"{len(wrong)} of {TEAMS}"
