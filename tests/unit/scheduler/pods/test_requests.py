"""K15: the requests of a pod, summed as kube-scheduler sums them. Expected values are worked out by hand."""

from typing import Any

import msgspec
import pytest

from gangline.api.scheduler_views import Pod
from gangline.scheduler.pods.requests import pod_requests

GI = 2**30


def c(name: str = "main", *, sidecar: bool = False, **asked: str) -> dict[str, Any]:
    names = {"gpu": "nvidia.com/gpu", "disk": "ephemeral-storage", "huge": "hugepages-2Mi"}
    result: dict[str, Any] = {
        "name": name,
        "resources": {"requests": {names.get(key, key): value for key, value in asked.items()}},
    }
    return result | ({"restartPolicy": "Always"} if sidecar else {})


def has(name: str = "main", *, allocated: dict[str, str] | None = None, **asked: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": asked}, "allocatedResources": allocated or {}}


INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
DEFERRED = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}

TABLE: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, int]]] = [
    ("nothing asked", {"containers": [c()]}, {}, {}),
    ("one container", {"containers": [c(cpu="2", memory="1Gi")]}, {}, {"cpu": 2000, "memory": GI}),
    (
        "containers add up, in whatever unit they are written",
        {"containers": [c("a", cpu="500m", memory="1Gi"), c("b", cpu="1.5", memory="1G")]},
        {},
        {"cpu": 2000, "memory": GI + 10**9},
    ),
    ("a thousandth of a thousandth is rounded up", {"containers": [c(cpu="1u")]}, {}, {"cpu": 1}),
    (
        "the sum is rounded, not every part of it",
        {"containers": [c("a", cpu="400u"), c("b", cpu="600u")]},
        {},
        {"cpu": 1},
    ),
    (
        "extended and huge things are whole numbers",
        {"containers": [c(gpu="8", huge="4Mi", disk="1k")]},
        {},
        {"nvidia.com/gpu": 8, "hugepages-2Mi": 4 * 2**20, "ephemeral-storage": 1000},
    ),
    ("zero is nothing", {"containers": [c(cpu="0", gpu="0")]}, {}, {}),
    (
        "an init container below the sum changes nothing",
        {"containers": [c(cpu="2")], "initContainers": [c("i", cpu="1")]},
        {},
        {"cpu": 2000},
    ),
    (
        "an init container above the sum decides, resource by resource",
        {"containers": [c(cpu="2", memory="4Gi")], "initContainers": [c("i", cpu="3", memory="1Gi")]},
        {},
        {"cpu": 3000, "memory": 4 * GI},
    ),
    (
        "init containers run one after the other: the largest counts",
        {"containers": [c(cpu="1")], "initContainers": [c("i", cpu="2"), c("j", cpu="3"), c("k", cpu="2")]},
        {},
        {"cpu": 3000},
    ),
    (
        "only an init container asks",
        {"containers": [c()], "initContainers": [c("i", gpu="1")]},
        {},
        {"nvidia.com/gpu": 1},
    ),
    (
        "a sidecar counts beside the containers",
        {"containers": [c(cpu="2")], "initContainers": [c("s", sidecar=True, cpu="500m")]},
        {},
        {"cpu": 2500},
    ),
    (
        # Starting: 1 + 4 = 5. Running: 2 + 1 = 3.
        "an init container after a sidecar runs beside it",
        {"containers": [c(cpu="2")], "initContainers": [c("s", sidecar=True, cpu="1"), c("i", cpu="4")]},
        {},
        {"cpu": 5000},
    ),
    (
        # Starting: 4, then 1. Running: 2 + 1 = 3.
        "an init container before a sidecar does not",
        {"containers": [c(cpu="2")], "initContainers": [c("i", cpu="4"), c("s", sidecar=True, cpu="1")]},
        {},
        {"cpu": 4000},
    ),
    (
        # Starting: s 1; s + i = 4; s + t = 3; s + t + j = 8. Running: 2 + 3 = 5.
        "sidecars pile up while the others start",
        {
            "containers": [c(cpu="2")],
            "initContainers": [
                c("s", sidecar=True, cpu="1"),
                c("i", cpu="3"),
                c("t", sidecar=True, cpu="2"),
                c("j", cpu="5"),
            ],
        },
        {},
        {"cpu": 8000},
    ),
    (
        "overhead comes on top of whatever decides",
        {
            "containers": [c(cpu="2")],
            "initContainers": [c("i", cpu="3")],
            "overhead": {"cpu": "250m", "memory": "120Mi"},
        },
        {},
        {"cpu": 3250, "memory": 120 * 2**20},
    ),
    (
        "what the pod asks for as a whole stands for its containers, and only where it says so",
        {
            "containers": [c(cpu="2", memory="1Gi", gpu="1")],
            "resources": {"requests": {"cpu": "5", "hugepages-2Mi": "2Mi", "nvidia.com/gpu": "9"}},
            "overhead": {"cpu": "100m"},
        },
        {},
        {"cpu": 5100, "memory": GI, "nvidia.com/gpu": 1, "hugepages-2Mi": 2 * 2**20},
    ),
    (
        "a container that is made larger counts as what it asks for",
        {"containers": [c(cpu="3")]},
        {"containerStatuses": [has(cpu="1", allocated={"cpu": "1"})]},
        {"cpu": 3000},
    ),
    (
        "a container that is made smaller counts as what it still has",
        {"containers": [c(cpu="1")], "initContainers": [c("s", sidecar=True, cpu="1"), c("i", cpu="1")]},
        {
            "containerStatuses": [has(cpu="3", allocated={"cpu": "2"})],
            "initContainerStatuses": [has("s", cpu="2"), has("i", cpu="90")],
            "conditions": [DEFERRED],
        },
        {"cpu": 5000},
    ),
    (
        "a container that cannot be made larger counts as what it has",
        {"containers": [c(cpu="30")]},
        {"containerStatuses": [has(cpu="1", allocated={"cpu": "2"})], "conditions": [INFEASIBLE]},
        {"cpu": 2000},
    ),
    (
        "a status that says nothing about amounts changes nothing",
        {"containers": [c(cpu="2")]},
        {"containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 1}}}]},
        {"cpu": 2000},
    ),
]


@pytest.mark.parametrize(("spec", "status", "expected"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_a_pod_asks_for_what_kube_scheduler_counts(
    spec: dict[str, Any], status: dict[str, Any], expected: dict[str, int]
) -> None:
    pod = msgspec.convert({"spec": spec, "status": status}, Pod)
    assert dict(pod_requests(pod)) == expected | {"pods": 1}


def test_the_table_has_twenty_rows_and_more() -> None:
    assert len(TABLE) >= 20


def test_requests_are_in_order_of_name_so_that_equal_pods_have_equal_shapes() -> None:
    one = msgspec.convert({"spec": {"containers": [c(cpu="1", memory="1Gi")]}}, Pod)
    other = msgspec.convert({"spec": {"containers": [c(memory="1024Mi", cpu="1000m")]}}, Pod)
    assert pod_requests(one) == pod_requests(other)
