"""Made-up pods and templates, sent to a real server and to ours: the same answers, word for word."""

import random
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.kube.config.connection import load_connection
from gangline.local.plane import PlaneSettings, control_plane
from support.cases.admission import (
    limit_range,
    secured_pod,
    security_labels,
    sized_pod,
    unordered_message,
    workload,
)
from support.cluster.caller import Answer, Caller
from support.servers.real import RealServer

JSON = dict[str, Any]
NAMESPACES = 12
pytestmark = [pytest.mark.real, pytest.mark.xdist_group("real")]


@pytest.fixture
async def callers(real_server: RealServer, tmp_path: Path) -> AsyncIterator[tuple[Caller, Caller]]:
    """The real server and ours."""
    real_server.revive()
    real = load_connection(kubeconfig=str(real_server.kubeconfig), environ={}, home=tmp_path)
    settings = PlaneSettings(certificates=tmp_path / "certificates", warn_on_inert_kinds=False)
    async with Store() as store, control_plane(store, settings, SystemClock()) as plane:
        yield Caller(real, ""), Caller(plane.connection, "")


async def enter_new_namespace(callers: tuple[Caller, Caller], labels: JSON) -> None:
    # A new one each time: a real server looks limit ranges up when it knows none of a namespace, and then knows them.
    name = f"differ-{uuid.uuid4().hex[:10]}"
    for caller in callers:
        caller.namespace = name
        body = {"metadata": {"name": name, "labels": labels}}
        assert (await caller.call("POST", "/api/v1/namespaces", body)).status == 201


def comparable(answer: Answer) -> tuple[object, ...]:
    """What is compared of an answer. Validation, which comes first, has tests of its own."""
    if answer.status == 422:
        return (422,)
    if answer.status >= 400:
        return answer.status, unordered_message(answer.body["message"]), answer.body["details"], answer.warnings
    spec = answer.body["spec"]
    if "limits" in spec:
        return answer.status, spec
    containers = [*spec.get("containers", ()), *spec.get("initContainers", ())]
    annotation = (answer.body["metadata"].get("annotations") or {}).get("kubernetes.io/limit-ranger")
    return answer.status, annotation, [item.get("resources") for item in containers], answer.warnings


async def check_same(callers: tuple[Caller, Caller], plural: str, body: JSON, api: str = "/api/v1") -> int:
    real, ours = [await caller.create(plural, body, api, dry=plural != "limitranges") for caller in callers]
    assert comparable(ours) == comparable(real), body
    return real.status


@pytest.mark.parametrize("seed", [1, 2])
async def test_pod_security(callers: tuple[Caller, Caller], seed: int) -> None:
    rng = random.Random(seed)
    statuses: set[int] = set()
    for _ in range(NAMESPACES):
        await enter_new_namespace(callers, security_labels(rng))
        statuses |= {await check_same(callers, "pods", secured_pod(rng)) for _ in range(3)}
        api, body = workload(rng)
        await check_same(callers, body.pop("kind"), body, api)
    assert statuses >= {201, 403}


@pytest.mark.parametrize("seed", [1, 2])
async def test_limit_ranges(callers: tuple[Caller, Caller], seed: int) -> None:
    rng = random.Random(seed)
    statuses: set[int] = set()
    for _ in range(NAMESPACES):
        await enter_new_namespace(callers, {})
        if await check_same(callers, "limitranges", limit_range(rng, "l")) == 201:
            statuses |= {await check_same(callers, "pods", sized_pod(rng)) for _ in range(3)}
    assert statuses >= {201, 403}
