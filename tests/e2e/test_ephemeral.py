"""Containers that are added to a running pod, and pods that get other resources while they run."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gangline.api.core import Pod
from gangline.api.meta import JSON, Key
from gangline.kube.client import Client
from gangline.kube.errors import ApiError, Invalid
from gangline.kube.pods import PodSubresources
from gangline.kube.transport.api import Request
from support.cluster.streams import WAIT, create_pod, sh, sleeper, wait_for_phase
from support.waiting import wait_until

PODS = "/api/v1/namespaces/default/pods"
STRATEGIC = "application/strategic-merge-patch+json"


async def read(client: Client, name: str = "p") -> JSON:
    pod: JSON = msgspec.json.decode(await client.requests.call(Request("GET", f"{PODS}/{name}")))
    return pod


async def patch(client: Client, subresource: str, spec: JSON, name: str = "p") -> JSON:
    body = msgspec.json.encode({"spec": spec})
    request = Request("PATCH", f"{PODS}/{name}/{subresource}".rstrip("/"), (), body, STRATEGIC)
    pod: JSON = msgspec.json.decode(await client.requests.call(request))
    return pod


def looker(name: str, script: str, **more: Any) -> JSON:
    return {"ephemeralContainers": [{**sh(script, name), **more}]}


async def state_of(client: Client, container: str, state: str) -> JSON:
    """Wait until an ephemeral container has this state."""

    async def there() -> JSON | None:
        statuses = (await read(client))["status"].get("ephemeralContainerStatuses", [])
        found = [status["state"].get(state) for status in statuses if status["name"] == container]
        return found[0] if found and found[0] is not None else None

    return await wait_until(there)


async def test_container_is_added_to_a_running_pod(client: Client) -> None:
    key = await sleeper(client)
    pod = await patch(client, "ephemeralcontainers", looker("look", "echo $HOSTNAME; exit 3"))
    assert pod["kind"] == "Pod"
    assert pod["spec"]["ephemeralContainers"][0]["terminationMessagePath"] == "/dev/termination-log"
    assert (await state_of(client, "look", "terminated"))["exitCode"] == 3
    lines = [line async for line in PodSubresources(client).logs(key, container="look")]
    assert lines == [b"p"]
    pod = await read(client)
    assert pod["metadata"]["generation"] == 2
    # It never restarts, and the pod does not depend on it.
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["containerStatuses"][0]["ready"]
    await patch(client, "ephemeralcontainers", looker("second", "exec sleep 1000"))
    await state_of(client, "second", "running")
    async with asyncio.timeout(WAIT):
        done = await PodSubresources(client).run(key, ["echo", "in it"], container="second")
    assert done.stdout == b"in it\n"
    await client.delete(Pod, key)

    async def gone() -> bool | None:
        return True if not (await client.list(Pod)).items else None

    assert await wait_until(gone)


async def test_pod_ends_without_waiting_for_it(client: Client, tmp_path: Path) -> None:
    end = tmp_path / "end"
    key = await create_pod(client, "p", sh(f"until [ -e {end} ]; do sleep 0.05; done"))
    await wait_for_phase(client, key, "Running")
    await patch(client, "ephemeralcontainers", looker("look", "exec sleep 1000"))
    await state_of(client, "look", "running")
    end.touch()
    await wait_for_phase(client, key, "Succeeded")


async def test_container_without_a_command_is_a_shell(client: Client) -> None:
    await sleeper(client)
    spec: JSON = {"ephemeralContainers": [{"name": "look", "image": "busybox", "stdin": True}]}
    await patch(client, "ephemeralcontainers", spec)
    await state_of(client, "look", "running")


async def test_what_was_added_stays_as_it_is(client: Client) -> None:
    await sleeper(client)
    await patch(client, "ephemeralcontainers", looker("look", "exec sleep 1000"))
    with pytest.raises(Invalid, match='existing ephemeral containers "look" may not be changed'):
        await patch(client, "ephemeralcontainers", looker("look", "exec sleep 2"))
    body = msgspec.json.encode([{"op": "remove", "path": "/spec/ephemeralContainers"}])
    request = Request("PATCH", f"{PODS}/p/ephemeralcontainers", (), body, "application/json-patch+json")
    with pytest.raises(Invalid, match='existing ephemeral containers "look" may not be removed'):
        await client.requests.call(request)
    with pytest.raises(Invalid, match=r"pod updates may not change fields other than"):
        await patch(client, "", looker("other", "true"))
    # Nothing else is changed by this subresource.
    pod = await patch(client, "ephemeralcontainers", {"activeDeadlineSeconds": 5, **looker("more", "true")})
    assert "activeDeadlineSeconds" not in pod["spec"]
    with pytest.raises(ApiError):
        await client.requests.call(Request("DELETE", f"{PODS}/p/ephemeralcontainers"))


# Resize


def limited(memory: str, script: str = "exec sleep 1000", **more: Any) -> JSON:
    amounts = {"requests": {"memory": memory, "cpu": "100m"}, "limits": {"memory": memory}}
    return sh(script, resources=amounts, **more)


async def test_running_pod_gets_more_memory(client: Client, tmp_path: Path) -> None:
    go = tmp_path / "go"
    program = (
        "import pathlib, sys, time\n"
        "while not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.05)\n"
        "data = bytearray(b'x') * (200 * 2**20)\n"
        "time.sleep(3)\n"
    )
    container = limited("100Mi")
    container["command"] = [sys.executable, "-c", program, str(go)]
    key = await create_pod(client, "p", container)
    await wait_for_phase(client, key, "Running")

    async def reported(memory: str) -> bool:
        async def there() -> bool | None:
            status = (await read(client))["status"]["containerStatuses"][0]
            return True if status["resources"]["limits"]["memory"] == memory else None

        return await wait_until(there)

    assert await reported("100Mi")
    amounts = {"requests": {"memory": "400Mi"}, "limits": {"memory": "400Mi"}}
    await patch(client, "resize", {"containers": [{"name": "main", "resources": amounts}]})
    assert await reported("400Mi")
    status = (await read(client))["status"]["containerStatuses"][0]
    assert status["allocatedResources"] == {"memory": "400Mi", "cpu": "100m"}
    assert status["restartCount"] == 0
    go.touch()
    # With the first limit it would be killed.
    await wait_for_phase(client, key, "Succeeded")


async def test_what_a_resize_may_not_change(client: Client) -> None:
    key = await create_pod(client, "p", limited("100Mi"))
    await wait_for_phase(client, key, "Running")

    async def resize(**resources: object) -> JSON:
        return await patch(client, "resize", {"containers": [{"name": "main", "resources": resources}]})

    with pytest.raises(Invalid, match="Pod QOS Class may not change as a result of resizing"):
        await resize(requests={"cpu": "1", "memory": "100Mi"}, limits={"cpu": "1", "memory": "100Mi"})
    with pytest.raises(Invalid, match="resource limits cannot be removed"):
        await resize(limits={"memory": None})
    with pytest.raises(Invalid, match="only cpu and memory resources are mutable"):
        await resize(limits={"example.com/thing": "1"}, requests={"example.com/thing": "1"})
    body: JSON = {"containers": [{"name": "main", "image": "other"}], "activeDeadlineSeconds": 5}
    pod = await patch(client, "resize", body)
    assert pod["spec"]["containers"][0]["image"] == "none"
    assert "activeDeadlineSeconds" not in pod["spec"]
    assert (await client.get(Pod, Key("default", "p"))).metadata.generation == 1
