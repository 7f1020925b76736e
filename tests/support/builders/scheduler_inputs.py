"""Nodes, pods and asks for tests of the scheduler, in few words."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from gangline.api.meta import Key
from gangline.api.scheduler_views import Node, Pod
from gangline.api.scheduling import Topology
from gangline.scheduler.cache.nodes import Cluster
from gangline.scheduler.placement.whatif import Trial
from gangline.scheduler.pods.decode import shape_of
from gangline.scheduler.pods.shape import Shape
from gangline.scheduler.types.cycle import Ask, Need, Placement, Resident, Shortage

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOST = "kubernetes.io/hostname"
GPU = "nvidia.com/gpu"


def make_node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Mapping[str, str]] = (),
    cordoned: bool = False,
    ready: str = "True",
    offers: Mapping[str, int] | None = None,
    **offered: str | int,
) -> Node:
    """A node; what it offers in words that are names, `cpu=4, gpu=8, pods=110`, and otherwise as `offers`."""
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"} | {
        _resource(resource): str(amount) for resource, amount in (offered | dict(offers or {})).items()
    }
    body = {
        "metadata": {"name": name, "labels": {HOST: name, **(labels or {})}},
        "spec": {"taints": list(taints), "unschedulable": cordoned},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]},
    }
    return msgspec.convert(body, Node)


def make_pod(
    name: str = "p",
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    status: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    deleted: bool = False,
    asks: Mapping[str, int] | None = None,
    **asked: str | int,
) -> Pod:
    """A pod of one container that asks for `cpu=1, gpu=1`; `spec` is added as it is on the wire."""
    requests = {_resource(word): str(amount) for word, amount in (asked | dict(asks or {})).items()}
    metadata = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{namespace}-{name}",
        "labels": dict(labels or {}),
    }
    if deleted:
        metadata["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    body = {
        "metadata": metadata,
        "spec": {"containers": [{"name": "main", "resources": {"requests": requests}}], **(spec or {})},
        "status": dict(status or {}),
    }
    return msgspec.convert(body, Pod)


def make_shape(pod: Pod | None = None, **asked: Any) -> Shape:
    return shape_of(pod if pod is not None else make_pod(**asked))


def make_resident(uid: str, node: str, shape: Shape, **rest: Any) -> Resident:
    return Resident(uid=uid, key=Key(shape.namespace or "default", uid), node=node, shape=shape, **rest)


def make_ask(
    *needs: Need | tuple[str, Shape, int] | tuple[Shape, int],
    least: int | None = None,
    name: str = "gang",
    priority: int = 0,
    roles: Mapping[str, int] | None = None,
    topology: Topology | None = None,
    near: tuple[str, ...] = (),
) -> Ask:
    """A gang; all of it is needed unless `least` says otherwise."""
    found = tuple(_need(each) for each in needs)
    return Ask(
        key=Key("default", name),
        uid=f"uid-{name}",
        queue="default",
        priority=priority,
        created=NOON,
        since=NOON,
        broken=False,
        needs=found,
        least=sum(need.count for need in found) if least is None else least,
        roles=roles or {},
        topology=topology,
        near=near,
    )


def make_cluster(*nodes: Node, residents: Iterable[Resident] = ()) -> Cluster:
    cluster = Cluster()
    for node in nodes:
        cluster.put_node(node)
    for resident in residents:
        cluster.put_pod(resident)
    return cluster


def places(trial: Trial, found: Placement | Shortage) -> list[list[str]]:
    """The names of the nodes of every need, sorted. Fails with the reason if nothing was found."""
    assert isinstance(found, Placement), found
    return [sorted(trial.names[number] for number in nodes) for nodes in found.nodes]


def placed(cluster: Cluster, ask: Ask) -> list[list[str]]:
    trial = cluster.trial()
    return places(trial, trial.place(ask))


def shortage(cluster: Cluster, ask: Ask) -> Shortage:
    found = cluster.trial().place(ask)
    assert isinstance(found, Shortage), found
    return found


def _need(each: Need | tuple[str, Shape, int] | tuple[Shape, int]) -> Need:
    if isinstance(each, Need):
        return each
    return Need(*each) if len(each) == 3 else Need("worker", *each)


def _resource(word: str) -> str:
    return {"gpu": GPU, "memory": "memory"}.get(word, word.replace("_", "-"))
