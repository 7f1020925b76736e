"""Namespaces on a running plane."""

from collections.abc import AsyncIterator

import pytest

from support.servers.plane import PlaneClient, running_plane

SPACES = "/api/v1/namespaces"


@pytest.fixture
async def plane() -> AsyncIterator[PlaneClient]:
    async with running_plane() as running:
        await running.call("POST", SPACES, {"metadata": {"name": "one"}})
        yield running


async def test_every_cluster_has_the_first_namespaces(plane: PlaneClient) -> None:
    listed = (await plane.call("GET", SPACES)).body["items"]
    names = {item["metadata"]["name"] for item in listed}
    assert names >= {"default", "kube-system", "kube-public", "kube-node-lease"}


async def test_service_account_comes_and_comes_back(plane: PlaneClient) -> None:
    path = f"{SPACES}/one/serviceaccounts/default"
    first = await plane.poll_status(path, 200)
    await plane.call("DELETE", path)
    uid = first.body["metadata"]["uid"]
    await plane.poll_until(path, lambda now: now.status == 200 and now.body["metadata"]["uid"] != uid)


async def test_deleted_namespace_takes_everything_with_it(plane: PlaneClient) -> None:
    await plane.call("POST", f"{SPACES}/one/configmaps", {"metadata": {"name": "a"}})
    response = await plane.call("DELETE", f"{SPACES}/one")
    assert response.body["status"]["phase"] == "Terminating"
    await plane.poll_status(f"{SPACES}/one", 404)
    assert (await plane.call("GET", f"{SPACES}/one/configmaps/a")).status == 404


async def test_namespace_waits_for_finalizers_inside_and_takes_nothing_new(plane: PlaneClient) -> None:
    config_map = {"metadata": {"name": "a", "finalizers": ["example.com/hold"]}}
    await plane.call("POST", f"{SPACES}/one/configmaps", config_map)
    await plane.call("DELETE", f"{SPACES}/one")
    refused = await plane.call("POST", f"{SPACES}/one/configmaps", {"metadata": {"name": "b"}})
    assert (refused.status, refused.body["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    media = "application/merge-patch+json"
    await plane.call("PATCH", f"{SPACES}/one/configmaps/a", {"metadata": {"finalizers": None}}, media=media)
    await plane.poll_status(f"{SPACES}/one", 404)


async def test_own_finalizers_change_through_finalize_alone(plane: PlaneClient) -> None:
    body = {"metadata": {"name": "one"}, "spec": {"finalizers": ["kubernetes", "example.com/hold"]}}
    plain = await plane.call("PUT", f"{SPACES}/one", body)
    assert plain.body["spec"]["finalizers"] == ["kubernetes"]
    final = await plane.call("PUT", f"{SPACES}/one/finalize", body)
    assert final.body["spec"]["finalizers"] == ["kubernetes", "example.com/hold"]
    await plane.call("DELETE", f"{SPACES}/one")
    body["spec"] = {"finalizers": []}
    await plane.call("PUT", f"{SPACES}/one/finalize", body)
    await plane.poll_status(f"{SPACES}/one", 404)
