"""Garbage collection, on a running plane."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from support.servers.plane import PlaneClient, running_plane

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
