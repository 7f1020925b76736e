"""Custom resources on a running plane, from the creation of a CRD to its deletion."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.servers.plane import PlaneClient, running_plane, widget_crd

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CRD = f"{CRDS}/widgets.example.com"
WIDGETS = "/apis/example.com/v1/namespaces/default/widgets"
MERGE = "application/merge-patch+json"


@pytest.fixture
async def plane() -> AsyncIterator[PlaneClient]:
    async with running_plane() as running:
        yield running


async def define(plane: PlaneClient, **version: Any) -> None:
    answer = await plane.call("POST", CRDS, widget_crd(**version))
    assert answer.status == 201, answer.body
    await plane.poll_status(WIDGETS, 200)


def widget(name: str = "w", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, **more}


async def test_definition_is_accepted_and_served(plane: PlaneClient) -> None:
    await define(plane)
    status = (await plane.call("GET", CRD)).body["status"]
    assert {found["type"]: found["status"] for found in status["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    assert status["acceptedNames"]["listKind"] == "WidgetList"
    listed = (await plane.call("GET", "/apis/example.com/v1")).body["resources"]
    assert [item["name"] for item in listed] == ["widgets"]


async def test_objects_are_pruned_and_validated(plane: PlaneClient) -> None:
    await define(plane)
    created = await plane.call("POST", WIDGETS, widget(spec={"size": 3, "colour": "red"}))
    assert (created.status, created.body["spec"]) == (201, {"size": 3})
    assert created.warnings == ['299 - "unknown field \\"spec.colour\\""']
    wrong = await plane.call("POST", WIDGETS, widget("v", spec={"size": "big"}))
    assert (wrong.status, wrong.body["details"]["causes"][0]["field"]) == (422, "spec.size")


async def test_kind_must_be_said_and_right(plane: PlaneClient) -> None:
    await define(plane)
    assert (await plane.call("POST", WIDGETS, {"metadata": {"name": "w"}})).status == 400
    other = await plane.call("POST", WIDGETS, {**widget(), "kind": "Gadget"})
    assert (other.status, other.body["details"]["causes"][0]["message"]) == (
        422,
        'Invalid value: "Gadget": must be Widget',
    )


async def test_status_is_apart_when_it_is_a_subresource(plane: PlaneClient) -> None:
    await define(plane, subresources={"status": {}})
    created = await plane.call("POST", WIDGETS, widget(spec={"size": 1}, status={"ready": 1}))
    assert "status" not in created.body
    patch = {"metadata": {"labels": {"x": "y"}}, "spec": {"size": 9}, "status": {"ready": 1}}
    changed = (await plane.call("PATCH", f"{WIDGETS}/w/status", patch, media=MERGE)).body
    assert (changed["spec"], changed["status"]) == ({"size": 1}, {"ready": 1})
    assert "labels" not in changed["metadata"]
    assert changed["metadata"]["generation"] == 1


async def test_scale_is_where_the_definition_says(plane: PlaneClient) -> None:
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.ready"}
    await define(plane, subresources={"status": {}, "scale": scale})
    await plane.call("POST", WIDGETS, widget(spec={"size": 2}))
    scale = (await plane.call("GET", f"{WIDGETS}/w/scale")).body
    assert (scale["kind"], scale["spec"], scale["status"]) == ("Scale", {"replicas": 2}, {"replicas": 0})
    await plane.call("PATCH", f"{WIDGETS}/w/scale", {"spec": {"replicas": 5}}, media=MERGE)
    assert (await plane.call("GET", f"{WIDGETS}/w")).body["spec"] == {"size": 5}
    below = await plane.call("PATCH", f"{WIDGETS}/w/scale", {"spec": {"replicas": -1}}, media=MERGE)
    assert (below.status, below.body["details"]["causes"][0]["field"]) == (422, ".spec.size")


async def test_strategic_patch_is_not_for_custom_resources(plane: PlaneClient) -> None:
    await define(plane)
    await plane.call("POST", WIDGETS, widget())
    media = "application/strategic-merge-patch+json"
    assert (await plane.call("PATCH", f"{WIDGETS}/w", {}, media=media)).status == 415


async def test_deleted_definition_takes_its_objects_with_it(plane: PlaneClient) -> None:
    await define(plane)
    await plane.call("POST", WIDGETS, widget())
    await plane.call("DELETE", CRD)
    await plane.poll_status(CRD, 404)
    assert (await plane.call("GET", WIDGETS)).status == 404


async def test_definition_waits_for_finalizers_and_takes_nothing_new(plane: PlaneClient) -> None:
    await define(plane)
    protected = widget()
    protected["metadata"]["finalizers"] = ["example.com/hold"]
    await plane.call("POST", WIDGETS, protected)
    await plane.call("DELETE", CRD)
    refused = await plane.call("POST", WIDGETS, widget("late"))
    assert refused.status == 403
    why = "is forbidden: create not allowed while custom resource definition is terminating"
    assert refused.body["message"] == f'widgets.example.com "late" {why}'
    unnamed = widget()
    unnamed["metadata"] = {"generateName": "late-"}
    refused = await plane.call("POST", WIDGETS, unnamed)
    assert refused.body["message"] == f"widgets.example.com {why}"
    await plane.call("PATCH", f"{WIDGETS}/w", {"metadata": {"finalizers": None}}, media=MERGE)
    await plane.poll_status(CRD, 404)


async def test_second_definition_of_a_kind_is_not_served(plane: PlaneClient) -> None:
    await define(plane)
    other = widget_crd()
    other["metadata"]["name"] = "gadgets.example.com"
    other["spec"]["names"] = {"plural": "gadgets", "kind": "Widget"}
    await plane.call("POST", CRDS, other)
    path = f"{CRDS}/gadgets.example.com"
    looked_at = await plane.poll_until(path, lambda now: bool(now.body["status"]["conditions"]))
    conditions = looked_at.body["status"]["conditions"]
    assert {found["type"]: found["status"] for found in conditions} == {
        "NamesAccepted": "False",
        "Established": "False",
    }


async def test_a_definition_takes_its_objects_with_it_whatever_version_is_stored(plane: PlaneClient) -> None:
    crd = widget_crd()
    (template,) = crd["spec"]["versions"]
    crd["spec"]["versions"] = [
        {**template, "storage": False},
        {**template, "name": "v2", "served": False, "storage": True},
    ]
    crd["metadata"]["name"] = "widgets.other.example.com"
    crd["spec"]["group"] = "other.example.com"
    await plane.call("POST", CRDS, crd)
    path = "/apis/other.example.com/v1/namespaces/default/widgets"
    await plane.poll_status(path, 200)
    body = {"apiVersion": "other.example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
    assert (await plane.call("POST", path, body)).status == 201
    await plane.call("DELETE", f"{CRDS}/widgets.other.example.com")
    await plane.poll_status(f"{CRDS}/widgets.other.example.com", 404)
    await plane.call("POST", CRDS, crd)
    listed = await plane.poll_status(path, 200)
    assert listed.body["items"] == []


async def test_names_that_become_free_are_accepted(plane: PlaneClient) -> None:
    first = widget_crd(group="free.example.com")
    second = widget_crd(group="free.example.com")
    second["metadata"]["name"] = "gadgets.free.example.com"
    second["spec"]["names"] = {"plural": "gadgets", "kind": "Widget"}
    await plane.call("POST", CRDS, first)
    await plane.poll_status("/apis/free.example.com/v1/widgets", 200)
    await plane.call("POST", CRDS, second)
    await plane.poll_until(
        f"{CRDS}/gadgets.free.example.com", lambda now: "is already in use" in str(now.body.get("status"))
    )
    await plane.call("DELETE", f"{CRDS}/widgets.free.example.com")
    await plane.poll_status("/apis/free.example.com/v1/gadgets", 200)


async def test_conditions_without_a_type_are_in_nobodys_way(plane: PlaneClient) -> None:
    await define(plane)
    status = (await plane.call("GET", CRD)).body["status"]
    patch = {"status": {"conditions": [*status["conditions"], {"message": "updated"}]}}
    assert (await plane.call("PATCH", f"{CRD}/status", patch, media=MERGE)).status == 200
    assert (await plane.call("DELETE", CRD)).status == 200
    await plane.poll_status(CRD, 404)
