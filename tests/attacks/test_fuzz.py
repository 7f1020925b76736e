"""Thousands of odd requests: no error of the server itself, no hang, no growth, and a store that still holds together.

`GANGLINE_FUZZ_SECONDS` makes it long (`make test-soak`), `GANGLINE_FUZZ_SEED` repeats a run.
"""

import asyncio
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
from yarl import URL

from support.cases.kinds import RESOURCES
from support.fuzzing import NAMESPACE, FuzzRequest, RequestMaker
from support.servers.plane import running_plane, widget_crd
from support.servers.plane_process import TOKEN
from support.servers.real import free_ports
from support.waiting import wait_until

pytestmark = pytest.mark.faults

SECONDS = float(os.environ.get("GANGLINE_FUZZ_SECONDS", "0"))
SHORT_REQUESTS = 1500
WORKERS = 8
HANG_SECONDS = 60.0
GROWTH_BYTES = 60e6
INITIAL_EVENTS = "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"

# kube-apiserver gives 500 and 504 for these too, in the same words: each was found by the fuzzer and asked of a real server.
REAL_ERRORS = re.compile(
    "resourceVersion: Invalid value|Too large resource version|resourceVersion should not be set on objects to be created"
    "|failed to convert new object|content is not a list|requested impersonation of|without impersonating a user"
    "|cannot unmarshal .* into Go struct field (DeleteOptions|Preconditions)|couldn'+t get version/kind; json parse error"
    r"|failed to create RequestInfo: .* from url, /(api|apis/[^/]+)/[^/]+/(watch|proxy)/?(\?|$)",
    re.DOTALL | re.MULTILINE,
)
REAL_PATCH_ERRORS = {
    "application/apply-patch+yaml": re.compile("failed to create typed patch object|duplicate entries for key"),
    "application/strategic-merge-patch+json": re.compile(
        r"map: map\[.*\] does not contain declared merge key: |list element types are not identical: \[\[", re.DOTALL
    ),
}


def is_real_error(request: FuzzRequest, text: str) -> bool:
    """Whether kube-apiserver gives this error of the server for such a request."""
    patch_errors = REAL_PATCH_ERRORS.get(request.headers.get("Content-Type", ""))
    return bool(REAL_ERRORS.search(text) or (patch_errors is not None and patch_errors.search(text)))


@contextmanager
def plane_process(folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """A plane without a node; whatever it logs goes into a file."""
    command = [sys.executable, "-m", "support.servers.plane_process", str(folder / "store"), str(port)]
    paths = [str(Path(__file__).parents[1]), *sys.path]
    with (folder / "log").open("ab") as log:
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        )
    try:
        assert server.stdout is not None
        assert server.stdout.readline().startswith(b"http"), (folder / "log").read_text()
        yield server
    finally:
        server.terminate()
        server.communicate()


class Fuzzer:
    """Sends requests of several makers at once, and remembers what must not be."""

    def __init__(self, url: str, seed: int) -> None:
        self.url, self.seed = url, seed
        self.codes: Counter[int] = Counter()
        self.faults: list[str] = []

    async def run(self, requests: int, seconds: float, part: int) -> None:
        """Send so many requests, or for so many seconds. Other parts are other requests."""
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            canary = group.create_task(self._watch_health(stop))
            workers = [
                group.create_task(self._work(self.seed * 1000 + part * 100 + number, requests // WORKERS, seconds))
                for number in range(WORKERS)
            ]
            for worker in workers:
                await worker
            stop.set()
            await canary

    async def _work(self, seed: int, requests: int, seconds: float) -> None:
        maker, loop = RequestMaker(seed), asyncio.get_running_loop()
        end = loop.time() + seconds
        async with self.session() as session:
            while (loop.time() < end) if seconds else (requests := requests - 1) >= 0:
                request = maker.next()
                try:
                    async with asyncio.timeout(HANG_SECONDS):
                        await self._send(session, request)
                except TimeoutError:
                    self.faults.append(f"no response: {request}")
                except (aiohttp.ClientError, ValueError) as error:
                    # The client refuses to send it, or the server closed the connection after a bad body.
                    if "disconnected" in str(error).lower():
                        self.faults.append(f"connection closed: {request}")

    async def _send(self, session: aiohttp.ClientSession, request: FuzzRequest) -> None:
        url = URL(self.url + request.path, encoded=True)
        async with session.request(request.method, url, headers=request.headers, data=request.body) as response:
            text = (await response.read()).decode(errors="replace")
            self.codes[response.status] += 1
            if request.method == "HEAD":
                # Resources refuse it, if they exist, and for paths it is a verb of its own, which few roles allow.
                expected = {403, 405, await self._get_status(session, request)}
                if response.status not in expected:
                    self.faults.append(f"{response.status} instead of {expected}: {request}")
            elif response.status >= 500 and not is_real_error(request, text):
                self.faults.append(f"{response.status} {text[:300]}: {request}")

    async def _get_status(self, session: aiohttp.ClientSession, request: FuzzRequest) -> int:
        url = URL(self.url + request.path, encoded=True)
        async with session.get(url, headers=request.headers) as response:
            return response.status

    async def _watch_health(self, stop: asyncio.Event) -> None:
        async with self.session() as session:
            while not stop.is_set():
                async with asyncio.timeout(HANG_SECONDS), session.get("/readyz") as response:
                    if response.status != 200:
                        self.faults.append(f"readyz: {response.status} {await response.text()}")
                await asyncio.sleep(0.2)

    def check(self) -> None:
        """Fail with the first faults, and with the seed that finds them again."""
        assert not self.faults, f"seed {self.seed}: {len(self.faults)} faults\n" + "\n".join(self.faults[:20])

    def session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            self.url, headers={"Authorization": f"Bearer {TOKEN}"}, skip_auto_headers=("Content-Type",)
        )


async def stored_objects(session: aiohttp.ClientSession) -> dict[str, Any]:
    """All objects by their path, after checking that lists, single objects and watches agree."""
    found: dict[str, Any] = {}
    for resource in RESOURCES.values():
        path = resource.path(NAMESPACE).replace(f"/namespaces/{NAMESPACE}/", "/")
        async with session.get(path) as response:
            if response.status == 404:
                continue  # a kind that only the real server has
            assert response.status == 200, path
            listed = json.loads(await response.read())
        watched: set[str] = set()
        async with session.get(path + INITIAL_EVENTS) as response:
            async for line in response.content:
                event = json.loads(line)
                if event["type"] == "BOOKMARK":
                    break
                watched.add(event["object"]["metadata"]["uid"])
        assert {item["metadata"]["uid"] for item in listed["items"]} <= watched, path
        for item in listed["items"]:
            metadata = item["metadata"]
            assert metadata["name"]
            assert metadata["uid"]
            one = resource.path(metadata.get("namespace", "")) + "/" + metadata["name"]
            async with session.get(one) as response:
                assert response.status == 200, one
                body = json.loads(await response.read())
            assert {**body, "kind": "", "apiVersion": ""} == {**item, "kind": "", "apiVersion": ""}, one
            found[one] = body
    return found


async def clean(session: aiohttp.ClientSession) -> None:
    """Delete all that the requests have made in their namespace."""
    for resource in RESOURCES.values():
        if resource.namespaced:
            async with session.delete(resource.path(NAMESPACE) + "?gracePeriodSeconds=0") as response:
                await response.read()


@pytest.mark.parametrize("rule", [None, "text", 1, []])
@pytest.mark.parametrize("keyword", ["items", "additionalProperties", "not", ""])
async def test_a_rule_that_is_no_object_is_refused(rule: Any, keyword: str) -> None:
    """Found by the fuzzer (seed 1634): a null gave 500."""
    schema: dict[str, Any] = {"type": "object", "x-kubernetes-validations": [rule]}
    spec = {"type": "array" if keyword == "items" else "object", keyword: schema} if keyword else schema
    crd = widget_crd(schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}})
    async with running_plane() as plane:
        answer = await plane.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    assert answer.status in (400, 422), answer.body


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"status": "x"}, "cannot unmarshal string into Go struct field Namespace.status of type v1.NamespaceStatus"),
        ({"spec": {"finalizers": [1]}}, "cannot unmarshal number into Go struct field NamespaceSpec.spec.finalizers"),
        ({"kind": "Pod"}, 'Pod in version "v1" cannot be handled as a Namespace'),
    ],
)
async def test_a_malformed_namespace_is_not_finalized(change: dict[str, Any], message: str) -> None:
    """Found by the fuzzer (seed 160116): fields of another type gave 500."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}, "spec": {}, **change}
    async with running_plane() as plane:
        answer = await plane.call("PUT", "/api/v1/namespaces/default/finalize", namespace)
    assert answer.status == 400
    assert message in answer.body["message"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "pods/a/binding", {"target": "x"}),
        ("POST", "pods/a/binding", {"target": {"name": "n", "kind": 5}}),
        ("POST", "pods/a/binding", {"kind": "Pod"}),
        ("POST", "pods/a/eviction", {"metadata": "x"}),
        ("POST", "pods/a/eviction", {"metadata": {"name": "a"}, "deleteOptions": "x"}),
        ("PUT", "replicationcontrollers/a/scale", {"metadata": {"name": "a"}, "spec": "x"}),
    ],
)
async def test_a_malformed_body_of_a_subresource_is_refused(method: str, path: str, body: dict[str, Any]) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    controller = {"metadata": {"name": "a"}, "spec": {"replicas": 0, "selector": {"a": "b"}, "template": template}}
    async with running_plane() as plane:
        base = "/api/v1/namespaces/default"
        made = await plane.call("POST", f"{base}/pods", {**template, "metadata": {"name": "a"}})
        assert made.status == 201, made.body
        await plane.call("POST", f"{base}/replicationcontrollers", controller)
        answer = await plane.call(method, f"{base}/{path}", body)
    assert answer.status == 400, answer.body
    assert "cannot be handled as a " in answer.body["message"]


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_an_eviction_may_have_the_old_version(version: str) -> None:
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    eviction = {"apiVersion": f"policy/{version}", "kind": "Eviction", "metadata": {"name": "a"}}
    async with running_plane() as plane:
        await plane.call("POST", "/api/v1/namespaces/default/pods", pod)
        answer = await plane.call("POST", "/api/v1/namespaces/default/pods/a/eviction", eviction)
    assert answer.status == 201, answer.body


@pytest.mark.slow
@pytest.mark.timeout(max(120, SECONDS * 2 + 300))
async def test_no_request_breaks_the_server(tmp_path: Path) -> None:
    seed = int(os.environ.get("GANGLINE_FUZZ_SEED") or (random.randrange(10**6) if SECONDS else 16))
    (port,) = free_ports(1)
    with plane_process(tmp_path, port) as server:
        process = psutil.Process(server.pid)
        fuzzer = Fuzzer(f"http://127.0.0.1:{port}", seed)
        async with fuzzer.session() as session:
            async with session.post("/api/v1/namespaces", json={"metadata": {"name": NAMESPACE}}) as response:
                assert response.status == 201
            # The first part fills caches.
            await fuzzer.run(SHORT_REQUESTS // 4, SECONDS / 4, part=1)
            await clean(session)
            files, memory = process.num_fds(), process.memory_info().rss
            await fuzzer.run(SHORT_REQUESTS * 3 // 4, SECONDS * 3 / 4, part=2)
            fuzzer.check()
            assert await stored_objects(session)
            await clean(session)
        print(f"seed {seed}: {fuzzer.codes.total()} requests, {dict(sorted(fuzzer.codes.items()))}")
        assert "Traceback" not in (tmp_path / "log").read_text()
        await wait_until(lambda: process.num_fds() <= files + 5)
        growth = process.memory_info().rss - memory
        print(f"memory: {memory / 1e6:.0f} MB, then {(memory + growth) / 1e6:.0f} MB")
        assert growth < GROWTH_BYTES, f"seed {seed}: grew by {growth / 1e6:.0f} MB"
        async with fuzzer.session() as session:
            remaining = await stored_objects(session)
    with plane_process(tmp_path, port):
        async with fuzzer.session() as session:
            restored = await stored_objects(session)
    assert {name for name in remaining if name not in restored} == set()
