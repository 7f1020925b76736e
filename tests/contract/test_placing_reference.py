"""Our predicates against kube-scheduler's own: the same nodes, the same pods, the same answers."""

import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gangline.api.codec.codec import encode
from gangline.api.meta import JSON, Key, ObjectMeta, Selector
from gangline.api.scheduler_views import (
    PLACEMENT_SCHEME,
    CSINode,
    Namespace,
    Node,
    PersistentVolume,
    Pod,
    VolumeClaim,
)
from gangline.base.tasks import for_each
from gangline.kube.client import Client
from gangline.kube.config.connection import load_connection
from gangline.kube.transport.http import HttpTransport
from gangline.scheduler.cache.nodes import NodeCache
from gangline.scheduler.pods.decode import bound_pod_of, shape_of
from gangline.scheduler.types.cycle import Placement
from support.builders.scheduler_inputs import make_gang_request
from support.cases.placing import (
    CASE_LABEL,
    NOT_READY_TOLERATION,
    PROBE_LABEL,
    PlacementCase,
    placement_cases,
)
from support.servers.real import LoggedProcess, RealServer, find_assets
from support.waiting import wait_until

SCHEDULER = "reference"
CLUSTERS = int(os.environ.get("GANGLINE_PLACING_CASES", "25"))
SEED = int(os.environ.get("GANGLINE_PLACING_SEED", "7"))
PATIENCE = 90.0


@pytest.fixture
def reference(real_server: RealServer, tmp_path: Path) -> Iterator[None]:
    """A kube-scheduler for pods that ask for it by name; those of other tests are left alone."""
    real_server.revive()
    program = (find_assets() or Path()) / "kube-scheduler"
    if not program.is_file():
        pytest.skip("kube-scheduler not found: run hack/kubernetes.sh kube-scheduler")
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(real_server.kubeconfig), "qps": 1000, "burst": 1000},
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": SCHEDULER}],
    }
    file = tmp_path / "config.json"
    file.write_bytes(encode(config))
    process = LoggedProcess([str(program), f"--config={file}", "--secure-port=0"], tmp_path / "kube-scheduler.log")
    try:
        yield
    finally:
        process.kill()


@pytest.fixture
async def client(real_server: RealServer, tmp_path: Path) -> AsyncIterator[Client]:
    async with HttpTransport(
        load_connection(kubeconfig=str(real_server.kubeconfig), environ={}, home=tmp_path)
    ) as transport:
        yield Client(transport, scheme=PLACEMENT_SCHEME)


@pytest.fixture
async def spaces(client: Client) -> tuple[str, str]:
    """Two namespaces, the second one green."""
    name = uuid.uuid4().hex[:8]
    for space, labels in ((f"{name}-a", {}), (f"{name}-b", {"colour": "green"})):
        await client.create(Namespace, {"metadata": {"name": space, "labels": labels}})
    return f"{name}-a", f"{name}-b"


@pytest.mark.slow
async def test_a_pod_goes_where_kube_scheduler_lets_it_go_and_nowhere_else(
    reference: None, client: Client, spaces: tuple[str, str]
) -> None:
    found = placement_cases(SEED, CLUSTERS, spaces, SCHEDULER)
    try:
        answers = await asked(client, found, spaces)
    finally:
        await client.delete_all(Node, Selector(labels=CASE_LABEL))
        await client.delete_all(PersistentVolume, Selector(labels=CASE_LABEL))
        await client.delete_all(CSINode, Selector(labels=CASE_LABEL))
    wrong = [
        f"{case.name}: kube-scheduler {'takes' if theirs == '' else theirs!r}, we {ours!r}\n{encode(case._asdict()).decode()}"
        for case, theirs, ours in answers
        if (theirs == "") != (ours == "")
    ]
    assert not wrong, "\n\n".join(wrong)
    # Both answers occur often, so that agreeing means something.
    taken = sum(theirs == "" for _, theirs, _ in answers)
    assert len(answers) // 20 < taken < len(answers) - len(answers) // 20


async def asked(
    client: Client, found: list[PlacementCase], spaces: tuple[str, str]
) -> list[tuple[PlacementCase, str, str]]:
    """Every case with kube-scheduler's answer and ours: empty if the pod fits, else why not."""
    await for_each([each for case in found for each in case.attach_limits], lambda each: client.create(CSINode, each))
    nodes = [node for case in found for node in case.nodes]
    await for_each(nodes, lambda node: client.create(Node, node))
    await sentinel(client, spaces[0])
    volumes = [each for case in found for each in case.volumes]
    await for_each(volumes, lambda each: stored(client, *each))
    residents = [pod for case in found for pod in case.bound_pods]
    await for_each(residents, lambda pod: client.create(Pod, pod, namespace=pod["metadata"]["namespace"]))
    leaving = [pod for case in found for pod in case.terminating_pods]
    await for_each(leaving, lambda pod: client.delete(Pod, _key(pod)))
    await for_each(found, lambda case: client.create(Pod, case.pod, namespace=spaces[0]))
    theirs = await decided(client, spaces[0], len(found))
    trial = (await seen(client, spaces)).what_if()
    pods = {pod.metadata.name: pod for pod in (await client.list(Pod, Selector(spaces[0], labels=PROBE_LABEL))).items}
    answers = []
    for case in found:
        name = case.pod["metadata"]["name"]
        ours = trial.place(make_gang_request((shape_of(pods[name]), 1)))
        answers.append((case, theirs[name], "" if isinstance(ours, Placement) else ours.message))
    return answers


async def seen(client: Client, spaces: tuple[str, str]) -> NodeCache:
    """All that the server has, as it has it, but for the pods that were put to the question."""
    cluster = NodeCache()
    for space, labels in ((spaces[0], {}), (spaces[1], {"colour": "green"})):
        cluster.namespaces.put(Namespace(metadata=ObjectMeta(name=space, labels=labels)))
    for node in (await client.list(Node)).items:
        cluster.put_node(node)
    for limits in (await client.list(CSINode)).items:
        cluster.volumes.csi_nodes.put(limits)
    for volume in (await client.list(PersistentVolume)).items:
        cluster.volumes.volumes.put(volume)
    for claim in (await client.list(VolumeClaim, Selector(spaces[0]))).items:
        cluster.volumes.claims.put(claim)
    for space in spaces:
        for pod in (await client.list(Pod, Selector(space, labels=f"!{PROBE_LABEL}"))).items:
            resident = bound_pod_of(pod)
            assert resident is not None
            cluster.put_pod(resident)
    return cluster


async def stored(client: Client, volume: JSON, claim: JSON) -> None:
    """A volume and a claim that is bound to it; there is no controller here that would bind them."""
    await client.create(PersistentVolume, volume)
    await client.create(VolumeClaim, claim, namespace=_key(claim).namespace)
    await client.patch(VolumeClaim, _key(claim), {"status": {"phase": "Bound"}}, subresource="status")
    if "finalizers" in claim["metadata"]:
        await client.delete(VolumeClaim, _key(claim))


async def sentinel(client: Client, space: str) -> None:
    """Return when kube-scheduler has seen all nodes: it has then seen the last one, on which only this pod goes."""
    offered = {"allocatable": {"pods": "9"}}
    await client.create(Node, {"metadata": {"name": "sentinel", "labels": {CASE_LABEL: "sentinel"}}, "status": offered})
    spec = {
        "schedulerName": SCHEDULER,
        "nodeSelector": {CASE_LABEL: "sentinel"},
        "tolerations": [NOT_READY_TOLERATION],
        "containers": [{"name": "main", "image": "none"}],
    }
    await client.create(Pod, {"metadata": {"name": "sentinel"}, "spec": spec}, namespace=space)

    async def bound() -> bool:
        return bool((await client.get(Pod, Key(space, "sentinel"))).spec.node_name)

    await wait_until(bound, seconds=PATIENCE)


async def decided(client: Client, space: str, count: int) -> dict[str, str]:
    """What kube-scheduler made of every pod, once it has made something of all of them. Empty: it took it."""
    answers: dict[str, str] = {}

    async def all_told() -> bool:
        for pod in (await client.list(Pod, Selector(space, labels=PROBE_LABEL))).items:
            refused = [each.message for each in pod.status.conditions if each.status == "False"]
            if pod.spec.node_name or refused:
                answers[pod.metadata.name] = "" if pod.spec.node_name else refused[0]
        return len(answers) == count

    await wait_until(all_told, seconds=PATIENCE)
    return answers


def _key(pod: JSON) -> Key:
    return Key(pod["metadata"]["namespace"], pod["metadata"]["name"])
