"""APIServices on a whole plane: requests of their groups go to another server."""

import base64
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import trustme
from aiohttp import web

from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.kube.config.tls import ssl_context
from gangline.local.plane import PlaneSettings, control_plane
from support.servers.plane import PlaneClient

JSON = dict[str, Any]
API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
GROUP = "/apis/wardle.example.com/v1alpha1"


class RemoteServer:
    """The server of a group, which records who asks."""

    def __init__(self) -> None:
        self.ca = trustme.CA()
        self.port = 0
        self.requests: list[tuple[str, str, str, list[str], str]] = []

    async def handle(self, http: web.BaseRequest) -> web.StreamResponse:
        transport = http.transport
        assert transport is not None
        peer: JSON = transport.get_extra_info("peercert") or {}
        names = dict(part[0] for part in peer.get("subject", ()))
        groups = http.headers.getall("X-Remote-Group", [])
        user, proxy = http.headers.get("X-Remote-User", ""), names.get("commonName", "")
        self.requests.append((http.method, http.path_qs, user, groups, proxy))
        if http.path == GROUP:
            flunder = {"name": "flunders", "singularName": "flunder", "namespaced": True, "kind": "Flunder"}
            status = {"name": "flunders/status", "singularName": "", "namespaced": True, "kind": "Flunder"}
            resources = [{**flunder, "verbs": ["get", "list"]}, {**status, "verbs": ["get"]}]
            return web.json_response({"kind": "APIResourceList", "groupVersion": "x", "resources": resources})
        if http.query.get("watch"):
            response = web.StreamResponse()
            await response.prepare(http)
            for number in range(3):
                await response.write(json.dumps({"type": "ADDED", "object": {"n": number}}).encode() + b"\n")
            return response
        body = (await http.read()).decode()
        return web.json_response({"kind": "Flunder", "sent": body}, status=201 if http.method == "POST" else 200)


@asynccontextmanager
async def remote_server(trusted: bytes) -> AsyncIterator[RemoteServer]:
    server = RemoteServer()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_OPTIONAL
    context.load_verify_locations(cadata=trusted.decode())
    server.ca.issue_cert("wardle.default.svc").configure_cert(context)
    runner = web.ServerRunner(web.Server(server.handle))
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        server.port = runner.addresses[0][1]
        yield server
    finally:
        await runner.cleanup()


@asynccontextmanager
async def plane_and_server(folder: Path) -> AsyncIterator[tuple[PlaneClient, RemoteServer]]:
    settings = PlaneSettings(token="t", certificates=folder)
    async with Store() as store, control_plane(store, settings, SystemClock()) as plane:
        assert plane.connection.tls is not None
        connector = aiohttp.TCPConnector(ssl=ssl_context(plane.connection.tls))
        headers = {"Authorization": "Bearer t"}
        async with (
            aiohttp.ClientSession(plane.url, headers=headers, connector=connector) as session,
            remote_server((folder / "ca.crt").read_bytes()) as server,
        ):
            client = PlaneClient(plane.url, session)
            await client.poll_status("/api/v1/namespaces/default/serviceaccounts/default", 200)
            yield client, server


async def register(plane: PlaneClient, server: RemoteServer) -> None:
    """A Service with one pod, which is the server, and the APIService that names it."""
    ports = [{"port": 443, "targetPort": server.port}]
    service = {"metadata": {"name": "wardle"}, "spec": {"selector": {"app": "wardle"}, "ports": ports}}
    await plane.call("POST", "/api/v1/namespaces/default/services", service)
    pod = {
        "metadata": {"name": "wardle", "labels": {"app": "wardle"}},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }
    assert (await plane.call("POST", "/api/v1/namespaces/default/pods", pod)).status == 201
    status = {"status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}}
    path, media = "/api/v1/namespaces/default/pods/wardle/status", "application/merge-patch+json"
    assert (await plane.call("PATCH", path, status, media=media)).status == 200
    spec = {
        "group": "wardle.example.com",
        "version": "v1alpha1",
        "service": {"namespace": "default", "name": "wardle"},
        "groupPriorityMinimum": 1000,
        "versionPriority": 15,
        "caBundle": base64.b64encode(server.ca.cert_pem.bytes()).decode(),
    }
    body = {"metadata": {"name": "v1alpha1.wardle.example.com"}, "spec": spec}
    created = await plane.call("POST", API_SERVICES, body)
    assert created.status == 201, created.body


def condition(api_service: JSON) -> JSON:
    found: JSON = next(iter((api_service.get("status") or {}).get("conditions") or ()), {})
    return found


async def test_requests_of_the_group_go_to_its_server_with_the_user_in_headers(tmp_path: Path) -> None:
    async with plane_and_server(tmp_path) as (plane, server):
        await register(plane, server)
        path = f"{API_SERVICES}/v1alpha1.wardle.example.com"
        available = await plane.poll_until(path, lambda answer: condition(answer.body).get("status") == "True")
        assert condition(available.body)["reason"] == "Passed"
        created = await plane.call("POST", f"{GROUP}/namespaces/default/flunders", {"a": 1}, dryRun="All")
        assert (created.status, json.loads(created.body["sent"])) == (201, {"a": 1})
        method, where, user, groups, proxy = server.requests[-1]
        assert (method, where) == ("POST", f"{GROUP}/namespaces/default/flunders?dryRun=All")
        assert (user, proxy) == ("admin", "front-proxy-client")
        assert "system:masters" in groups
        async with plane.session.get(f"{GROUP}/flunders", params={"watch": "1"}) as response:
            lines = (await response.text()).splitlines()
        assert [json.loads(line)["object"]["n"] for line in lines] == [0, 1, 2]


async def test_the_resources_of_the_group_are_in_discovery(tmp_path: Path) -> None:
    async with plane_and_server(tmp_path) as (plane, server):
        await register(plane, server)
        await plane.poll_until("/apis", lambda answer: "wardle.example.com" in json.dumps(answer.body))
        group = (await plane.call("GET", "/apis/wardle.example.com")).body
        assert group["preferredVersion"]["groupVersion"] == "wardle.example.com/v1alpha1"
        await plane.call("DELETE", f"{API_SERVICES}/v1alpha1.wardle.example.com")
        await plane.poll_until("/apis", lambda answer: "wardle.example.com" not in json.dumps(answer.body))
        assert (await plane.call("GET", f"{GROUP}/flunders")).status == 404


async def test_a_group_without_a_server_is_not_available(tmp_path: Path) -> None:
    async with plane_and_server(tmp_path) as (plane, server):
        await register(plane, server)
        await plane.call("DELETE", "/api/v1/namespaces/default/services/wardle")
        path = f"{API_SERVICES}/v1alpha1.wardle.example.com"
        found = await plane.poll_until(path, lambda answer: condition(answer.body).get("status") == "False")
        assert condition(found.body)["reason"] == "ServiceNotFound"
        answer = await plane.call("GET", f"{GROUP}/flunders")
        assert (answer.status, answer.body["reason"]) == (503, "ServiceUnavailable")
