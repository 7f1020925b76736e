"""Nodes and what is on them: resources in use, free and in total, and which gang is where. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache

import msgspec

from gangline.api.codec.codec import decode
from gangline.api.codec.errors import DecodeError
from gangline.api.meta import JSON, Object, ObjectMeta
from gangline.api.quantity import QuantityError
from gangline.api.scheduler_views import Node, Pod
from gangline.dashboard.rows.job_row import ViewStruct
from gangline.scheduler.pods.requests import pod_requests
from gangline.scheduler.types.resources import CPU, PODS, amounts, as_quantity
from gangline.summary.replicas import JOB_NAME

MAX_HOLES = 100
ENDED = ("Succeeded", "Failed")


class PlacedPod(Object, frozen=True):
    """A pod that holds resources of a node."""

    node: str = ""
    # The name of its job; empty if it belongs to none.
    job: str = ""
    requests: tuple[tuple[str, int], ...] = ()


class Amount(ViewStruct, frozen=True):
    """How much of a resource: cpu in cores, all others in units; and as text, `1500m` or `64Gi`."""

    used: float
    free: float
    total: float
    used_text: str
    total_text: str


class NodeGang(ViewStruct, frozen=True):
    """The pods of one job on a node."""

    namespace: str
    job: str
    pods: int


class NodeRow(ViewStruct, frozen=True):
    """A node."""

    name: str
    ready: bool
    # Whether it takes new pods.
    schedulable: bool
    resources: dict[str, Amount]
    gangs: list[NodeGang]
    pods: int


class Hole(ViewStruct, frozen=True):
    """What is free on a node that takes pods."""

    node: str
    free: dict[str, str]


class ClusterView(ViewStruct, frozen=True):
    """All nodes, and their free holes: those with the most accelerators first, then with the most cores."""

    nodes: list[NodeRow]
    holes: list[Hole]
    refused: Sequence[object] = ()


def placed_pod(pod: Pod) -> PlacedPod:
    """A pod without what the view does not need."""
    metadata = pod.metadata
    holds = pod.spec.node_name and pod.status.phase not in ENDED
    return PlacedPod(
        metadata=ObjectMeta(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
        ),
        node=pod.spec.node_name if holds else "",
        job=metadata.labels.get(JOB_NAME, ""),
        requests=_shared(_requests(pod)) if holds else (),
    )


def _requests(pod: Pod) -> tuple[tuple[str, int], ...]:
    try:
        return pod_requests(pod)
    except QuantityError:
        return ((PODS, 1),)


@lru_cache(maxsize=4096)
def _shared(requests: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Equal requests are one object: the pods of a team are alike."""
    return requests


def node_row(node: Node, pods: Iterable[PlacedPod]) -> NodeRow:
    """A node with the pods that are on it."""
    used: Counter[str] = Counter()
    gangs: Counter[tuple[str, str]] = Counter()
    count = 0
    for pod in pods:
        count += 1
        for name, amount in pod.requests:
            used[name] += amount
        if pod.job:
            gangs[pod.metadata.namespace, pod.job] += 1
    try:
        total = amounts(node.status.allocatable)
    except QuantityError:
        total = {}
    ready = any(item.type == "Ready" and item.status == "True" for item in node.status.conditions)
    return NodeRow(
        name=node.metadata.name,
        ready=ready,
        schedulable=ready and not node.spec.unschedulable,
        resources={name: _amount(name, used[name], total[name]) for name in sorted(total)},
        gangs=[
            NodeGang(namespace=namespace, job=job, pods=number) for (namespace, job), number in sorted(gangs.items())
        ],
        pods=count,
    )


def recorded_nodes(nodes: Iterable[JSON], pods: Iterable[JSON]) -> list[NodeRow]:
    """The rows of nodes from recorded objects, by name. An object that cannot be read is left out."""
    placed: dict[str, list[PlacedPod]] = {}
    for body in pods:
        with suppress(DecodeError):
            pod = placed_pod(decode(msgspec.json.encode(body), Pod))
            placed.setdefault(pod.node, []).append(pod)
    rows: list[NodeRow] = []
    for body in nodes:
        with suppress(DecodeError):
            node = decode(msgspec.json.encode(body), Node)
            rows.append(node_row(node, placed.get(node.metadata.name, ())))
    return sorted(rows, key=lambda row: row.name)


def _amount(name: str, used: int, total: int) -> Amount:
    unit = 1000 if name == CPU else 1
    return Amount(
        used=used / unit,
        free=max(total - used, 0) / unit,
        total=total / unit,
        used_text=as_quantity(name, used),
        total_text=as_quantity(name, total),
    )


def free_holes(rows: Iterable[NodeRow]) -> list[Hole]:
    """What is free, largest first."""
    open_rows = [row for row in rows if row.schedulable]
    ranked = sorted(open_rows, key=_hole_size, reverse=True)[:MAX_HOLES]
    return [
        Hole(
            node=row.name,
            free={name: _free_text(name, amount) for name, amount in row.resources.items() if amount.free > 0},
        )
        for row in ranked
    ]


def _free_text(name: str, amount: Amount) -> str:
    return as_quantity(name, round(amount.free * (1000 if name == CPU else 1)))


def _hole_size(row: NodeRow) -> tuple[float, float, float]:
    free = {name: amount.free for name, amount in row.resources.items()}
    accelerators = sum(amount for name, amount in free.items() if "/" in name and not name.startswith("hugepages-"))
    return accelerators, free.get(CPU, 0.0), free.get("memory", 0.0)
