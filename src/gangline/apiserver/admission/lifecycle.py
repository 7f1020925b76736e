"""New objects are refused in namespaces and kinds that are being deleted."""

from gangline.api.meta import JSON
from gangline.apiserver import errors as apierrors
from gangline.apiserver.registry.admission import AdmissionPlugin, AdmissionRequest
from gangline.apiserver.registry.catalog import Catalog
from gangline.apiserver.registry.storage import decode_record
from gangline.apiserver.store.paths import object_path
from gangline.apiserver.store.store import Store

CRD_RESOURCE = ("apiextensions.k8s.io", "customresourcedefinitions")
CRD_TERMINATING_MESSAGE = "create not allowed while custom resource definition is terminating"


class NamespaceLifecycle(AdmissionPlugin):
    """Refuses objects in a namespace that does not exist or is being deleted."""

    name = "NamespaceLifecycle"
    subresources = frozenset({"", "binding", "eviction", "token"})

    def __init__(self, store: Store, catalog: Catalog) -> None:
        self._store, self._catalog = store, catalog

    def admit(self, request: AdmissionRequest) -> None:
        if request.served_kind.resource.namespaced:
            self._check_namespace_active(request)

    def _check_namespace_active(self, request: AdmissionRequest) -> None:
        namespace = request.key.namespace
        namespaces = self._catalog.storage_kind("", "namespaces")
        assert namespaces is not None
        record = self._store.get(object_path("", "namespaces", "", namespace))
        if record is None:
            raise apierrors.not_found(namespaces.resource, namespace)
        if b'"Terminating"' in record.data and decode_record(record)["status"].get("phase") == "Terminating":
            raise apierrors.namespace_terminating(request.served_kind.resource, request.sent_name, namespace)


class CustomResourceLifecycle(AdmissionPlugin):
    """Refuses objects of a custom kind whose definition is being deleted. In kube-apiserver it is no plugin."""

    name = "CustomResourceLifecycle"

    def __init__(self, store: Store) -> None:
        self._store = store
        # Definitions are large. By path: the revision that was decoded, and its metadata.
        self._decoded: dict[str, tuple[int, JSON]] = {}

    def admit(self, request: AdmissionRequest) -> None:
        if not request.served_kind.custom:
            return
        resource = request.served_kind.resource
        metadata = self._crd_metadata(object_path(*CRD_RESOURCE, "", resource.qualified_name))
        if metadata.get("uid") != request.served_kind.crd_uid:
            # The definition was deleted since the request arrived; one that has its name by now may differ.
            raise apierrors.no_such_resource()
        if "deletionTimestamp" in metadata:
            # kube-apiserver reads the name without the prefix of one that is to be generated.
            name = "" if request.name_prefix else request.key.name
            raise apierrors.forbidden(resource, name, CRD_TERMINATING_MESSAGE)

    def _crd_metadata(self, path: str) -> JSON:
        """The metadata of the stored definition; empty if there is none."""
        record = self._store.get(path)
        if record is None:
            self._decoded.pop(path, None)
            return {}
        revision, metadata = self._decoded.get(path, (0, {}))
        if revision != record.revision:
            metadata = decode_record(record)["metadata"]
            self._decoded[path] = record.revision, metadata
        return metadata
