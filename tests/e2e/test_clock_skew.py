"""An operator whose clock differs by an hour from that of the API server and the nodes: no limit is over too early or late."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gangline.api.meta import JSON, Key
from gangline.base.clock import SystemClock
from gangline.base.tasks import background_tasks, unwrap_exception_group
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.local.cluster import LocalSettings, local_cluster
from gangline.operator.assembly import run_engine
from gangline.operator.definitions import create_crds
from gangline.operator.engine import enabled_frameworks, scheme_of
from gangline.operator.settings import OperatorSettings
from gangline.summary.job_state import job_state
from gangline.summary.objects import JOB_KINDS
from support.servers.dashboard import job_body
from support.waiting import wait_until

pytestmark = pytest.mark.faults

PYTORCHJOBS = next(kind for kind in JOB_KINDS if kind.kind == "PyTorchJob")
SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


class ShiftedClock(SystemClock):
    """A wall clock that is wrong by a constant."""

    def __init__(self, shift: timedelta) -> None:
        self._shift = shift

    def now(self) -> datetime:
        return super().now() + self._shift


@asynccontextmanager
async def cluster(folder: Path, shift: timedelta) -> AsyncIterator[Client]:
    """A server and a node, and the operator of a cluster with a shifted clock."""
    settings = OperatorSettings()
    frameworks = enabled_frameworks(settings)
    local = LocalSettings(folder=folder, logs=folder / "pods")
    with unwrap_exception_group():
        async with local_cluster(local, scheme_of(frameworks, settings.site.gang_schedulers), SystemClock()) as plane:
            await create_crds(plane.client, SystemClock(), [framework.facts for framework in frameworks])
            async with background_tasks(run_engine(plane.client, settings, frameworks, ShiftedClock(shift))):
                yield plane.client


def job(name: str, *command: str, restart: str = "Never", **policy: Any) -> JSON:
    body = job_body(name, list(command), workers=0)
    body["spec"]["pytorchReplicaSpecs"]["Master"]["restartPolicy"] = restart
    body["spec"]["runPolicy"] = policy
    return body


@pytest.mark.parametrize("hours", [-1, 1])
async def test_limits_and_verdicts_hold_with_another_clock(tmp_path: Path, hours: int) -> None:
    async with cluster(tmp_path, timedelta(hours=hours)) as client:

        async def state(name: str) -> str:
            try:
                return job_state(await client.get(PYTORCHJOBS, Key("default", name)))
            except NotFound:
                return "gone"

        async def until(name: str, wanted: str) -> None:
            async def is_so() -> bool:
                return await state(name) == wanted

            await wait_until(is_so)

        for body in (
            job("long", *SLEEP, activeDeadlineSeconds=900),
            job("overdue", *SLEEP, activeDeadlineSeconds=1),
            job("wrong", "false", restart="ExitCode", restartScope="Job"),
            job("kept", "true", ttlSecondsAfterFinished=900),
            job("removed", "true", ttlSecondsAfterFinished=1),
        ):
            await client.create(PYTORCHJOBS, body, namespace="default")
        await until("overdue", "Failed")
        await until("wrong", "Failed")
        await until("removed", "gone")
        await until("kept", "Succeeded")
        assert await state("long") == "Running"
        reasons = [
            item["message"]
            for item in (await client.get(PYTORCHJOBS, Key("default", "overdue")))["status"]["conditions"]
        ]
        assert "active longer than specified deadline" in reasons[-1]
