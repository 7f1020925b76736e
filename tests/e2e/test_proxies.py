"""The proxies of pods, services and nodes, and the metrics of server and node."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
from yarl import URL

from gangline.api.core import Service
from gangline.api.meta import JSON, Key
from gangline.kube.client import Client
from gangline.kube.transport.api import Request
from gangline.local.cluster import LocalCluster
from support.cluster.streams import create_pod, first_line, http_server, sleeper, wait_for_phase
from support.waiting import wait_until

NAMESPACE = "/api/v1/namespaces/default"
WEBSOCKET_ECHO = """
import asyncio, aiohttp.web as web
async def echo(request):
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        await socket.send_str(message.data.upper())
    return socket
async def count(request):
    total = 0
    async for part in request.content.iter_any():
        total += len(part)
    response = web.StreamResponse()
    await response.prepare(request)
    for number in range(3):
        await response.write(b"%d " % total)
    return response
async def cookies(request):
    response = web.Response(text="x")
    response.headers.add("Set-Cookie", "a=1")
    response.headers.add("Set-Cookie", "b=2")
    return response
async def main():
    app = web.Application()
    app.add_routes([web.get("/ws", echo), web.post("/count", count), web.get("/cookies", cookies)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(site._server.sockets[0].getsockname()[1], flush=True)
    await asyncio.sleep(1000)
asyncio.run(main())
"""


@pytest.fixture
async def session(cluster: LocalCluster) -> AsyncIterator[aiohttp.ClientSession]:
    headers = await cluster.connection.credentials.headers()
    async with aiohttp.ClientSession(
        cluster.url, connector=aiohttp.TCPConnector(ssl=False), headers=headers, auto_decompress=False
    ) as opened:
        yield opened


async def web_pod(client: Client, name: str = "web", **labels: str) -> str:
    """A pod with an HTTP server; returns its port."""
    key = await create_pod(client, name, http_server(), labels=labels)
    await wait_for_phase(client, key, "Running")
    return await first_line(client, key)


# Pods


async def test_pod_gets_the_request_as_it_was_sent(client: Client, session: aiohttp.ClientSession) -> None:
    port = await web_pod(client)
    path = f"{NAMESPACE}/pods/web:{port}/proxy/a%20b/c//?x=1&y=%2F"
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        body = b"hello" if method in ("POST", "PUT", "PATCH") else None
        url = URL(path.replace("//?", "/?"), encoded=True)
        async with session.request(method, url, data=body, headers={"X-Own": "mine"}) as response:
            text = await response.text()
            assert response.status == 200
            assert response.headers["X-Answer"] == "yes"
        assert text.startswith(f"{method} /a%20b/c/?x=1&y=%2F ")
        # The token is for the server, not for who is behind it.
        assert "Authorization=None X-Own=mine" in text
        assert f"X-Forwarded-Uri={NAMESPACE}/pods/web:{port}/proxy/a%20b/c/" in text
        assert text.endswith("hello" if body else " ")
    async with session.head(f"{NAMESPACE}/pods/web:{port}/proxy/") as response:
        assert (response.status, response.headers["X-Answer"]) == (200, "yes")


async def test_redirections_stay_behind_the_proxy(client: Client, session: aiohttp.ClientSession) -> None:
    port = await web_pod(client)
    prefix = f"{NAMESPACE}/pods/web:{port}/proxy"
    async with session.get(f"{prefix}/redirect", allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (302, f"{prefix}/elsewhere")
    async with session.get(f"{prefix}?x=1", allow_redirects=False) as response:
        assert (response.status, response.headers["Location"]) == (301, f"{prefix}/?x=1")


async def test_streams_cookies_and_websockets_pass(client: Client, session: aiohttp.ClientSession) -> None:
    container: JSON = {"name": "main", "image": "none", "command": [sys.executable, "-c", WEBSOCKET_ECHO]}
    key = await create_pod(client, "web", container)
    await wait_for_phase(client, key, "Running")
    prefix = f"{NAMESPACE}/pods/web:{await first_line(client, key)}/proxy"

    async def parts() -> AsyncIterator[bytes]:
        for _ in range(50):
            yield bytes(100_000)

    async with session.post(f"{prefix}/count", data=parts()) as response:
        assert await response.text() == "5000000 5000000 5000000 "
    async with session.get(f"{prefix}/cookies") as response:
        assert response.headers.getall("Set-Cookie") == ["a=1", "b=2"]
    async with session.ws_connect(f"{prefix}/ws") as socket:
        for text in ("one", "two"):
            await socket.send_str(text)
            assert (await socket.receive()).data == text.upper()


async def status_of(session: aiohttp.ClientSession, path: str) -> tuple[int, str]:
    async with session.get(path) as response:
        return response.status, (await response.json(content_type=None))["message"]


async def test_what_cannot_be_reached_is_a_503(client: Client, session: aiohttp.ClientSession) -> None:
    await sleeper(client)
    code, message = await status_of(session, f"{NAMESPACE}/pods/p:1/proxy/")
    assert code == 503
    assert message.startswith("error trying to reach service: dial tcp ")
    assert message.endswith(":1: connect: connection refused")
    assert await status_of(session, f"{NAMESPACE}/pods/q/proxy/") == (404, 'pods "q" not found')
    code, message = await status_of(session, f"{NAMESPACE}/pods/a:b:c:d/proxy/")
    assert (code, message) == (400, 'invalid pod request "a:b:c:d"')


async def test_pod_of_an_unknown_node_must_not_lead_to_this_machine(
    client: Client, session: aiohttp.ClientSession, cluster: LocalCluster
) -> None:
    body: JSON = {
        "metadata": {"name": "far", "namespace": "default"},
        "spec": {"nodeName": "elsewhere", "containers": [{"name": "main", "image": "x"}]},
    }
    await client.requests.call(Request("POST", f"{NAMESPACE}/pods", (), msgspec.json.encode(body), "application/json"))
    patch = msgspec.json.encode({"status": {"phase": "Running", "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}})
    kind = "application/merge-patch+json"
    await client.requests.call(Request("PATCH", f"{NAMESPACE}/pods/far/status", (), patch, kind))
    assert await status_of(session, f"{NAMESPACE}/pods/far:1/proxy/") == (400, "address not allowed")


# Services


async def create_service(client: Client, name: str, port: JSON, **selector: str) -> None:
    body: JSON = {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": selector, "ports": [port]}}
    await client.create(Service, body)


async def test_service_leads_to_its_pods(client: Client, session: aiohttp.ClientSession) -> None:
    port = await web_pod(client, app="web")
    await create_service(client, "front", {"name": "http", "port": 80, "targetPort": int(port)}, app="web")
    for name in ("front", "front:http", "front:80", "http:front:80"):
        async with session.get(f"{NAMESPACE}/services/{name}/proxy/x") as response:
            assert (await response.text()).startswith("GET /x ")
    code, message = await status_of(session, f"{NAMESPACE}/services/front:other/proxy/")
    assert (code, message) == (503, 'no service port "other" found for service "front"')
    await create_service(client, "empty", {"port": 80}, app="nobody")
    code, message = await status_of(session, f"{NAMESPACE}/services/empty/proxy/")
    assert (code, message) == (503, 'no endpoints available for service "empty"')


async def test_pod_with_tls(
    client: Client, session: aiohttp.ClientSession, cluster: LocalCluster, tmp_path: Path
) -> None:
    certificates = tmp_path / "certificates"
    script = (
        "import http.server, ssl, sys\n"
        "server = http.server.HTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n"
        "context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n"
        "context.load_cert_chain(sys.argv[1], sys.argv[2])\n"
        "server.socket = context.wrap_socket(server.socket, server_side=True)\n"
        "print(server.server_address[1], flush=True)\n"
        "server.serve_forever()\n"
    )
    files = [str(certificates / name) for name in ("server.crt", "server.key")]
    container: JSON = {"name": "main", "image": "none", "command": [sys.executable, "-c", script, *files]}
    (tmp_path / "page.txt").write_text("secure")
    key = await create_pod(client, "web", container)
    await wait_for_phase(client, key, "Running")
    port = await first_line(client, key)
    async with session.get(f"{NAMESPACE}/pods/https:web:{port}/proxy/page.txt") as response:
        assert (response.status, await response.text()) == (200, "secure")


# Nodes


async def test_node_tells_what_it_runs(client: Client, session: aiohttp.ClientSession) -> None:
    await sleeper(client)
    prefix = "/api/v1/nodes/local/proxy"
    async with session.get(f"{prefix}/healthz") as response:
        assert (response.status, await response.text()) == (200, "ok")
    async with session.get(f"{prefix}/pods") as response:
        assert [pod["metadata"]["name"] for pod in (await response.json())["items"]] == ["p"]
    async with session.get(f"{prefix}/metrics") as response:
        text = await response.text()
    assert "kubelet_running_pods 1\n" in text
    assert 'kubelet_running_containers{container_state="running"} 1\n' in text

    async def measured() -> str | None:
        async with session.get(f"{prefix}/metrics/resource") as response:
            text = await response.text()
        return (
            text if 'container_memory_working_set_bytes{container="main",namespace="default",pod="p"}' in text else None
        )

    assert "node_cpu_usage_seconds_total " in await wait_until(measured)
    async with session.get(f"{prefix}/stats/summary") as response:
        summary = await response.json()
    assert summary["node"]["memory"]["workingSetBytes"] > 2**20
    assert summary["pods"][0]["podRef"]["name"] == "p"
    async with session.get(f"{prefix}/containerLogs/default/q/main") as response:
        assert response.status == 404
    async with session.get(f"{prefix}/nothing") as response:
        assert response.status == 404
    assert await status_of(session, "/api/v1/nodes/other/proxy/healthz") == (404, 'nodes "other" not found')


async def test_log_by_the_node(client: Client, session: aiohttp.ClientSession) -> None:
    await sleeper(client, before="echo hello;")
    await first_line(client, Key("default", "p"))
    async with session.get("/api/v1/nodes/local/proxy/containerLogs/default/p/main") as response:
        assert await response.text() == "hello\n"


async def test_usage_of_the_node(client: Client, session: aiohttp.ClientSession) -> None:
    async def listed() -> JSON | None:
        async with session.get("/apis/metrics.k8s.io/v1beta1/nodes") as response:
            found: JSON = await response.json()
        return found if found["items"] else None

    page = await wait_until(listed)
    assert page["kind"] == "NodeMetricsList"
    item = page["items"][0]
    assert item["metadata"]["name"] == "local"
    assert item["usage"].keys() == {"cpu", "memory"}
    async with session.get("/apis/metrics.k8s.io/v1beta1/nodes/local") as response:
        assert (await response.json())["kind"] == "NodeMetrics"
    code, message = await status_of(session, "/apis/metrics.k8s.io/v1beta1/nodes/other")
    assert (code, message) == (404, 'nodes.metrics.k8s.io "other" not found')


# The server


async def test_server_counts_its_requests(session: aiohttp.ClientSession) -> None:
    async with session.get(f"{NAMESPACE}/pods/nothing") as response:
        assert response.status == 404
    async with session.get("/api/v1/no-such-resource") as response:
        assert response.status == 404
    async with session.get("/metrics") as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = await response.text()
    labels = 'verb="GET",group="",version="v1",resource="pods",subresource="",scope="resource"'
    assert f'apiserver_request_total{{code="404",component="apiserver",{labels}}} 1\n' in text
    assert f'apiserver_request_duration_seconds_count{{component="apiserver",{labels}}} 1\n' in text
    assert 'apiserver_storage_objects{resource="namespaces"} 4\n' in text
    # Nobody can make series without bound.
    assert "no-such-resource" not in text


async def test_metrics_are_not_for_everybody(cluster: LocalCluster) -> None:
    async with (
        aiohttp.ClientSession(cluster.url, connector=aiohttp.TCPConnector(ssl=False)) as session,
        session.get("/metrics") as response,
    ):
        assert response.status == 403
