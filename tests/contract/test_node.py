"""The node on a real kube-apiserver: every status it writes must be one that the server takes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from gangline.api.core import Lease, Node, Pod
from gangline.api.meta import JSON, Key, Selector
from gangline.base.clock import SystemClock
from gangline.kube.client import Client
from gangline.node import kubelet as nodes
from gangline.node.settings import NodeSettings
from gangline.runtime.informer import Informer
from support.cluster.node import FAST_BACKOFF


@asynccontextmanager
async def running(client: Client, name: str, folder: Path) -> AsyncIterator[Informer[Pod]]:
    clock = SystemClock()
    pods = Informer(client, Pod, Selector(fields=f"spec.nodeName={name}"), clock=clock)
    settings = NodeSettings(name=name, backoff=FAST_BACKOFF, retry_interval=timedelta(milliseconds=100))
    node = nodes.LocalKubelet(client, pods, folder=folder, logs=folder, clock=clock, settings=settings)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(node.run()), group.create_task(pods.run())]
        try:
            yield pods
        finally:
            for task in tasks:
                task.cancel()


def body(node: str, script: str, **spec: object) -> JSON:
    container = {"name": "main", "image": "none", "command": ["sh", "-c", script]}
    defaults = {"nodeName": node, "restartPolicy": "Never", "containers": [container]}
    return {"metadata": {"name": "p"}, "spec": {**defaults, **spec}}


async def seen(pods: Informer[Pod], holds: Callable[[Pod | None], bool], key: Key) -> Pod | None:
    async with asyncio.timeout(60):
        await pods.wait_until(lambda cache: holds(cache.get(key)))
    return pods.cache.get(key)


async def test_a_pod_lives_and_goes(client: Client, namespace: str, tmp_path: Path) -> None:
    key = Key(namespace, "p")
    sidecar = {"name": "side", "image": "none", "command": ["sleep", "99"], "restartPolicy": "Always"}
    async with running(client, namespace, tmp_path) as pods:
        script = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit 3"
        await client.create(Pod, body(namespace, script, initContainers=[sidecar]), namespace=namespace)
        await seen(pods, lambda pod: pod is not None and pod.status.phase == "Running", key)
        (tmp_path / "go").touch()
        over = await seen(pods, lambda pod: pod is not None and pod.status.phase == "Failed", key)
        assert over is not None
        ended = over.status.container_statuses[0].state.terminated
        assert ended is not None
        assert ended.exit_code == 3
        assert {each.type: each.status for each in over.status.conditions}["Ready"] == "False"
        await client.delete(Pod, key)
        await seen(pods, lambda pod: pod is None, key)


async def test_a_pod_that_crashes_is_restarted_and_deleted_with_grace(
    client: Client, namespace: str, tmp_path: Path
) -> None:
    key = Key(namespace, "p")
    script = f"echo x >> {tmp_path}/runs; [ $(wc -l < {tmp_path}/runs) -lt 3 ] && exit 1; trap 'exit 0' TERM; sleep 99 & wait"
    async with running(client, namespace, tmp_path) as pods:
        await client.create(Pod, body(namespace, script, restartPolicy="Always"), namespace=namespace)

        def twice(pod: Pod | None) -> bool:
            states = pod.status.container_statuses if pod is not None else ()
            return any(each.restart_count == 2 and each.state.running is not None for each in states)

        found = await seen(pods, twice, key)
        assert found is not None
        assert found.status.container_statuses[0].last_state.terminated is not None
        await client.delete(Pod, key)
        await seen(pods, lambda pod: pod is None, key)


async def test_the_node_is_registered_with_a_lease(client: Client, namespace: str, tmp_path: Path) -> None:
    async with running(client, namespace, tmp_path):
        leases = Informer(client, Lease, Selector(namespace="kube-node-lease"), clock=SystemClock())
        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            task = group.create_task(leases.run())
            await leases.wait_until(lambda cache: Key("kube-node-lease", namespace) in cache)
            task.cancel()
        node = await client.get(Node, Key("", namespace))
    assert {each.type: each.status for each in node.status.conditions}["Ready"] == "True"
    assert int(node.status.capacity["cpu"]) >= 1
