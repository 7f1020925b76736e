"""The Service under which an API server is known inside its own cluster: `kubernetes` in `default`."""

from gangline.api.meta import JSON
from gangline.apiserver.errors import StatusError
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.writes import WriteContext

API_SERVER_CALL = WriteContext(field_manager="kube-apiserver")
SERVICE_NAMESPACE, SERVICE_NAME, SERVICE_IP = "default", "kubernetes", "10.96.0.1"


async def ensure_api_service(registry: Registry, port: int) -> None:
    """Make it, if it is missing. Idempotent. Without a selector: nothing but names lead to it here."""
    entry = registry.catalog.storage_kind("", "services")
    assert entry is not None
    labels = {"component": "apiserver", "provider": "kubernetes"}
    ports = [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]
    body: JSON = {
        "metadata": {"name": SERVICE_NAME, "labels": labels},
        "spec": {"clusterIP": SERVICE_IP, "ports": ports, "sessionAffinity": "None", "type": "ClusterIP"},
    }
    try:
        await registry.create(API_SERVER_CALL, entry, SERVICE_NAMESPACE, body)
    except StatusError as refusal:
        if refusal.code != 409:
            raise


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


async def ensure_system_classes(registry: Registry) -> None:
    """Make those that are missing. Idempotent."""
    entry = registry.catalog.storage_kind("scheduling.k8s.io", "priorityclasses")
    assert entry is not None
    for name, value, description in SYSTEM_CLASSES:
        body: JSON = {"metadata": {"name": name}, "value": value, "description": description}
        try:
            await registry.create(API_SERVER_CALL, entry, "", body)
        except StatusError as refusal:
            if refusal.code != 409:
                raise
