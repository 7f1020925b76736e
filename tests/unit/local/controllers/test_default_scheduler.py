"""The node of a plain pod, the reason for none, and when the pod is tried again."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import pytest

from gangline.api.core import (
    Container,
    Node,
    NodeSpec,
    NodeStatus,
    Pod,
    PodSpec,
    ResourceRequirements,
    SchedulingGate,
    Taint,
    Toleration,
)
from gangline.api.meta import Key, ObjectMeta
from gangline.apiserver.store.store import Store
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.kube.options import PatchType
from gangline.kube.transport.http import HttpTransport
from gangline.local.controllers.default_scheduler import (
    DefaultScheduler,
    FreedCapacity,
    needs_binding,
    node_usage,
    pod_requests,
    select_node,
    tolerates,
    unbound_pods,
)
from gangline.local.plane import PlaneSettings, control_plane
from gangline.runtime.informer import Delta, Informer
from gangline.runtime.manager import ControllerOptions, Manager
from gangline.runtime.sources import InformerSource, own_key
from gangline.testing.builders import make_pod
from gangline.testing.clock import FakeClock
from support.servers.flaky_reader import ModelServer


def machine(name: str = "one", *, cpu: str = "4", **spec: object) -> Node:
    return Node(
        metadata=ObjectMeta(name=name, labels={"disk": "ssd"} if name == "one" else {}),
        spec=NodeSpec(**spec),  # type: ignore[arg-type]
        status=NodeStatus(allocatable={"cpu": cpu, "memory": "8Gi", "pods": "110"}),
    )


def pod(cpu: str = "1", *, name: str = "p", node: str = "", phase: str = "Pending", **spec: object) -> Pod:
    container = Container(name="main", resources=ResourceRequirements(requests={"cpu": cpu}))
    unbound = make_pod(name, phase=phase)
    return msgspec.structs.replace(unbound, spec=PodSpec(containers=(container,), node_name=node, **spec))  # type: ignore[arg-type]


def test_a_pod_gets_the_first_node_that_fits() -> None:
    assert select_node(pod("3"), [machine("two", cpu="4"), machine("one", cpu="2")], []) == ("two", "")


def test_what_runs_counts_and_what_has_ended_does_not() -> None:
    pods = [
        pod("3", name="a", node="one", phase="Running"),
        pod("3", name="b", node="one", phase="Succeeded"),
    ]
    assert select_node(pod("1"), [machine()], pods) == ("one", "")
    assert select_node(pod("2"), [machine()], pods) == ("", "0/1 nodes are available: 1 Insufficient cpu.")
    assert str(node_usage(pods)["one"]["cpu"]) == "3"


def test_every_reason_is_counted() -> None:
    nodes = [machine("one", unschedulable=True), machine("two", cpu="1"), machine("three", cpu="1")]
    assert select_node(pod("2"), nodes, []) == (
        "",
        "0/3 nodes are available: 2 Insufficient cpu, 1 node(s) were unschedulable.",
    )


def test_no_nodes_is_a_reason() -> None:
    assert select_node(pod(), [], []) == ("", "0/0 nodes are available: no nodes.")


def test_selector_and_taints_are_honoured() -> None:
    tainted = machine("two", taints=(Taint(key="gpu", value="yes", effect="NoSchedule"),))
    assert select_node(pod(node_selector={"disk": "ssd"}), [machine("two"), machine("one")], []) == (
        "one",
        "",
    )
    assert select_node(pod(), [tainted], [])[0] == ""
    tolerant = pod(tolerations=(Toleration(key="gpu", operator="Exists"),))
    assert select_node(tolerant, [tainted], []) == ("two", "")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration(key="k", operator="Exists", effect="NoExecute"), False),
        (Toleration(key="k", value="v"), True),
        (Toleration(key="k", value="other"), False),
        (Toleration(key="other", operator="Exists"), False),
    ],
)
def test_toleration(toleration: Toleration, expected: bool) -> None:
    assert tolerates([toleration], Taint(key="k", value="v", effect="NoSchedule")) is expected


def test_a_pod_asks_for_what_it_needs_at_its_hungriest() -> None:
    def container(cpu: str, restart: str = "") -> Container:
        return Container(resources=ResourceRequirements(requests={"cpu": cpu}), restart_policy=restart)

    def cpu(*init: Container) -> str:
        spec = PodSpec(containers=(container("1"), container("500m")), init_containers=init, overhead={"cpu": "100m"})
        return str(pod_requests(Pod(spec=spec))["cpu"])

    assert cpu() == "1600m"
    assert cpu(container("2"), container("1", "Always")) == "2600m"
    assert cpu(container("1", "Always"), container("2")) == "3100m"


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (pod(), True),
        (pod(scheduler_name="default-scheduler"), True),
        (pod(scheduler_name="gangline"), False),
        (pod(node="one"), False),
        (pod(scheduling_gates=(SchedulingGate(name="g"),)), False),
    ],
)
def test_only_unbound_pods_of_the_default_scheduler_wait(found: Pod, expected: bool) -> None:
    assert needs_binding(found) is expected


# When a pod is tried again


def test_room_that_is_given_back_brings_back_all_who_wait() -> None:
    informer = Informer(ModelServer(), Pod, clock=FakeClock())
    waiter, holder = pod(name="waiter"), pod(name="holder", node="one", phase="Running")
    ended = pod(name="holder", node="one", phase="Succeeded")
    for each in (waiter, holder):
        informer.cache.put(each)
    added: list[Key] = []
    with FreedCapacity(informer).attach(added.append):
        assert added == []
        for before, after in (
            (None, holder),
            (pod(name="holder"), holder),
            (holder, holder),
            (ended, None),
            (waiter, None),
        ):
            informer._notify(Delta(before, after))
        assert added == []
        informer._notify(Delta(holder, ended))
        informer._notify(Delta(holder, None))
    assert added == [waiter.metadata.key] * 2


def test_whoever_waited_longest_comes_first() -> None:
    def waiter(name: str, minute: int) -> Pod:
        unbound = pod(name=name)
        at = datetime(2026, 1, 1, 0, minute, tzinfo=UTC)
        return msgspec.structs.replace(
            unbound, metadata=msgspec.structs.replace(unbound.metadata, creation_timestamp=at)
        )

    there = [waiter("b", 2), waiter("c", 1), waiter("a", 2), pod(name="bound", node="one")]
    assert [key.name for key in unbound_pods(there)] == ["c", "a", "b"]


class Town(NamedTuple):
    """A server with one node of one core, and a scheduler whose clock does not advance."""

    client: Client
    pods: Informer[Pod]

    async def create(self, name: str) -> None:
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}
        await self.client.create(
            Pod, {"metadata": {"name": name}, "spec": {"containers": [container]}}, namespace="default"
        )

    async def until(self, name: str, holds: Any) -> None:
        async with asyncio.timeout(60):
            await self.pods.wait_until(lambda cache: any(holds(pod) for pod in cache if pod.metadata.name == name))

    async def end(self, name: str) -> None:
        await self.client.patch(
            Pod,
            Key("default", name),
            {"status": {"phase": "Succeeded"}},
            form=PatchType.MERGE,
            subresource="status",
        )

    def bound(self) -> set[str]:
        return {each.metadata.name for each in self.pods.cache if each.spec.node_name}


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    async with (
        Store() as store,
        control_plane(store, PlaneSettings(), SystemClock(), {}) as plane,
        HttpTransport(plane.connection) as transport,
        asyncio.TaskGroup() as group,
    ):
        client = Client(transport)
        status = {"allocatable": {"cpu": "1", "pods": "110"}}
        await client.create(Node, {"metadata": {"name": "one"}, "status": status})
        one = Key("", "one")
        await client.patch(Node, one, {"status": status}, form=PatchType.MERGE, subresource="status")
        # A new node has a taint until its kubelet reports it as ready.
        await client.patch(Node, one, {"spec": {"taints": None}}, form=PatchType.MERGE)
        manager = Manager(client, FakeClock())
        pods, nodes = manager.informer(Pod), manager.informer(Node)
        binder = DefaultScheduler(pods.cache, nodes.cache, client, FakeClock())
        manager.new_controller(
            "binder",
            binder,
            [InformerSource(pods, own_key), FreedCapacity(pods)],
            ControllerOptions(workers=1),
        )
        running = group.create_task(manager.run(signals=False))
        await nodes.wait_until(lambda cache: len(list(cache)) == 1)
        yield Town(client, pods)
        running.cancel()


def refused(pod: Pod) -> bool:
    return any(condition.type == "PodScheduled" and condition.status == "False" for condition in pod.status.conditions)


async def test_a_pod_is_bound_as_soon_as_room_frees_up_and_nobody_gets_the_same_room(town: Town) -> None:
    await town.create("first")
    await town.until("first", lambda found: found.spec.node_name)
    for name in ("second", "third"):
        await town.create(name)
        await town.until(name, refused)
    await town.end("first")
    await town.until("second", lambda found: found.spec.node_name)
    # Both were tried when the first pod ended.
    assert town.bound() == {"first", "second"}
    await town.client.delete(Pod, Key("default", "second"), grace=timedelta())
    await town.until("third", lambda found: found.spec.node_name)


async def test_pods_that_come_together_do_not_share_the_room_of_one(town: Town) -> None:
    names = [f"p{number}" for number in range(6)]
    async with asyncio.TaskGroup() as group:
        for name in names:
            group.create_task(town.create(name))
    async with asyncio.timeout(60):
        await town.pods.wait_until(
            lambda cache: sum(bool(each.spec.node_name or refused(each)) for each in cache) == len(names)
        )
    assert len(town.bound()) == 1
