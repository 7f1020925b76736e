"""Garbage collection, on a running plane."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gangline.apiserver.store.paths import collection_prefix
from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.base.tasks import background_tasks
from gangline.local.controllers.garbage_collector import GarbageCollector
from gangline.local.plane import PlaneSettings, control_plane
from gangline.local.registry_writes import storage_kind
from support.servers.plane import TEST_CALL, PlaneClient, running_plane, widget_crd

MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
async def plane() -> AsyncIterator[PlaneClient]:
    async with running_plane() as running:
        yield running


def owned_by(owner: Any, *, blocks: bool = False, uid: str = "") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": owner["metadata"]["name"],
        "uid": uid or owner["metadata"]["uid"],
        "blockOwnerDeletion": blocks,
    }


async def make(plane: PlaneClient, name: str, *owners: Any, **metadata: Any) -> Any:
    body = {"metadata": {"name": name, "ownerReferences": list(owners), **metadata}}
    answer = await plane.call("POST", MAPS, body)
    assert answer.status == 201, answer.body
    return answer.body


async def test_dependents_go_after_their_owner(plane: PlaneClient) -> None:
    owner = await make(plane, "owner")
    child = await make(plane, "child", owned_by(owner))
    await make(plane, "grandchild", owned_by(child))
    await plane.call("DELETE", f"{MAPS}/owner")
    await plane.poll_status(f"{MAPS}/child", 404)
    await plane.poll_status(f"{MAPS}/grandchild", 404)


async def test_dependent_stays_for_its_other_owner_and_forgets_the_first(plane: PlaneClient) -> None:
    first, second = await make(plane, "first"), await make(plane, "second")
    await make(plane, "child", owned_by(first), owned_by(second))
    await plane.call("DELETE", f"{MAPS}/first")
    child = await plane.poll_until(f"{MAPS}/child", lambda now: len(now.body["metadata"]["ownerReferences"]) == 1)
    assert child.body["metadata"]["ownerReferences"][0]["name"] == "second"


async def test_owner_waits_in_the_foreground_for_dependents_that_block_it(plane: PlaneClient) -> None:
    owner = await make(plane, "owner")
    await make(plane, "child", owned_by(owner, blocks=True), finalizers=["example.com/hold"])
    marked = await plane.call("DELETE", f"{MAPS}/owner", propagationPolicy="Foreground")
    assert marked.body["metadata"]["finalizers"] == ["foregroundDeletion"]
    await plane.poll_until(f"{MAPS}/child", lambda now: "deletionTimestamp" in now.body["metadata"])
    assert (await plane.call("GET", f"{MAPS}/owner")).status == 200
    media = "application/merge-patch+json"
    await plane.call("PATCH", f"{MAPS}/child", {"metadata": {"finalizers": None}}, media=media)
    await plane.poll_status(f"{MAPS}/owner", 404)


async def test_orphans_stay_without_their_owner(plane: PlaneClient) -> None:
    owner = await make(plane, "owner")
    await make(plane, "child", owned_by(owner))
    await plane.call("DELETE", f"{MAPS}/owner", propagationPolicy="Orphan")
    await plane.poll_status(f"{MAPS}/owner", 404)
    child = (await plane.call("GET", f"{MAPS}/child")).body
    assert "ownerReferences" not in child["metadata"]


async def test_owner_with_another_uid_counts_as_absent(plane: PlaneClient) -> None:
    owner = await make(plane, "owner")
    await make(plane, "child", owned_by(owner, uid="00000000-0000-0000-0000-000000000000"))
    await plane.poll_status(f"{MAPS}/child", 404)


async def test_owner_of_an_unknown_kind_is_left_alone(plane: PlaneClient) -> None:
    owner = await make(plane, "owner")
    strange = {**owned_by(owner, uid="1"), "apiVersion": "nope.example.com/v1", "kind": "Nope"}
    await make(plane, "kept", strange)
    await make(plane, "child", owned_by(owner, uid="2"))
    await plane.poll_status(f"{MAPS}/child", 404)
    assert (await plane.call("GET", f"{MAPS}/kept")).status == 200


async def test_an_owner_by_another_name_or_kind_counts_as_absent(plane: PlaneClient) -> None:
    owner = await make(plane, "owner")
    await make(plane, "by-name", {**owned_by(owner), "name": "other"})
    await make(plane, "by-kind", {**owned_by(owner), "kind": "Secret"})
    await plane.poll_status(f"{MAPS}/by-name", 404)
    await plane.poll_status(f"{MAPS}/by-kind", 404)


async def test_a_cluster_scoped_object_with_a_namespaced_owner_is_left_alone(plane: PlaneClient) -> None:
    owner = await make(plane, "owner")
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    role = {"metadata": {"name": "kept", "ownerReferences": [owned_by(owner, uid="1")]}, "rules": []}
    assert (await plane.call("POST", roles, role)).status == 201
    await make(plane, "child", owned_by(owner, uid="1"))
    await plane.poll_status(f"{MAPS}/child", 404)
    assert (await plane.call("GET", f"{roles}/kept")).status == 200


async def test_a_cycle_of_owners_is_deleted_in_the_foreground(plane: PlaneClient) -> None:
    first = await make(plane, "first")
    second = await make(plane, "second", owned_by(first, blocks=True))
    third = await make(plane, "third", owned_by(second, blocks=True))
    owners = {"metadata": {"ownerReferences": [owned_by(third, blocks=True)]}}
    await plane.call("PATCH", f"{MAPS}/first", owners, media="application/merge-patch+json")
    await plane.call("DELETE", f"{MAPS}/first", propagationPolicy="Foreground")
    for name in ("first", "second", "third"):
        await plane.poll_status(f"{MAPS}/{name}", 404)


async def test_dependents_of_custom_resources_go_with_the_definition(plane: PlaneClient) -> None:
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    widgets = "/apis/example.com/v1/namespaces/default/widgets"
    body = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "owner"}}
    await plane.call("POST", crds, widget_crd())
    await plane.poll_status(widgets, 200)
    owner = (await plane.call("POST", widgets, body)).body
    await make(plane, "child", {**owned_by(owner), "apiVersion": "example.com/v1", "kind": "Widget"})
    await plane.call("DELETE", f"{crds}/widgets.example.com")
    await plane.poll_status(f"{crds}/widgets.example.com", 404)
    assert (await plane.call("GET", f"{MAPS}/child")).status == 404


async def test_an_owner_is_looked_for_when_its_kind_is_defined(plane: PlaneClient) -> None:
    owner = await make(plane, "owner")
    await make(plane, "child", {**owned_by(owner, uid="1"), "apiVersion": "example.com/v1", "kind": "Widget"})
    await plane.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widget_crd())
    await plane.poll_status(f"{MAPS}/child", 404)


async def test_a_finalizer_that_asks_for_orphans_is_honoured(plane: PlaneClient) -> None:
    owner = await make(plane, "owner")
    child = await make(plane, "child", owned_by(owner), finalizers=["orphan"])
    await make(plane, "grandchild", owned_by(child))
    await plane.call("DELETE", f"{MAPS}/owner")
    await plane.poll_status(f"{MAPS}/child", 404)
    await plane.poll_until(
        f"{MAPS}/grandchild", lambda now: now.status == 200 and "ownerReferences" not in now.body["metadata"]
    )


async def test_a_server_that_starts_collects_what_has_lost_its_owner_meanwhile() -> None:
    clock = SystemClock()
    async with Store() as store:
        async with control_plane(store, PlaneSettings(controllers_enabled=False, token="t"), clock) as plane:
            maps = storage_kind(plane.registry, "", "configmaps")

            async def make_map(name: str, *owners: Any, **metadata: Any) -> Any:
                body = {"metadata": {"name": name, "ownerReferences": list(owners), **metadata}}
                made = await plane.registry.create(TEST_CALL, maps, "default", body)
                return json.loads(made.data)

            owner = await make_map("owner")
            await make_map("kept", owned_by(owner))
            await make_map("lost", owned_by(owner, uid="gone"))
            await make_map("half-lost", owned_by(owner), owned_by(owner, uid="gone"))
            collector = GarbageCollector(plane.registry, clock)
            async with background_tasks(collector.run()):
                await collector.wait_until_settled()
        records = store.range(collection_prefix("", "configmaps", "default")).records
    left = {record.path.rpartition("/")[2]: json.loads(record.data) for record in records}
    assert set(left) == {"owner", "kept", "half-lost"}
    assert [one["uid"] for one in left["half-lost"]["metadata"]["ownerReferences"]] == [owner["metadata"]["uid"]]
