"""The Service under which an API server is known inside its own cluster: `kubernetes` in `default`."""

from gangline.api.meta import JSON
from gangline.apiserver.errors import Refused
from gangline.apiserver.registry.registry import Call, Registry

CALL = Call(manager="kube-apiserver")
NAMESPACE, NAME, ADDRESS = "default", "kubernetes", "10.96.0.1"


async def make_api_service(registry: Registry, port: int) -> None:
    """Make it, if it is missing. Idempotent. Without a selector: nothing but names lead to it here."""
    entry = registry.catalog.stored("", "services")
    assert entry is not None
    labels = {"component": "apiserver", "provider": "kubernetes"}
    ports = [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}]
    body: JSON = {
        "metadata": {"name": NAME, "labels": labels},
        "spec": {"clusterIP": ADDRESS, "ports": ports, "sessionAffinity": "None", "type": "ClusterIP"},
    }
    try:
        await registry.create(CALL, entry, NAMESPACE, body)
    except Refused as refusal:
        if refusal.code != 409:
            raise
