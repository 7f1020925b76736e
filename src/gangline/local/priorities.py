"""The priority classes that every cluster has."""

from gangline.api.meta import JSON
from gangline.apiserver.errors import StatusError
from gangline.apiserver.registry.registry import Registry, WriteContext

API_SERVER_CALL = WriteContext(field_manager="kube-apiserver")
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
