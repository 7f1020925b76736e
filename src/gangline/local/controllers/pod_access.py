"""What pods of a local cluster may do with their own token: a role that is bound in every namespace.

Programs in pods read and write jobs, pods, logs and configuration of their own namespace. In Kubernetes an
administrator grants that; here the plane does, because whoever starts pods on this machine runs programs on it.
"""

from gangline.api.meta import JSON
from gangline.apiserver.auth.role_index import RBAC_GROUP
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.writes import WriteContext
from gangline.apiserver.store.paths import collection_prefix, split_path
from gangline.apiserver.store.records import StoreEvent
from gangline.apiserver.users import service_account_groups
from gangline.base.clock import Clock
from gangline.local.controllers.key_worker import KeyWorker
from gangline.local.registry_writes import ignore_status, storage_kind

POD_ACCESS_CALL = WriteContext(field_manager="gangline")
POD_ROLE = "gangline:pods"
_READ, _WRITE = ("get", "list", "watch"), ("create", "update", "patch", "delete")
POD_RULES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("kubeflow.org", ("*",), (*_READ, *_WRITE)),
    ("batch", ("jobs", "jobs/status"), (*_READ, *_WRITE)),
    ("", ("pods", "pods/status", "services", "configmaps", "events"), (*_READ, *_WRITE)),
    ("", ("persistentvolumeclaims",), (*_READ, "create", "delete")),
    ("", ("pods/log",), ("get",)),
    ("", ("pods/exec", "pods/portforward"), ("get", "create")),
    ("events.k8s.io", ("events",), (*_READ, "create", "patch")),
    ("coordination.k8s.io", ("leases",), (*_READ, *_WRITE)),
    ("scheduling.gangline.dev", ("*",), _READ),
    ("scheduling.x-k8s.io", ("podgroups",), _READ),
)
"""Group, resources and verbs. No Secrets, no roles, nothing outside the namespace."""


def pod_role() -> JSON:
    """The ClusterRole of pods."""
    rules = [
        {"apiGroups": [group], "resources": list(resources), "verbs": list(verbs)}
        for group, resources, verbs in POD_RULES
    ]
    return {"metadata": {"name": POD_ROLE}, "rules": rules}


def pod_role_binding(namespace: str) -> JSON:
    """The RoleBinding for all service accounts of a namespace."""
    group = service_account_groups(namespace)[1]
    return {
        "metadata": {"name": POD_ROLE, "namespace": namespace},
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": POD_ROLE},
        "subjects": [{"apiGroup": RBAC_GROUP, "kind": "Group", "name": group}],
    }


class PodAccessController:
    """Creates the role, and its binding in every namespace when the namespace is created.

    Whoever deletes a binding withdraws the access of that namespace until the next start.
    """

    def __init__(self, registry: Registry, clock: Clock) -> None:
        self._registry = registry
        self._worker = KeyWorker("binding of the role of pods", self._bind, clock)

    async def ensure_role(self) -> None:
        """Create the role, and bind it in the namespaces that exist. Idempotent."""
        kind = storage_kind(self._registry, RBAC_GROUP, "clusterroles")
        with ignore_status(409):
            await self._registry.create(POD_ACCESS_CALL, kind, "", pod_role())
        for record in self._registry.store.range(collection_prefix("", "namespaces")).records:
            await self._bind(split_path(record.path).name)

    async def run(self) -> None:
        """Bind the role in new namespaces until cancelled."""
        store = self._registry.store
        with store.watch(collection_prefix("", "namespaces"), after=store.revision) as changes:
            await self._worker.follow(changes, self._handle_event)

    def _handle_event(self, event: StoreEvent) -> None:
        if event.previous is None and not event.deleted:
            self._worker.add(split_path(event.record.path).name)

    async def _bind(self, namespace: str) -> None:
        kind = storage_kind(self._registry, RBAC_GROUP, "rolebindings")
        with ignore_status(409, 403, 404):  # it exists, or its namespace is being deleted
            await self._registry.create(POD_ACCESS_CALL, kind, namespace, pod_role_binding(namespace))
