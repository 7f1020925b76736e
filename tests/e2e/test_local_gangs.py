"""Gangs on the local plane, with real processes: they queue and wait as they would in a cluster."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.api.kubeflow.kinds import TFJob
from gangline.api.meta import JSON, Key, Object, Selector
from gangline.api.scheduling import SCHEDULER_NAME, PodGroup
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.errors import NotFound
from gangline.local.cluster import LocalSettings
from gangline.node.options import node_settings as node_settings
from gangline.operator.assembly import embedded_plane
from gangline.operator.settings import LOCAL_SETTINGS

T = TypeVar("T", bound=Object)
PATIENCE = 60.0


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[Client]:
    """A plane whose node offers three GPUs; pods run in its folder."""
    node = node_settings(capacity=("nvidia.com/gpu=3", "cpu=64"), images=None, runtime="process", network="shared")
    settings = LocalSettings(folder=tmp_path, logs=tmp_path / "logs", node=node)
    only = msgspec.structs.replace(LOCAL_SETTINGS, kinds=("TFJob",))
    async with embedded_plane(settings, SystemClock(), only) as plane:
        yield plane.client


def job(name: str, workers: int, command: str, *, gang: bool = True) -> JSON:
    container = {
        "name": "tensorflow",
        "image": "i",
        "command": ["sh", "-c", command],
        "resources": {"limits": {"nvidia.com/gpu": "1"}},
    }
    replica = {
        "replicas": workers,
        "restartPolicy": "ExitCode",
        "template": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 1}},
    }
    policy = {"schedulingPolicy": {"minAvailable": workers}} if gang else {}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {"tfReplicaSpecs": {"Worker": replica}, "runPolicy": {"cleanPodPolicy": "None", **policy}},
    }


async def until(client: Client, kind: type[T], name: str, holds: Callable[[T], bool]) -> T:
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(NotFound):
                if holds(found := await client.get(kind, Key("default", name))):
                    return found
            await asyncio.sleep(0.02)


async def pods(client: Client, job: str) -> list[Pod]:
    where = Selector(namespace="default", labels=f"training.kubeflow.org/job-name={job}")
    return list((await client.list(Pod, where)).items)


async def submit(client: Client, body: JSON) -> None:
    await client.create(TFJob, body, namespace="default")


async def test_a_gang_that_does_not_fit_waits_whole_until_the_other_has_ended(client: Client, tmp_path: Path) -> None:
    await submit(client, job("one", 2, "until test -e go; do sleep 0.02; done"))
    await until(client, PodGroup, "one", lambda group: group.status.state.phase == "Running")
    assert {pod.spec.scheduler_name for pod in await pods(client, "one")} == {SCHEDULER_NAME}
    # One GPU is free, and it needs two.
    await submit(client, job("two", 2, "true"))
    waiting = await until(client, PodGroup, "two", lambda group: group.status.state.reason == "NotEnoughResources")
    assert waiting.status.state.phase == "Pending"
    assert not any(pod.spec.node_name for pod in await pods(client, "two"))
    (tmp_path / "go").touch()
    for name in ("one", "two"):
        done = await until(client, TFJob, name, lambda found: found.status.finished)
        assert done.status.phase == "Done"


async def test_a_member_that_dies_is_replaced_and_the_gang_is_whole_again(client: Client, tmp_path: Path) -> None:
    once = 'test "$(cat first 2>/dev/null)" || { until test -e die; do sleep 0.02; done; echo x > first; exit 137; }'
    only_first = 'case "$TF_CONFIG" in *\'"index": 0}\'*|*\'"index":0}\'*) ' + once + ";; esac"
    await submit(client, job("j", 2, f"{only_first}; until test -e go; do sleep 0.02; done"))
    first = await until(client, PodGroup, "j", lambda group: group.status.state.phase == "Running")
    (tmp_path / "die").touch()
    again = await until(
        client,
        PodGroup,
        "j",
        lambda group: (
            group.status.state.phase == "Running"
            and (tmp_path / "first").exists()
            and group.metadata.resource_version != first.metadata.resource_version
            and group.status.running == 2
        ),
    )
    assert again.status.state.message == "2/2 members running"
    (tmp_path / "go").touch()
    done = await until(client, TFJob, "j", lambda found: found.status.finished)
    assert done.status.restarts == 1


async def test_pods_of_both_schedulers_see_each_others_use(client: Client, tmp_path: Path) -> None:
    await submit(client, job("plain", 2, "until test -e go; do sleep 0.02; done", gang=False))
    for number in range(2):
        await until(client, Pod, f"plain-worker-{number}", lambda found: bool(found.spec.node_name))
    await submit(client, job("gang", 2, "true"))
    await until(client, PodGroup, "gang", lambda group: group.status.state.reason == "NotEnoughResources")
    (tmp_path / "go").touch()
    await until(client, TFJob, "gang", lambda found: found.status.finished)
    # And the other way round.
    await submit(client, job("gang2", 3, "until test -e gone; do sleep 0.02; done"))
    await until(client, PodGroup, "gang2", lambda group: group.status.state.phase == "Running")
    await submit(client, job("late", 1, "true", gang=False))
    await until(
        client,
        Pod,
        "late-worker-0",
        lambda pod: any(found.reason == "Unschedulable" for found in pod.status.conditions),
    )
    (tmp_path / "gone").touch()
    await until(client, TFJob, "gang2", lambda found: found.status.finished)
