"""The embedded API server, for tests: a registry without HTTP, and a whole plane with it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp

from gangline.api.meta import JSON, Key
from gangline.apiserver.registry.builtin import builtin_catalog
from gangline.apiserver.registry.catalog import Entry
from gangline.apiserver.registry.registry import Call, Outcome, Registry
from gangline.apiserver.store.store import Store
from gangline.base.clock import Clock, SystemClock
from gangline.local.plane import PlaneSettings, api_plane

CLIENT = Call(manager="tester")
PATIENCE = 60.0  # seconds


class Answer(NamedTuple):
    """What the server said."""

    status: int
    body: Any
    warnings: list[str]


class Plane:
    """A running server, and how to ask it."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url, self.session = url, session

    async def call(
        self, method: str, path: str, body: Any = None, *, media: str = "application/json", **query: str
    ) -> Answer:
        content = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": media} if content is not None else {}
        async with self.session.request(
            method, path, data=content, params=query, headers=headers
        ) as response:
            text = await response.text()
            warnings = response.headers.getall("Warning", [])
            is_json = response.content_type == "application/json"
            return Answer(response.status, json.loads(text) if is_json and text else text, warnings)

    async def eventually(self, path: str, holds: Callable[[Answer], bool]) -> Answer:
        """Ask until the answer is as wanted: controllers work in the background, in no time that a test could know."""
        async with asyncio.timeout(PATIENCE):
            while not holds(answer := await self.call("GET", path)):
                pass
        return answer

    async def until(self, path: str, status: int) -> Answer:
        return await self.eventually(path, lambda answer: answer.status == status)


@asynccontextmanager
async def running_plane(*, tells_inert: bool = False) -> AsyncIterator[Plane]:
    """A whole plane in memory, asked as its administrator."""
    settings = PlaneSettings(token="t", tells_inert=tells_inert)
    async with Store() as store, api_plane(store, settings, SystemClock()) as plane:
        headers = {"Authorization": f"Bearer {plane.token}", "User-Agent": "tester/1"}
        async with aiohttp.ClientSession(
            plane.url, headers=headers, skip_auto_headers=("Content-Type",)
        ) as session:
            yield Plane(plane.url, session)


class Desk:
    """A registry with one namespace, `ns`, and short ways to use it."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        self.registry = Registry(store, builtin_catalog(), clock)

    def entry(self, plural: str, group: str = "") -> Entry:
        found = self.registry.catalog.stored(group, plural)
        assert found is not None
        return found

    async def create(self, plural: str, body: JSON, group: str = "", call: Call = CLIENT) -> JSON:
        entry = self.entry(plural, group)
        namespace = "ns" if entry.served.namespaced else ""
        return read(await self.registry.create(call, entry, namespace, body))

    async def put(self, plural: str, body: JSON, group: str = "", call: Call = CLIENT) -> JSON:
        key = Key("ns", body["metadata"]["name"])
        return read(await self.registry.change(call, self.entry(plural, group), key, lambda old: body))

    def get(self, plural: str, name: str, group: str = "") -> JSON:
        record = self.registry.get(self.entry(plural, group), Key("ns", name))
        found: JSON = json.loads(record.data)
        return found


@asynccontextmanager
async def desk(clock: Clock) -> AsyncIterator[Desk]:
    async with Store() as store:
        made = Desk(store, clock)
        await made.create("namespaces", {"metadata": {"name": "ns"}})
        yield made


def read(outcome: Outcome) -> JSON:
    found: JSON = json.loads(outcome.data)
    return found


def pod(name: str = "p", **spec: Any) -> JSON:
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}


def crd(group: str = "example.com", **version: Any) -> JSON:
    """The CRD of `widgets`."""
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
            "status": {"type": "object", "properties": {"ready": {"type": "integer"}}},
        },
    }
    one = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}, **version}
    names = {"plural": "widgets", "kind": "Widget"}
    spec = {"group": group, "scope": "Namespaced", "names": names, "versions": [one]}
    return {"metadata": {"name": f"widgets.{group}"}, "spec": spec}
