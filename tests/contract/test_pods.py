"""What only pods have: binding and eviction."""

from datetime import timedelta

import pytest

from gangline.api.core import Pod
from gangline.api.meta import Key
from gangline.kube.client import Client
from gangline.kube.errors import (
    Conflict,
    NotFound,
    TooManyRequests,
)
from gangline.kube.options import WriteOptions
from gangline.kube.pods import PodSubresources
from support.builders.objects import BUDGETS, create_node, create_running_pod, pod_body, unique_name

OTHER_UID = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def pods(client: Client) -> PodSubresources:
    return PodSubresources(client)


# Placing


async def test_pod_is_bound_once_and_only_that_very_pod(client: Client, namespace: str, pods: PodSubresources) -> None:
    first, second = unique_name("node"), unique_name("node")
    for name in (first, second):
        await create_node(client, name)
    made = await client.create(Pod, pod_body("one", namespace))
    key = made.metadata.key
    with pytest.raises(Conflict):
        await pods.bind(key, first, uid=OTHER_UID)
    assert not (await client.get(Pod, key)).spec.node_name
    await pods.bind(key, first, uid=made.metadata.uid)
    assert (await client.get(Pod, key)).spec.node_name == first
    with pytest.raises(Conflict):
        await pods.bind(key, second)
    with pytest.raises(NotFound):
        await pods.bind(Key(namespace, "nothing"), first)


async def test_dry_binding_binds_nothing(client: Client, namespace: str) -> None:
    name = unique_name("node")
    await create_node(client, name)
    made = await client.create(Pod, pod_body("one", namespace))
    await PodSubresources(client.with_options(WriteOptions(dry_run=True))).bind(made.metadata.key, name)
    assert not (await client.get(Pod, made.metadata.key)).spec.node_name


async def test_eviction_asks_the_budget(client: Client, namespace: str, pods: PodSubresources) -> None:
    metadata = {"name": "budget", "namespace": namespace}
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "one"}}}
    await client.create(BUDGETS, {"metadata": metadata, "spec": spec})
    body = pod_body("one", namespace, nodeName="nowhere")
    body["metadata"]["labels"] = {"app": "one"}
    made = await create_running_pod(client, body)
    key = made.metadata.key

    # No controller has looked at the budget yet, and then it allows nothing: both are raised, not waited for.
    with pytest.raises(TooManyRequests):
        await pods.evict(key)
    await allow(client, namespace, 0)
    with pytest.raises(TooManyRequests, match="disruption budget") as caught:
        await pods.evict(key)
    assert [cause.reason for cause in caught.value.causes] == ["DisruptionBudget"]

    await allow(client, namespace, 1)
    with pytest.raises(Conflict):
        await pods.evict(key, uid=OTHER_UID)
    assert not (await client.get(Pod, key)).metadata.deletion_timestamp
    # The budget was charged all the same: the server asks it first.
    await allow(client, namespace, 1)
    await pods.evict(key, uid=made.metadata.uid, grace=timedelta(seconds=5))
    assert (await client.get(Pod, key)).metadata.deletion_timestamp
    with pytest.raises(NotFound):
        await pods.evict(Key(namespace, "nothing"))


async def allow(client: Client, namespace: str, disruptions: int) -> None:
    """Do what the disruption controller would."""
    counts = {"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    status = {"observedGeneration": 1, "disruptionsAllowed": disruptions, **counts}
    await client.patch(BUDGETS, Key(namespace, "budget"), {"status": status}, subresource="status")
