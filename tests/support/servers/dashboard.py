"""A dashboard on an embedded plane, and a client that behaves as a browser does: cookies, origin, server-sent events."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp

from gangline.api.meta import JSON
from gangline.apiserver.audit.log import AuditSettings
from gangline.apiserver.audit.policy import METADATA_OF_ALL
from gangline.apiserver.store.store import Store
from gangline.apiserver.users import AUTHENTICATED_GROUP, UserInfo
from gangline.base.clock import SystemClock
from gangline.base.tasks import unwrap_exception_group
from gangline.dashboard.app import Dashboard, serve_dashboard
from gangline.dashboard.doorway import listening_socket, socket_url
from gangline.dashboard.links import DashboardAddress, new_secret
from gangline.dashboard.settings import DashboardSettings, LoginMethod
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection
from gangline.local.cluster import LocalCluster, LocalSettings
from gangline.local.plane import PlaneSettings
from gangline.operator.assembly import embedded_plane
from gangline.summary.objects import json_resource

ROLES = json_resource("rbac.authorization.k8s.io", "v1", "Role", "roles")
ROLE_BINDINGS = json_resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")


class SentEvent(NamedTuple):
    """One server-sent event."""

    event: str
    id: str
    data: Any


class Browser:
    """A page of the dashboard: sends its requests as a browser would."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url, self.http = url, http

    async def open(self, link: str) -> int:
        """Open a link; the status of the page that follows."""
        async with self.http.get(link) as response:
            return response.status

    async def get(self, path: str) -> Any:
        """The JSON of an endpoint, which must answer with success."""
        async with self.http.get(self.url + path) as response:
            assert response.status == 200, (response.status, await response.text())
            return await response.json()

    async def call(self, method: str, path: str, body: object = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON of a request as the front end sends it; `headers` replace or add headers."""
        own = (
            {"X-Gangline-Request": "1", "Origin": self.url, "Content-Type": "application/json"}
            if body is not None
            else {}
        )
        data = None if body is None else json.dumps(body).encode()
        async with self.http.request(
            method, self.url + path, data=data, headers={**own, **_names(headers)}
        ) as response:
            return response.status, await response.json(content_type=None)

    @asynccontextmanager
    async def stream(self, query: str) -> AsyncIterator[AsyncIterator[SentEvent]]:
        """The events of `/api/stream`, without comments."""
        async with self.stream_of(f"/api/stream?{query}") as events:
            yield events

    @asynccontextmanager
    async def stream_of(self, path: str) -> AsyncIterator[AsyncIterator[SentEvent]]:
        """The events of any stream, without comments."""
        timeout = aiohttp.ClientTimeout(total=60)
        async with self.http.get(f"{self.url}{path}", timeout=timeout) as response:
            assert response.status == 200, await response.text()
            yield _events(response)


def _names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[SentEvent]:
    fields: dict[str, str] = {}
    async for raw in response.content:
        line = raw.decode().rstrip("\n")
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
        elif not line and fields:
            yield SentEvent(fields["event"], fields["id"], json.loads(fields["data"]))
            fields = {}


async def until(events: AsyncIterator[SentEvent], state: dict[str, JSON], wanted: Any) -> dict[str, JSON]:
    """Apply snapshots and patches of the board to `state` until `wanted(state)` is true."""
    async for event in events:
        if event.event == "snapshot":
            state.clear()
        for row in event.data.get("rows") or event.data.get("upsert") or ():
            state[row["id"]] = row
        for identity in event.data.get("remove") or ():
            state.pop(identity, None)
        if wanted(state):
            return state
    raise AssertionError("the stream ended")


class DashboardPlane(NamedTuple):
    """A server with users, and a dashboard of it."""

    # The administrator's client.
    client: Client
    address: DashboardAddress
    dashboard: Dashboard
    audit_log: Path
    # The plane, if the server is embedded.
    cluster: LocalCluster | None = None

    @property
    def store(self) -> Store:
        assert self.cluster is not None
        return self.cluster.store

    @property
    def connection(self) -> Connection:
        """The administrator's connection."""
        return self.dashboard.settings.connection

    def new_link(self) -> str:
        return self.address.new_link(SystemClock().now())

    @asynccontextmanager
    async def browser(self) -> AsyncIterator[Browser]:
        """A browser without a session."""
        jar = aiohttp.CookieJar(unsafe=True)  # cookies of addresses, too
        async with aiohttp.ClientSession(cookie_jar=jar) as http:
            yield Browser(self.address.url, http)

    @asynccontextmanager
    async def logged_in(self, token: str = "") -> AsyncIterator[Browser]:
        """A browser with a session: by a link, or by a token."""
        async with self.browser() as browser:
            if token:
                status, answer = await browser.call("POST", "/api/login", {"token": token})
                assert status == 200, answer
            else:
                await browser.open(self.new_link())
            yield browser

    async def allow(self, user: str, namespace: str, *rules: JSON) -> None:
        """Give a user a Role in one namespace."""
        name = f"{user}-role"
        await self.client.create(ROLES, {"metadata": {"name": name}, "rules": list(rules)}, namespace=namespace)
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}],
        }
        await self.client.create(ROLE_BINDINGS, binding, namespace=namespace)


def user_token(user: str) -> str:
    """The token of a user of `dashboard_plane`."""
    return f"token-of-{user}"


@asynccontextmanager
async def dashboard_plane(
    folder: Path, users: tuple[str, ...] = (), *, login: LoginMethod = LoginMethod.LINK, **settings: Any
) -> AsyncIterator[DashboardPlane]:
    """An embedded plane with operator and node, and a dashboard that is connected to it as `gangline up` does it."""
    plane = PlaneSettings(
        certificates=folder / "certificates",
        users={user_token(user): UserInfo(user, (AUTHENTICATED_GROUP,)) for user in users},
        audit=AuditSettings(folder / "audit.log", METADATA_OF_ALL),
    )
    local = LocalSettings(folder=folder, logs=folder / "pods", plane=plane)
    with unwrap_exception_group():
        async with embedded_plane(local, SystemClock()) as cluster:
            shown = DashboardSettings(connection=cluster.connection, login=login, **settings)
            async with served_dashboard(shown) as (address, dashboard):
                yield DashboardPlane(cluster.client, address, dashboard, folder / "audit.log", cluster)


@asynccontextmanager
async def served_dashboard(settings: DashboardSettings) -> AsyncIterator[tuple[DashboardAddress, Dashboard]]:
    """A dashboard that listens on a free port of this machine."""
    with listening_socket() as opened:
        address = DashboardAddress(socket_url(opened), new_secret())
        async with serve_dashboard(settings, opened, address.secret) as dashboard:
            yield address, dashboard


def job_body(name: str, command: list[str], *, workers: int = 1, **metadata: Any) -> JSON:
    """A PyTorchJob of one master and some workers that run a command."""
    container = {"name": "pytorch", "image": "x", "command": command}
    spec = {"restartPolicy": "Never", "template": {"spec": {"containers": [container]}}}
    return {
        "metadata": {"name": name, **metadata},
        "spec": {
            "pytorchReplicaSpecs": {
                "Master": {"replicas": 1, **spec},
                **({"Worker": {"replicas": workers, **spec}} if workers else {}),
            }
        },
    }
