"""Discovery with a small server, aggregated and not."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from gangline.api.scheme import Resource
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.discovery import DiscoveredResource, is_served, server_resources, server_version
from gangline.kube.errors import NotFound, ServerError
from gangline.kube.transport.http import HttpTransport
from support.servers.http import http_server

JOBS = Resource("example.com", "v1", "Job", "jobs", dict)


@asynccontextmanager
async def answering(answers: Mapping[str, object]) -> AsyncIterator[Client]:
    """A client of a server that has these paths; a number stands for an error status."""

    async def answer(request: web.Request) -> web.Response:
        found = answers.get(request.path, 404)
        return web.Response(status=found) if isinstance(found, int) else web.json_response(found)

    async with http_server(answer) as url, HttpTransport(Connection(server=url)) as transport:
        yield Client(transport)


def aggregated(group: str, *versions: object) -> object:
    return {"metadata": {"name": group} if group else {}, "versions": list(versions)}


PODS = {
    "resource": "pods",
    "responseKind": {"group": "", "version": "", "kind": "Pod"},
    "scope": "Namespaced",
    "singularResource": "pod",
    "verbs": ["get", "list"],
    "shortNames": ["po"],
    "categories": ["all"],
    "subresources": [{"subresource": "log", "verbs": ["get"]}, {"subresource": "status", "verbs": ["get"]}],
}
NODES = {"resource": "nodes", "responseKind": {"kind": "Node"}, "scope": "Cluster", "verbs": ["get"]}

LEGACY_CORE = {
    "kind": "APIResourceList",
    "groupVersion": "v1",
    "resources": [
        {"name": "nodes", "singularName": "node", "namespaced": False, "kind": "Node", "verbs": ["get"]},
        {
            "name": "pods",
            "singularName": "pod",
            "namespaced": True,
            "kind": "Pod",
            "verbs": ["get", "list"],
            "shortNames": ["po"],
            "categories": ["all"],
        },
        {"name": "pods/log", "namespaced": True, "kind": "Pod", "verbs": ["get"]},
        {"name": "pods/status", "namespaced": True, "kind": "Pod", "verbs": ["get"]},
    ],
}
LEGACY_JOBS = {"resources": [{"name": "jobs", "namespaced": True, "kind": "Job", "verbs": ["get"]}]}
GROUPS = {
    "kind": "APIGroupList",
    "groups": [
        {"name": "broken.io", "versions": [{"groupVersion": "broken.io/v1", "version": "v1"}]},
        {"name": "example.com", "versions": [{"groupVersion": "example.com/v1", "version": "v1"}]},
    ],
}


def named(found: list[DiscoveredResource]) -> dict[str, DiscoveredResource]:
    return {f"{kind.resource.api_version} {kind.resource.kind}": kind for kind in found}


async def test_aggregated_answer_gives_everything_in_two_requests() -> None:
    core = aggregated("", {"version": "v1", "resources": [PODS, NODES], "freshness": "Current"})
    stale = aggregated("broken.io", {"version": "v1", "freshness": "Stale"})
    job = {"resource": "jobs", "responseKind": {"kind": "Job"}, "scope": "Namespaced", "verbs": ["get"]}
    jobs = aggregated("example.com", {"version": "v1", "resources": [job]})
    answers = {
        "/api": {"kind": "APIGroupDiscoveryList", "items": [core]},
        "/apis": {"kind": "APIGroupDiscoveryList", "items": [stale, jobs]},
    }
    async with answering(answers) as client:
        found = named(await server_resources(client))
    assert list(found) == ["v1 Pod", "v1 Node", "example.com/v1 Job"]
    pod = found["v1 Pod"]
    assert pod.resource.namespaced
    assert not found["v1 Node"].resource.namespaced
    assert (pod.verbs, pod.short_names, pod.categories) == (("get", "list"), ("po",), ("all",))
    assert pod.subresources == ("log", "status")
    assert pod.names == ("pods", "pod", "po")
    assert found["example.com/v1 Job"].names == ("jobs", "job", "jobs.example.com")


async def test_older_server_is_asked_group_by_group_and_a_broken_group_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/api/v1": LEGACY_CORE,
        "/apis": GROUPS,
        "/apis/broken.io/v1": 503,
        "/apis/example.com/v1": LEGACY_JOBS,
    }
    with caplog.at_level(logging.WARNING):
        async with answering(answers) as client:
            found = named(await server_resources(client))
    assert list(found) == ["v1 Node", "v1 Pod", "example.com/v1 Job"]
    pod = found["v1 Pod"]
    assert (pod.verbs, pod.short_names, pod.categories) == (("get", "list"), ("po",), ("all",))
    assert pod.subresources == ("log", "status")
    assert [record.message for record in caplog.records] == ["group cannot be discovered"]


async def test_found_kind_can_be_read_as_plain_json() -> None:
    whole = {"metadata": {"name": "one"}, "spec": {"anything": 1}}
    answers = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/api/v1": LEGACY_CORE,
        "/apis": {"kind": "APIGroupList", "groups": []},
        "/api/v1/nodes": {"metadata": {}, "items": [whole]},
    }
    async with answering(answers) as client:
        nodes = named(await server_resources(client))["v1 Node"]
        assert (await client.list(nodes.resource)).items == (whole,)


async def test_kind_is_served_or_not() -> None:
    async with answering({"/apis/example.com/v1": LEGACY_JOBS}) as client:
        assert await is_served(client, JOBS)
        assert not await is_served(client, Resource("example.com", "v1", "Other", "others", dict))
        assert not await is_served(client, Resource("example.com", "v2", "Job", "jobs", dict))


async def test_group_whose_server_is_down_is_not_told_to_be_missing() -> None:
    async with answering({"/apis/example.com/v1": 503}) as client:
        with pytest.raises(ServerError):
            await is_served(client, JOBS)


async def test_version_is_what_the_server_says() -> None:
    async with answering({"/version": {"major": "1", "gitVersion": "v1.34.4"}}) as client:
        assert await server_version(client) == "v1.34.4"


async def test_server_without_discovery_raises() -> None:
    async with answering({}) as client:
        with pytest.raises(NotFound):
            await server_resources(client)
