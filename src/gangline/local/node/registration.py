"""The node in the API: a Node object, its status, and a Lease that says it is alive."""

import logging
import platform
from collections.abc import Mapping
from datetime import datetime

import msgspec

from gangline import __version__
from gangline.api.core import Lease, Node
from gangline.api.meta import JSON, Condition, Key
from gangline.api.quantity import Quantity
from gangline.base.clock import Clock
from gangline.base.tasks import every
from gangline.kube.client import Client
from gangline.kube.errors import AlreadyExists, KubeError, NotFound
from gangline.local.node.settings import NodeSettings
from gangline.local.node.status import HOST, stamp

log = logging.getLogger(__name__)

NAMESPACE = "kube-node-lease"
LEASE_SECONDS = 40
NOT_READY = "node.kubernetes.io/not-ready"
CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "gangline runs pods as processes"),
)


def node_body(name: str) -> JSON:
    """The Node, as it is created."""
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": platform.system().lower(),
        "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(
            platform.machine(), platform.machine()
        ),
    }
    return {"metadata": {"name": name, "labels": labels}, "spec": {}}


def node_status(
    capacity: Mapping[str, Quantity], before: tuple[Condition, ...], now: datetime, name: str
) -> JSON:
    """Its status. Transition times are kept while nothing changes."""
    since = {each.type: each.last_transition_time for each in before if _says(each)}
    amounts = {resource: str(amount) for resource, amount in capacity.items()}
    return {
        "capacity": amounts,
        "allocatable": amounts,
        # A kube-apiserver asks the Hostname first, so it must lead here too: a node's name need not resolve.
        "addresses": [{"type": "InternalIP", "address": HOST}, {"type": "Hostname", "address": HOST}],
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": stamp(now),
                "lastTransitionTime": stamp(since.get(kind) or now),
            }
            for kind, status, reason, message in CONDITIONS
        ],
        "nodeInfo": {
            "architecture": platform.machine(),
            "operatingSystem": platform.system().lower(),
            "kernelVersion": platform.release(),
            "osImage": platform.platform(),
            "containerRuntimeVersion": f"process://{__version__}",
            "kubeletVersion": f"v1.34.0+gangline-{__version__}",
            "kubeProxyVersion": "",
            "machineID": "",
            "systemUUID": "",
            "bootID": "",
        },
    }


def _says(condition: Condition) -> bool:
    return any(kind == condition.type and status == condition.status for kind, status, _, _ in CONDITIONS)


class Registration:
    """Keeps the Node and its Lease. Errors of the API are logged and tried again; they never stop the node."""

    def __init__(
        self, client: Client, capacity: Mapping[str, Quantity], settings: NodeSettings, clock: Clock
    ) -> None:
        self._client, self._capacity, self._settings, self._clock = client, capacity, settings, clock
        self._key, self._lease = Key("", settings.name), Key(NAMESPACE, settings.name)
        self._written_at: float | None = None
        self._uid = ""

    async def run(self) -> None:
        """Until cancelled."""
        await every(self._settings.lease_period, self.beat, self._clock)

    async def beat(self) -> None:
        """Renew the Lease; write the Node's status when it is due."""
        try:
            if self._due():
                await self._register()
            await self._renew()
        except KubeError as error:
            self._written_at = None
            log.warning("node not reported, will retry", extra={"node": self._key.name, "error": str(error)})

    def _due(self) -> bool:
        period = self._settings.status_period.total_seconds()
        return self._written_at is None or self._clock.monotonic() - self._written_at >= period

    async def _register(self) -> None:
        try:
            node = await self._client.get(Node, self._key)
        except NotFound:
            try:
                node = await self._client.create(Node, node_body(self._key.name))
            except AlreadyExists:
                node = await self._client.get(Node, self._key)
        self._uid = node.metadata.uid
        status = node_status(self._capacity, node.status.conditions, self._clock.now(), self._key.name)
        if self._settings.kubelet_port:
            status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": self._settings.kubelet_port}}
        node = await self._client.patch(Node, self._key, {"status": status}, subresource="status")
        await self._untaint(node)
        self._written_at = self._clock.monotonic()

    async def _untaint(self, node: Node) -> None:
        """Every node is born tainted; in a whole cluster a controller takes that away once the node is ready."""
        kept = [taint for taint in node.spec.taints if taint.key != NOT_READY]
        if len(kept) == len(node.spec.taints):
            return
        body: JSON = {"spec": {"taints": msgspec.to_builtins(kept) or None}}
        # Guarded, so that a taint that somebody else sets meanwhile is not lost.
        await self._client.patch(Node, self._key, body, resource_version=node.metadata.resource_version)

    async def _renew(self) -> None:
        renewed = self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {
            "holderIdentity": self._key.name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": renewed,
        }
        try:
            await self._client.patch(Lease, self._lease, {"spec": spec})
        except NotFound:
            owner = {"apiVersion": "v1", "kind": "Node", "name": self._key.name, "uid": self._uid}
            metadata = {"name": self._lease.name, "namespace": NAMESPACE, "ownerReferences": [owner]}
            await self._client.create(Lease, {"metadata": metadata, "spec": spec})
