"""Which node a plain pod gets, and why none."""

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
from gangline.api.meta import ObjectMeta
from gangline.local.binder import choose, request, tolerates, usage, waits
from gangline.testing.builders import make_pod


def machine(name: str = "one", *, cpu: str = "4", **spec: object) -> Node:
    return Node(
        metadata=ObjectMeta(name=name, labels={"disk": "ssd"} if name == "one" else {}),
        spec=NodeSpec(**spec),  # type: ignore[arg-type]
        status=NodeStatus(allocatable={"cpu": cpu, "memory": "8Gi", "pods": "110"}),
    )


def pod(cpu: str = "1", *, name: str = "p", node: str = "", phase: str = "Pending", **spec: object) -> Pod:
    container = Container(name="main", resources=ResourceRequirements(requests={"cpu": cpu}))
    made = make_pod(name, phase=phase)
    return msgspec.structs.replace(made, spec=PodSpec(containers=(container,), node_name=node, **spec))  # type: ignore[arg-type]


def test_a_pod_gets_the_first_node_that_fits() -> None:
    assert choose(pod("3"), [machine("two", cpu="4"), machine("one", cpu="2")], []) == ("two", "")


def test_what_runs_counts_and_what_has_ended_does_not() -> None:
    there = [
        pod("3", name="a", node="one", phase="Running"),
        pod("3", name="b", node="one", phase="Succeeded"),
    ]
    assert choose(pod("1"), [machine()], there) == ("one", "")
    assert choose(pod("2"), [machine()], there) == ("", "0/1 nodes are available: 1 Insufficient cpu.")
    assert str(usage(there)["one"]["cpu"]) == "3"


def test_every_reason_is_counted() -> None:
    nodes = [machine("one", unschedulable=True), machine("two", cpu="1"), machine("three", cpu="1")]
    assert choose(pod("2"), nodes, []) == (
        "",
        "0/3 nodes are available: 2 Insufficient cpu, 1 node(s) were unschedulable.",
    )


def test_no_nodes_is_a_reason() -> None:
    assert choose(pod(), [], []) == ("", "0/0 nodes are available: no nodes.")


def test_selector_and_taints_are_honoured() -> None:
    tainted = machine("two", taints=(Taint(key="gpu", value="yes", effect="NoSchedule"),))
    assert choose(pod(node_selector={"disk": "ssd"}), [machine("two"), machine("one")], []) == ("one", "")
    assert choose(pod(), [tainted], [])[0] == ""
    tolerant = pod(tolerations=(Toleration(key="gpu", operator="Exists"),))
    assert choose(tolerant, [tainted], []) == ("two", "")


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
        spec = PodSpec(
            containers=(container("1"), container("500m")), init_containers=init, overhead={"cpu": "100m"}
        )
        return str(request(Pod(spec=spec))["cpu"])

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
    assert waits(found) is expected
