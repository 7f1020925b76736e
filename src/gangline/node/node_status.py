"""The node in the API: a Node object, its status, and a Lease as heartbeat."""

import asyncio
import logging
import platform
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from gangline import __version__
from gangline.api.core import KUBERNETES_VERSION, Lease, Node
from gangline.api.meta import JSON, Condition, Key, timestamp
from gangline.api.quantity import Quantity
from gangline.base.clock import Clock
from gangline.kube.client import Client
from gangline.kube.errors import AlreadyExists, KubeError, NotFound
from gangline.node.devices.gpus import AMD, NVIDIA, Gpu
from gangline.node.environment import HOST_IP
from gangline.node.settings import ENGINES, PROCESS_RUNTIME, NodeSettings

log = logging.getLogger(__name__)

PRODUCT_LABELS = {NVIDIA: "nvidia.com/gpu.product", AMD: "amd.com/gpu.product-name"}
LEASE_NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
NOT_READY_TAINT, UNREACHABLE_TAINT = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
LOST_CONDITION = ("NodeStatusUnknown", "Kubelet stopped posting node status.")
"""Reason and message that a cluster's node controller gives a node without heartbeat."""
READY_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "gangline runs pods as processes"),
)


def operating_system(runtime: str) -> str:
    """The system that containers see. Those of a container engine are always Linux's; on macOS it has a machine."""
    return "linux" if runtime in ENGINES else platform.system().lower()


def gpu_labels(gpus: Iterable[Gpu]) -> dict[str, str]:
    """The product of each vendor's GPUs, in the labels of NVIDIA's and AMD's own discovery."""
    labels: dict[str, str] = {}
    for gpu in gpus:
        if gpu.vendor in PRODUCT_LABELS:
            product = re.sub(r"[^A-Za-z0-9_.-]+", "-", gpu.name)[:63].strip("-_.")
            labels.setdefault(PRODUCT_LABELS[gpu.vendor], product)
    return labels


def node_body(name: str, runtime: str = PROCESS_RUNTIME, gpus: Iterable[Gpu] = ()) -> JSON:
    """The Node object to create."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": operating_system(runtime),
        "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        **gpu_labels(gpus),
    }
    return {"metadata": {"name": name, "labels": labels}, "spec": {}}


def node_status(
    capacity: Mapping[str, Quantity], before: tuple[Condition, ...], now: datetime, runtime: str = PROCESS_RUNTIME
) -> JSON:
    """The status of a ready node. The transition time of an unchanged condition is kept."""
    amounts = {resource: str(amount) for resource, amount in capacity.items()}
    return {
        "capacity": amounts,
        "allocatable": amounts,
        # A kube-apiserver dials the Hostname first. The node's name need not resolve, so Hostname is an address too.
        "addresses": [{"type": "InternalIP", "address": HOST_IP}, {"type": "Hostname", "address": HOST_IP}],
        "conditions": _condition_bodies(READY_CONDITIONS, before, now),
        "nodeInfo": {
            "architecture": platform.machine(),
            "operatingSystem": operating_system(runtime),
            "kernelVersion": platform.release(),
            "osImage": platform.platform(),
            "containerRuntimeVersion": f"process://{__version__}",
            "kubeletVersion": f"v{KUBERNETES_VERSION}+gangline-{__version__}",
            "kubeProxyVersion": "",
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
        },
    }


def lost_conditions(before: tuple[Condition, ...], now: datetime) -> list[JSON]:
    """The conditions of a node without heartbeat, as a cluster's node controller writes them."""
    return _condition_bodies([(type_, "Unknown", *LOST_CONDITION) for type_, _, _, _ in READY_CONDITIONS], before, now)


def _condition_bodies(
    conditions: Iterable[tuple[str, str, str, str]], before: tuple[Condition, ...], now: datetime
) -> list[JSON]:
    """Conditions (type, status, reason, message) in wire form, with the transition time of an unchanged status."""
    since = {(condition.type, condition.status): condition.last_transition_time for condition in before}
    return [
        {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": timestamp(now),
            "lastTransitionTime": timestamp(since.get((type_, status)) or now),
        }
        for type_, status, reason, message in conditions
    ]


class NodeRegistration:
    """Keeps the Node and its Lease current. Errors of the API are logged and retried; they never stop the node."""

    def __init__(self, client: Client, capacity: Mapping[str, Quantity], settings: NodeSettings, clock: Clock) -> None:
        self._client, self._capacity, self._settings, self._clock = client, capacity, settings, clock
        self._key, self._lease = Key("", settings.name), Key(LEASE_NAMESPACE, settings.name)
        self._status_written_at: float | None = None
        self._uid = ""
        # Until when the node is reported as lost, and whether the API has that status.
        self._lost_until, self._lost_written = float("-inf"), False
        self._wakeup = asyncio.Event()

    async def run(self) -> None:
        """Send heartbeats until cancelled."""
        while True:
            self._wakeup.clear()
            await self.heartbeat()
            await self._wait_for_heartbeat()

    def mark_lost(self, duration: timedelta) -> None:
        """Report the node as lost for this long, so that no pod is placed here. For drills."""
        self._lost_until = max(self._lost_until, self._clock.monotonic() + duration.total_seconds())
        self._lost_written = False
        self._wakeup.set()

    async def _wait_for_heartbeat(self) -> None:
        lost_for = timedelta(seconds=max(0.0, self._lost_until - self._clock.monotonic()))
        period = min(lost_for, self._settings.lease_period) if lost_for else self._settings.lease_period
        timer = self._clock.call_later(period, self._wakeup.set)
        try:
            await self._wakeup.wait()
        finally:
            timer.cancel()

    async def heartbeat(self) -> None:
        """Renew the Lease, and write the Node's status when it is due. A lost node reports only its loss."""
        try:
            if self._clock.monotonic() < self._lost_until:
                if not self._lost_written:
                    await self._write_lost()
                self._lost_written, self._status_written_at = True, None
                return
            if self._is_status_due():
                await self._register()
            await self._renew_lease()
        except KubeError as error:
            self._status_written_at = None
            log.warning("node not reported, will retry", extra={"node": self._key.name, "error": str(error)})

    def _is_status_due(self) -> bool:
        period = self._settings.status_period.total_seconds()
        return self._status_written_at is None or self._clock.monotonic() - self._status_written_at >= period

    async def _register(self) -> None:
        try:
            node = await self._client.get(Node, self._key)
        except NotFound:
            try:
                node = await self._client.create(
                    Node, node_body(self._key.name, self._settings.runtime, self._settings.gpus)
                )
            except AlreadyExists:
                node = await self._client.get(Node, self._key)
        self._uid = node.metadata.uid
        labels = gpu_labels(self._settings.gpus)
        # A node of an earlier run may have had other GPUs.
        if not labels.items() <= node.metadata.labels.items():
            await self._client.patch(Node, self._key, {"metadata": {"labels": labels}})
        status = node_status(self._capacity, node.status.conditions, self._clock.now(), self._settings.runtime)
        if self._settings.kubelet_port:
            status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": self._settings.kubelet_port}}
        node = await self._client.patch(Node, self._key, {"status": status}, subresource="status")
        await self._remove_taints(node)
        self._status_written_at = self._clock.monotonic()

    async def _write_lost(self) -> None:
        """Report the node as lost, as a cluster's controllers do: unknown conditions, and taints against all pods."""
        node = await self._client.get(Node, self._key)
        conditions = lost_conditions(node.status.conditions, self._clock.now())
        await self._client.patch(Node, self._key, {"status": {"conditions": conditions}}, subresource="status")
        taints = [{"key": UNREACHABLE_TAINT, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
        other_taints = [taint for taint in node.spec.taints if taint.key != UNREACHABLE_TAINT]
        await self._client.patch(Node, self._key, {"spec": {"taints": [*msgspec.to_builtins(other_taints), *taints]}})

    async def _remove_taints(self, node: Node) -> None:
        """Remove the taints of a node that is not ready. In a cluster a controller does that."""
        taints = [taint for taint in node.spec.taints if taint.key not in (NOT_READY_TAINT, UNREACHABLE_TAINT)]
        if len(taints) == len(node.spec.taints):
            return
        body: JSON = {"spec": {"taints": msgspec.to_builtins(taints) or None}}
        # Guarded by the version, so that a taint that another client sets meanwhile is not lost.
        await self._client.patch(Node, self._key, body, resource_version=node.metadata.resource_version)

    async def _renew_lease(self) -> None:
        renewed = self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": self._key.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": renewed}
        try:
            await self._client.patch(Lease, self._lease, {"spec": spec})
        except NotFound:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self._key.name, "uid": self._uid}
            metadata = {"name": self._lease.name, "namespace": LEASE_NAMESPACE, "ownerReferences": [owner]}
            await self._client.create(Lease, {"metadata": metadata, "spec": spec})
