"""Namespaces: the initial ones, and the default objects of each."""

from pathlib import Path

from gangline.api.meta import JSON, Key
from gangline.apiserver.registry.registry import Registry
from gangline.apiserver.registry.storage import decode_record, storage_path
from gangline.apiserver.registry.writes import WriteContext
from gangline.apiserver.store.paths import collection_prefix, object_path, split_path
from gangline.apiserver.store.records import StoreEvent
from gangline.base.clock import Clock
from gangline.local.controllers.key_worker import KeyWorker
from gangline.local.registry_writes import edit_object, ignore_status, storage_kind

NAMESPACE_CONTROLLER_CALL = WriteContext(field_manager="kube-controller-manager")
INITIAL_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
ROOT_CA = "kube-root-ca.crt"
ROOT_CA_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints "
    "such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across "
    "distributions of Kubernetes clusters."
)
AUTHENTICATION_CONFIG = "extension-apiserver-authentication"
"""The ConfigMap in kube-system by which other servers know the users that this server passes on to them."""
LEGACY_TRACKING = "kube-apiserver-legacy-service-account-token-tracking"
"""The ConfigMap in kube-system that says since when the use of old tokens is recorded."""
PROXY_CLIENT = "front-proxy-client"
"""The common name of the certificate with which it passes them on."""
DEFAULT_OBJECTS = (("", "serviceaccounts", "default"), ("", "configmaps", ROOT_CA))
"""Objects that every namespace has: group, plural, name."""


def authentication_config(bundle: str) -> JSON:
    """How other servers recognise this one, and the users that it names in headers."""
    headers = {"username": "X-Remote-User", "group": "X-Remote-Group", "uid": "X-Remote-Uid"}
    return {
        "client-ca-file": bundle,
        "requestheader-client-ca-file": bundle,
        "requestheader-allowed-names": f'["{PROXY_CLIENT}"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
        **{f"requestheader-{name}-headers": f'["{header}"]' for name, header in headers.items()},
    }


class NamespaceController:
    """Creates the initial namespaces, and the default objects of each."""

    def __init__(self, registry: Registry, clock: Clock, ca: Path | None = None) -> None:
        self._registry, self._ca = registry, ca
        self._worker = KeyWorker("creation of a namespace's default objects", self._reconcile, clock)

    async def create_initial(self) -> None:
        """Create the namespaces that every cluster has. Idempotent."""
        for name in INITIAL_NAMESPACES:
            if self._registry.store.has(object_path("", "namespaces", "", name)):
                continue  # nothing that admits new namespaces is to delay a start
            await self._ensure_object("namespaces", "", {"metadata": {"name": name}})

    async def run(self) -> None:
        """Reconcile namespaces until cancelled."""
        store = self._registry.store
        snapshot = store.range(collection_prefix("", "namespaces"))
        with store.watch("", after=store.revision) as changes:
            for record in snapshot.records:
                self._worker.add(split_path(record.path).name)
            await self._worker.follow(changes, self._handle_event)

    def _handle_event(self, event: StoreEvent) -> None:
        path = split_path(event.record.path)
        if (path.group, path.plural) == ("", "namespaces"):
            self._worker.add(path.name)
        elif (path.group, path.plural, path.name) in DEFAULT_OBJECTS:
            self._worker.add(path.namespace)

    async def _reconcile(self, name: str) -> None:
        """Create the default objects of a namespace that are missing, and restore those that were edited."""
        kind = storage_kind(self._registry, "", "namespaces")
        record = self._registry.store.get(storage_path(kind, Key("", name)))
        if record is None or decode_record(record)["metadata"].get("deletionTimestamp"):
            return
        await self._ensure_object("serviceaccounts", name, {"metadata": {"name": "default"}})
        if self._ca is not None:
            bundle = self._ca.read_text()
            await self._publish(name, ROOT_CA, {"ca.crt": bundle}, {"kubernetes.io/description": ROOT_CA_DESCRIPTION})
            if name == "kube-system":
                await self._publish(name, AUTHENTICATION_CONFIG, authentication_config(bundle))
        if name == "kube-system" and not self._registry.store.has(object_path("", "configmaps", name, LEGACY_TRACKING)):
            since = {"since": self._registry.timestamp()[:10]}
            await self._ensure_object("configmaps", name, {"metadata": {"name": LEGACY_TRACKING}, "data": since})

    async def publish_ca(self) -> None:
        """Bring the CA bundle in every namespace up to date."""
        for record in self._registry.store.range(collection_prefix("", "namespaces")).records:
            self._worker.add(split_path(record.path).name)

    async def _publish(self, namespace: str, name: str, data: JSON, annotations: JSON | None = None) -> None:
        """Create a ConfigMap, or bring its data up to date."""
        kind, key = storage_kind(self._registry, "", "configmaps"), Key(namespace, name)
        record = self._registry.store.get(storage_path(kind, key))
        if record is None:
            metadata: JSON = {"name": name, **({"annotations": annotations} if annotations else {})}
            await self._ensure_object("configmaps", namespace, {"metadata": metadata, "data": data})
            return
        published = decode_record(record)
        if published.get("data") != data:
            uid = published["metadata"]["uid"]
            with ignore_status(404):
                await edit_object(
                    self._registry, NAMESPACE_CONTROLLER_CALL, kind, key, uid, lambda old: old.update(data=data)
                )

    async def _ensure_object(self, plural: str, namespace: str, body: JSON) -> None:
        kind = storage_kind(self._registry, "", plural)
        with ignore_status(409, 403, 404):  # it exists, or its namespace is being deleted
            await self._registry.create(NAMESPACE_CONTROLLER_CALL, kind, namespace, body)
