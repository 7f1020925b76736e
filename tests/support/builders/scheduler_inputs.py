"""Nodes, pods and gang requests as input of the scheduler."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from gangline.api.meta import Key
from gangline.api.scheduler_views import Node, Pod
from gangline.api.scheduling import GangTopology
from gangline.scheduler.cache.nodes import NodeCache
from gangline.scheduler.placement.whatif import WhatIf
from gangline.scheduler.pods.decode import shape_of
from gangline.scheduler.types.cycle import BoundPod, GangRequest, Placement, PodSet, Shortage
from gangline.scheduler.types.shape import PodShape

GANG_CREATED_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOSTNAME_LABEL = "kubernetes.io/hostname"
GPU_RESOURCE = "nvidia.com/gpu"


def make_scheduler_node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Mapping[str, str]] = (),
    cordoned: bool = False,
    ready: str = "True",
    offers: Mapping[str, int] | None = None,
    **offered: str | int,
) -> Node:
    """A node with these allocatable resources: `cpu=4, gpu=8`, or `offers` for names that are no identifiers."""
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"} | {
        _resource_name(resource): str(amount) for resource, amount in (offered | dict(offers or {})).items()
    }
    body = {
        "metadata": {"name": name, "labels": {HOSTNAME_LABEL: name, **(labels or {})}},
        "spec": {"taints": list(taints), "unschedulable": cordoned},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]},
    }
    return msgspec.convert(body, Node)


def make_scheduler_pod(
    name: str = "p",
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    deleted: bool = False,
    asks: Mapping[str, int] | None = None,
    **asked: str | int,
) -> Pod:
    """A pod of one container that requests `cpu=1, gpu=1`; `metadata` and `spec` are added as they are on the wire."""
    requests = {_resource_name(word): str(amount) for word, amount in (asked | dict(asks or {})).items()}
    body = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}",
            "labels": dict(labels or {}),
            **({"deletionTimestamp": GANG_CREATED_AT} if deleted else {}),
            **(metadata or {}),
        },
        "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}], **(spec or {})},
        "status": dict(status or {}),
    }
    return msgspec.convert(body, Pod)


def make_pod_shape(pod: Pod | None = None, **asked: Any) -> PodShape:
    return shape_of(pod if pod is not None else make_scheduler_pod(**asked))


def make_bound_pod(uid: str, node: str, shape: PodShape, **rest: Any) -> BoundPod:
    return BoundPod(uid=uid, key=Key(shape.namespace or "default", uid), node=node, shape=shape, **rest)


def make_gang_request(
    *needs: PodSet | tuple[str, PodShape, int] | tuple[PodShape, int],
    least: int | None = None,
    name: str = "gang",
    priority: int = 0,
    roles: Mapping[str, int] | None = None,
    topology: GangTopology | None = None,
    near: tuple[str, ...] = (),
) -> GangRequest:
    """The request of a gang; all its members are required unless `least` is given."""
    found = tuple(_pod_set(each) for each in needs)
    return GangRequest(
        key=Key("default", name),
        uid=f"uid-{name}",
        queue="default",
        priority=priority,
        created=GANG_CREATED_AT,
        waiting_since=GANG_CREATED_AT,
        recovering=False,
        pod_sets=found,
        min_members=sum(need.count for need in found) if least is None else least,
        min_by_role=roles or {},
        topology=topology,
        current_nodes=near,
    )


def make_node_cache(*nodes: Node, residents: Iterable[BoundPod] = ()) -> NodeCache:
    cluster = NodeCache()
    for node in nodes:
        cluster.put_node(node)
    for resident in residents:
        cluster.put_pod(resident)
    return cluster


def node_names(trial: WhatIf, found: Placement | Shortage) -> list[list[str]]:
    """The sorted node names of every pod set. Fails with the shortage if there is no placement."""
    assert isinstance(found, Placement), found
    return [sorted(trial.node_names[number] for number in nodes) for nodes in found.nodes]


def placed_nodes(cluster: NodeCache, ask: GangRequest) -> list[list[str]]:
    trial = cluster.what_if()
    return node_names(trial, trial.place(ask))


def placement_shortage(cluster: NodeCache, ask: GangRequest) -> Shortage:
    found = cluster.what_if().place(ask)
    assert isinstance(found, Shortage), found
    return found


def _pod_set(each: PodSet | tuple[str, PodShape, int] | tuple[PodShape, int]) -> PodSet:
    if isinstance(each, PodSet):
        return each
    return PodSet(*each) if len(each) == 3 else PodSet("worker", *each)


def _resource_name(word: str) -> str:
    return {"gpu": GPU_RESOURCE, "memory": "memory"}.get(word, word.replace("_", "-"))
