"""Deletion of namespaces and owners: our controllers beside kube-controller-manager's."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.kube.config.connection import load_connection
from gangline.local.plane import PlaneSettings, control_plane
from support.cluster.caller import MERGE_PATCH, Caller
from support.servers.plane import widget_crd
from support.servers.real import RealServer
from support.waiting import wait_until

JSON = dict[str, Any]
REAL = pytest.param("real", marks=[pytest.mark.real, pytest.mark.xdist_group("real-deletion")])
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SPACES = "/api/v1/namespaces"
HOLD = "example.com/hold"


@pytest.fixture(params=[REAL, "embedded"])
async def caller(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Caller]:
    """A new namespace of each server."""
    name = f"deletion-{uuid.uuid4().hex[:8]}"
    if request.param == "real":
        real: RealServer = request.getfixturevalue("managed_server")
        made = Caller(load_connection(kubeconfig=str(real.kubeconfig), environ={}, home=tmp_path), name)
        assert (await made.call("POST", SPACES, {"metadata": {"name": name}})).status == 201
        yield made
        return
    settings = PlaneSettings(certificates=tmp_path / "certificates")
    async with Store() as store, control_plane(store, settings, SystemClock()) as plane:
        made = Caller(plane.connection, name)
        assert (await made.call("POST", SPACES, {"metadata": {"name": name}})).status == 201
        yield made


async def make(caller: Caller, name: str, *owners: JSON, plural: str = "configmaps", **metadata: Any) -> JSON:
    body = {"metadata": {"name": name, "ownerReferences": list(owners), **metadata}}
    answer = await caller.create(plural, body)
    assert answer.status == 201, answer.body
    made: JSON = answer.body
    return made


def owned_by(owner: JSON, *, blocks: bool = False, **other: str) -> JSON:
    metadata = owner["metadata"]
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": metadata["name"], "uid": metadata["uid"]}
    return {**reference, "blockOwnerDeletion": blocks, **other}


def path(caller: Caller, name: str, plural: str = "configmaps") -> str:
    return f"{SPACES}/{caller.namespace}/{plural}/{name}"


async def is_gone(caller: Caller, url: str) -> bool:
    return bool((await caller.call("GET", url)).status == 404)


async def release(caller: Caller, url: str) -> None:
    answer = await caller.call("PATCH", url, {"metadata": {"finalizers": None}}, media=MERGE_PATCH)
    assert answer.status == 200, answer.body


async def conditions(caller: Caller, wanted: str) -> list[tuple[str, str, str, str]]:
    """The conditions of the namespace when one of them contains this text."""

    async def read() -> list[tuple[str, str, str, str]]:
        status = (await caller.call("GET", f"{SPACES}/{caller.namespace}")).body["status"]
        found = [
            (item["type"], item["status"], item["reason"], item["message"]) for item in status.get("conditions", [])
        ]
        return found if any(wanted in item[3] for item in found) else []

    found: list[tuple[str, str, str, str]] = await wait_until(read)
    return found


OK_CONDITIONS = [
    ("NamespaceDeletionDiscoveryFailure", "False", "ResourcesDiscovered", "All resources successfully discovered"),
    (
        "NamespaceDeletionGroupVersionParsingFailure",
        "False",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    (
        "NamespaceDeletionContentFailure",
        "False",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
]


async def test_a_namespace_says_what_remains_in_it(caller: Caller) -> None:
    for name in ("a", "b"):
        await make(caller, name, finalizers=[HOLD])
    await make(caller, "c", plural="secrets", finalizers=[HOLD])
    await caller.call("DELETE", f"{SPACES}/{caller.namespace}")
    assert await conditions(caller, HOLD) == [
        *OK_CONDITIONS,
        (
            "NamespaceContentRemaining",
            "True",
            "SomeResourcesRemain",
            "Some resources are remaining: configmaps. has 2 resource instances, secrets. has 1 resource instances",
        ),
        (
            "NamespaceFinalizersRemaining",
            "True",
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {HOLD} in 3 resource instances",
        ),
    ]
    for name, plural in (("a", "configmaps"), ("b", "configmaps"), ("c", "secrets")):
        await release(caller, path(caller, name, plural))
    await wait_until(lambda: is_gone(caller, f"{SPACES}/{caller.namespace}"))


async def test_pods_are_deleted_before_the_rest(caller: Caller) -> None:
    pod = {
        "metadata": {"name": "p", "finalizers": [HOLD]},
        "spec": {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False},
    }
    answer = await caller.create("pods", pod)
    assert answer.status == 201, answer.body
    await make(caller, "a")
    await caller.call("DELETE", f"{SPACES}/{caller.namespace}")
    # While pods remain nothing is counted.
    assert await conditions(caller, "All content successfully removed") == [
        *OK_CONDITIONS,
        ("NamespaceContentRemaining", "False", "ContentRemoved", "All content successfully removed"),
        (
            "NamespaceFinalizersRemaining",
            "False",
            "ContentHasNoFinalizers",
            "All content-preserving finalizers finished",
        ),
    ]
    kept = await caller.call("GET", path(caller, "a"))
    assert "deletionTimestamp" not in kept.body["metadata"]


async def test_an_autoscaler_goes_with_its_namespace(caller: Caller) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    body = {"metadata": {"name": "a", "finalizers": [HOLD]}, "spec": {"maxReplicas": 1, "scaleTargetRef": target}}
    scalers = f"/apis/autoscaling/v1/namespaces/{caller.namespace}/horizontalpodautoscalers"
    assert (await caller.call("POST", scalers, body)).status == 201
    await caller.call("DELETE", f"{SPACES}/{caller.namespace}")
    found = await conditions(caller, "horizontalpodautoscalers")
    assert found[3][3] == (
        "Some resources are remaining: horizontalpodautoscalers.autoscaling has 1 resource instances"
    )
    await release(caller, f"{scalers}/a")
    await wait_until(lambda: is_gone(caller, f"{SPACES}/{caller.namespace}"))


async def test_custom_resources_go_with_their_namespace_and_their_definition(caller: Caller) -> None:
    group = f"{caller.namespace}.example.com"
    crd = widget_crd(group)
    (template,) = crd["spec"]["versions"]
    crd["spec"]["versions"] = [{**template, "storage": False}, {**template, "name": "v2", "storage": True}]
    assert (await caller.call("POST", CRDS, crd)).status == 201
    widgets = f"/apis/{group}/v1/namespaces/{caller.namespace}/widgets"

    async def is_served() -> bool:
        return bool((await caller.call("GET", widgets)).status == 200)

    await wait_until(is_served)
    body = {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": "w", "finalizers": [HOLD]}}
    assert (await caller.call("POST", widgets, body)).status == 201
    await caller.call("DELETE", f"{SPACES}/{caller.namespace}")
    found = await conditions(caller, "widgets")
    assert found[3][3] == f"Some resources are remaining: widgets.{group} has 1 resource instances"
    await caller.call("DELETE", f"{CRDS}/widgets.{group}")
    await release(caller, f"{widgets}/w")
    await wait_until(lambda: is_gone(caller, f"{SPACES}/{caller.namespace}"))
    await wait_until(lambda: is_gone(caller, f"{CRDS}/widgets.{group}"))


async def test_owners_in_vain_and_owners_of_which_nothing_is_known(caller: Caller) -> None:
    owner = await make(caller, "owner")
    await make(caller, "by-uid", owned_by(owner, uid="00000000-0000-0000-0000-000000000000"))
    await make(caller, "by-name", owned_by(owner, name="other"))
    await make(caller, "by-kind", owned_by(owner, kind="Secret"))
    await make(caller, "unknown", owned_by(owner, apiVersion="nope.example.com/v1", kind="Nope", uid="1"))
    role = {"metadata": {"name": caller.namespace, "ownerReferences": [owned_by(owner, uid="1")]}, "rules": []}
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    assert (await caller.call("POST", roles, role)).status == 201
    for name in ("by-uid", "by-name", "by-kind"):
        await wait_until(lambda name=name: is_gone(caller, path(caller, name)))  # type: ignore[misc]
    assert not await is_gone(caller, path(caller, "unknown"))
    assert not await is_gone(caller, f"{roles}/{caller.namespace}")


async def test_a_cycle_of_owners_is_deleted_in_the_foreground(caller: Caller) -> None:
    first = await make(caller, "first")
    second = await make(caller, "second", owned_by(first, blocks=True))
    third = await make(caller, "third", owned_by(second, blocks=True))
    owners = {"metadata": {"ownerReferences": [owned_by(third, blocks=True)]}}
    await caller.call("PATCH", path(caller, "first"), owners, media=MERGE_PATCH)
    await caller.call("DELETE", path(caller, "first") + "?propagationPolicy=Foreground")
    for name in ("first", "second", "third"):
        await wait_until(lambda name=name: is_gone(caller, path(caller, name)))  # type: ignore[misc]


async def test_a_finalizer_that_asks_for_orphans_is_honoured(caller: Caller) -> None:
    owner = await make(caller, "owner")
    child = await make(caller, "child", owned_by(owner), finalizers=["orphan"])
    await make(caller, "grandchild", owned_by(child))
    await caller.call("DELETE", path(caller, "owner"))
    await wait_until(lambda: is_gone(caller, path(caller, "child")))
    grandchild = await caller.call("GET", path(caller, "grandchild"))
    assert grandchild.status == 200
    assert "ownerReferences" not in grandchild.body["metadata"]
