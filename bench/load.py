"""The load, as a process of its own that is the same for both servers. Prints what it measured as JSON.

It speaks HTTP/1.1 with as little as that takes, so that it is the server that is measured: bodies are encoded before
the clock starts, and answers are read but not decoded.
"""

import asyncio
import json
import ssl
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import pods
from bench.measure import Figures, cpu_seconds, percentile

WATCHED = "watched"
"""The namespace of the pods that are watched."""
PATIENCE = 120.0


class Target:
    """A server, as a load sees it."""

    def __init__(self, url: str, token: str, ca: str) -> None:
        self.url, self._token = url, token
        self.host, port = url.removeprefix("https://").split(":")
        self.port = int(port)
        self.tls = ssl.create_default_context(cafile=ca)

    def headers(self) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "gangline-bench",
        }

    def session(self, connections: int) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(limit=connections, ssl=self.tls)
        return aiohttp.ClientSession(self.url, connector=connector, headers=self.headers())


def main() -> None:
    url, token, ca, what, *numbers = sys.argv[1:]
    loads: dict[str, Callable[..., Any]] = {"create": create, "list": listing, "watch": watch}
    print(json.dumps(asyncio.run(loads[what](Target(url, token, ca), *map(int, numbers)))))


async def create(server: Target, first: int, last: int, in_flight: int) -> Figures:
    """Create pods, so many at once."""
    bodies = [body(number, pods.NAMESPACE) for number in range(first, last)]
    took: list[float] = []
    async with server.session(in_flight) as session:
        await _get(session, "/readyz")
        cpu, began = cpu_seconds(), time.perf_counter()
        left = iter(bodies)

        async def client() -> None:
            for one in left:
                asked = time.perf_counter()
                await _post(session, pods.NAMESPACE, one)
                took.append(time.perf_counter() - asked)

        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(client())
        elapsed = time.perf_counter() - began
    return {
        "seconds": elapsed,
        "per_second": len(bodies) / elapsed,
        "p50": percentile(took, 50),
        "p99": percentile(took, 99),
        "generator_cpu": cpu_seconds() - cpu,
        "bytes": sum(map(len, bodies)) / len(bodies),
    }


async def listing(server: Target, rounds: int) -> Figures:
    """All pods in one answer, and in pages of 500."""
    place = f"/api/v1/namespaces/{pods.NAMESPACE}/pods"
    async with server.session(1) as session:
        answer, pages = b"", 0
        whole: list[float] = []
        paged: list[float] = []
        for _ in range(rounds):
            began = time.perf_counter()
            answer = await _get(session, place)
            whole.append(time.perf_counter() - began)
            began = time.perf_counter()
            pages = await _pages(session, place)
            paged.append(time.perf_counter() - began)
    return {
        "seconds": whole,
        "paged": paged,
        "pages": pages,
        "bytes": len(answer),
        "pods": len(json.loads(answer)["items"]),
    }


async def _pages(session: aiohttp.ClientSession, place: str) -> int:
    token, count = "", 0
    while True:
        more = f"&continue={token}" if token else ""
        # The metadata comes first and the items are not looked at.
        answer = await _get(session, f"{place}?limit=500{more}")
        count += 1
        found = json.JSONDecoder().raw_decode(answer.decode(), answer.index(b'"metadata":') + 11)[0]
        token = found.get("continue", "")
        if not token:
            return count


async def watch(server: Target, first: int, last: int, watchers: int, per_second: int, in_flight: int) -> Figures:
    """Many watch, one creates at an even pace; then many create at once."""
    async with server.session(max(in_flight, 1)) as session:
        page = json.loads(await _get(session, f"/api/v1/namespaces/{WATCHED}/pods?limit=1"))
        version = page["metadata"]["resourceVersion"]
        eyes = [await _watcher(server, version) for _ in range(watchers)]
        middle = (first + last) // 2
        paced = await _paced(session, eyes, range(first, middle), per_second)
        burst = await _burst(session, eyes, range(middle, last), in_flight)
        given_up = sum(eye.closed for eye in eyes)
        for eye in eyes:
            eye.close()
    return {"paced": paced, "burst": burst, "given_up": given_up}


async def _paced(session: aiohttp.ClientSession, eyes: Sequence["Watcher"], numbers: range, per_second: int) -> Figures:
    sent: list[float] = []
    answered: list[float] = []
    began = time.perf_counter()
    for place, number in enumerate(numbers):
        one = body(number, WATCHED)
        await asyncio.sleep(max(0.0, began + place / per_second - time.perf_counter()))
        sent.append(time.perf_counter())
        await _post(session, WATCHED, one)
        answered.append(time.perf_counter())
    await _seen(eyes, len(numbers))
    last = [max(eye.times[place] for eye in eyes) for place in range(len(numbers))]
    from_request = [seen - asked for seen, asked in zip(last, sent, strict=True)]
    from_answer = [seen - done for seen, done in zip(last, answered, strict=True)]
    return {
        "per_second": len(numbers) / (time.perf_counter() - began),
        "request_p50": percentile(from_request, 50),
        "request_p99": percentile(from_request, 99),
        "answer_p50": percentile(from_answer, 50),
        "answer_p99": percentile(from_answer, 99),
    }


async def _burst(session: aiohttp.ClientSession, eyes: Sequence["Watcher"], numbers: range, in_flight: int) -> Figures:
    before = len(eyes[0].times)
    left = iter([body(number, WATCHED) for number in numbers])

    async def client() -> None:
        for one in left:
            await _post(session, WATCHED, one)

    cpu, began = cpu_seconds(), time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(client())
    await _seen(eyes, before + len(numbers))
    elapsed = max(eye.times[-1] for eye in eyes) - began
    return {
        "creates_per_second": len(numbers) / elapsed,
        "events_per_second": sum(len(eye.times) - before for eye in eyes) / elapsed,
        "generator_cpu": cpu_seconds() - cpu,
        "seconds": elapsed,
    }


async def _seen(eyes: Sequence["Watcher"], count: int) -> None:
    async with asyncio.timeout(PATIENCE):
        # Asked now and then: telling us each time would cost the watchers more.
        while any(len(eye.times) < count and not eye.closed for eye in eyes):  # noqa: ASYNC110
            await asyncio.sleep(0.005)


class Watcher(asyncio.Protocol):
    """Notes when each event arrived. Nothing is decoded: fifty of them must cost less than one server."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._transport: asyncio.Transport | None = None
        self._received = b""
        self._chunk = 0
        self.times: list[float] = []
        self.closed = False
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def connection_lost(self, error: Exception | None) -> None:
        self.closed = True

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self._received += data
        if not self.ready.done():
            head, found, rest = self._received.partition(b"\r\n\r\n")
            if not found:
                return
            assert head.startswith(b"HTTP/1.1 200"), head
            self._received = rest
            self.ready.set_result(None)
        # Strings have no newline in JSON, so that is where an event ends.
        self.times += [now] * self._payload().count(b"\n")

    def _payload(self) -> bytes:
        """What has arrived, without the sizes of chunks, which may begin and end anywhere."""
        pieces: list[bytes] = []
        rest = self._received
        while rest:
            if not self._chunk:
                line, found, after = rest.lstrip(b"\r\n").partition(b"\r\n")
                if not found:
                    break
                self._chunk, rest = int(line, 16), after
                if not self._chunk:  # the last one
                    self.closed = True
                    break
            pieces.append(rest[: self._chunk])
            self._chunk -= len(pieces[-1])
            rest = rest[len(pieces[-1]) :]
        self._received = rest
        return b"".join(pieces)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


async def _watcher(server: Target, version: str) -> Watcher:
    path = f"/api/v1/namespaces/{WATCHED}/pods?watch=true&resourceVersion={version}"
    headers = {"Host": f"{server.host}:{server.port}", **server.headers()}
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    loop = asyncio.get_running_loop()
    request = "\r\n".join(lines).encode()
    _, watcher = await loop.create_connection(lambda: Watcher(request), server.host, server.port, ssl=server.tls)
    # Both servers send their headers before the first event.
    await watcher.ready
    return watcher


def body(number: int, namespace: str) -> bytes:
    pod = pods.manifest(number)
    pod["metadata"]["namespace"] = namespace
    return json.dumps({"kind": "Pod", "apiVersion": "v1", **pod}).encode()


async def _post(session: aiohttp.ClientSession, namespace: str, one: bytes) -> None:
    async with session.post(f"/api/v1/namespaces/{namespace}/pods", data=one) as response:
        answer = await response.read()
        if response.status != 201:
            raise SystemExit(f"error: {response.status} {answer.decode()}")


async def _get(session: aiohttp.ClientSession, path: str) -> bytes:
    async with session.get(path) as response:
        answer = await response.read()
        if response.status != 200:
            raise SystemExit(f"error: {response.status} {answer.decode()}")
        return answer


if __name__ == "__main__":
    main()
