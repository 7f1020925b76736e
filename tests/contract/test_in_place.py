"""Whether a server lets kubelets restart pods in place: asked by a dry run, which leaves nothing behind."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from gangline.api.core import Pod
from gangline.api.meta import Selector
from gangline.jobs.in_place_support import may_restart_in_place, offers_restart_in_place
from gangline.kube.client import Client
from gangline.kube.config.connection import load_connection
from gangline.kube.discovery import server_version
from gangline.kube.transport.http import HttpTransport
from support.servers.real import RealServer, cache_dir

GATES = "NodeDeclaredFeatures=true,RestartAllContainersOnContainerExits=true"
VERSION = "1.35.4"


class Release(NamedTuple):
    """A kube-apiserver of the version in which restart in place is alpha, and whether it is on."""

    flags: tuple[str, ...]
    offers: bool


async def test_servers_before_it_do_not_offer_it(client: Client, namespace: str) -> None:
    assert not may_restart_in_place(await server_version(client))
    assert not await offers_restart_in_place(client, namespace, "gangline:1")
    assert not (await client.list(Pod, Selector(namespace))).items


@pytest.fixture(
    params=[Release((f"--feature-gates={GATES}",), offers=True), Release((), offers=False)], ids=["on", "off"]
)
async def release(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Client, Release]]:
    assets = cache_dir().with_name(VERSION)
    if not (assets / "kube-apiserver").is_file():
        # Too large to be built for every change.
        pytest.skip(f"no Kubernetes {VERSION}: KUBERNETES_VERSION={VERSION} hack/kubernetes.sh kube-apiserver etcd")
    with RealServer(assets, directory=tmp_path, flags=request.param.flags) as server:
        connection = load_connection(kubeconfig=str(server.kubeconfig), environ={}, home=tmp_path)
        async with HttpTransport(connection) as transport:
            yield Client(transport), request.param


@pytest.mark.real
async def test_1_35_offers_it_behind_its_gate(release: tuple[Client, Release]) -> None:
    client, wanted = release
    assert may_restart_in_place(await server_version(client))
    assert await offers_restart_in_place(client, "default", "gangline:1") == wanted.offers
    assert not (await client.list(Pod, Selector("default"))).items


@pytest.mark.parametrize(
    ("version", "may"), [("v1.34.4", False), ("v1.35.0", True), ("v1.36.3-eks-1", True), ("v2.0.0", True), ("", False)]
)
def test_versions(version: str, may: bool) -> None:
    assert may_restart_in_place(version) == may
