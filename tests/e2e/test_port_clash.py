"""A stranger takes a port of a running team: the team starts anew with other ports, and succeeds."""

import asyncio
import json
import sys
from pathlib import Path

import msgspec
import pytest

from gangline.api.core import Pod, Service
from gangline.api.kubeflow.kinds import TFJob
from gangline.api.kubeflow.training import ADDRESSES_ANNOTATION, ConditionType
from gangline.api.meta import JSON, Key
from gangline.base.clock import SystemClock
from gangline.base.errors import InputError
from gangline.local.cluster import LocalCluster, LocalSettings
from gangline.node.network.service_ports import service_ports
from gangline.node.options import check_network
from gangline.node.ports import bind_port
from gangline.node.settings import NodeSettings
from gangline.operator.assembly import embedded_plane
from gangline.runtime.cache import Cache
from gangline.runtime.informer import Informer

# Listens where TF_CONFIG says, once it may.
SCRIPT = """
import json, os, pathlib, socket, sys, time
config = json.loads(os.environ["TF_CONFIG"])
host, port = config["cluster"]["worker"][config["task"]["index"]].rsplit(":", 1)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
with socket.create_server((socket.gethostbyname(host), int(port))):
    print("listened on", host)
"""


def job(*arguments: str, replicas: int = 2) -> JSON:
    command = [sys.executable, "-c", SCRIPT, *arguments]
    container = {"name": "tensorflow", "image": "none", "command": command}
    worker = {
        "replicas": replicas,
        "restartPolicy": "Never",
        "template": {"spec": {"containers": [container]}},
    }
    return {"metadata": {"name": "j", "namespace": "default"}, "spec": {"tfReplicaSpecs": {"Worker": worker}}}


async def ended(plane: LocalCluster) -> TFJob:
    jobs = Informer(plane.client, TFJob, clock=SystemClock())
    over = (ConditionType.SUCCEEDED, ConditionType.FAILED)

    def done(cache: Cache[TFJob]) -> bool:
        return any(each.status.holds(state) for each in cache for state in over)

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        following = group.create_task(jobs.run())
        await jobs.wait_until(done)
        following.cancel()
    (found,) = jobs.cache
    return found


def settings(folder: Path, network: str = "shared") -> LocalSettings:
    return LocalSettings(folder=folder, logs=folder / "logs", node=NodeSettings(network=network))


async def test_a_team_that_lost_a_port_is_healed(tmp_path: Path) -> None:
    async with embedded_plane(settings(tmp_path), SystemClock()) as plane:
        pods = Informer(plane.client, Pod, clock=SystemClock())
        await plane.client.create(TFJob, job(str(tmp_path / "go")))

        def running(cache: Cache[Pod]) -> bool:
            return len(cache) == 2 and all(pod.status.phase == "Running" for pod in cache)

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            following = group.create_task(pods.run())
            await pods.wait_until(running)
            following.cancel()
        first = await plane.client.get(Service, Key("default", "j-worker-0"))
        (stolen,) = service_ports(first).values()
        with bind_port(stolen) as stranger:
            stranger.listen()
            await asyncio.to_thread((tmp_path / "go").touch)
            found = await ended(plane)
        assert found.status.holds(ConditionType.SUCCEEDED), json.dumps(msgspec.to_builtins(found.status))
        second = await plane.client.get(Service, Key("default", "j-worker-0"))
        assert second.metadata.uid != first.metadata.uid
        assert stolen not in service_ports(second).values()


async def test_with_a_network_for_every_pod_a_job_has_the_names_and_ports_of_a_cluster(
    tmp_path: Path,
) -> None:
    try:
        check_network()
    except InputError as error:
        pytest.skip(str(error))
    (tmp_path / "go").touch()
    async with embedded_plane(settings(tmp_path, network="isolated"), SystemClock()) as plane:
        await plane.client.create(TFJob, job(str(tmp_path / "go")))
        found = await ended(plane)
        assert found.status.holds(ConditionType.SUCCEEDED), json.dumps(msgspec.to_builtins(found.status))
        service = await plane.client.get(Service, Key("default", "j-worker-1"))
        assert service.metadata.annotations[ADDRESSES_ANNOTATION] == '{"tfjob-port":"j-worker-1.default.svc:2222"}'
