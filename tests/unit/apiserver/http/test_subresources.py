"""`scale` over HTTP: the owners of the replicas, and valid replicas of a CRD."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.servers.plane import PlaneAnswer, PlaneClient, running_plane, widget_crd

SETS = "/apis/apps/v1/namespaces/default/replicasets"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
APPLY, MERGE = "application/apply-patch+yaml", "application/merge-patch+json"


@pytest.fixture
async def plane() -> AsyncIterator[PlaneClient]:
    async with running_plane() as running:
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
        await running.call("POST", SETS, {"metadata": {"name": "s"}, "spec": spec})
        yield running


async def applied(plane: PlaneClient, replicas: Any, manager: str, **query: str) -> PlaneAnswer:
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "s"}}
    body = {**scale, "spec": {"replicas": replicas}}
    return await plane.call("PATCH", f"{SETS}/s/scale", body, media=APPLY, fieldManager=manager, **query)


async def owners(plane: PlaneClient) -> list[tuple[str, str, str]]:
    """The owners of the replicas: manager, operation, subresource."""
    managed = (await plane.call("GET", f"{SETS}/s")).body["metadata"]["managedFields"]
    return [
        (entry["manager"], entry["operation"], entry.get("subresource", ""))
        for entry in managed
        if "f:replicas" in entry["fieldsV1"]["f:spec"]
    ]


async def test_applied_scale_conflicts_with_other_owners_of_the_replicas(plane: PlaneClient) -> None:
    refused = await applied(plane, 3, "me")
    assert refused.status == 409
    told = 'Apply failed with 1 conflict: conflict with "tester" using autoscaling/v1: .spec.replicas'
    assert refused.body["message"] == told
    assert (await applied(plane, 3, "me", force="False")).status == 409
    forced = await applied(plane, 3, "me", force="True")
    assert (forced.status, forced.body["kind"], forced.body["spec"]) == (200, "Scale", {"replicas": 3})
    assert await owners(plane) == [("me", "Apply", "scale")]


async def test_managers_that_apply_the_same_replicas_share_them(plane: PlaneClient) -> None:
    await applied(plane, 2, "a", force="true")
    assert (await applied(plane, 2, "b")).status == 200
    assert await owners(plane) == [("a", "Apply", "scale"), ("b", "Apply", "scale")]
    told = (await applied(plane, 3, "b")).body["message"]
    assert told == 'Apply failed with 1 conflict: conflict with "a" with subresource "scale": .spec.replicas'


async def test_only_a_scale_can_be_applied_to_a_scale(plane: PlaneClient) -> None:
    body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "s"}}
    answer = await plane.call("PATCH", f"{SETS}/s/scale", body, media=APPLY, fieldManager="me")
    assert (answer.status, answer.body["message"]) == (400, "invalid object type: apps/v1, Kind=ReplicaSet")
    assert (await applied(plane, "x", "me")).status == 500
    assert (await applied(plane, -1, "me", force="true")).status == 422


async def test_replicas_of_a_custom_resource_fit_into_a_scale(plane: PlaneClient) -> None:
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.ready"}
    made = widget_crd(subresources={"status": {}, "scale": scale})
    await plane.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", made)
    await plane.poll_status(WIDGETS, 200)
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}}
    answer = await plane.call("POST", WIDGETS, {**widget, "spec": {"size": -1}})
    assert answer.status == 422
    assert ".spec.size: Invalid value: -1: should be a non-negative integer" in answer.body["message"]
    assert (await plane.call("POST", WIDGETS, {**widget, "spec": {"size": 0}})).status == 201
    patched = await plane.call("PATCH", f"{WIDGETS}/w", {"spec": {"size": -2}}, media=MERGE)
    assert patched.status == 422
    many = {"status": {"ready": 2**31}}
    told = (await plane.call("PATCH", f"{WIDGETS}/w/status", many, media=MERGE)).body["message"]
    assert ".status.ready: Invalid value: 2147483648: should be less than or equal to 2147483647" in told
