"""What resource quotas say is used: our controller beside kube-controller-manager's."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.base.tasks import background_tasks
from gangline.kube.config.connection import Connection, load_connection
from gangline.local.controllers.quotas import QuotaController
from gangline.local.plane import PlaneSettings, control_plane
from support.cluster.caller import MERGE_PATCH, Caller
from support.servers.real import RealServer
from support.waiting import wait_until

JSON = dict[str, Any]
REAL = pytest.param("real", marks=[pytest.mark.real, pytest.mark.xdist_group("real-quota")])


@asynccontextmanager
async def our_server(folder: Path) -> AsyncIterator[Connection]:
    settings = PlaneSettings(certificates=folder)
    async with Store() as store, control_plane(store, settings, SystemClock()) as plane:
        controller = QuotaController(plane.registry, SystemClock())
        async with background_tasks(controller.run()):
            yield plane.connection


@pytest.fixture(params=[REAL, "embedded"])
async def caller(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Caller]:
    """A new namespace of each server."""
    name = f"quota-{uuid.uuid4().hex[:8]}"
    if request.param == "real":
        real: RealServer = request.getfixturevalue("managed_server")
        connection = load_connection(kubeconfig=str(real.kubeconfig), environ={}, home=tmp_path)
        made = Caller(connection, name)
        assert (await made.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})).status == 201
        yield made
        return
    async with our_server(tmp_path / "certificates") as connection:
        made = Caller(connection, name)
        assert (await made.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})).status == 201
        yield made


async def status(caller: Caller, hard: JSON, used: JSON) -> None:
    """Wait until the quota says this."""

    async def says() -> bool:
        answer = await caller.call("GET", f"/api/v1/namespaces/{caller.namespace}/resourcequotas/q")
        return bool(answer.body["status"] == {"hard": hard, "used": used})

    await wait_until(says)


async def limit(caller: Caller, hard: JSON, **spec: Any) -> None:
    body = {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}}
    assert (await caller.create("resourcequotas", body)).status == 201


async def test_a_new_quota_counts_what_is_there_and_is_enforced(caller: Caller) -> None:
    await caller.pod("a", {"requests": {"cpu": "500m", "memory": "1Gi"}})
    await caller.create("secrets", {"metadata": {"name": "s"}})
    hard = {"pods": "2", "requests.cpu": "1500m", "requests.memory": "4Gi", "secrets": "1", "count/jobs.batch": "1"}
    await limit(caller, hard)
    used = {"pods": "1", "requests.cpu": "500m", "requests.memory": "1Gi", "secrets": "1", "count/jobs.batch": "0"}
    await status(caller, hard, used)
    refused = await caller.refused_pod({"requests": {"cpu": "2", "memory": "1Gi"}})
    assert refused.message == (
        "exceeded quota: q, requested: requests.cpu=2, used: requests.cpu=500m, limited: requests.cpu=1500m"
    )
    assert (await caller.pod("b", {"requests": {"cpu": "1", "memory": "1Gi"}})).status == 201
    await status(caller, hard, {**used, "pods": "2", "requests.cpu": "1500m", "requests.memory": "2Gi"})


async def test_what_is_gone_or_ended_is_free_again(caller: Caller) -> None:
    for name in ("a", "b"):
        await caller.pod(name, {"requests": {"cpu": "1"}})
    hard = {"pods": "2", "count/pods": "5", "cpu": "2"}
    await limit(caller, hard)
    await status(caller, hard, {"pods": "2", "count/pods": "2", "cpu": "2"})
    pods = f"/api/v1/namespaces/{caller.namespace}/pods"
    await caller.call("PATCH", f"{pods}/a/status", {"status": {"phase": "Succeeded"}}, MERGE_PATCH)
    await status(caller, hard, {"pods": "1", "count/pods": "2", "cpu": "1"})
    await caller.call("DELETE", f"{pods}/b?gracePeriodSeconds=0")
    await status(caller, hard, {"pods": "0", "count/pods": "1", "cpu": "0"})


async def test_a_changed_limit_is_counted(caller: Caller) -> None:
    await caller.create("configmaps", {"metadata": {"name": "m"}})
    await limit(caller, {"configmaps": "5"})

    async def root_ca() -> bool:
        path = f"/api/v1/namespaces/{caller.namespace}/configmaps/kube-root-ca.crt"
        return (await caller.call("GET", path)).status == 200

    await wait_until(root_ca)
    await status(caller, {"configmaps": "5"}, {"configmaps": "2"})
    path = f"/api/v1/namespaces/{caller.namespace}/resourcequotas/q"
    await caller.call("PATCH", path, {"spec": {"hard": {"configmaps": None, "count/configmaps": "3"}}}, MERGE_PATCH)
    await status(caller, {"count/configmaps": "3"}, {"count/configmaps": "2"})


async def test_services_that_need_fewer_ports_free_them(caller: Caller) -> None:
    service = {"type": "LoadBalancer", "ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "b"}]}
    await caller.create("services", {"metadata": {"name": "s"}, "spec": service})
    hard = {"services": "3", "services.nodeports": "5", "services.loadbalancers": "1"}
    await limit(caller, hard)
    await status(caller, hard, {"services": "1", "services.nodeports": "2", "services.loadbalancers": "1"})
    path = f"/api/v1/namespaces/{caller.namespace}/services/s"
    await caller.call("PATCH", path, {"spec": {"type": "ClusterIP"}}, MERGE_PATCH)
    await status(caller, hard, {"services": "1", "services.nodeports": "0", "services.loadbalancers": "0"})


async def test_only_pods_of_its_scopes_are_counted(caller: Caller) -> None:
    await caller.pod("best-effort")
    await caller.pod("ends", {"requests": {"cpu": "1"}}, activeDeadlineSeconds=600)
    await limit(caller, {"pods": "3", "cpu": "4"}, scopes=["Terminating", "NotBestEffort"])
    await status(caller, {"pods": "3", "cpu": "4"}, {"pods": "1", "cpu": "1"})
