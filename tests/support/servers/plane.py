"""The embedded API server, for tests: a registry without HTTP, and a whole plane with it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp

from gangline.api.meta import JSON, Key
from gangline.apiserver.admission.plugins import default_admission
from gangline.apiserver.admission.webhooks.calls import WebhookCaller
from gangline.apiserver.auth.authorizer import AlwaysAllow
from gangline.apiserver.auth.role_index import RoleIndex
from gangline.apiserver.registry.catalog import ServedKind
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.served_kinds import builtin_catalog
from gangline.apiserver.registry.writes import WriteContext, WriteResult
from gangline.apiserver.store.store import Store
from gangline.base.clock import Clock, SystemClock
from gangline.local.plane import PlaneSettings, control_plane

TEST_CALL = WriteContext(field_manager="tester")
WAIT_SECONDS = 60.0  # seconds


class PlaneAnswer(NamedTuple):
    """Status, decoded body and warnings of a response."""

    status: int
    body: Any
    warnings: list[str]


class PlaneClient:
    """A client of a running control plane."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url, self.session = url, session

    async def call(
        self, method: str, path: str, body: Any = None, *, media: str = "application/json", **query: str
    ) -> PlaneAnswer:
        content = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {"Content-Type": media} if content is not None else {}
        async with self.session.request(method, path, data=content, params=query, headers=headers) as response:
            text = await response.text()
            warnings = response.headers.getall("Warning", [])
            is_json = response.content_type == "application/json"
            return PlaneAnswer(response.status, json.loads(text) if is_json and text else text, warnings)

    async def poll_until(self, path: str, holds: Callable[[PlaneAnswer], bool]) -> PlaneAnswer:
        """Repeat a GET until its answer is as wanted: controllers work in the background."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not holds(answer := await self.call("GET", path)):
                pass
        return answer

    async def poll_status(self, path: str, status: int) -> PlaneAnswer:
        return await self.poll_until(path, lambda answer: answer.status == status)


@asynccontextmanager
async def running_plane(*, tells_inert: bool = False) -> AsyncIterator[PlaneClient]:
    """A control plane in memory, and a client with its administrator's token."""
    settings = PlaneSettings(token="t", warn_on_inert_kinds=tells_inert)
    async with Store() as store, control_plane(store, settings, SystemClock()) as plane:
        headers = {"Authorization": f"Bearer {plane.token}", "User-Agent": "tester/1"}
        async with aiohttp.ClientSession(plane.url, headers=headers, skip_auto_headers=("Content-Type",)) as session:
            yield PlaneClient(plane.url, session)


class RegistryHarness:
    """A registry with one namespace, `ns`, and shortcuts to its verbs."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.store = store
        catalog = builtin_catalog()
        # Pods need no service account here: no controller creates any.
        disabled = ("ServiceAccount",)
        webhooks = WebhookCaller(store, clock)
        admission = default_admission(store, catalog, clock, AlwaysAllow(), RoleIndex(store), webhooks, disabled)
        self.registry = Registry(store, catalog, clock, admission=admission)

    def entry(self, plural: str, group: str = "") -> ServedKind:
        found = self.registry.catalog.storage_kind(group, plural)
        assert found is not None
        return found

    async def create(self, plural: str, body: JSON, group: str = "", call: WriteContext = TEST_CALL) -> JSON:
        entry = self.entry(plural, group)
        namespace = "ns" if entry.resource.namespaced else ""
        return stored_object(await self.registry.create(call, entry, namespace, body))

    async def put(self, plural: str, body: JSON, group: str = "", call: WriteContext = TEST_CALL) -> JSON:
        key = Key("ns", body["metadata"]["name"])
        return stored_object(await self.registry.update(call, self.entry(plural, group), key, lambda old: body))

    def get(self, plural: str, name: str, group: str = "") -> JSON:
        record = self.registry.get(self.entry(plural, group), Key("ns", name))
        found: JSON = json.loads(record.data)
        return found


@asynccontextmanager
async def registry_harness(clock: Clock) -> AsyncIterator[RegistryHarness]:
    async with Store() as store:
        made = RegistryHarness(store, clock)
        await made.create("namespaces", {"metadata": {"name": "ns"}})
        yield made


def stored_object(outcome: WriteResult) -> JSON:
    found: JSON = json.loads(outcome.data)
    return found


def widget_crd(group: str = "example.com", **version: Any) -> JSON:
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
