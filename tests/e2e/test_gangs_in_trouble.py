"""Gangs with real processes on one machine: operator, scheduler and node together, when a member is lost without room.

A cordoned node has no room for anybody new.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from gangline.api.core import Node, Pod
from gangline.api.kubeflow.kinds import MPIJob, PyTorchJob
from gangline.api.kubeflow.training import TrainingJob
from gangline.api.meta import JSON, Key
from gangline.api.scheduling import PodGroup
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.local.cluster import LocalSettings
from gangline.operator.assembly import embedded_plane
from gangline.operator.settings import LOCAL_GANG_SETTINGS
from gangline.runtime.informer import Delta, Informer

CLOCK = SystemClock()
KEY = Key("default", "job")


class Watching:
    """A job's group: every phase that it was ever in, and the newest of it."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.groups = Informer(client, PodGroup, clock=CLOCK)
        self.pods = Informer(client, Pod, clock=CLOCK)
        self.phases: list[str] = []

    def note(self, delta: Delta[PodGroup]) -> None:
        phase = delta.newest.status.state.phase
        if phase and self.phases[-1:] != [phase]:
            self.phases.append(phase)

    async def until(self, phase: str, minimum: int) -> None:
        """Its group is in that phase, with that minimum."""
        await self.groups.wait_until(
            lambda cache: any(group.status.state.phase == phase and group.spec.min_member == minimum for group in cache)
        )

    async def all_run(self, count: int) -> set[str]:
        def run(cache: Any) -> bool:
            return len(cache) == count and all(
                pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None for pod in cache
            )

        await self.pods.wait_until(run)
        return {pod.metadata.uid for pod in self.pods.cache}

    async def cordon(self, *, on: bool) -> None:
        await self.client.patch(Node, Key("", "local"), {"spec": {"unschedulable": on}})

    async def kill(self, name: str) -> None:
        await self.client.delete(Pod, Key("default", name))

    async def job(self, kind: type[TrainingJob]) -> TrainingJob:
        return await self.client.get(kind, KEY)


@asynccontextmanager
async def watching(folder: Path) -> AsyncIterator[Watching]:
    settings = LocalSettings(folder=folder, logs=folder / "logs")
    async with embedded_plane(settings, CLOCK, LOCAL_GANG_SETTINGS) as plane:
        seen = Watching(plane.client)
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            following = [group.create_task(each.run()) for each in (seen.groups, seen.pods)]
            with seen.groups.subscribe(seen.note):
                yield seen
            for task in following:
                task.cancel()


def role(container: str, count: int) -> JSON:
    runs = {"name": container, "image": "none", "command": ["sleep", "600"]}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [runs]}
    return {"replicas": count, "template": {"spec": spec}}


def made(kind: str, spec: JSON) -> JSON:
    return {"kind": kind, "metadata": {"name": KEY.name, "namespace": KEY.namespace}, "spec": spec}


async def test_k35_an_mpi_job_without_room_for_all_starts_anew_when_there_is_room(tmp_path: Path) -> None:
    replicas = {"mpiReplicaSpecs": {"Launcher": role("mpi", 1), "Worker": role("mpi", 2)}}
    async with watching(tmp_path) as seen:
        await seen.client.create(MPIJob, made("MPIJob", replicas))
        first = await seen.all_run(3)
        await seen.until("Running", 3)
        await seen.cordon(on=True)
        await seen.kill("job-worker-1")
        await seen.until("Pending", 3)
        # All that ran are gone; their successors wait.
        await seen.pods.wait_until(lambda cache: len(cache) == 3 and not first & {p.metadata.uid for p in cache})
        await seen.cordon(on=False)
        second = await seen.all_run(3)
        await seen.until("Running", 3)
        assert not first & second
        assert seen.phases == ["Pending", "Running", "Recovering", "Unschedulable", "Pending", "Running"]
        job = await seen.job(MPIJob)
        assert (job.status.restarts, job.status.ledger.round, job.status.ledger.renewals) == (0, 1, 1)


async def test_an_elastic_job_without_room_goes_on_with_fewer_and_grows_again(tmp_path: Path) -> None:
    spec = {
        "elasticPolicy": {"minReplicas": 1, "maxReplicas": 3},
        "runPolicy": {"schedulingPolicy": {"minAvailable": 3}},
        "pytorchReplicaSpecs": {"Worker": role("pytorch", 3)},
    }
    async with watching(tmp_path) as seen:
        await seen.client.create(PyTorchJob, made("PyTorchJob", spec))
        first = await seen.all_run(3)
        await seen.until("Running", 3)
        await seen.cordon(on=True)
        await seen.kill("job-worker-2")
        # It shrinks, and those who run go on.
        await seen.until("Running", 2)
        await seen.cordon(on=False)
        second = await seen.all_run(3)
        await seen.until("Running", 3)
        assert len(first & second) == 2
        assert seen.phases == ["Pending", "Running", "Recovering", "Unschedulable", "Running"]
        assert (await seen.job(PyTorchJob)).status.ledger.round == 0
