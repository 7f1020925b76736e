"""The servers that must all pass this suite, and a client of each."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from gangline.api.core import Namespace
from gangline.apiserver.store.store import Store
from gangline.apiserver.users import UserInfo
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.config.connection import Connection, load_connection
from gangline.kube.config.credentials import StaticToken
from gangline.kube.transport.http import HttpTransport
from gangline.local.plane import PlaneSettings, control_plane
from support.cluster.kubelet import fake_kubelet, find_fake_kubelet
from support.requirements import skip_or_fail
from support.servers.real import RealServer, find_assets

REAL = pytest.param("real", marks=[pytest.mark.real, pytest.mark.xdist_group("real")])


@pytest.fixture(params=[REAL, "embedded"])
async def server(
    request: pytest.FixtureRequest, tmp_path: Path, stores: list[Store], disabled_plugins: tuple[str, ...]
) -> AsyncIterator[Connection]:
    """How to reach a server as somebody who may do everything. One suite, two servers: ours cannot drift."""
    if request.param == "real":
        real: RealServer = request.getfixturevalue("real_server")
        real.revive()
        yield load_connection(kubeconfig=str(real.kubeconfig), environ={}, home=tmp_path)
        return
    users = {"nobody-token": UserInfo("nobody", ("system:authenticated",))}
    settings = PlaneSettings(
        certificates=tmp_path / "certificates", users=users, disabled_admission_plugins=disabled_plugins
    )
    async with Store() as store, control_plane(store, settings, SystemClock()) as plane:
        stores.append(store)
        yield plane.connection


@pytest.fixture(scope="module")
def managed_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """A real server with kube-controller-manager."""
    if find_assets() is None:
        skip_or_fail("real Kubernetes not found: run hack/kubernetes.sh or set KUBEBUILDER_ASSETS")
    with RealServer(directory=tmp_path_factory.mktemp("managed"), controller_manager=True) as server:
        if not server.has_controller_manager:
            skip_or_fail("kube-controller-manager not found: run hack/kubernetes.sh")
        yield server


@pytest.fixture
def disabled_plugins() -> tuple[str, ...]:
    """Admission plugins that the embedded server does not have. The real one has no ServiceAccount."""
    return ()


@pytest.fixture
def stores() -> list[Store]:
    """The store of the embedded server, if that is the one."""
    return []


@pytest.fixture
def forget(request: pytest.FixtureRequest, server: Connection, stores: list[Store]) -> Callable[[], Awaitable[None]]:
    """Makes the server forget all history."""

    async def compacted() -> None:
        if stores:
            await stores[0].compact(stores[0].revision)
        else:
            request.getfixturevalue("real_server").expire_watches()

    return compacted


@pytest.fixture
def nobody(server: Connection) -> Connection:
    """The same server, as somebody who may do nothing."""
    return msgspec.structs.replace(server, credentials=StaticToken("nobody-token", "test"))


@pytest.fixture
def told() -> list[str]:
    """What the server has warned the client of."""
    return []


@pytest.fixture
async def client(server: Connection, told: list[str]) -> AsyncIterator[Client]:
    async with HttpTransport(server, warn=told.append) as transport:
        yield Client(transport)


@pytest.fixture
async def namespace(client: Client) -> str:
    """A new namespace."""
    name = f"contract-{uuid.uuid4().hex[:12]}"
    await client.create(Namespace, {"metadata": {"name": name}})
    return name


@pytest.fixture(scope="session")
def kubelet_port() -> Iterator[int]:
    """Where the stand-in for a kubelet listens on this machine."""
    binary = find_fake_kubelet()
    if binary is None:
        skip_or_fail("fake kubelet not found: run hack/fakekubelet.sh")
    with fake_kubelet(binary) as port:
        yield port
