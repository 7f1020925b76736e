"""A deleted namespace leaves nothing behind, on a running plane; and what its status says on the way."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gangline.api.meta import JSON, Key
from gangline.apiserver.admission.lifecycle import NamespaceLifecycle
from gangline.apiserver.registry.admission import AdmissionChain, AdmissionPlugin, AdmissionRequest
from gangline.apiserver.registry.deletion import DeletionOptions
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.served_kinds import builtin_catalog
from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.base.tasks import background_tasks
from gangline.local.controllers.namespace_deletion import NamespaceDeleter, RemainingContent, deletion_conditions
from gangline.local.registry_writes import storage_kind
from support.servers.plane import TEST_CALL, PlaneClient, running_plane, widget_crd

SPACES = "/api/v1/namespaces"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = "/apis/example.com/v1/namespaces/one/widgets"
MERGE = "application/merge-patch+json"


@pytest.fixture
async def plane() -> AsyncIterator[PlaneClient]:
    async with running_plane() as running:
        await running.call("POST", SPACES, {"metadata": {"name": "one"}})
        yield running


async def recreate_namespace(plane: PlaneClient) -> None:
    """Delete the namespace, wait until it is gone, and create it again."""
    await plane.call("DELETE", f"{SPACES}/one")
    await plane.poll_status(f"{SPACES}/one", 404)
    assert (await plane.call("POST", SPACES, {"metadata": {"name": "one"}})).status == 201


async def serve_crd(plane: PlaneClient, crd: JSON) -> None:
    assert (await plane.call("POST", CRDS, crd)).status == 201
    await plane.poll_until(
        f"{CRDS}/widgets.example.com",
        lambda answer: any(
            item["type"] == "Established" and item["status"] == "True"
            for item in answer.body.get("status", {}).get("conditions", [])
        ),
    )


def crd_of_versions(*flags: tuple[str, bool, bool]) -> JSON:
    """The widgets in these versions: name, served, storage."""
    crd = widget_crd()
    (template,) = crd["spec"]["versions"]
    crd["spec"]["versions"] = [
        {**template, "name": name, "served": served, "storage": storage} for name, served, storage in flags
    ]
    return crd


AUTOSCALER = {
    "metadata": {"name": "a"},
    "spec": {"maxReplicas": 2, "scaleTargetRef": {"kind": "Deployment", "name": "x", "apiVersion": "apps/v1"}},
}
EVENT = {
    "metadata": {"name": "a"},
    "involvedObject": {"kind": "Pod", "namespace": "one", "name": "x"},
    "reason": "Because",
    "type": "Normal",
}
NEW_EVENT = {
    "metadata": {"name": "b"},
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "reportingController": "example.com/x",
    "reportingInstance": "x",
    "action": "Act",
    "reason": "Because",
    "type": "Normal",
    "regarding": {"kind": "Pod", "namespace": "one", "name": "x"},
}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/apis/autoscaling/v1/namespaces/one/horizontalpodautoscalers", AUTOSCALER),
        ("/apis/autoscaling/v2/namespaces/one/horizontalpodautoscalers", AUTOSCALER),
        ("/api/v1/namespaces/one/events", EVENT),
        ("/apis/events.k8s.io/v1/namespaces/one/events", NEW_EVENT),
    ],
)
async def test_kinds_with_several_versions_and_groups_go_too(plane: PlaneClient, path: str, body: JSON) -> None:
    assert (await plane.call("POST", path, body)).status == 201
    await recreate_namespace(plane)
    assert (await plane.call("GET", path)).body["items"] == []


async def test_an_autoscaler_is_waited_for(plane: PlaneClient) -> None:
    path = "/apis/autoscaling/v1/namespaces/one/horizontalpodautoscalers"
    body = {**AUTOSCALER, "metadata": {"name": "a", "finalizers": ["example.com/hold"]}}
    await plane.call("POST", path, body)
    await plane.call("DELETE", f"{SPACES}/one")
    await plane.poll_until(f"{path}/a", lambda answer: "deletionTimestamp" in answer.body["metadata"])
    await plane.call("PATCH", f"{path}/a", {"metadata": {"finalizers": None}}, media=MERGE)
    await plane.poll_status(f"{SPACES}/one", 404)


@pytest.mark.parametrize(
    "versions",
    [
        (("v1", True, False), ("v2", True, True)),
        (("v2", True, True), ("v1", True, False)),
        (("v1", True, False), ("v2", False, True)),
    ],
    ids=["the last is stored", "the first is stored", "the stored one is not served"],
)
async def test_custom_resources_go_whatever_version_is_stored(
    plane: PlaneClient, versions: tuple[tuple[str, bool, bool], ...]
) -> None:
    await serve_crd(plane, crd_of_versions(*versions))
    body = {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "a", "finalizers": ["example.com/hold"]},
    }
    assert (await plane.call("POST", WIDGETS, body)).status == 201
    await plane.call("DELETE", f"{SPACES}/one")
    await plane.poll_until(f"{WIDGETS}/a", lambda answer: "deletionTimestamp" in answer.body["metadata"])
    assert (await plane.call("GET", f"{SPACES}/one")).status == 200
    await plane.call("PATCH", f"{WIDGETS}/a", {"metadata": {"finalizers": None}}, media=MERGE)
    await plane.poll_status(f"{SPACES}/one", 404)
    await plane.call("POST", SPACES, {"metadata": {"name": "one"}})
    assert (await plane.call("GET", WIDGETS)).body["items"] == []


async def test_status_says_what_remains(plane: PlaneClient) -> None:
    for name in ("a", "b"):
        body = {"metadata": {"name": name, "finalizers": ["example.com/hold"]}}
        await plane.call("POST", f"{SPACES}/one/configmaps", body)
    await plane.call("DELETE", f"{SPACES}/one")
    answer = await plane.poll_until(
        f"{SPACES}/one", lambda answer: len(answer.body["status"].get("conditions", [])) == 5
    )
    texts = [
        (item["type"], item["status"], item["reason"], item["message"]) for item in answer.body["status"]["conditions"]
    ]
    # As kube-controller-manager 1.34.4 writes them.
    assert texts == [
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
        (
            "NamespaceContentRemaining",
            "True",
            "SomeResourcesRemain",
            "Some resources are remaining: configmaps. has 2 resource instances",
        ),
        (
            "NamespaceFinalizersRemaining",
            "True",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: example.com/hold in 2 resource instances",
        ),
    ]


def test_transition_times_move_only_with_the_status() -> None:
    first = deletion_conditions([], RemainingContent({"pods.": 2}).problems(), "t1")
    second = deletion_conditions(first, RemainingContent({"pods.": 1}).problems(), "t2")
    third = deletion_conditions(second, RemainingContent().problems(), "t3")
    times = [
        next(item["lastTransitionTime"] for item in conditions if item["type"] == "NamespaceContentRemaining")
        for conditions in (first, second, third)
    ]
    assert times == ["t1", "t1", "t3"]
    assert "1 resource instances" in str(second)


class HeldAdmission(AdmissionPlugin):
    """Holds config maps between their admission and their commit."""

    name = "HeldAdmission"
    resources = frozenset({("", "configmaps")})

    def __init__(self) -> None:
        self.arrived, self.gate = asyncio.Event(), asyncio.Event()

    async def validate(self, request: AdmissionRequest) -> None:
        self.arrived.set()
        await self.gate.wait()


async def test_an_object_that_was_admitted_before_the_deletion_is_deleted_too() -> None:
    async with Store() as store, asyncio.timeout(60):
        catalog, held = builtin_catalog(), HeldAdmission()
        admission = AdmissionChain([NamespaceLifecycle(store, catalog), held])
        registry = Registry(store, catalog, SystemClock(), admission=admission)
        spaces, maps = storage_kind(registry, "", "namespaces"), storage_kind(registry, "", "configmaps")
        await registry.create(TEST_CALL, spaces, "", {"metadata": {"name": "one"}})
        async with background_tasks(NamespaceDeleter(registry, SystemClock()).run()):
            creation = asyncio.create_task(registry.create(TEST_CALL, maps, "one", {"metadata": {"name": "a"}}))
            await held.arrived.wait()
            with store.watch("", after=store.revision) as changes:
                await registry.delete(TEST_CALL, spaces, Key("", "one"), DeletionOptions())
                for _ in range(100):  # the deleter has time to do the wrong thing
                    await asyncio.sleep(0)
                held.gate.set()
                await creation
                gone: list[str] = []
                while "//namespaces//one" not in gone:
                    gone += [event.record.path for event in await anext(changes) if event.deleted]
        assert gone == ["//configmaps/one/a", "//namespaces//one"]
