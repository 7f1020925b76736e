"""Objects that every API server creates at its start: its own Service and the system priority classes."""

from functools import partial
from ipaddress import IPv4Network, ip_address

from gangline.api.meta import JSON, Key
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.service_allocator import SERVICE_CIDR
from gangline.apiserver.registry.writes import WriteContext
from gangline.local.registry_writes import ignore_status, storage_kind

API_SERVER_CALL = WriteContext(field_manager="kube-apiserver")
SERVICE_NAMESPACE, SERVICE_NAME = "default", "kubernetes"
SYSTEM_CLASSES: tuple[tuple[str, int, str], ...] = (
    (
        "system-node-critical",
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
    (
        "system-cluster-critical",
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
)


async def ensure_api_service(registry: Registry, port: int, service_cidr: str = SERVICE_CIDR) -> None:
    """Create the Service `kubernetes` in `default` if it is missing, with the first address of the range. Idempotent.

    It has no selector: here it only gives the API server its name.
    """
    labels = {"component": "apiserver", "provider": "kubernetes"}
    ports = [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]
    body: JSON = {
        "metadata": {"name": SERVICE_NAME, "labels": labels},
        "spec": {
            "clusterIP": first_address(service_cidr),
            "ports": ports,
            "sessionAffinity": "None",
            "type": "ClusterIP",
        },
    }
    with ignore_status(409):
        await registry.create(API_SERVER_CALL, storage_kind(registry, "", "services"), SERVICE_NAMESPACE, body)


async def publish_api_endpoints(registry: Registry, host: str, port: int) -> None:
    """Let kube-proxy send what pods send to the Service `kubernetes` to this address. Replaces an earlier one."""
    metadata: JSON = {"name": SERVICE_NAME, "namespace": SERVICE_NAMESPACE}
    ports = [{"name": "https", "port": port, "protocol": "TCP"}]
    subsets = [{"addresses": [{"ip": host}], "ports": ports}]
    endpoints: JSON = {
        "metadata": {**metadata, "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
        "subsets": subsets,
    }
    endpoint_slice: JSON = {
        "metadata": {**metadata, "labels": {"kubernetes.io/service-name": SERVICE_NAME}},
        "addressType": f"IPv{ip_address(host).version}",
        "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
        "ports": ports,
    }
    for group, plural, body in (("", "endpoints", endpoints), ("discovery.k8s.io", "endpointslices", endpoint_slice)):
        kind = storage_kind(registry, group, plural)
        written = partial(_with_own_metadata, body)
        await registry.update(API_SERVER_CALL, kind, Key(SERVICE_NAMESPACE, SERVICE_NAME), written, upsert=True)


def _with_own_metadata(body: JSON, _: JSON | None) -> JSON:
    return {**body, "metadata": dict(body["metadata"])}


def first_address(cidr: str) -> str:
    """The first address of a range that can be given out."""
    return str(IPv4Network(cidr).network_address + 1)


async def ensure_system_classes(registry: Registry) -> None:
    """Create the system priority classes that are missing. Idempotent."""
    kind = storage_kind(registry, "scheduling.k8s.io", "priorityclasses")
    for name, value, description in SYSTEM_CLASSES:
        body: JSON = {"metadata": {"name": name}, "value": value, "description": description}
        with ignore_status(409):
            await registry.create(API_SERVER_CALL, kind, "", body)
