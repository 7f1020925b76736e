"""Real teams on a busy machine: one rank fails, its peers fail in words of their own, and the first one is named.

`make test-soak` runs 200 teams; `GANGLINE_TEAMS` sets another number.
"""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from gangline.api.codec.codec import to_json
from gangline.api.kubeflow.kinds import PYTORCHJOB, PyTorchJob
from gangline.api.kubeflow.training import Failure, JobPhase
from gangline.api.meta import JSON, Key
from gangline.base.clock import SystemClock
from gangline.cli.follow.follower import Follower
from gangline.cli.follow.log_sources import FileLogSource
from gangline.cli.follow.outcome import plain_summary
from gangline.cli.follow.screen import PlainScreen
from gangline.local.cluster import LocalCluster, LocalSettings
from gangline.notify.plan.transitions import failure_summary
from gangline.operator.assembly import embedded_plane
from gangline.sdk.errors import JobFailed
from gangline.sdk.job import Job
from gangline.why.collect import collect
from gangline.why.diagnosis.diagnose import diagnose
from support.failing_teams import program
from support.failing_teams.plans import random_plan
from support.servers.dashboard import dashboard_plane
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
    """Run a team to its end. Returns the rank that its status names when nothing can correct it any more."""
    folder.mkdir()  # noqa: ASYNC240 - of a test
    (folder / "plan.json").write_text(json.dumps(plan))
    await plane.client.create(PyTorchJob, team(name, folder, plan))
    key = Key("default", name)

    async def has_ended() -> bool:
        return (await plane.client.get(PyTorchJob, key)).status.phase == JobPhase.FAILED

    await wait_until(has_ended, seconds=600)
    failure = (await plane.client.get(PyTorchJob, key)).status.first_failure
    await plane.client.delete(PyTorchJob, key)
    return failure.rank if failure is not None else None


@pytest.mark.faults
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


CAUSE = {"how": "exception", "type": "RuntimeError", "code": 1, "words": "the tokenizer knows no such token"}
PEERS = (
    {"how": "exception", "type": "Gone", "code": 1, "words": "what a pity", "delay": 0.0},
    {"how": "exit", "type": "Gone", "code": 4, "words": "lost rank 2", "delay": 0.0},
)


async def test_everybody_names_the_same_rank_and_the_same_reason(tmp_path: Path) -> None:
    """One real team: worker-1 fails, and its peers are not slow to complain."""
    plan = {"size": 3, "cause": 2, "notice": "end", "steps": 2, "ranks": [*PEERS, CAUSE]}
    folder, key, clock = tmp_path / "files", Key("default", "bert"), SystemClock()
    who, what = "worker-1 (rank 2)", "RuntimeError: the tokenizer knows no such token"
    async with dashboard_plane(tmp_path) as plane, plane.logged_in() as browser:
        folder.mkdir()
        (folder / "plan.json").write_text(json.dumps(plan))
        made = await plane.client.create(PyTorchJob, team("bert", folder, plan))
        screen = StringIO()
        logs = FileLogSource(tmp_path / "pods", key)
        outcome = await Follower(plane.client, PYTORCHJOB, logs, clock, PlainScreen(screen, clock)).watch(made)
        body = to_json(await plane.client.get(PyTorchJob, key))
        report = diagnose(await collect(plane.client, "bert", "default", clock))
        detail = await browser.get("/api/jobs/default/pytorchjobs/bert")
    body |= {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob"}
    failure = body["status"]["firstFailure"]
    assert (failure["replica"], failure["rank"], failure["exitCode"], failure["log"][-1]) == ("worker-1", 2, 1, what)
    assert not failure.get("orderUnknown")
    summary = "\n".join("".join(span.text for span in line) for line in plain_summary(outcome))
    assert f"first to fail: {who} with exit code 1" in summary
    assert what in summary
    assert who in report.cause
    assert what.partition(": ")[2] in report.cause
    assert report.causes[0].replicas == ("worker-1",)
    error = JobFailed(Job(body))
    assert (error.replica, error.rank, str(error).splitlines()[0]) == ("worker-1", 2, f"{who}: {what}")
    assert error._render_traceback_()[0].startswith(f"JobFailed: {who}: {what}")
    assert detail["row"]["reason"] == f"{who} exit 1"
    assert detail["firstFailure"] == failure
    causes = [mark["row"] for mark in detail["timeline"]["marks"] if mark.get("cause")]
    assert causes == ["worker-1"]
    assert failure_summary(outcome.job.status.first_failure or Failure("")).startswith(f"{who} exit 1")
