"""`logs -f` against a server that cuts a log off."""

import asyncio

import msgspec
import pytest
from aiohttp import web

from gangline.api.meta import JSON
from gangline.base.clock import SystemClock
from gangline.cli.logs.follow import LogFollower
from gangline.cli.logs.print import LogOptions
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.kube.transport.http import HttpTransport
from gangline.summary.objects import JOB_KINDS, ServerJob
from support.servers.http import http_server

SAME = "2026-01-02T03:04:05.000000000Z"
LOG = [f"{SAME} a", f"{SAME} b", f"{SAME} c", "2026-01-02T03:04:06.000000000Z d"]
READ_BEFORE_THE_CUT = 2


def job(state: str) -> JSON:
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": "toy", "namespace": "default", "uid": "job", "resourceVersion": "2"},
        "status": {"conditions": [{"type": state, "status": "True"}]},
    }


POD: JSON = {
    "metadata": {"name": "toy-worker-0", "namespace": "default", "uid": "pod", "resourceVersion": "1"},
    "spec": {"containers": [{"name": "tensorflow"}]},
    "status": {"phase": "Running", "containerStatuses": [{"name": "tensorflow", "state": {"running": {}}}]},
}


class Server:
    """One running job with one pod. The first read of its log ends early; after the second the job has succeeded."""

    def __init__(self) -> None:
        self.log_queries: list[dict[str, str]] = []
        self.read_again = asyncio.Event()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/log"):
            return self._log(request)
        objects = [POD] if request.path.endswith("/pods") else [job("Running")]
        if "watch" not in request.query:
            listed = {"metadata": {"resourceVersion": "1"}, "items": objects}
            return web.Response(body=msgspec.json.encode(listed), content_type="application/json")
        await self.read_again.wait()
        changed = [] if objects == [POD] else [{"type": "MODIFIED", "object": job("Succeeded")}]
        return web.Response(body=b"".join(msgspec.json.encode(event) + b"\n" for event in changed))

    def _log(self, request: web.Request) -> web.Response:
        self.log_queries.append(dict(request.query))
        if len(self.log_queries) == 1:
            return web.Response(text="".join(f"{line}\n" for line in LOG[:READ_BEFORE_THE_CUT]))
        self.read_again.set()
        return web.Response(text="".join(f"{line}\n" for line in LOG))


async def test_lines_of_the_last_timestamp_are_neither_lost_nor_repeated_after_a_reconnect(
    capsys: pytest.CaptureFixture[str],
) -> None:
    server = Server()
    async with http_server(server.handle) as url, HttpTransport(Connection(server=url)) as transport:
        options = LogOptions(follow=True, tail=10)
        follower = LogFollower(Client(transport), ServerJob(JOB_KINDS[0], job("Running")), options, SystemClock())
        last = await follower.run()
    assert last == job("Succeeded")
    assert capsys.readouterr().out.splitlines() == [f"worker-0| {text}" for text in "abcd"]
    first, second = server.log_queries[:2]
    assert (first["tailLines"], first["container"]) == ("10", "tensorflow")
    # From the last line on, and all of it.
    assert second["sinceTime"].startswith("2026-01-02T03:04:05")
    assert "tailLines" not in second
