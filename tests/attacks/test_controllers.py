"""Controllers whose writes fail or take long: they neither end the plane nor forget what they have to do."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gangline.api.core import ConfigMap, Namespace
from gangline.api.meta import JSON, Key
from gangline.api.scheme import CORE_SCHEME, Resource
from gangline.apiserver.auth.role_index import RBAC_GROUP
from gangline.apiserver.http.watch import MAX_BACKLOG
from gangline.apiserver.store.errors import DiskFull
from gangline.apiserver.store.paths import object_path
from gangline.apiserver.store.records import StoreRecord, StoreWrite
from gangline.base.clock import SystemClock
from gangline.kube.errors import NotFound
from gangline.local.cluster import LocalCluster, LocalSettings, local_cluster
from gangline.local.controllers.pod_access import POD_ROLE
from support.waiting import wait_until

SECRETS: Resource[JSON] = Resource("", "v1", "Secret", "secrets", dict[str, Any])
TOKEN_TYPE = "kubernetes.io/service-account-token"


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with local_cluster(
        LocalSettings(folder=tmp_path, logs=tmp_path / "state"), CORE_SCHEME, SystemClock()
    ) as running:
        yield running


class Disk:
    """The disk of a plane, which tests fill or slow down for some objects."""

    def __init__(self, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self._commit = cluster.store.commit
        self.refused = ""
        """Writes of paths with this text get no space, once."""
        self.refusals = 0
        self.gate = asyncio.Event()
        """Writes that fill a secret wait for it."""
        self.gate.set()
        monkeypatch.setattr(cluster.store, "commit", self.commit)

    async def commit(self, *writes: StoreWrite) -> tuple[StoreRecord, ...]:
        if self.refused and any(self.refused in write.path for write in writes):
            self.refused, self.refusals = "", self.refusals + 1
            raise DiskFull(Path("state"))
        if any(write.body is not None and "token" in (write.body.get("data") or ()) for write in writes):
            await self.gate.wait()
        return await self._commit(*writes)


def token_secret(name: str) -> JSON:
    annotations = {"kubernetes.io/service-account.name": "default"}
    return {"metadata": {"name": name, "namespace": "default", "annotations": annotations}, "type": TOKEN_TYPE}


async def has_token(cluster: LocalCluster, name: str) -> bool:
    return bool(((await cluster.client.get(SECRETS, Key("default", name))).get("data") or {}).get("token"))


async def test_role_of_pods_is_bound_when_there_is_space_again(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(cluster, monkeypatch)
    disk.refused = "/rolebindings/"
    await cluster.client.create(Namespace, {"metadata": {"name": "late"}})
    await wait_until(lambda: cluster.store.get(object_path(RBAC_GROUP, "rolebindings", "late", POD_ROLE)))
    assert disk.refusals == 1


async def test_secret_gets_its_token_when_there_is_space_again(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(cluster, monkeypatch)
    disk.gate.clear()
    await cluster.client.create(SECRETS, token_secret("first"))
    await cluster.client.create(SECRETS, token_secret("second"))
    disk.refused = "/secrets/default/second"
    disk.gate.set()
    await wait_until(lambda: has_token(cluster, "second"))
    assert disk.refusals == 1


async def test_flood_of_secrets_does_not_end_the_plane(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """More changes than a watch of a client keeps, while the controller waits for one write."""
    disk = Disk(cluster, monkeypatch)
    disk.gate.clear()
    await cluster.client.create(SECRETS, token_secret("first"))
    step = MAX_BACKLOG // 4
    for start in range(0, MAX_BACKLOG + step, step):
        names = [f"flood-{number}" for number in range(start, start + step)]
        bodies = [{**token_secret(name), "type": "Opaque"} for name in names]
        writes = [
            StoreWrite(object_path("", "secrets", "default", n), b, 0) for n, b in zip(names, bodies, strict=True)
        ]
        await cluster.store.commit(*writes)
        await asyncio.sleep(0)  # a commit to a store in memory gives no other task a turn
    disk.gate.set()
    await wait_until(lambda: has_token(cluster, "first"))
    with pytest.raises(NotFound):
        await cluster.client.get(ConfigMap, Key("default", "none"))
    await cluster.client.create(SECRETS, token_secret("last"))
    await wait_until(lambda: has_token(cluster, "last"))
