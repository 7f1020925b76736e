"""The library on both servers: a kind of somebody else's, run by `JobEngine` and by a controller that is not ours.

There is no kubelet here: tests say what becomes of pods.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from gangline.api.core import Event, Pod, Service
from gangline.api.meta import JSON, Key, Selector
from gangline.base.clock import SystemClock
from gangline.jobs.gangs.volcano import Volcano
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.errors import NotFound
from gangline.kube.options import PatchType
from gangline.kube.transport.http import HttpTransport
from gangline.operator import scheme_of
from gangline.operator.definitions import CRDS, create_crds
from gangline.operator.engine import JobEngine
from gangline.operator.settings import OperatorSettings
from gangline.runtime.manager import Manager
from own_controller import main as own_controller
from relay_operator import RELAYJOB, Relay, RelayJob
from support.waiting import wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom-operator"

GROUPS = "podgroups.scheduling.volcano.sh"
VOLCANO: JSON = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": GROUPS,
        "annotations": {"api-approved.kubernetes.io": "https://github.com/volcano-sh/volcano"},
    },
    "spec": {
        "group": "scheduling.volcano.sh",
        "names": {
            "kind": "PodGroup",
            "listKind": "PodGroupList",
            "plural": "podgroups",
            "singular": "podgroup",
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1beta1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""Of Volcano's own definition what the adapter needs."""


@pytest.fixture
async def client(server: Connection) -> AsyncIterator[Client]:
    async with HttpTransport(server) as transport:
        client = Client(transport, scheme=scheme_of([Relay()]))
        await create_crds(client, SystemClock(), [RELAYJOB])
        yield client


@asynccontextmanager
async def beside(work: Any) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as group:
        running = group.create_task(work)
        yield
        running.cancel()


async def operate(client: Client) -> None:
    manager = Manager(client, SystemClock())
    JobEngine(manager, client, OperatorSettings(), "test", SystemClock()).add_frameworks([Relay()])
    await manager.run(signals=False)


def body(**metadata: Any) -> JSON:
    found: JSON = yaml.safe_load((EXAMPLE / "relayjob.yaml").read_text())
    found["metadata"].update(metadata)
    return found


async def end_all(client: Client, namespace: str) -> None:
    """Every pod ends well, as a kubelet would say it, and the coordinator's last."""
    for pod in reversed((await client.list(Pod, Selector(namespace=namespace))).items):
        ended = {"name": "relay", "state": {"terminated": {"exitCode": 0}}, "image": "", "imageID": ""}
        status = {"phase": "Succeeded", "containerStatuses": [{**ended, "ready": False, "restartCount": 0}]}
        await client.patch(Pod, pod.metadata.key, {"status": status}, form=PatchType.STRATEGIC, subresource="status")


async def job(client: Client, namespace: str) -> RelayJob:
    return await client.get(RelayJob, Key(namespace, "relay"))


async def test_a_kind_of_ones_own_has_the_whole_life_of_a_job(client: Client, namespace: str) -> None:
    async with beside(operate(client)):
        await client.create(RelayJob, body(), namespace=namespace)
        where = Selector(namespace=namespace)

        async def all_made() -> bool:
            return [len((await client.list(kind, where)).items) for kind in (Pod, Service)] == [4, 4]

        await wait_until(all_made)
        pods = (await client.list(client.unstructured(Pod), where)).items
        told = {
            pod["metadata"]["name"]: {v["name"]: v.get("value") for v in pod["spec"]["containers"][0]["env"]}
            for pod in pods
        }
        assert told["relay-member-2"]["RELAY_NEXT"] == f"relay-coordinator-0.{namespace}.svc:5000"
        assert told["relay-coordinator-0"]["RELAY_NEXT"] == f"relay-member-0.{namespace}.svc:5000"
        await end_all(client, namespace)

        async def succeeded() -> bool:
            return (await job(client, namespace)).status.finished

        await wait_until(succeeded)
        status = (await job(client, namespace)).status
        assert status.conditions[-1].type == "Succeeded"
        assert status.conditions[-1].reason == "RelayJobSucceeded"
        assert (status.phase, status.replica_statuses["Member"].succeeded) == ("Done", 3)


async def test_the_schema_of_ones_own_kind_refuses_what_cannot_run(client: Client, namespace: str) -> None:
    wrong = body()
    del wrong["spec"]["relayReplicaSpecs"]["Coordinator"]
    with pytest.raises(Exception, match=r"RelayJob needs a Coordinator: add spec\.relayReplicaSpecs\.Coordinator"):
        await client.create(RelayJob, wrong, namespace=namespace)
    wrong = body()
    wrong["spec"]["relayReplicaSpecs"]["Coordinator"]["replicas"] = 2
    with pytest.raises(Exception, match="Coordinator must have exactly 1 replica"):
        await client.create(RelayJob, wrong, namespace=namespace)


@pytest.mark.parametrize("gang", [None, Volcano()], ids=["alone", "gang"])
async def test_the_engine_works_inside_somebody_elses_controller(
    server: Connection, client: Client, namespace: str, gang: Volcano | None
) -> None:
    if gang is not None:
        await client.apply(CRDS, VOLCANO, owner="tests", force=True)
        await wait_until(lambda: served(client, namespace))
    where = Selector(namespace=namespace)
    async with beside(own_controller(server, gang, SystemClock())):
        await client.create(RelayJob, body(), namespace=namespace)

        async def refused() -> bool:
            events = (await client.list(Event, where)).items
            return any(event.reason == "NoTeam" for event in events)

        await wait_until(refused)
        assert not (await client.list(Pod, where)).items
        await client.patch(RelayJob, Key(namespace, "relay"), {"metadata": {"labels": {"example.com/team": "a"}}})
        if gang is not None:
            kind = client.unstructured(client.scheme.find(GROUPS))

            async def grouped() -> Any:
                try:
                    return await client.get(kind, Key(namespace, "relay"))
                except NotFound:
                    return None

            group = await wait_until(grouped)
            assert group["spec"]["minMember"] == 4
            assert not (await client.list(Pod, where)).items
            await client.patch(kind, Key(namespace, "relay"), {"status": {"phase": "Inqueue"}})
            # Nobody watches PodGroups in that controller: it looks again when the job changes.
            await client.patch(RelayJob, Key(namespace, "relay"), {"metadata": {"labels": {"seen": "yes"}}})

        async def all_made() -> bool:
            return len((await client.list(Pod, where)).items) == 4

        await wait_until(all_made)
        pods = (await client.list(Pod, where)).items
        assert {pod.spec.scheduler_name for pod in pods} == ({"volcano"} if gang else {"default-scheduler"})
        await end_all(client, namespace)

        async def succeeded() -> bool:
            return (await job(client, namespace)).status.finished

        await wait_until(succeeded)


async def served(client: Client, namespace: str) -> bool:
    try:
        await client.list(client.unstructured(client.scheme.find(GROUPS)), Selector(namespace=namespace))
    except NotFound:
        return False
    return True
