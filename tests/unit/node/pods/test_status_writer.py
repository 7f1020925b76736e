"""Statuses are written with retries; the node renews its heartbeat."""

import asyncio
import platform
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec
import pytest

from gangline.api.core import Node, Pod
from gangline.api.meta import JSON
from gangline.api.quantity import Quantity
from gangline.kube.transport.api import Request, Response
from gangline.node.devices.gpus import Gpu
from gangline.node.node_status import NOT_READY_TAINT, UNREACHABLE_TAINT, NodeRegistration, node_body, node_status
from gangline.node.pods.status_writer import PodStatusWriter, confirm_deleted
from gangline.node.settings import NodeSettings
from gangline.testing.clock import FakeClock, settle
from support.servers.node_api import NodeApi, command_pod, default_key


@asynccontextmanager
async def writing(api: NodeApi, clock: FakeClock) -> AsyncIterator[PodStatusWriter]:
    pod = await api.client(clock).create(Pod, command_pod("p", "true"))
    writer = PodStatusWriter(api.client(clock), pod, clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(writer.run())
        yield writer
        task.cancel()


def status(phase: str) -> JSON:
    return {"phase": phase, "conditions": [{"type": "Ready", "status": "True"}]}


async def test_a_status_is_written_once() -> None:
    api = NodeApi()
    async with writing(api, FakeClock()) as writer:
        writer.set_status(status("Running"))
        await writer.wait_written()
        writer.set_status(status("Running"))
        await writer.wait_written()
        await settle()
    assert len(api.history) == 2
    assert api.stored_pod("p")["status"]["phase"] == "Running"


async def test_while_the_api_is_away_only_the_newest_is_kept() -> None:
    api, clock = NodeApi(), FakeClock()
    async with writing(api, clock) as writer:
        api.is_down = True
        writer.set_status(status("Running"))
        await settle()
        writer.set_status(status("Failed"))
        await clock.advance(timedelta(minutes=1))
        api.is_down = False
        await clock.advance(timedelta(seconds=10))
        await writer.wait_written()
    assert [each.get("phase") for each in api.status_history("p")] == ["Pending", "Failed"]


async def test_somebody_elses_change_is_not_lost() -> None:
    api, clock = NodeApi(), FakeClock()
    async with writing(api, clock) as writer:
        scheduled = {"type": "PodScheduled", "status": "True"}
        await api.client().patch(Pod, default_key("p"), {"status": {"conditions": [scheduled]}}, subresource="status")
        writer.set_status(status("Running"))
        await writer.wait_written()
    assert [each["type"] for each in api.stored_pod("p")["status"]["conditions"]] == ["Ready", "PodScheduled"]


async def test_a_pod_that_is_gone_needs_no_status() -> None:
    api, clock = NodeApi(), FakeClock()
    async with writing(api, clock) as writer:
        await api.client().delete(Pod, default_key("p"), grace=timedelta())
        await api.client().create(Pod, command_pod("p", "true"))
        writer.set_status(status("Running"))
        await writer.wait_written()
        assert writer.pod_deleted
    assert api.stored_pod("p")["status"]["phase"] == "Pending"


async def test_letting_go_waits_for_the_api_and_spares_a_namesake() -> None:
    api, clock = NodeApi(), FakeClock()
    pod = await api.client(clock).create(Pod, command_pod("p", "true"))
    api.is_down = True
    async with asyncio.TaskGroup() as group:
        group.create_task(confirm_deleted(api.client(clock), default_key("p"), pod.metadata.uid, clock))
        await clock.advance(timedelta(seconds=5))
        api.is_down = False
        await clock.advance(timedelta(seconds=10))
    assert api.objects == {}
    await api.client(clock).create(Pod, command_pod("p", "true"))
    await confirm_deleted(api.client(clock), default_key("p"), pod.metadata.uid, clock)
    assert api.stored_pod("p")


async def test_the_node_says_that_it_lives_and_survives_an_outage() -> None:
    api, clock = NodeApi(), FakeClock()
    capacity = {"cpu": Quantity.of("2"), "nvidia.com/gpu": Quantity.of("4")}
    registration = NodeRegistration(api.client(clock), capacity, NodeSettings(), clock)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(registration.run())
        await settle()
        first = api.objects["leases", "kube-node-lease", "local"]["spec"]["renewTime"]
        node = api.objects["nodes", "", "local"]
        assert node["status"]["capacity"] == {"cpu": "2", "nvidia.com/gpu": "4"}
        await clock.advance(timedelta(seconds=10))
        assert api.objects["leases", "kube-node-lease", "local"]["spec"]["renewTime"] > first
        # Between two statuses only the lease is written.
        assert api.objects["nodes", "", "local"] == node
        api.is_down = True
        await clock.advance(timedelta(minutes=1))
        api.is_down = False
        await clock.advance(timedelta(seconds=10))
        assert api.objects["nodes", "", "local"] != node
        ready = {each["type"]: each for each in api.objects["nodes", "", "local"]["status"]["conditions"]}["Ready"]
        assert ready["lastTransitionTime"] == "2026-01-01T00:00:00Z"
        task.cancel()


async def test_a_node_says_which_gpus_it_has() -> None:
    api, clock = NodeApi(), FakeClock()
    client = api.client(clock)
    gpus = (Gpu("nvidia", 0, "NVIDIA A100-SXM4-80GB"), Gpu("amd", 0, "AMD Radeon (TM) VII"), Gpu("apple", 0, "M"))
    await NodeRegistration(client, {}, NodeSettings(gpus=gpus[:1]), clock).heartbeat()
    assert api.objects["nodes", "", "local"]["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-80GB"
    await NodeRegistration(client, {}, NodeSettings(gpus=gpus), clock).heartbeat()
    labels = api.objects["nodes", "", "local"]["metadata"]["labels"]
    assert labels["amd.com/gpu.product-name"] == "AMD-Radeon-TM-VII"
    assert labels["kubernetes.io/hostname"] == "local"


async def test_a_node_that_is_born_tainted_is_untainted_once_ready_and_keeps_other_taints() -> None:
    api, clock = NodeApi(), FakeClock()
    client = api.client(clock)
    body = node_body("local")
    other = {"key": "mine", "effect": "NoSchedule"}
    body["spec"] = {"taints": [{"key": NOT_READY_TAINT, "effect": "NoSchedule"}, other]}
    await client.create(Node, body)
    registration = NodeRegistration(client, {"cpu": Quantity.of("2")}, NodeSettings(), clock)
    await registration.heartbeat()
    assert api.objects["nodes", "", "local"]["spec"]["taints"] == [other]


async def test_annotations_are_there_before_the_status_that_follows_them() -> None:
    api, clock = NodeApi(), FakeClock()
    async with writing(api, clock) as writer:
        api.is_down = True
        writer.set_status(status("Running"))
        await settle()
        writer.set_annotation("progress", "9 of 9")
        writer.set_status(status("Succeeded"))
        api.is_down = False
        await clock.advance(timedelta(seconds=10))
        await writer.wait_written()
    bodies = [body for _, _, _, body in api.history]
    ends = [body for body in bodies if body.get("status", {}).get("phase") == "Succeeded"]
    assert ends
    assert all(body["metadata"]["annotations"]["progress"] == "9 of 9" for body in ends)


async def test_an_annotation_alone_writes_no_status() -> None:
    api = NodeApi()
    async with writing(api, FakeClock()) as writer:
        writer.set_annotation("progress", "1")
        await writer.wait_written()
        writer.set_annotation("progress", "2")
        await writer.wait_written()
    assert api.stored_pod("p")["metadata"]["annotations"] == {"progress": "2"}
    assert len(api.status_history("p")) == 1


class Guarded(NodeApi):
    """An API in which the node may write statuses only."""

    async def send(self, request: Request, *, timeout: timedelta | None = None) -> Response:
        if request.method == "PATCH" and not request.path.endswith("/status"):
            body = {"kind": "Status", "message": "not for nodes", "reason": "Forbidden", "code": 403}
            return Response(403, msgspec.json.encode(body))
        return await super().send(request, timeout=timeout)


async def test_a_node_that_may_not_annotate_still_writes_the_status() -> None:
    api = Guarded()
    async with writing(api, FakeClock()) as writer:
        writer.set_annotation("progress", "1")
        writer.set_status(status("Running"))
        await writer.wait_written()
    assert api.stored_pod("p")["status"]["phase"] == "Running"
    assert "annotations" not in api.stored_pod("p")["metadata"]


async def test_a_lost_node_is_unknown_and_takes_nobody_until_it_is_back() -> None:
    api, clock = NodeApi(), FakeClock()
    registration = NodeRegistration(api.client(clock), {"cpu": Quantity.of("2")}, NodeSettings(), clock)

    def ready() -> str:
        conditions = api.objects["nodes", "", "local"]["status"]["conditions"]
        status: str = next(condition["status"] for condition in conditions if condition["type"] == "Ready")
        return status

    def taints() -> set[str]:
        spec = api.objects["nodes", "", "local"]["spec"]
        return {taint["key"] for taint in spec.get("taints") or ()}

    async with asyncio.TaskGroup() as group:
        task = group.create_task(registration.run())
        await settle()
        renewed = api.objects["leases", "kube-node-lease", "local"]["spec"]["renewTime"]
        registration.mark_lost(timedelta(seconds=25))
        await settle()
        assert (ready(), taints()) == ("Unknown", {UNREACHABLE_TAINT})
        await clock.advance(timedelta(seconds=20))
        assert api.objects["leases", "kube-node-lease", "local"]["spec"]["renewTime"] == renewed
        await clock.advance(timedelta(seconds=6))
        assert (ready(), taints()) == ("True", set())
        assert api.objects["leases", "kube-node-lease", "local"]["spec"]["renewTime"] > renewed
        task.cancel()


def test_containers_of_an_engine_are_linux_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    assert node_body("local")["metadata"]["labels"]["kubernetes.io/os"] == "darwin"
    assert node_body("local", "podman")["metadata"]["labels"]["kubernetes.io/os"] == "linux"
    now = FakeClock().now()
    assert node_status({}, (), now)["nodeInfo"]["operatingSystem"] == "darwin"
    assert node_status({}, (), now, "docker")["nodeInfo"]["operatingSystem"] == "linux"
