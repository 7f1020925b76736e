"""PodGroup and Queue on both servers: what they refuse, in which words, and that only the status is the scheduler's."""

import asyncio
import uuid
from datetime import timedelta
from typing import Any

import pytest

from gangline.api.meta import JSON, Key
from gangline.api.scheduling import PODGROUPS, QUEUES, PodGroup
from gangline.api.scheme import CORE_SCHEME
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.discovery import is_served, server_resources
from gangline.kube.errors import AlreadyExists, Invalid
from gangline.kube.options import FieldValidation, WriteOptions
from gangline.operator.definitions import CRDS
from gangline.schema.crds.gang_crds import GANG_RESOURCES, gang_crd, gang_crds

CLOCK = SystemClock()


@pytest.fixture
async def gangs(client: Client) -> Client:
    """A client of a server that knows both."""
    for definition in gang_crds():
        try:
            await client.create(CRDS, definition)
        except AlreadyExists:
            break
    async with asyncio.timeout(60):
        while not all([await is_served(client, resource) for resource in GANG_RESOURCES]):
            await CLOCK.sleep(timedelta(milliseconds=20))
    return Client(client.transport, scheme=CORE_SCHEME.with_resources(*GANG_RESOURCES))


def group(**spec: Any) -> JSON:
    return {"metadata": {"name": f"g-{uuid.uuid4().hex[:8]}"}, "spec": spec}


async def test_definitions_are_taken_without_a_warning(client: Client, told: list[str]) -> None:
    strict = client.with_options(WriteOptions(dry_run=True, field_validation=FieldValidation.STRICT))
    for resource in GANG_RESOURCES:
        definition = gang_crd(resource, described=True)
        definition["spec"]["group"] = "gangs.contract.example.com"
        definition["metadata"]["name"] = f"{resource.plural}.gangs.contract.example.com"
        await strict.create(CRDS, definition)
    assert told == []


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"minMember": 0},
            "spec.minMember: Invalid value: 0: spec.minMember in body should be greater than or equal to 1",
        ),
        ({"queue": "a"}, "spec.minMember: Required value"),
        ({"minMember": 1, "topology": {"required": True}}, "spec.topology.key: Required value"),
    ],
    ids=["none", "no-minimum", "no-key"],
)
async def test_a_group_that_cannot_be_meant_is_refused(gangs: Client, namespace: str, spec: JSON, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        await gangs.create(gangs.unstructured(PODGROUPS), group(**spec), namespace=namespace)
    assert refused.value.status.message.partition(" is invalid: ")[2] == message


async def test_a_weight_is_at_least_one_and_one_if_left_out(gangs: Client) -> None:
    queues, name = gangs.unstructured(QUEUES), f"q-{uuid.uuid4().hex[:8]}"
    with pytest.raises(Invalid, match=r"spec\.weight"):
        await gangs.create(queues, {"metadata": {"name": name}, "spec": {"weight": 0}})
    made = await gangs.create(queues, {"metadata": {"name": name}, "spec": {}})
    assert made["spec"] == {"weight": 1, "reclaimable": True}


async def test_the_state_is_written_through_the_status_alone(gangs: Client, namespace: str) -> None:
    body = group(minMember=2)
    key = Key(namespace, body["metadata"]["name"])
    status = {"state": {"phase": "Running", "message": "2/2 members running"}, "running": 2}
    made = await gangs.create(PODGROUPS, {**body, "status": status}, namespace=namespace)
    assert made.status == PodGroup().status
    await gangs.patch(PODGROUPS, key, {"status": status}, subresource="status")
    found = await gangs.get(PODGROUPS, key)
    assert (found.status.state.phase, found.status.running) == ("Running", 2)
    assert found.metadata.generation == made.metadata.generation
    with pytest.raises(Invalid, match='Unsupported value: "Unknown"'):
        await gangs.patch(PODGROUPS, key, {"status": {"state": {"phase": "Unknown"}}}, subresource="status")


async def test_their_short_names_are_known(gangs: Client) -> None:
    found = {
        each.resource.kind: each.short_names
        for each in await server_resources(gangs)
        if each.resource.group == PODGROUPS.group
    }
    assert found == {"PodGroup": ("gang", "gangs"), "Queue": ("gangqueue", "gangqueues")}
